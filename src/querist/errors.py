"""Every error class that more than one part of querist raises, with the exit code each one means.

A person's mistake is a `BadInput`: one message that says what is wrong, the offending value, what is allowed and how to
mend it; the command line prints that message without a traceback and exits with 2. Everything else exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "BadInput",
    "BadOption",
    "BadValues",
    "CorruptFile",
    "InvariantBroken",
    "MemoryBound",
    "MissingExtra",
    "NonFinite",
    "NumericalFailure",
    "QueristError",
    "RunBusy",
    "ShapeMismatch",
    "SourceNotFound",
    "TooFewRows",
    "UndefinedMetric",
    "UnknownName",
    "UnsafeFile",
    "UnsupportedFormat",
    "WeightsMismatch",
    "near",
]


class QueristError(Exception):
    """Base of everything querist raises on purpose. `code` is stable; `exit_code` is what the command line returns."""

    code = "error"
    exit_code = 1


class BadInput(QueristError, ValueError):
    """A person's mistake: what is wrong, the value given, what is allowed, how to mend it.

    Parameters
    ----------
    what: the fault in plain words, without a full stop.
    value: the offending value; left out of the message when it is None.
    allowed: what would have been accepted.
    mend: what to do now.
    """

    code = "bad-input"
    exit_code = 2

    def __init__(self, what: str, *, value: Any = None, allowed: str | None = None, mend: str | None = None):
        super().__init__(what)
        self.what, self.value, self.allowed, self.mend = what, value, allowed, mend

    def __str__(self) -> str:
        text = self.what
        if self.value is not None:
            text += f": {_shown(self.value)}"
        text += "."
        if self.allowed:
            text += f" Allowed: {self.allowed.rstrip('.')}."
        if self.mend:
            text += f" {self.mend.rstrip('.')}."
        return text

    def __reduce__(self):
        return _rebuild, (type(self), self.what, self.value, self.allowed, self.mend)


def _rebuild(cls: type[BadInput], what: str, value: Any, allowed: str | None, mend: str | None) -> BadInput:
    return cls(what, value=value, allowed=allowed, mend=mend)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else text[:297] + "..."


class SourceNotFound(BadInput):
    """A file, folder, shard or named thing that was asked for is not there."""

    code = "source-not-found"


class UnsafeFile(BadInput):
    """A file that could only be read by running code from it."""

    code = "unsafe-file"


class CorruptFile(BadInput):
    """A file that ends early or contradicts itself."""

    code = "corrupt-file"


class UnsupportedFormat(BadInput):
    """A file of a kind that querist does not read."""

    code = "unsupported-format"


class UnknownName(BadInput):
    """A name that is not among those known; the message lists the nearest ones."""

    code = "unknown-name"


class BadOption(BadInput):
    """An option whose value is outside what is allowed."""

    code = "bad-option"


class ShapeMismatch(BadInput):
    """Two things whose shapes must agree and do not."""

    code = "shape-mismatch"


class WeightsMismatch(ShapeMismatch):
    """Weights that are not those of the network: missing or unexpected names, other shapes."""

    code = "weights-mismatch"


class BadValues(BadInput):
    """Values that a computation cannot take."""

    code = "bad-values"


class NonFinite(BadValues):
    """NaN or infinity where numbers are needed."""

    code = "non-finite"


class TooFewRows(BadInput):
    """Fewer rows than the question needs."""

    code = "too-few-rows"


class MissingExtra(BadInput):
    """An optional package, or a part of querist, that is not installed."""

    code = "missing-extra"


class MemoryBound(BadInput):
    """Work that would need more memory than there is."""

    code = "memory-bound"


class RunBusy(BadInput):
    """A run folder that another process is writing to, or that already holds a run."""

    code = "run-busy"


class UndefinedMetric(QueristError, ValueError):
    """A metric that has no value on these data (one class only, no variance, nobody treated)."""

    code = "undefined-metric"


class NumericalFailure(QueristError):
    """A numerical routine that did not converge."""

    code = "numerical-failure"


class InvariantBroken(QueristError):
    """Something that querist guarantees did not hold: a defect, please report it."""

    code = "invariant-broken"


def near(name: str, known: Iterable[str], count: int = 5) -> str:
    """The known names nearest to `name`, comma-separated; all of them where there are at most `count`.

    >>> near("alhpa", ["alpha", "sigma", "rank", "xmin", "xmax", "beta"])
    'alpha'
    """
    known = sorted(set(known))
    if len(known) <= count:
        return ", ".join(known)
    hits = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    return ", ".join(hits or known[:count])
