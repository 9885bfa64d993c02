"""How the bundled tables were made: `python -m querist.weights.nulls._simulate` writes them again.

Tracy–Widom: F₁(s) = det(1 − K) on (0, ∞) with K(x, y) = ½·Ai((x + y)/2 + s), by Gauss–Legendre quadrature (Ferrari & Spohn
2005; Bornemann 2010). bulk_ks: Gaussian matrices through their bidiagonal form (Dumitriu & Edelman 2002).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from querist.files import write_arrays
from querist.statistics import stream
from querist.weights.nulls._bulk import bulk_ks, table_terms
from querist.weights.nulls._tracy_widom import TABLES

__all__ = ["bulk_draws", "bulk_table", "tracy_widom_one", "wishart_eigenvalues"]

DRAWS = dict.fromkeys((8, 12, 16, 24, 32, 48, 64), 20000) | {96: 16000, 128: 12000, 192: 8000}
DRAWS |= {256: 3000, 384: 2000, 512: 1500, 1024: 500}
"""Draws of each N at each ratio: eight minutes of one core in all."""
RATIOS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LEVELS = (0.99, 0.95, 0.9, 0.75, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)


def tracy_widom_one(s: np.ndarray, points: int = 140) -> tuple[np.ndarray, np.ndarray]:
    """log F and log(1 − F) at s. Rounding of 1 − λ, λ near 1, leaves log F at −8 good to 1e-6, at −10 to 2e-3."""
    from scipy.special import airy

    nodes, weights = np.polynomial.legendre.leggauss(points)
    log_cdf, log_sf = np.empty_like(s), np.empty_like(s)
    for i, at in enumerate(s):
        length = 16.0 + 2 * max(0.0, -at)
        x, w = (nodes + 1) * length / 2, weights * length / 2
        root = np.sqrt(w)
        kernel = root[:, None] * (0.5 * airy((x[:, None] + x[None, :]) / 2 + at)[0]) * root[None, :]
        log_cdf[i] = np.log1p(-np.clip(np.linalg.eigvalsh(kernel), None, 1 - 1e-300)).sum()
        log_sf[i] = np.log(-np.expm1(log_cdf[i]))
    return log_cdf, log_sf


def wishart_eigenvalues(N: int, M: int, rng: np.random.Generator) -> np.ndarray:
    """Eigenvalues of W Wᵀ for Gaussian W [N, M], ascending, in O(N²) through the bidiagonal form."""
    from scipy.linalg import eigvalsh_tridiagonal

    main = np.sqrt(rng.chisquare(np.arange(M, M - N, -1)))
    side = np.sqrt(rng.chisquare(np.arange(N - 1, 0, -1)))
    return np.asarray(eigvalsh_tridiagonal(main**2 + np.concatenate([[0.0], side**2]), main[:-1] * side))


def bulk_draws(N: int, q: float, draws: int, seed: int = 0) -> np.ndarray:
    """bulk_ks of so many Gaussian matrices N x N/q."""
    rng = stream(seed, "bulk_ks", N, q)
    M = max(N, round(N / q))
    return np.array([bulk_ks(wishart_eigenvalues(N, M, rng), (N, M)) for _ in range(draws)])


def bulk_table(cells: Mapping[tuple[int, float], np.ndarray]) -> np.ndarray:
    """Coefficients [level, term] of the quantiles of bulk_ks: least squares over (N, q), weighted by their sampling errors."""
    terms = np.array([table_terms(*cell) for cell in cells])
    coefficients = np.empty((len(LEVELS), terms.shape[1]))
    for k, level in enumerate(LEVELS):
        values, errors = np.transpose([_upper_quantile(draws, level) for draws in cells.values()])
        coefficients[k] = np.linalg.lstsq(terms / errors[:, None], values / errors, rcond=None)[0]
    return coefficients


def _upper_quantile(draws: np.ndarray, level: float) -> tuple[float, float]:
    """The quantile that a share `level` exceeds, and its standard error from the order statistics one binomial sd away."""
    ordered, n = np.sort(draws), draws.size
    sd = math.sqrt(level * (1 - level) * n)
    low, high = (ordered[round(min(max((1 - level) * (n - 1) + step, 0), n - 1))] for step in (-sd, sd))
    return float(np.quantile(ordered, 1 - level)), max(float(high - low) / 2, 1e-3)


def main() -> None:
    """Write both tables."""
    s = np.round(np.arange(-8.0, 10.0 + 1e-9, 0.05), 10)
    log_cdf, log_sf = tracy_widom_one(s)
    write_arrays(TABLES / "tw1.npz", {"s": s, "log_cdf": log_cdf, "log_sf": log_sf})
    cells = {(N, q): bulk_draws(N, q, draws) for N, draws in DRAWS.items() for q in RATIOS}
    write_arrays(TABLES / "bulk_ks.npz", {"levels": np.array(LEVELS), "coefficients": bulk_table(cells)})


if __name__ == "__main__":
    main()
