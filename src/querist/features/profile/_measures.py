"""A distance made ready for many subsets of one pool of images: what can be done once is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from querist.errors import BadOption, ShapeMismatch
from querist.features.arrays import common, counted, order
from querist.features.distances import (
    block_error,
    chunks,
    gaussian_w2,
    knots,
    max_sliced_wasserstein,
    otdd,
    project,
    random_directions,
    sorted_powers,
    spectrum_distance,
)
from querist.features.errors import DimensionMismatch, LabelsNeeded
from querist.features.normalise import flattened
from querist.statistics.arrays import as_array

__all__ = ["DISTANCES", "Distances", "Measure", "measure"]

Distances = Literal["sliced", "per-unit", "max-sliced", "gaussian", "spectrum", "sinkhorn", "otdd"]
DISTANCES = ("sliced", "per-unit", "max-sliced", "gaussian", "spectrum", "sinkhorn", "otdd")
SQUARED = ("gaussian", "spectrum", "sinkhorn", "otdd")
"""Distances that have no order but 2."""
EPSILON = 0.1
"""Of the mean cost between two rows of the pool: the default epsilon of the Sinkhorn divergence."""
_PIECE = 1 << 17
"""Numbers of a block of projected lines, which stay in the second-level cache while subsets are drawn from them."""

Subset = Int[np.ndarray, "images"]


class Measure:
    """D^p between any two subsets of a pool of images, as terms whose mean it is: W_p^p by direction (sliced), by unit
    (per-unit), or the one power.

    n, m: images of the first and second set; the pool numbers the first set's from 0, then the second's. d: width.
    """

    def __init__(
        self,
        n: int,
        m: int,
        d: int,
        p: float,
        terms: Callable[[Sequence[tuple[Subset, Subset]]], Float[np.ndarray, "pairs P"]],
        block: Int[np.ndarray, "P"] | None,
    ):
        self.n, self.m, self.d, self.p, self.terms, self._block = n, m, d, p, terms, block

    def powers(self, pairs: Sequence[tuple[Subset, Subset]]) -> Float[np.ndarray, "pairs"]:
        """D^p of each pair of subsets; many at once cost less than one after another."""
        return self.terms(pairs).mean(axis=1)

    def power(self, first: Subset, second: Subset) -> float:
        """D^p of one pair."""
        return float(self.powers([(first, second)])[0])

    def error(self, terms: Float[np.ndarray, "P"]) -> float | None:
        """Monte Carlo standard error of the mean of terms; None where no directions were drawn."""
        return None if self._block is None else block_error(terms, self._block)


def measure(
    S: Any,
    T: Any,
    *,
    distance: Distances = "sliced",
    p: float = 2.0,
    projections: int = 500,
    epsilon: float | None = None,
    labels: tuple[Any, Any] | None = None,
    layer: str | None = None,
    seed: int = 0,
) -> Measure:
    """The distance of S (n, d) or (n, sites, d) and T (m, …), ready for subsets of their images.

    distance "per-unit" has the mean over units of W_p^p as its power; gaussian, spectrum, sinkhorn and otdd need p = 2. epsilon
    (sinkhorn): a tenth of the mean cost where left out. labels (otdd): those of S's images and of T's. Rows of one image stay
    together. layer: what errors call it. Raises DimensionMismatch, ShapeMismatch, NonFinite, BadOption, LabelsNeeded.
    """
    if distance not in DISTANCES:
        raise BadOption("No such distance", value=distance, allowed=", ".join(DISTANCES))
    p = order(p)
    if distance in SQUARED and p != 2:
        raise BadOption(f"The {distance} distance has the order 2", value=p, allowed="p = 2")
    names = [name if layer is None else f"{name}, layer {layer}," for name in ("source", "target")]
    (left, lead), (right, other) = (flattened(Z, name) for Z, name in zip((S, T), names, strict=True))
    if left.shape[1] != right.shape[1]:
        raise DimensionMismatch(
            f"The units of {names[0]} and {names[1].rstrip(',')} differ",
            value=f"{left.shape[1]} and {right.shape[1]}",
            allowed="one width",
        )
    if lead[1:] != other[1:]:
        raise ShapeMismatch("Images have other numbers of sites", value=f"{lead} and {other}", allowed="one number")
    n, m, d, sites = lead[0], other[0], left.shape[1], int(np.prod(lead[1:], dtype=int))
    pool = np.concatenate(common(left, right))
    if distance in ("sliced", "per-unit"):
        if distance == "sliced":
            drawn = random_directions(d, counted(projections, "The number of projections"), seed)
            block = drawn.block if d > 1 else None
            if left.shape == right.shape and np.array_equal(left, right):
                # One product for both: the same row can round otherwise in another place of a matrix product.
                lines = np.tile(_projected(pool[: len(left)], drawn.vectors), (1, 2))
            else:
                lines = _projected(pool, drawn.vectors)
        else:
            block, lines = None, pool.T.copy()
        return Measure(n, m, d, p, _on_lines(lines, sites, p), block)
    between = _whole(pool.reshape(n + m, sites, d), distance, p, epsilon, labels, seed)
    return Measure(n, m, d, p, lambda pairs: np.array([[between(*pair)] for pair in pairs]), None)


def _projected(pool: np.ndarray, vectors: np.ndarray) -> Float[np.ndarray, "P rows"]:
    lines = np.empty((len(vectors), len(pool)), dtype=pool.dtype)
    for part in chunks(len(vectors), len(pool), pool.itemsize):
        lines[part] = project(pool, vectors[part])
    return lines


def _on_lines(
    lines: Float[np.ndarray, "P rows"], sites: int, p: float
) -> Callable[[Sequence[tuple[Subset, Subset]]], np.ndarray]:
    """W_p^p of each line between two subsets, gathered and sorted anew for each pair: selecting from one sort of the pool
    costs twice that. All pairs are done on a few lines before the next few, which so are read from memory once."""

    def terms(pairs: Sequence[tuple[Subset, Subset]]) -> np.ndarray:
        # Ascending numbers: neighbours in memory are gathered together, and the sort does not mind their order.
        chosen = [(_rows_of(np.sort(first), sites), _rows_of(np.sort(second), sites)) for first, second in pairs]
        shared = {sizes: knots(*sizes) for sizes in {(x.size, y.size) for x, y in chosen}}
        result = np.empty((len(pairs), len(lines)))
        step = max(1, _PIECE // lines.shape[1])
        for start in range(0, len(lines), step):
            part = lines[start : start + step]
            for row, (x, y) in zip(result, chosen, strict=True):
                xs, ys = part.take(x, 1, None, "clip"), part.take(y, 1, None, "clip")
                xs.sort(1)
                ys.sort(1)
                row[start : start + step] = sorted_powers(xs, ys, p, shared[x.size, y.size])
        return result

    return terms


def _rows_of(images: Subset, sites: int) -> Int[np.ndarray, "rows"]:
    return images if sites == 1 else (images[:, None] * sites + np.arange(sites)).ravel()


def _whole(
    stack: Float[np.ndarray, "images sites d"],
    distance: str,
    p: float,
    epsilon: float | None,
    labels: tuple[Any, Any] | None,
    seed: int,
) -> Callable[[Subset, Subset], float]:
    d, label = stack.shape[2], np.empty(0)
    if distance == "otdd":
        if labels is None:
            raise LabelsNeeded(
                "OTDD needs the labels of both sets", value="None", mend="Give both, or another distance"
            )
        label = np.repeat(np.concatenate([as_array(part) for part in labels]), stack.shape[1])
        label = label.reshape(stack.shape[:2])
    elif distance == "sinkhorn" and epsilon is None:
        epsilon = EPSILON * 2 * float(stack.reshape(-1, d).var(axis=0, dtype=np.float64).sum())

    def between(first: Subset, second: Subset) -> float:
        x, y = stack[first].reshape(-1, d), stack[second].reshape(-1, d)
        if distance == "max-sliced":
            return max_sliced_wasserstein(x, y, p, seed=seed).power
        if distance == "gaussian":
            return gaussian_w2(x, y).power
        if distance == "spectrum":
            return spectrum_distance(x, y) ** 2
        if distance == "sinkhorn":
            from querist.features.distances import rough_divergence

            return rough_divergence(x, y, epsilon)  # type: ignore[arg-type]
        return otdd(x, label[first].ravel(), y, label[second].ravel(), seed=seed).power

    return between
