"""Distances between labelled sets: optimal transport data set distance, exact on Gaussian classes or sliced."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.features.arrays import classes, counted, pair
from querist.features.distances._directions import Directions, chunks, random_directions
from querist.features.distances._distance import Distance
from querist.features.distances._exact import squared_distances, transported
from querist.features.distances._gaussian import bures, root
from querist.features.distances._one_dim import knots, sorted_distances
from querist.features.distances._sliced import project, root_mean
from querist.features.moments import class_moments
from querist.statistics import stream

__all__ = ["otdd"]

PROJECTIONS = 500
MOMENTS = 3


def otdd(
    X: Any,
    yx: ArrayLike,
    Y: Any,
    yy: ArrayLike,
    method: Literal["gaussian", "sliced"] = "gaussian",
    max_rows: int = 5000,
    seed: int = 0,
) -> Distance:
    """Distance between two labelled sets, in the unit of the rows; labels need share nothing but their rows.

    X: (n, d), yx: (n,), Y: (m, d), yy: (m,), labels of any type.

    "gaussian": the root of the exact transport cost with ground cost ‖x − x'‖² + W_2²(α_y, α_y'), α_y the Gaussian of class y
    (covariance with ddof 1; below 2d rows of a class shrunk after Ledoit and Wolf). Classes are measured on all rows; the plan
    is solved on at most `max_rows` of each set, drawn by `seed` and the set's size alone, so that a set against itself gives
    0. `n_used` tells how many of each set at most; a warning tells where rows were left out.

    "sliced": label and row become one number by a random direction: ψ_0 θ·x + Σ_j ψ_j r_j(φ·α_y), ψ uniform on the sphere,
    r_1 the mean of class y along φ, r_2 its sd, r_3 the signed cube root of its third central moment; W_2² on the line,
    averaged over 500 directions. Not an estimate of the Gaussian one, and below it in the mean; all rows are used.

    Raises LabelsNeeded, BadLabels for a class below two rows, ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite,
    BadOption; MissingExtra where sizes differ, pairs exceed 250,000 and POT is not there.
    Source: Alvarez-Melis & Fusi (2020); sliced: our variant of Nguyen et al. (2025, arXiv 2501.18901), which draws the orders
    of raw moments at random where ours are fixed, central and rooted, so that scaling both sets scales the distance.
    """
    if method not in ("gaussian", "sliced"):
        raise BadOption("No such method of otdd", value=method, allowed="gaussian, sliced")
    counted(max_rows, "max_rows", 2)
    X, Y = pair(X, Y)
    cx, kx = classes(yx, len(X), "yx", least=2)
    cy, ky = classes(yy, len(Y), "yy", least=2)
    if method == "sliced":
        return _sliced(X, cx, kx, Y, cy, ky, seed)
    n_used = min(max(len(X), len(Y)), max_rows)
    ix, iy = _sampled(len(X), max_rows, seed), _sampled(len(Y), max_rows, seed)
    C = squared_distances(X[ix], Y[iy])
    C += _between_classes(class_moments(X, cx, kx), class_moments(Y, cy, ky))[np.ix_(cx[ix], cy[iy])]
    n, m = C.shape
    plan, solved = transported(C, np.full(n, 1 / n), np.full(m, 1 / m), n == m)
    i, j = plan.pairs.T
    power = max(float(plan.mass @ C[i, j]), 0.0)
    left_out = len(X) + len(Y) - n - m
    warnings = (f"The plan rests on {n} of {len(X)} and {m} of {len(Y)} rows.",) if left_out else ()
    return Distance(
        math.sqrt(power),
        power,
        2.0,
        None,
        len(X),
        len(Y),
        X.shape[1],
        f"OTDD, Gaussian classes, {solved}",
        warnings,
        n_used=n_used,
    )


def _sampled(n: int, most: int, seed: int) -> Int[np.ndarray, "k"]:
    """Ascending row numbers: all, or `most` of them drawn by size and seed alone."""
    if n <= most:
        return np.arange(n)
    return np.sort(stream(seed, "otdd rows", n, most).choice(n, most, replace=False))


def _between_classes(
    left: list[tuple[np.ndarray, np.ndarray]], right: list[tuple[np.ndarray, np.ndarray]]
) -> Float[np.ndarray, "kx ky"]:
    """W_2² between the Gaussians of any two classes; one root per class of the left set."""
    block = np.empty((len(left), len(right)))
    for i, (mean, S) in enumerate(left):
        R = root(S)
        for j, (other, T) in enumerate(right):
            shift = mean - other
            block[i, j] = float(shift @ shift) + bures(R, S, T)
    return block


def _sliced(X: np.ndarray, cx: np.ndarray, kx: int, Y: np.ndarray, cy: np.ndarray, ky: int, seed: int) -> Distance:
    d = X.shape[1]
    theta = random_directions(d, PROJECTIONS, seed).vectors
    theta = np.resize(theta, (PROJECTIONS, d))  # one dimension has a single direction
    rng = stream(seed, "otdd sliced", d)
    phi = _unit(rng.standard_normal((PROJECTIONS, d)))
    psi = _unit(rng.standard_normal((PROJECTIONS, 1 + MOMENTS)))
    shared = knots(len(X), len(Y))
    each = np.empty(PROJECTIONS)
    for part in chunks(PROJECTIONS, max(len(X), len(Y)), X.itemsize):
        drawn = Directions(theta[part], np.empty(0, dtype=int))
        xs, ys = (_joined(Z, c, k, drawn.vectors, phi[part], psi[part]) for Z, c, k in ((X, cx, kx), (Y, cy, ky)))
        each[part] = sorted_distances(np.sort(xs, axis=1), np.sort(ys, axis=1), 2.0, shared)
    value, mc_se = root_mean(each, np.arange(PROJECTIONS), 2.0)
    n, m = len(X), len(Y)
    return Distance(value, value**2, 2.0, mc_se, n, m, d, "OTDD, sliced", n_used=max(n, m))


def _unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def _joined(
    Z: np.ndarray, code: np.ndarray, count: int, theta: np.ndarray, phi: np.ndarray, psi: np.ndarray
) -> Float[np.ndarray, "P n"]:
    """One number per row and direction, of the row and of its class."""
    along = project(Z, phi).astype(np.float64)
    label = np.empty((len(theta), count))
    for k in range(count):
        mine = along[:, code == k]
        mean = mine.mean(axis=1)
        mine -= mean[:, None]
        third = np.cbrt((mine**3).mean(axis=1))
        label[:, k] = psi[:, 1] * mean + psi[:, 2] * mine.std(axis=1) + psi[:, 3] * third
    return psi[:, :1] * project(Z, theta) + label[:, code]
