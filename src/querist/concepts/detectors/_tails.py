"""How likely a class is to hold so many, or so few, of the rows that are marked: exact tails, for a great many cells at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from querist.statistics import holm

__all__ = ["fuller_classes", "hypergeometric_p"]

NEGLIGIBLE = 1e-13
STRIDE = 8
"""Terms between two looks at which sums are complete."""


def fuller_classes(
    marked: Bool[np.ndarray, "n"],
    codes: Int[np.ndarray, "n"],
    trusted: Bool[np.ndarray, "m"],
    trusted_codes: Int[np.ndarray, "m"],
    *,
    level: float = 0.05,
) -> Int[np.ndarray, "c"]:
    """Codes of the classes that hold more marked rows than their trusted rows let expect: Fisher's upper tail, Holm over classes.

    A code below 0 is of no class. A class without trusted rows is not named.
    """
    classes = int(max(codes.max(initial=-1), trusted_codes.max(initial=-1))) + 1
    known = trusted_codes >= 0
    a, n = (np.bincount(codes[part], minlength=classes) for part in (marked, slice(None)))
    b, m = (np.bincount(trusted_codes[part], minlength=classes) for part in (known & trusted, known))
    both = np.flatnonzero((n > 0) & (m > 0))
    upper, _ = _tails(a[both], n[both], (a + b)[both], (n + m)[both])
    return both[holm(upper) <= level]


def hypergeometric_p(
    found: ArrayLike, drawn: ArrayLike, marked: ArrayLike, total: ArrayLike
) -> Float[np.ndarray, "..."]:
    """Twice the smaller tail, at most 1, of `found` marked ones among `drawn` of `total`, of which `marked` are marked.

    Exact: a doubled Fisher test, whose level is kept whatever the counts; where counts are small no p near the level may exist and
    less than the level is rejected.
    """
    return np.minimum(1.0, 2 * np.minimum(*_tails(found, drawn, marked, total)))


def _tails(
    found: ArrayLike, drawn: ArrayLike, marked: ArrayLike, total: ArrayLike
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Chances of at least, and of at most, so many. Summed outwards from the count, by the ratio of neighbours, until nothing is added."""
    from scipy.special import gammaln

    a, n, m, of = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (found, drawn, marked, total)))
    shape = a.shape
    a, n, m, of = (x.ravel() for x in (a, n, m, of))

    def ways(size: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return gammaln(size + 1) - gammaln(chosen + 1) - gammaln(size - chosen + 1)

    here = np.exp(ways(m, a) + ways(of - m, n - a) - ways(of, n))
    # Counting the unmarked in place of the marked turns a lower tail into an upper one.
    upper = a * of >= n * m
    x = np.where(upper, a, n - a)
    marks = np.where(upper, m, of - m)
    tail, term = here.copy(), here.copy()
    going = np.arange(len(a))
    while going.size:
        for _ in range(STRIDE):
            ratio = (marks[going] - x[going]) * (n[going] - x[going])
            ratio /= (x[going] + 1) * (of[going] - marks[going] - n[going] + x[going] + 1)
            term[going] *= np.maximum(ratio, 0)
            tail[going] += term[going]
            x[going] += 1
        going = going[term[going] > NEGLIGIBLE * tail[going]]
    other = 1 - tail + here
    return tuple(np.clip(np.where(side, tail, other), 0, 1).reshape(shape) for side in (upper, ~upper))  # type: ignore[return-value]
