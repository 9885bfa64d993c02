"""What the processes of a group report: a result, or a failure with its traceback; and which failure was the cause."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from querist.errors import QueristError

__all__ = ["Said", "cause_of", "failure_of"]


@dataclass
class Said:
    """What a process reported: its result, or its failure; `when` orders the reports of a group."""

    rank: int
    when: float
    result: Any = None
    error: BaseException | None = None
    trace: str = ""


def failure_of(rank: int, when: float, error: BaseException) -> bytes:
    """A failure's report, whatever the error: one that cannot be pickled, or not be read again, goes by its words."""
    trace = "".join(traceback.format_exception(error))
    try:
        raw = pickle.dumps(Said(rank, when, error=error.with_traceback(None), trace=trace))
        ForkingPickler.loads(raw)  # pyright: ignore[reportAttributeAccessIssue] - some errors pickle and cannot be read
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps(Said(rank, when, error=plain, trace=trace))
    return raw


def cause_of(said: Iterable[Said], processes: int) -> BaseException:
    """The first failure, to be raised: one of querist's errors as it is, any other as a QueristError; its traceback is a note."""
    first = min((one for one in said if one.error is not None), key=lambda one: one.when)
    error, place = first.error, f"process {first.rank} of {processes}"
    assert error is not None
    if isinstance(error, QueristError):
        error.add_note(f"In {place} of a group.\n{first.trace}")
        return error
    made = QueristError(f"In {place} of a group: {type(error).__name__}: {error}")
    made.add_note(first.trace)
    return made
