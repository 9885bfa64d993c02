"""How the bundled tables were made: `python -m querist.weights.nulls._simulate` writes them again.

Tracy–Widom: F₁(s) = det(1 − K) on (0, ∞) with K(x, y) = ½·Ai((x + y)/2 + s), by Gauss–Legendre quadrature (Ferrari & Spohn
2005; Bornemann 2010). bulk_ks: Gaussian matrices through their bidiagonal form (Dumitriu & Edelman 2002).
"""

from __future__ import annotations

import numpy as np

from querist.statistics import stream
from querist.weights.nulls._tracy_widom import TABLES

__all__ = ["bulk_table", "tracy_widom_one", "wishart_eigenvalues"]

SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
RATIOS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LEVELS = (0.9, 0.75, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)


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


def bulk_table(seed: int = 0) -> np.ndarray:
    """Upper quantiles of bulk_ks [size, ratio, level]."""
    from querist.weights.nulls._bulk import fit_mp

    table = np.empty((len(SIZES), len(RATIOS), len(LEVELS)))
    for i, N in enumerate(SIZES):
        draws = 6000 if N <= 128 else 4000 if N <= 256 else 2000
        for j, q in enumerate(RATIOS):
            rng = stream(seed, "bulk_ks", N, q)
            M = max(N, round(N / q))
            values = [fit_mp(wishart_eigenvalues(N, M, rng), (N, M)).bulk_ks for _ in range(draws)]
            table[i, j] = np.quantile(values, 1 - np.array(LEVELS))
    return table


def main() -> None:
    """Write both tables."""
    s = np.round(np.arange(-8.0, 10.0 + 1e-9, 0.05), 10)
    log_cdf, log_sf = tracy_widom_one(s)
    TABLES.parent.mkdir(exist_ok=True)
    laws = {"tw1_s": s, "tw1_log_cdf": log_cdf, "tw1_log_sf": log_sf, "ks_n": np.array(SIZES), "ks_q": np.array(RATIOS)}
    laws |= {"ks_p": np.array(LEVELS), "ks": np.ones((len(SIZES), len(RATIOS), len(LEVELS)))}
    np.savez_compressed(TABLES, **laws)
    laws["ks"] = bulk_table()
    np.savez_compressed(TABLES, **laws)


if __name__ == "__main__":
    main()
