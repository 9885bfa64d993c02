"""The ERG condition: how many of the largest eigenvalues multiply to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["ERG", "erg", "erg_count"]


@dataclass(frozen=True, slots=True)
class ERG:
    """n_erg of a spectrum, and the same count on its null: a random bulk gives a huge one."""

    n_erg: int
    n_erg_null: float | None


def erg_count(evals: Float[np.ndarray, "N"]) -> int:
    """With Σλ = N, cumulate ln λ from the top; the count up to and including the first negative sum (all where there is none)."""
    positive = evals[evals > 0]
    if positive.size == 0:
        return 0
    logs = np.log(positive * (evals.size / positive.sum()))[::-1]
    negative = np.cumsum(logs) < 0
    return int(negative.argmax()) + 1 if negative.any() else int(positive.size)


def erg(evals: Float[np.ndarray, "N"], *, null: Float[np.ndarray, "n"] | None = None) -> ERG:
    """The count for ascending eigenvalues, beside the count on the null's eigenvalues scaled to the same number.

    Source: the trace-log condition of Martin & Mahoney (SETOL, 2025); the null is ours.
    """
    if null is None:
        return ERG(erg_count(evals), None)
    return ERG(erg_count(evals), erg_count(null) * evals.size / null.size)
