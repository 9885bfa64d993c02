"""The estimate: a number with its standard error, interval, p and null."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """`estimate` with standard error `se` and interval [`low`, `high`]; `p` and `null` where a test was made.

    `n` is the number of independent pieces (rows, clusters, groups), `method` how the interval was made. What does not
    exist is None.
    """

    estimate: float
    se: float | None
    low: float | None
    high: float | None
    p: float | None
    null: float | None
    n: int
    method: str
