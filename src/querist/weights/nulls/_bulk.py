"""The bulk: its scale fitted on quantiles, its edges, and whether it is that of independent entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, NumericalFailure, ShapeMismatch
from querist.weights.errors import InvalidSpectrum
from querist.weights.nulls._marchenko_pastur import mp_cdf, mp_edges, mp_quantile, mp_quantiles
from querist.weights.nulls._tracy_widom import TABLES, tw_edge

__all__ = ["KS_SD", "MPFit", "beyond_copies", "bulk_ks", "bulk_p", "fit_mp", "table_terms"]

LOW, HIGH = 0.1, 0.8
"""Ranks on which the scale is fitted: the lowest tenth bends with the smallest deviation, the top fifth with spikes."""
ROUNDS, FEWEST = 20, 5
SMALLEST, LARGEST = 8, 1024
"""N of the simulated bulk distances."""
KS_SD = 0.37
"""Standard deviation of N·sup|F − F_MP| of one Gaussian matrix: a quarter between its .95 and .99 points at N = 50 to 400."""


@dataclass(frozen=True, slots=True)
class MPFit:
    """A Marchenko–Pastur law fitted to a spectrum, in unnormalised units (squared singular values).

    sigma2: entry variance; sigma_mp its root. lambda_minus, lambda_plus: edges of the bulk. tw95, tw99: quantiles of the
    largest eigenvalue of noise of this size. n_spikes_tw95, n_spikes_tw99: eigenvalues above them. softrank: λ₊ over the
    larger of λ₊ and λ_max, in (0, 1]. bulk_ks: N·sup|F − F_MP| of what is left without the spikes; bulk_p its p value under
    Gaussian entries, extrapolated in ln N where bulk_extrapolated (N over 1024). rounds: how often the scale was fitted.
    pooled: how many matrices; independent: how many independent ones these amount to. ks_sd: standard deviation of bulk_ks under
    Gaussian entries.
    """

    sigma2: float
    sigma_mp: float
    lambda_minus: float
    lambda_plus: float
    tw95: float
    tw99: float
    n_spikes_tw95: int
    n_spikes_tw99: int
    softrank: float
    bulk_ks: float
    bulk_p: float
    rounds: int
    bulk_extrapolated: bool = False
    independent: int = 1
    pooled: int = 1

    @property
    def ks_sd(self) -> float:
        """Of bulk_ks: deviations of independent matrices add up like their square root, those of dependent ones are the same."""
        return KS_SD * self.pooled / math.sqrt(self.independent)


def fit_mp(
    evals: Float[np.ndarray, "N"], shape: tuple[int, int], *, count: int = 1, independent: int | None = None
) -> MPFit:
    """Fit the law to ascending unnormalised eigenvalues of a matrix of this shape, or of `count` of them together.

    independent: how many independent matrices these amount to, by default all. A convolution operator has one complex
    matrix for each frequency, all made of the kernel's few positions: no more than these are independent.

    The scale is the least-squares slope through 0 of the sorted eigenvalues against the law's quantiles, ranks 10 to 80 %.
    Spikes above the .99 edge are removed, the shape is corrected to (N − k, M − k), until their number is stable.
    Bias below .25 % and deviation .3 to 1.8 % for N from 400 to 50. Raises NumericalFailure where there is no bulk (fewer
    than five eigenvalues, or none positive among those that are fitted), InvalidSpectrum and ShapeMismatch.

    Source: ours; the edge after Johnstone (2001).
    """
    evals, N, M = _checked(evals, shape, count)
    apart = count if independent is None else min(max(independent, 1), count)
    sigma2, spikes, rounds = _scale(evals, N, M, count, apart)
    n, m = _corrected(N, M, count, spikes)
    low, high = mp_edges(N / M)
    plus = sigma2 * M * high
    tw95, tw99 = (tw_edge(N, M, level, sigma2, count=apart) for level in (0.95, 0.99))
    ks = _distance(evals[: evals.size - spikes], sigma2, n, m)
    return MPFit(
        sigma2=sigma2,
        sigma_mp=math.sqrt(sigma2),
        lambda_minus=sigma2 * M * low,
        lambda_plus=plus,
        tw95=tw95,
        tw99=tw99,
        n_spikes_tw95=int(np.count_nonzero(evals > tw95)),
        n_spikes_tw99=int(np.count_nonzero(evals > tw99)),
        softrank=plus / max(plus, float(evals[-1])),
        bulk_ks=ks,
        bulk_p=bulk_p(ks * apart / count, n, n / m, count=apart),
        rounds=rounds,
        bulk_extrapolated=n > LARGEST,
        independent=apart,
        pooled=count,
    )


def bulk_ks(evals: Float[np.ndarray, "N"], shape: tuple[int, int]) -> float:
    """The bulk's distance alone, as fit_mp gives it: what the bundled table is simulated from."""
    evals, N, M = _checked(evals, shape, 1)
    sigma2, spikes, _ = _scale(evals, N, M, 1, 1)
    return _distance(evals[: evals.size - spikes], sigma2, *_corrected(N, M, 1, spikes))


def _checked(evals: np.ndarray, shape: tuple[int, int], count: int) -> tuple[np.ndarray, int, int]:
    """The spectrum as ascending float64, N and M."""
    values, N, M = np.asarray(evals), min(shape), max(shape)
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InvalidSpectrum(
            "A spectrum is a vector of real numbers",
            value=f"shape {values.shape}, {values.dtype}",
            allowed="one dimension, float or integer",
        )
    if count < 1 or N < 1 or values.size > N * count:
        raise ShapeMismatch(
            "The spectrum does not belong to matrices of this shape",
            value=f"{values.size} eigenvalues, shape {tuple(shape)}, count {count}",
            allowed=f"at most {N * count} eigenvalues: the smaller side times the count, both at least 1",
        )
    if values.size < FEWEST:
        raise NumericalFailure(f"{values.size} eigenvalues are too few for a bulk")
    values = values.astype(np.float64, copy=False)
    if not (values.min() >= 0 and values.max() < np.inf):
        i = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        raise InvalidSpectrum(
            "A spectrum holds finite values that are not negative",
            value=f"index {i}: {values[i]}",
            allowed="0 or above",
        )
    return (np.sort(values) if (values[1:] < values[:-1]).any() else values), N, M


def _scale(evals: np.ndarray, N: int, M: int, count: int, apart: int) -> tuple[float, int, int]:
    """Entry variance, spikes taken out, rounds: fit, take out what lies above the edge, fit again, until both agree."""
    spikes, rounds, seen = 0, 0, set()
    while True:
        rounds += 1
        sigma2 = _slope(evals, N, M, count, spikes)
        edge = tw_edge(N, M, 0.99, sigma2, count=apart)
        found = min(int(evals.size - np.searchsorted(evals, edge, side="right")), evals.size - FEWEST)
        if found == spikes or rounds == ROUNDS or found in seen:
            return sigma2, spikes, rounds
        seen.add(spikes)
        spikes = found


def _corrected(N: int, M: int, count: int, spikes: int) -> tuple[int, int]:
    """Each spike takes one dimension from both sides; in a pool they are shared out, rounded up."""
    each = min(-(-spikes // count), N - 2)
    return N - each, M - each


def _slope(evals: np.ndarray, N: int, M: int, count: int, spikes: int) -> float:
    n, m = _corrected(N, M, count, spikes)
    left = evals.size - spikes
    law = mp_quantiles(n, m) if left == n else np.interp((np.arange(left) + 0.5) / left, *_levels(n, m))
    begin, end = int(LOW * left), max(int(HIGH * left), int(LOW * left) + 1)
    x, y = law[begin:end], evals[begin:end]
    slope = float(x @ y) / float(x @ x)
    if not slope > 0:
        raise NumericalFailure("the eigenvalues that would set the bulk's scale are zero")
    return slope


@lru_cache(maxsize=64)
def _levels(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    u = np.linspace(0.0, 1.0, 4001)
    return u, m * mp_quantile(u, n / m)


def _distance(evals: np.ndarray, sigma2: float, n: int, m: int) -> float:
    """N·sup|F_N − F_MP| from both sides of every step."""
    law = mp_cdf(evals / (sigma2 * m), n / m)
    steps = np.arange(evals.size + 1) / evals.size
    return float(evals.size * max(np.max(steps[1:] - law), np.max(law - steps[:-1])))


def table_terms(N: float, q: float) -> np.ndarray:
    """What the quantiles of bulk_ks are linear in: ln N, the first corrections to it, a cubic in q, and both together.

    Against the 98 simulated cells the reduced χ² of this fit is 1.2 at .01 and 1.6 at .05; where there are 8000 draws and more
    its .01 quantile is at most .05 off, while those of .01 and .005 lie .13 apart.
    """
    log = math.log(N)
    return np.array([1.0, log, 1 / N, N**-0.5, q, q * q, q**3, q * log, q * q * log])


@lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Upper-tail levels, falling, and for each the coefficients of its quantile [level, term]."""
    with np.load(TABLES / "bulk_ks.npz", allow_pickle=False) as table:
        return table["levels"], table["coefficients"]


@lru_cache(maxsize=1024)
def _quantiles(N: int, q: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    levels, coefficients = _table()
    # Between q = .02 and 0 the .99 quantile moves by less than .02.
    values = np.maximum.accumulate(coefficients @ table_terms(max(N, SMALLEST), max(q, 0.02)))
    # Fluctuations of independent matrices add like √count, their common finite-size bias like count. Measured ratios of the
    # quantiles of 4, 9 and 49 pooled matrices to those of one, N = 16 to 128: 2.0–2.3, 3.2–3.5, 9.1–10.8; this gives 2.3, 3.7, 10.3.
    return levels, values * count**0.6


def bulk_p(ks: float, N: int, q: float, *, count: int = 1) -> float:
    """P(bulk_ks >= ks) for Gaussian entries, from the bundled table (log p linear between its levels).

    The table covers N from 8 to 1024; beyond, its quantiles go on linearly in ln N, and MPFit.bulk_extrapolated says so.
    Below the smallest tabulated level p is extrapolated along the last two; above the largest it is 1. For `count` pooled
    matrices the quantiles are multiplied by count^.6, which was measured.

    Source: simulated, see `querist.weights.nulls._simulate`. The quantiles grow like ½·ln N.
    """
    if not (ks >= 0 and N >= 1 and 0 < q <= 1 and count >= 1):
        raise BadOption(
            "A bulk distance, a size, an aspect ratio or a count lies outside its range",
            value=f"ks={ks}, N={N}, q={q}, count={count}",
            allowed="ks >= 0, N >= 1, 0 < q <= 1, count >= 1",
        )
    levels, values = _quantiles(N, round(q, 3), count)
    if ks <= values[0]:
        return 1.0 if ks < values[0] else float(levels[0])
    if ks >= values[-1]:
        slope = (math.log(levels[-1]) - math.log(levels[-2])) / max(values[-1] - values[-2], 1e-12)
        return float(math.exp(math.log(levels[-1]) + slope * (ks - values[-1])))
    return float(np.exp(np.interp(ks, values, np.log(levels))))


def beyond_copies(ks: float, copies: Sequence[float], sd: float = KS_SD) -> float:
    """P(one more copy has a bulk distance of at least ks): Student t about the copies' mean; at least two copies.

    Their standard deviation is taken to be no smaller than sd, that of Gaussian matrices: that of three copies is often far
    too small, and being beyond all three happens to one exchangeable matrix in four.
    """
    from scipy.special import stdtr

    values = np.asarray(copies, dtype=float)
    spread = max(float(values.std(ddof=1)), sd) * math.sqrt(1 + 1 / values.size)
    return float(stdtr(values.size - 1, (float(values.mean()) - ks) / spread))
