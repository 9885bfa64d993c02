"""How captures are told: the row of each, what was passed over, the summary's block, and that there are few examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from querist.features.captured import Capture

__all__ = ["POWER_IS_LOW", "capture_block", "capture_row", "few_examples", "peak", "unread_rows"]

POWER_IS_LOW = 100
"""Examples below which a difference must be large to be seen."""


def capture_row(captured: Capture, seconds: float, **of: Any) -> dict[str, Any]:
    """A row of the table `captures`; of: its network, data and place."""
    return {
        **of,
        "n": captured.n,
        "ids_hash": captured.ids_hash,
        "found": captured.health.found,
        "captured": captured.health.captured,
        "notes": list(captured.notes),
        "bytes_bound": captured.bytes_bound,
        "bytes_peak": captured.bytes_peak,
        "seconds": seconds,
    }


def unread_rows(captured: Capture, model: str, data: str) -> list[dict[str, str]]:
    """Layers that were passed over and examples of `data` that could not be read, with their reasons."""
    rows = [{"model": model, "what": one.what, "reason": one.reason} for one in captured.passed_over]
    return rows + [{"model": model, "what": f"{one.what} of {data}", "reason": one.reason} for one in captured.unread]


def peak(captures: Sequence[Capture]) -> int | None:
    """The most bytes that any capture took; None where none was measured."""
    return max((one.bytes_peak for one in captures if one.bytes_peak is not None), default=None)


def capture_block(captures: pl.DataFrame, *, reduction: str, normalise: str = "iso") -> dict[str, Any]:
    """The summary's key `capture`; examples are those of the first row, memory that of all."""
    first = captures.row(0, named=True)
    return {
        "n": first["n"],
        "reduction": reduction,
        "normalise": normalise,
        "ids_hash": first["ids_hash"],
        "bytes_bound": captures["bytes_bound"].max(),
        "bytes_peak": captures["bytes_peak"].max(),
    }


def few_examples(n: int) -> list[str]:
    """A warning where they are few."""
    return (
        []
        if n >= POWER_IS_LOW
        else [f"{n} examples are few: below {POWER_IS_LOW} a difference must be large to be seen."]
    )
