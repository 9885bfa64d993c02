"""Sizes and ranks of a spectrum: norms, stable rank, entropy, numerical rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["WEAK_RANK", "Norms", "alpha_weighted", "log_alpha_norm", "norms"]

WEAK_RANK = 1e-6
"""Singular values below this, in the units of the file, are counted as weak rank loss, as WeightWatcher counts them."""


@dataclass(frozen=True, slots=True)
class Norms:
    """Sizes of a spectrum; logarithms are base 10, of Σλ and λ_max; None where they do not exist."""

    log_norm: float | None
    log_spectral_norm: float | None
    stable_rank: float | None
    entropy: float | None
    rank: int | None
    rank_loss: int | None
    weak_rank_loss: int | None


def norms(evals: Float[np.ndarray, "N"], shape: tuple[int, int], *, ranks: bool = True) -> Norms:
    """Norms and ranks of ascending unnormalised eigenvalues of a matrix of this shape.

    rank counts λ > eps·λ_max·max(N, M), eps of float64: the rounding error of the Gram matrix. entropy is −Σp ln p / ln rank,
    in [0, 1]. `ranks=False` where the eigenvalues are not good enough for a rank (precision fast, approximations); the
    entropy is then taken over ln N.
    """
    top, total = float(evals[-1]), float(evals.sum())
    if total <= 0:
        return Norms(
            None, None, None, None, 0 if ranks else None, evals.size if ranks else None, evals.size if ranks else None
        )
    above = evals > np.finfo(np.float64).eps * top * max(shape)
    rank = int(np.count_nonzero(above))
    share = evals[evals > 0] / total
    bits = -float(share @ np.log(share))
    parts = rank if ranks else evals.size
    return Norms(
        log_norm=math.log10(total),
        log_spectral_norm=math.log10(top),
        stable_rank=total / top,
        entropy=min(1.0, bits / math.log(parts)) if parts > 1 else 0.0,
        rank=rank if ranks else None,
        rank_loss=int(evals.size - rank) if ranks else None,
        weak_rank_loss=int(np.count_nonzero(np.sqrt(evals) < WEAK_RANK)) if ranks else None,
    )


def alpha_weighted(alpha: float, evals: Float[np.ndarray, "N"]) -> float:
    """α·log10 λ_max."""
    return alpha * math.log10(float(evals[-1]))


def log_alpha_norm(alpha: float, evals: Float[np.ndarray, "N"]) -> float:
    """log10 Σλ^α over positive λ, by logsumexp: α of 20 on λ of 1e4 does not overflow."""
    logs = alpha * np.log(evals[evals > 0])
    top = float(logs.max())
    return (top + math.log(float(np.exp(logs - top).sum()))) / math.log(10)
