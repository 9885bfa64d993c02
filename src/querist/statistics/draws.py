"""How often each row is drawn: integer weights that replace a resample of the rows themselves."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, TooFewRows
from querist.statistics.arrays import codes, same_length
from querist.statistics.streams import stream

__all__ = ["resample_weights"]


def resample_weights(
    n: int,
    replicates: int,
    *,
    kind: Literal["poisson", "multinomial"] = "poisson",
    cluster: ArrayLike | None = None,
    seed: int = 0,
) -> Iterator[Int[np.ndarray, "n"]]:
    """How often each of n rows is drawn, one int array [n] per replicate, a new array each time.

    A statistic made of weighted cumulative sums takes these weights on rows sorted once, so no replicate sorts again. Rows of a
    cluster share their weight. "poisson" draws each count independently (the total varies), "multinomial" keeps the total
    number of clusters (or rows). Raises at once, not at the first replicate: BadOption, ShapeMismatch, TooFewRows, BadValues
    for a missing id.

    Source: Chamandy et al. (2012) for the Poisson bootstrap.
    """
    if kind not in ("poisson", "multinomial"):
        raise BadOption("No such kind of weights", value=kind, allowed="poisson, multinomial")
    if replicates < 1:
        raise BadOption("Resampling needs replicates", value=replicates, allowed="1 or more")
    label, count = None, n
    if cluster is not None:
        label, count = codes(cluster, "Clusters")
        same_length(("rows", range(n)), ("cluster", label))
    if count < 1:
        raise TooFewRows("There is nothing to draw from", value=n, allowed="1 or more")
    rng = stream(seed, "resample weights", kind)
    draw = _poisson if kind == "poisson" else _multinomial

    def weights() -> Iterator[np.ndarray]:
        for _ in range(replicates):
            drawn = draw(count, rng)
            yield drawn if label is None else drawn[label]

    return weights()


def _multinomial(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.bincount(rng.integers(0, count, count), minlength=count)


def _poisson(count: int, rng: np.random.Generator) -> np.ndarray:
    """Poisson(1) by look-up of 16 bits; where a step of the distribution cuts the cell, 53 bits more decide."""
    cells, cut, steps = _table()
    high = rng.integers(0, 65536, count, dtype=np.uint16)
    drawn = cells[high]
    left_open = np.flatnonzero(cut[high])
    drawn[left_open] = np.searchsorted(steps, (high[left_open] + rng.random(left_open.size)) / 65536, side="right")
    return drawn


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The count of each of 65,536 cells of [0, 1), which cells a step of the distribution cuts, and the steps."""
    steps = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(20)])
    cells = np.searchsorted(steps, np.arange(65536) / 65536, side="right")
    cut = cells != np.searchsorted(steps, (np.arange(65536) + 1) / 65536, side="left")
    return cells, cut, steps
