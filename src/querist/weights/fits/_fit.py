"""A fitted power law: its numbers, its D curve, and its curves for drawing."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.weights.fits._bounded import Bounded, log_mass, share_above
from querist.weights.fits._ladder import log_over
from querist.weights.fits._likelihood import Comparison
from querist.weights.fits._pruned import NEAR, Tail, distances
from querist.weights.fits._zeta import Zeta, zeta_sum

__all__ = ["Candidates", "PLFit", "ccdf_fit", "density_fit", "finger_words"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The D curve: every xmin that was allowed, ascending, with the exponent, distance and size of its tail."""

    xmin: Float[np.ndarray, "c"]
    alpha: Float[np.ndarray, "c"]
    D: Float[np.ndarray, "c"]
    n_tail: np.ndarray

    def minima(self) -> Candidates:
        """The local minima of D, the deepest first."""
        D = np.concatenate(([np.inf], self.D, [np.inf]))
        low = np.flatnonzero((D[1:-1] < D[:-2]) & (D[1:-1] <= D[2:]))
        low = low[np.argsort(self.D[low], kind="stable")]
        return Candidates(self.xmin[low], self.alpha[low], self.D[low], self.n_tail[low])


@dataclass(frozen=True, kw_only=True)
class PLFit:
    """A power law on the values from xmin on; density exponent alpha, one more than that of the survival function.

    alpha, xmin, xmax, D, sigma, low, high are None where nothing could be fitted; `reason` says why.
    xmax: the largest value, or the bound that was given (`bounded`). D: Kolmogorov-Smirnov distance of the tail from its fit.
    sigma: (alpha − 1)/√n_tail, for bounded and discrete tails from the expected information; it takes values as independent,
    and eigenvalues repel, so that it is too wide for them. low, high: alpha ± 1.96 sigma, widened to every xmin with D at
    most 1.1 times the least (unless xmin was fixed); `ambiguous` where that widening happened: tails that fit about
    as well give another exponent. ties: how many xmins reach the least D within 1e-12; the smallest of them is taken.
    n_values: positive values; n_dropped: zeros left out; n_above: values above a given xmax, left out too.
    finger: how many topmost values stand apart from the law. p: bootstrap goodness of fit, on independent samples, liberal for
    rigid spectra. comparisons: likelihood ratio tests against other laws. warnings: sentences that belong beside alpha.
    """

    alpha: float | None = None
    xmin: float | None = None
    xmax: float | None = None
    D: float | None = None
    n_tail: int = 0
    sigma: float | None = None
    low: float | None = None
    high: float | None = None
    method: str
    xmin_search: str
    n_values: int
    n_dropped: int
    n_above: int = 0
    ties: int = 1
    ambiguous: bool = False
    bounded: bool = False
    discrete: bool = False
    finger: int = 0
    p: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    tail: Tail | None = field(default=None, repr=False, compare=False)
    allowed: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def ratios(self) -> Mapping[str, tuple[float, float]]:
        """Name of the other law to (R, p); R is positive where the power law fits better."""
        return {one.name: (one.R, one.p) for one in self.comparisons}

    @functools.cached_property
    def candidates(self) -> Candidates:
        """The D curve, every distance computed in full: O(N²), hence only when asked for."""
        if self.tail is None or self.allowed is None:
            return Candidates(*(np.empty(0) for _ in range(4)))
        ladder, i = self.tail.ladder, self.allowed
        return Candidates(
            ladder.x[i], self.tail.slope[i] + 1, distances(self.tail, i), ladder.count[i].astype(np.int64)
        )

    @property
    def near_ties(self) -> int:
        """How many xmins with D at most 1.1 times the least have an exponent beyond alpha ± 1.96 sigma."""
        if self.alpha is None or self.sigma is None or self.D is None or not self.ambiguous:
            return 0
        curve = self.candidates
        far = np.abs(curve.alpha - self.alpha) > 1.96 * self.sigma
        return int(np.count_nonzero(far & (curve.D <= NEAR * self.D)))

    @property
    def choice(self) -> str:
        """One sentence: why this xmin, and which other one comes nearest."""
        if self.alpha is None:
            return f"Nothing was fitted: {self.reason}."
        told = f"xmin {self.xmin:.4g} (exponent {self.alpha:.3g}, {self.n_tail} values)"
        if self.xmin_search == "fixed":
            return f"{told} was given, not searched for."
        told += (
            f" has the least distance, {self.D:.3g}, of {0 if self.allowed is None else self.allowed.size} candidates"
        )
        minima = self.candidates.minima()
        if minima.xmin.size < 2:
            return f"{told}; no other is a local minimum."
        return (
            f"{told}; the next minimum is xmin {minima.xmin[1]:.4g} (exponent {minima.alpha[1]:.3g}, "
            f"{minima.n_tail[1]} values, distance {minima.D[1]:.3g})."
        )


def finger_words(finger: int) -> str:
    """What is said of so many topmost values that stand apart; it matters only where the tail is held to be a power law."""
    return f"The {finger} largest values crowd together or stand apart from the law: a finger."


def ccdf_fit(fit: PLFit, x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Share of the tail that the fit puts at or above x; NaN below xmin and above a given xmax, where nothing was fitted.

    Times n_tail/n_values it lies on the survival function of all positive values.
    """
    x = np.asarray(x, dtype=float)
    share = np.full(x.shape, np.nan)
    if fit.alpha is None or fit.xmin is None or fit.xmax is None:
        return share
    inside = _inside(fit, x)
    at, slope = x[inside], fit.alpha - 1
    y = log_over(at, fit.xmin)
    if isinstance(fit.tail, Zeta):
        ratio = np.exp(-fit.alpha * y)
        share[inside] = ratio * zeta_sum(fit.alpha, at)[0] / zeta_sum(fit.alpha, fit.xmin)[0]
    elif isinstance(fit.tail, Bounded):
        share[inside] = share_above(y, float(log_over(np.array([fit.xmax]), fit.xmin)[0]), slope)
    else:
        share[inside] = np.exp(-slope * y)
    return share


def density_fit(fit: PLFit, x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Density (for discrete data probability) of the fit at x, over the tail alone; NaN where nothing was fitted.

    Times n_tail/n_values it lies on the density of all positive values.
    """
    x = np.asarray(x, dtype=float)
    density = np.full(x.shape, np.nan)
    if fit.alpha is None or fit.xmin is None or fit.xmax is None:
        return density
    inside = _inside(fit, x)
    slope, y = fit.alpha - 1, log_over(x[inside], fit.xmin)
    if isinstance(fit.tail, Zeta):
        log = -fit.alpha * y - math.log(float(zeta_sum(fit.alpha, fit.xmin)[0]))
    elif isinstance(fit.tail, Bounded):
        log = -fit.alpha * y - math.log(fit.xmin) - log_mass(float(log_over(np.array([fit.xmax]), fit.xmin)[0]), slope)
    else:
        log = -fit.alpha * y + math.log(slope) - math.log(fit.xmin)
    density[inside] = np.exp(np.minimum(log, 709.0))  # e^709 is the last float64: an xmin of 1e-320 has such densities
    return density


def _inside(fit: PLFit, x: np.ndarray) -> np.ndarray:
    inside = x >= fit.xmin
    return inside & (x <= fit.xmax) if fit.bounded else inside
