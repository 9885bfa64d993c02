"""What a score is worth when the labels say nothing: the same score on permuted labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.statistics import rank_p, stream
from querist.statistics.arrays import as_array
from querist.statistics.permutation import snap

__all__ = ["ScoreNull", "permuted"]


@dataclass(frozen=True, slots=True)
class ScoreNull:
    """A score, its p, and its draws under permuted labels [B]."""

    value: float
    p: float
    null: Float[np.ndarray, "B"]

    @property
    def mean(self) -> float:
        return float(self.null.mean())

    @property
    def sd(self) -> float:
        return float(self.null.std(ddof=1)) if self.null.size > 1 else 0.0


def permuted(score: Callable[[ArrayLike], float], y: ArrayLike, *, permutations: int = 99, seed: int = 0) -> ScoreNull:
    """`score(y)` beside `score` of permuted labels; p = (1 + #{null >= value})/(1 + B), large scores counting.

    score: such as `logme_of(Z)`, which decomposes the rows once for all labellings. Permutations depend on the seed and the
    number of rows only, so that layers and nets share them. Raises BadOption, and what the score raises.
    """
    if permutations < 1:
        raise BadOption("A null needs permutations", value=permutations, allowed="1 or more")
    labels = as_array(y)
    value = float(score(labels))
    rng = stream(seed, "permuted labels", len(labels))
    draws = snap(
        value, np.array([score(labels[rng.permutation(len(labels))]) for _ in range(permutations)], dtype=float)
    )
    return ScoreNull(value, rank_p(value, draws), draws)
