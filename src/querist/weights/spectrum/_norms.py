"""Sizes and ranks of a spectrum: norms, stable rank, entropy, numerical rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["WEAK_RANK", "Norms", "alpha_weighted", "log_alpha_norm", "norms"]

WEAK_RANK = 1e-6
"""Eigenvalues below this, in the units of the file, count as weak rank loss, as WeightWatcher counts them."""


@dataclass(frozen=True, slots=True)
class Norms:
    """Sizes of a spectrum; logarithms are base 10; None where they do not exist (a matrix of zeros, ranks not computed).

    log_norm log10 Σλ; log_spectral_norm log10 λ_max; stable_rank Σλ/λ_max; entropy −Σp ln p / ln rank with p = λ/Σλ, in
    [0, 1]; rank; rank_loss, the eigenvalues that are zero within rounding; weak_rank_loss, those below 1e-6. The first two
    and the last depend on the scale of W, the others do not.
    """

    log_norm: float | None
    log_spectral_norm: float | None
    stable_rank: float | None
    entropy: float | None
    rank: int | None
    rank_loss: int | None
    weak_rank_loss: int | None


def norms(evals: Float[np.ndarray, "N"], shape: tuple[int, int], *, ranks: bool = True) -> Norms:
    """Norms and ranks of unnormalised eigenvalues of a matrix [h, d] = `shape` (or of a stack of such, pooled).

    rank counts λ > eps·λ_max·max(h, d) with eps of float64, the rounding error of the Gram matrix. `ranks=False` where the
    eigenvalues are not good enough for a rank (precision fast, approximations): the three ranks are None and the entropy
    is taken over ln N.

    Source: WeightWatcher's rank_loss, weak_rank_loss (eigenvalues below 1e-6, by its code) and entropy (it adds 1e-10 to
    every p; we do not).
    """
    top, total = float(evals.max()), float(evals.sum())
    size = int(evals.size)
    weak = int(np.count_nonzero(evals < WEAK_RANK)) if ranks else None
    if total <= 0:
        return Norms(None, None, None, None, 0 if ranks else None, size if ranks else None, weak)
    rank = int(np.count_nonzero(evals > np.finfo(np.float64).eps * top * max(shape)))
    share = evals[evals > 0] / total
    share = share[share > 0]
    disorder = -float(share @ np.log(share))
    parts = rank if ranks else size
    return Norms(
        log_norm=math.log10(total),
        log_spectral_norm=math.log10(top),
        stable_rank=total / top,
        entropy=min(1.0, max(0.0, disorder / math.log(parts))) if parts > 1 else 0.0,
        rank=rank if ranks else None,
        rank_loss=size - rank if ranks else None,
        weak_rank_loss=weak,
    )


def alpha_weighted(alpha: float, evals: Float[np.ndarray, "N"]) -> float:
    """α·log10 λ_max."""
    return alpha * math.log10(float(evals.max()))


def log_alpha_norm(alpha: float, evals: Float[np.ndarray, "N"]) -> float:
    """log10 Σλ^α over positive λ, by logsumexp: α of 40 on λ of 1e40 does not overflow."""
    logs = alpha * np.log(evals[evals > 0])
    top = float(logs.max())
    return (top + math.log(float(np.exp(logs - top).sum()))) / math.log(10)
