"""The permutation test of a distance that is ready for subsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from querist.errors import BadOption
from querist.features.profile._measures import Measure
from querist.statistics import PermutationResult, rank_p, stream
from querist.statistics.permutation import snap
from querist.statistics.relabelling import relabeller

__all__ = ["relabelled"]


def relabelled(
    made: Measure, *, clusters: Any = None, pairs: Any = None, permutations: int = 199, seed: int = 0
) -> PermutationResult[float, np.ndarray]:
    """`permutation_test` of D^p between all of the first and all of the second set: the same relabellings, the same p.

    That function takes one relabelling after another; a distance on lines is faster on all of them at once. Raises
    BadOption, TooFewRows, ShapeMismatch as that does.
    """
    if permutations < 1:
        raise BadOption("A permutation test needs permutations", value=permutations, allowed="1 or more")
    draw = relabeller(made.n, made.m, clusters=clusters, pairs=pairs)
    rng = stream(seed, "permutation test")
    second = [np.arange(made.n + made.m) >= made.n, *(draw(rng) for _ in range(permutations))]
    powers = made.powers([(np.flatnonzero(~mine), np.flatnonzero(mine)) for mine in second])
    observed = float(powers[0])
    null = snap(observed, powers[1:])
    p = rank_p(observed, null)
    return PermutationResult(p, p, observed, null)
