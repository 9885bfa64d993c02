"""How likely a class is to hold so many, or so few, of the rows that carry a concept: exact tails, for a great many cells at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

__all__ = ["hypergeometric_p"]

NEGLIGIBLE = 1e-13
STRIDE = 8
"""Terms between two looks at which sums are complete."""


def hypergeometric_p(
    found: ArrayLike, drawn: ArrayLike, marked: ArrayLike, total: ArrayLike
) -> Float[np.ndarray, "..."]:
    """Twice the smaller tail, at most 1, of `found` marked ones among `drawn` of `total`, of which `marked` are marked.

    Exact: a doubled Fisher test, whose level is kept whatever the counts; where counts are small no p near the level may exist and
    less than the level is rejected. Tails are summed outwards from the count, term by term by the ratio of neighbours, until nothing
    is added. 0/0 counts give 1.
    """
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
    return np.minimum(1.0, 2 * np.minimum(tail, 1 - tail + here)).reshape(shape)
