"""How many top values Hill's estimate should take: the double bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, TooFewRows
from querist.statistics import stream
from querist.weights.fits._ladder import log_ratio, positive
from querist.weights.fits._tails import hill_curve, log_moments

__all__ = ["DoubleBootstrap", "double_bootstrap_k"]

SMALLEST = 50
BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class DoubleBootstrap:
    """k for Hill's estimate, the density exponent and extreme value index there, and what k came from.

    k1, k2: where the mean square of M₂ − 2M₁² is least in resamples of size n1 and n2. rho: the second-order index they imply.
    """

    k: int
    alpha: float
    index: float
    k1: int
    k2: int
    n1: int
    n2: int
    rho: float


def double_bootstrap_k(
    evals: ArrayLike, *, samples: int = 500, n1: int | None = None, most: float = 0.9, seed: int = 0
) -> DoubleBootstrap:
    """k that makes Hill's estimate of the positive values [N] most precise, asymptotically and for independent values.

    Resamples of two sizes, n1 (by default N^.9) and n2 = n1²/N, estimate where E(M₂ − 2M₁²)² is least, M_r the r-th moment of
    the k top log ratios; both vanish together with the error of Hill's estimate, and the two sizes give its rate. `most`:
    largest share of a resample that k may take.

    Raises InvalidSpectrum, TooFewRows below 50 positive values, BadOption.

    Source: Danielsson, de Haan, Peng & de Vries (2001).
    """
    x, _ = positive(evals)
    n = x.size
    if n < SMALLEST:
        raise TooFewRows("Too few positive values for a double bootstrap", value=n, allowed=f"{SMALLEST} or more")
    if samples < 1 or not 0 < most < 1:
        raise BadOption(
            "The double bootstrap needs samples, and a share below 1", value=f"samples={samples}, most={most}"
        )
    first = round(n**0.9) if n1 is None else n1
    second = round(first**2 / n)
    if not SMALLEST / 5 <= second < first < n:
        raise BadOption(
            "The first resample has the wrong size", value=n1, allowed=f"{math.ceil(math.sqrt(10 * n))} to {n - 1}"
        )
    logs = log_ratio(x)
    k1 = _least(logs, first, samples, most, stream(seed, "double bootstrap", "first"))
    k2 = _least(logs, second, samples, most, stream(seed, "double bootstrap", "second"))
    size, log_k = math.log(first), math.log(k1)
    rho = log_k / (2 * (log_k - size))
    k = k1**2 / k2 * (log_k / (2 * size - log_k)) ** (2 * (size - log_k) / size)
    k = min(max(2, round(k)), n - 1)
    index = hill_curve(x).at(k)[0]
    return DoubleBootstrap(k, 1 + 1 / index if index > 0 else math.inf, index, k1, k2, first, second, rho)


def _least(logs: Float[np.ndarray, "N"], size: int, samples: int, most: float, rng: np.random.Generator) -> int:
    """The k with the least mean square of M₂ − 2M₁² over resamples of this size."""
    total = np.zeros(size - 1)
    batch = max(1, BATCH_BYTES // (64 * size))
    for begin in range(0, samples, batch):
        # Ascending places of a resample: the values are sorted, so their draws need no logarithms to sort.
        places = np.sort(rng.integers(0, logs.size, (min(batch, samples - begin), size)), axis=1)
        mean, square = log_moments(logs[places[:, ::-1]])
        total += ((square - 2 * mean**2) ** 2).sum(axis=0)
    last = max(3, min(size - 1, int(most * size)))
    # k = 1 has M₂ = M₁² always, and says nothing.
    return 2 + int(total[1 : last - 1].argmin())
