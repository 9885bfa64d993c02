"""Which tensors are wanted, and the error that says why none was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from querist.errors import BadOption, UnknownName

__all__ = ["Selection", "nothing_selected"]

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Selection:
    """Glob patterns on tensor names: wanted is what matches one of `include` and none of `exclude`."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, include: str | Sequence[str] = "*", exclude: str | Sequence[str] = ()) -> Selection:
        """From patterns: one text, several, or comma lists. An empty include means every tensor.

        >>> Selection.of("encoder.*,*.weight", "*.bias")
        Selection(include=('encoder.*', '*.weight'), exclude=('*.bias',))
        """
        return cls(_patterns(include, "include") or ("*",), _patterns(exclude, "exclude"))

    def reason(self, name: str) -> str | None:
        """Why a tensor of this name is left out, or None where it is wanted."""
        if not any(fnmatchcase(name, pattern) for pattern in self.include):
            return f"not among --include {','.join(self.include)}"
        for pattern in self.exclude:
            if fnmatchcase(name, pattern):
                return f"left out by --exclude {pattern}"
        return None


def _patterns(given: Any, what: str) -> tuple[str, ...]:
    texts: list[Any] = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise BadOption(
            f"The option {what} cannot be this", value=given, allowed="a pattern such as encoder.*, or several"
        )
    return tuple(part for text in texts for part in (piece.strip() for piece in text.split(",")) if part)


def nothing_selected(address: str, passed_over: Iterable[Any]) -> UnknownName:
    """The error for a source of which no tensor is left: each with its reason, the first 20.

    `passed_over` holds rows with `what` and `reason` (and `shape`, where there is one).
    """
    rows = list(passed_over)
    lines = []
    for row in rows[:SHOWN]:
        shape = getattr(row, "shape", None)
        lines.append(f"{row.what}{' ' + str(list(shape)) if shape is not None else ''}: {row.reason}")
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more")
    return UnknownName(
        "No tensor of this source is left to work on",
        value=address,
        allowed="names of its tensors. It holds " + "; ".join(lines) if lines else None,
        mend="Change --include, --exclude or --min-side",
    )
