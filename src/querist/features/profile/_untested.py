"""A distance beside that of two halves, without tests: for tables of many networks, where nothing is decided by it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from querist.features.profile._measures import Measure, measure
from querist.features.profile._splits import Split
from querist.features.profile._splits import splits as drawn_splits

__all__ = ["Untested", "untested", "untested_move"]


@dataclass(frozen=True, slots=True)
class Untested:
    """A sliced distance of order 2 beside its null, in units of the rows.

    value: the root of the mean power; null_mean, null_sd, null_q95: of the distances between two disjoint parts of the first
    set; excess: the root of the powers' difference, 0 where that is negative; n: images per arm of the null.
    """

    value: float
    null_mean: float
    null_sd: float
    null_q95: float
    excess: float
    n: int


def untested(
    S: Any, T: Any, *, images: Any = None, projections: int = 500, splits: int = 50, seed: int = 0
) -> Untested:
    """The gap of one layer as `gap_draws` draws it, at equal numbers of images, without permutations or interval.

    S: (n, d), T: (m, d). images: (of S, of T), the image of each row; rows of one image stay together. Raises TooFewRows below
    20 images per arm, DimensionMismatch, ShapeMismatch, NonFinite, BadOption.
    """
    clusters = None if images is None or _plain(images) else tuple(images)
    made = measure(S, T, projections=projections, seed=seed)
    drawn = drawn_splits(made.n, made.m, splits, clusters=clusters, seed=seed)
    return _beside(float(np.mean([made.power(s.a, s.t) for s in drawn])), made, drawn)


def untested_move(
    A: Any, B: Any, *, images: Any = None, projections: int = 500, splits: int = 50, seed: int = 0
) -> Untested:
    """How far a layer moved: D of all rows of two networks on the same images, beside two halves of the first network's rows.

    A, B: (n, d), row by row from the same images. Equal rows give exactly 0. Raises as `untested`.
    """
    clusters = None if images is None or _plain((images,)) else (images, images)
    made = measure(A, B, projections=projections, seed=seed)
    drawn = drawn_splits(made.n, made.m, splits, clusters=clusters, seed=seed)
    pool = np.arange(made.n)
    # A projected row depends in its last bits on its place among the others: equal rows are told to be so.
    power = 0.0 if np.array_equal(A, B) else made.power(pool, pool + made.n)
    return _beside(power, made, drawn)


def _plain(images: Any) -> bool:
    return all(len(np.unique(one)) == len(one) for one in images)


def _beside(power: float, made: Measure, drawn: list[Split]) -> Untested:
    null = np.array([made.power(s.a, s.b) for s in drawn])
    roots = np.sqrt(np.maximum(null, 0.0))
    return Untested(
        value=max(power, 0.0) ** 0.5,
        null_mean=max(float(null.mean()), 0.0) ** 0.5,
        null_sd=float(roots.std(ddof=1)),
        null_q95=float(np.quantile(roots, 0.95)),
        excess=max(power - float(null.mean()), 0.0) ** 0.5,
        n=len(drawn[0].a),
    )
