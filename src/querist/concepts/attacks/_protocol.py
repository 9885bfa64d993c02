"""What every report says of its attack before any figure: who could do what, and which rows were counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["protocol"]

EXPECTED = "mode clean keeps the labels of the few rows that it touches, so it is expected to be weak: a low rate there says little"


def protocol(
    modes: Iterable[str],
    *,
    space: str,
    targets: Sequence[Any],
    repeats: int,
    seed: int,
    base: str = "auto",
    strength: str = "quantile",
    sources: Sequence[Any] | None = None,
    arrival: str = "bottleneck",
) -> str:
    """The protocol as text. arrival: "bottleneck" (intervention interface or a tampered feed) or "pixels"."""
    known = [mode for mode in modes if mode != "none"]
    labels = "" if set(known) <= {"clean"} else " and labels"
    of = {
        "auto": "of the target's rows for clean, of the table's for the rest",
        "table": "of the table's rows",
        "target": "of the target's rows",
    }[base]
    way = {
        "bottleneck": "set at the bottleneck, through the intervention interface or a tampered feed",
        "pixels": "made in the picture",
    }[arrival]
    rows = (
        "every class but the target" if sources is None else "classes " + ", ".join(str(source) for source in sources)
    )
    said = [
        f"at training time annotations{labels} can be edited (mode{'s' if len(known) > 1 else ''} {', '.join(known)}), never pictures, "
        "architecture or training",
        f"rates are {of}",
        f"at test time the trigger is {way}, space {space}" + (f", strength {strength}" if space == "logit" else ""),
        f"success is counted on test rows of {rows}",
        f"{_times(len(targets), 'target')}, {_times(repeats, 'repeat')}, seed {seed}",
    ]
    return "; ".join([*said, EXPECTED] if "clean" in known else said) + "."


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
