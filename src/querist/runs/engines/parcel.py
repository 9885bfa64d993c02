"""The work of a stage as bytes that other processes read, each of them once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler

from querist.errors import BadOption
from querist.runs.study import Unit
from querist.runs.work import Outcome

__all__ = ["carried_out", "packed", "unpacked"]


def packed(work: Callable[[Unit], Outcome]) -> bytes:
    """The work as bytes. Raises BadOption where the study cannot cross processes."""
    try:
        return bytes(ForkingPickler.dumps(work))
    except Exception as error:
        raise BadOption(
            "This study cannot cross processes",
            value=f"{type(error).__name__}: {error}",
            allowed="engine serial",
            mend="Use engine serial",
        ) from error


_read: tuple[bytes, Callable[[Unit], Outcome]] | None = None


def unpacked(parcel: bytes) -> Callable[[Unit], Outcome]:
    """The work, read once per stage: a study keeps what it has opened."""
    global _read
    if _read is None or _read[0] != parcel:
        # Our own bytes from our own parent, read here and not by the pool, whose workers die of what they cannot read.
        _read = (parcel, ForkingPickler.loads(parcel))  # pyright: ignore[reportAttributeAccessIssue]
    return _read[1]


def carried_out(parcel: bytes, unit: Unit) -> Outcome:
    """One unit's outcome, fit to go back: exceptions stay behind, their words do not."""
    return replace(unpacked(parcel)(unit), cause=None)
