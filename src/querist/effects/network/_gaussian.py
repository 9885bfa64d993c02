"""Gaussian linear models whose coefficients have one or two unknown scales: evidence on a grid, posterior means in closed form.

For columns y_c = Zβ_c + ε, ε ~ N(0, σ_c²), β_c ~ N(0, t_c²I), one decomposition of Z serves every scale. With Z'Z = V diag(l) V' and
q = V'Z'y, twice the log evidence is −Σ log(1 + t²l/σ²) − n·log σ² − y'y/σ² + Σ t²q²/(σ²(σ² + t²l)), the posterior mean of β is
V·t²q/(σ² + t²l).

Source: Bayesian linear regression as in Bishop (2006), section 3.5; scales are integrated on a grid where he maximises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["PRIOR", "WORK", "Blocks", "Posterior", "Spectrum", "integrate_one", "integrate_two", "slices", "spectrum"]

PRIOR = 0.1
"""Scale of the half-Cauchy prior of τ, in sd of the outcome."""

HELD = 1 << 17
"""Numbers of Z that are held at a time, several times over while they are worked on: 1 MiB in float64."""

WORK = 8
"""Numbers that are worked with for each one that is made where rows are few: scores of all arms for the mean of one."""

Rows = Callable[[slice], Float[np.ndarray, "rows P"]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """n rows of numbers that are made when they are asked for, by slices."""

    n: int
    made: Rows

    def __call__(self, part: slice) -> Float[np.ndarray, "rows P"]:
        return self.made(part)

    @property
    def width(self) -> int:
        """Columns."""
        return self.made(slice(0, 0)).shape[1]

    def slices(self) -> Iterator[slice]:
        """All rows in turn."""
        return slices(self.n, self.width, WORK * max(self.width, WORK))

    @classmethod
    def of(cls, values: Float[np.ndarray, "n P"]) -> Blocks:
        """Rows of an array."""
        return cls(len(values), lambda part: values[part])


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Z'Z = V·diag(l)·V' with V [P, r], l [r]; q = V'Z'y [r, C]; yy = y'y [C]; n rows."""

    vectors: Float[np.ndarray, "P r"]
    values: Float[np.ndarray, "r"]
    q: Float[np.ndarray, "r C"]
    yy: Float[np.ndarray, "C"]
    n: int

    def evidence(self, scale: Float[np.ndarray, "G C"], noise: Float[np.ndarray, "C"]) -> Float[np.ndarray, "G"]:
        """Log marginal likelihood of all columns for sd's t of the coefficients [G, C] and noise variances [C]."""
        t2 = scale[:, None] ** 2
        total = noise + t2 * self.values[:, None]  # [G, r, C]
        fit = (t2 * self.q**2 / (noise * total)).sum(axis=1)
        spread = np.log(total / noise).sum(axis=1)
        rest = self.n * np.log(2 * np.pi * noise) + self.yy / noise
        return -0.5 * (spread - fit + rest).sum(axis=1)

    def coefficients(
        self, scale: Float[np.ndarray, "G C"], noise: Float[np.ndarray, "C"], weight: Float[np.ndarray, "G"]
    ) -> Float[np.ndarray, "P C"]:
        """Posterior mean of the coefficients, averaged over a grid of scales with weights that sum to 1."""
        t2 = scale[:, None] ** 2
        shrunk = t2 * self.q / (noise + t2 * self.values[:, None])
        return self.vectors @ np.einsum("g,grc->rc", weight, shrunk)


def spectrum(
    rows: Rows, y: Float[np.ndarray, "n C"] | Blocks, weight: Float[np.ndarray, "n"] | None = None
) -> Spectrum:
    """Decompose Z, given by its rows in slices, and project y on it; rows count with their weights. y has no missing values.

    [Z y] is brought to a triangle a block of rows at a time, so that no more than a block of it is held, and nothing is squared as
    in a Gram matrix. Source: Golub and Van Loan (2013), section 5.2.
    """
    triangle: Any = None
    y = y if isinstance(y, Blocks) else Blocks.of(y)
    columns = y.width
    yy = np.zeros(columns)
    width = rows(slice(0, 0)).shape[1] + columns
    for part in slices(y.n, width):
        block = np.concatenate([rows(part), y(part)], axis=1)
        if weight is not None:
            block *= np.sqrt(weight[part])[:, None]
        own = block[:, width - columns :]
        yy += np.einsum("nc,nc->c", own, own)
        triangle = np.linalg.qr(block if triangle is None else np.concatenate([triangle, block]), mode="r")
    p = width - columns
    left, s, right = np.linalg.svd(triangle[:, :p], full_matrices=False)
    return Spectrum(right.T, s**2, s[:, None] * (left.T @ triangle[:, p:]), yy, y.n)


def _from_gram(gram: np.ndarray, zy: np.ndarray, yy: np.ndarray, n: int) -> Spectrum:
    values, vectors = np.linalg.eigh(gram)
    return Spectrum(vectors, values.clip(min=0), vectors.T @ zy, yy, n)


def slices(n: int, width: int, beside: int = 0) -> Iterator[slice]:
    """n rows in runs of some `HELD` numbers, of no fewer rows than columns. beside: numbers a row that are worked with beside its own."""
    size = max(HELD // max(width + beside, 1), width, 1)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


@dataclass(frozen=True, slots=True)
class Posterior:
    """Coefficients [P, C] of each spectrum's columns, and the posterior mean of each scale in sd of the outcome."""

    coefficients: list[Float[np.ndarray, "P C"]]
    scales: tuple[float, ...]


def half_cauchy(tau: np.ndarray) -> np.ndarray:
    """Log mass of the prior around points of a log grid of scales in sd of the outcome: density times τ, without its constant."""
    return np.log(tau) - np.log1p((tau / PRIOR) ** 2)


def integrate_one(
    spectra: list[Spectrum], noise: list[np.ndarray], units: list[np.ndarray], points: int = 37
) -> Posterior:
    """One scale τ for every column of all spectra, over `points` log-spaced values from 10⁻⁴ to 1.

    noise: variance of each column; units: sd of each column's outcome, in which τ is told. Weights are evidence times
    the half-Cauchy mass around each point.
    """
    tau = np.logspace(-4, 0, points)
    log = half_cauchy(tau)
    for one, v, unit in zip(spectra, noise, units, strict=True):
        log = log + one.evidence(tau[:, None] * unit, v)
    weight = _normalised(log)
    found = [
        one.coefficients(tau[:, None] * unit, v, weight) for one, v, unit in zip(spectra, noise, units, strict=True)
    ]
    return Posterior(found, (float(weight @ tau),))


def integrate_two(
    spectra: list[Spectrum],
    noise: list[np.ndarray],
    units: list[np.ndarray],
    second: int,
    points: int = 9,
) -> Posterior:
    """Two scales: τ_x of the first columns of Z, τ_b of the last `second`, on a grid of points² log-spaced values.

    On one log grid for both, the decomposition depends on the ratio of the two alone: 2·points − 1 of them.
    """
    tau = np.logspace(-4, 0, points)
    log = half_cauchy(tau)[:, None] + half_cauchy(tau)[None]
    turned: dict[tuple[int, int], Spectrum] = {}
    for number, (one, v, unit) in enumerate(zip(spectra, noise, units, strict=True)):
        gram = (one.vectors * one.values) @ one.vectors.T
        zy = one.vectors @ one.q
        for shift in range(1 - points, points):
            factor = np.ones(len(zy))
            factor[len(zy) - second :] = (tau[-1] / tau[0]) ** (shift / (points - 1))
            made = _from_gram(factor[:, None] * gram * factor, factor[:, None] * zy, one.yy, one.n)
            turned[number, shift] = Spectrum(factor[:, None] * made.vectors, made.values, made.q, made.yy, made.n)
            at = np.arange(max(0, -shift), min(points, points - shift))  # τ_x of this diagonal
            log[at, at + shift] += turned[number, shift].evidence(tau[at][:, None] * unit, v)
    weight = _normalised(log)
    found = []
    for number, (v, unit) in enumerate(zip(noise, units, strict=True)):
        total = 0.0
        for shift in range(1 - points, points):
            at = np.arange(max(0, -shift), min(points, points - shift))
            total = total + turned[number, shift].coefficients(tau[at][:, None] * unit, v, weight[at, at + shift])
        found.append(np.asarray(total))
    return Posterior(found, (float(weight.sum(1) @ tau), float(weight.sum(0) @ tau)))


def _normalised(log: np.ndarray) -> np.ndarray:
    weight = np.exp(log - log.max())
    return weight / weight.sum()
