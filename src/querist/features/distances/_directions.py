"""Random directions in orthogonal blocks, and the projection of rows onto them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from querist.errors import BadValues, ShapeMismatch, TooFewRows
from querist.features.arrays import rows
from querist.statistics import stream

__all__ = ["FEW", "Directions", "chunks", "given_directions", "random_directions"]

FEW = 30
"""Below so many projections the Monte Carlo error of the mean is itself poorly known."""
_BYTES = 64 << 20
_LEAST = 200
"""Directions projected at a time: matrix products of fewer rows cost up to twice as much."""
_MOST_BYTES = 512 << 20


class Directions(NamedTuple):
    """Unit vectors (P, d) and the block of each (P,): orthogonal inside a block, blocks independent."""

    vectors: Float[np.ndarray, "P d"]
    block: Int[np.ndarray, "P"]


@functools.lru_cache(maxsize=8)
def random_directions(d: int, projections: int, seed: int) -> Directions:
    """`projections` directions, each uniform on the sphere of R^d, in orthogonal blocks; arrays are read-only.

    Blocks are whole orthogonal bases where four of them fit, so that a mean of squares over a block is exact; else there are
    eight blocks, for the spread between blocks is all that tells the Monte Carlo error. In one dimension a single
    direction says all.

    Source: QR of a Gaussian matrix with the signs of R's diagonal (Mezzadri 2007), which makes the block Haar.
    """
    if d == 1:
        return _read_only(np.ones((1, 1)), np.zeros(1, dtype=np.int64))
    size = d if projections >= 4 * d else max(1, min(d, projections // 8))
    rng = stream(seed, "directions", d)
    vectors = np.empty((projections, d))
    for start in range(0, projections, size):
        count = min(size, projections - start)
        q, r = np.linalg.qr(rng.standard_normal((d, count)))
        vectors[start : start + count] = (q * np.where(np.diag(r) < 0, -1.0, 1.0)).T
    return _read_only(vectors, np.arange(projections) // size)


def given_directions(values: Any, d: int) -> Directions:
    """A person's directions (P, d), normalised here, each a block of its own.

    Raises ShapeMismatch for another width, TooFewRows, NonFinite, BadValues for a direction of length 0.
    """
    vectors = rows(values, "directions").astype(np.float64)
    if vectors.shape[1] != d:
        raise ShapeMismatch("Directions have another width than the rows", value=vectors.shape, allowed=f"(P, {d})")
    if not len(vectors):
        raise TooFewRows("There are no directions", value=0, allowed="1 or more")
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if (length == 0).any():
        raise BadValues("A direction has length 0", value=f"row {int(np.argmin(length))}", allowed="non-zero rows")
    return Directions(vectors / length, np.arange(len(vectors)))


def chunks(projections: int, longest: int, itemsize: int) -> list[slice]:
    """Runs of directions whose projections of `longest` rows take 64 MiB, but at least 200 of them up to 512 MiB."""
    per_direction = max(1, longest * itemsize)
    step = max(_BYTES // per_direction, min(_LEAST, _MOST_BYTES // per_direction), 1)
    count = -(-projections // step)
    even = -(-projections // count)
    return [slice(start, min(start + even, projections)) for start in range(0, projections, even)]


def _read_only(vectors: np.ndarray, block: np.ndarray) -> Directions:
    vectors.flags.writeable = block.flags.writeable = False
    return Directions(vectors, block)
