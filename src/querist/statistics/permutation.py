"""Permutation tests of two samples: exchangeable rows, whole clusters, or swaps within pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.statistics.arrays import codes, finite, same_length
from querist.statistics.multiplicity import max_t
from querist.statistics.ranks import rank_p
from querist.statistics.streams import stream

__all__ = ["PermutationResult", "permutation_test"]

Statistic = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True, slots=True)
class PermutationResult:
    """p per name, p_adj (max-T over the names), the observed statistics and their null draws [B].

    For plain arrays the only name is "value".
    """

    p: Mapping[str, float]
    p_adj: Mapping[str, float]
    observed: Mapping[str, float]
    null: Mapping[str, Float[np.ndarray, "B"]]


def permutation_test(
    x: ArrayLike | Mapping[str, ArrayLike],
    y: ArrayLike | Mapping[str, ArrayLike],
    statistic: Statistic,
    *,
    clusters: tuple[ArrayLike, ArrayLike] | None = None,
    pairs: bool | None = None,
    permutations: int = 199,
    seed: int = 0,
) -> PermutationResult:
    """Is x distributed as y? Large values of `statistic(x, y)` count against it.

    x: [n, …], y: [m, …], or mappings from name to such arrays: one permutation serves all names, so that their largest
    statistic gives a family-wise p (max-T, statistics on one scale). clusters: ids of the rows of x and of y; rows of a cluster
    move together, and a cluster lies in one sample. pairs: row i of x and of y belong together, and labels are swapped within
    pairs (n = m).

    p = (1 + #{null >= observed})/(1 + B), valid at every B. Raises ShapeMismatch, TooFewRows, NonFinite, BadOption.

    Source: Phipson & Smyth (2010) for p; Westfall & Young (1993) for max-T.
    """
    if permutations < 1:
        raise BadOption("A permutation test needs permutations", value=permutations, allowed="1 or more")
    left, right = _named(x, "x"), _named(y, "y")
    if left.keys() != right.keys():
        raise ShapeMismatch("x and y must have the same names", value=f"{sorted(left)} and {sorted(right)}")
    n = same_length(*((name, values) for name, values in left.items()))
    m = same_length(*((name, values) for name, values in right.items()))
    if min(n, m) < 2:
        raise TooFewRows("A permutation test needs two rows in each sample", value=f"{n} and {m}", allowed="2 or more")
    if pairs and n != m:
        raise ShapeMismatch("Pairs need samples of one length", value=f"{n} and {m}")
    whole = {name: np.concatenate([left[name], right[name]]) for name in left}
    draw = _drawer(n, m, clusters, bool(pairs))
    rng = stream(seed, "permutation test")
    observed = {name: float(statistic(left[name], right[name])) for name in left}
    null = {name: np.empty(permutations) for name in left}
    for b in range(permutations):
        first, second = draw(rng)
        for name, values in whole.items():
            null[name][b] = statistic(values[first], values[second])
    adjusted = max_t(observed, null)
    return PermutationResult(
        p={name: rank_p(observed[name], null[name]) for name in left},
        p_adj=dict(zip(left, adjusted.tolist(), strict=True)),
        observed=observed,
        null=null,
    )


def _named(values: Any, what: str) -> dict[str, np.ndarray]:
    if isinstance(values, Mapping):
        return {str(name): finite(array, f"{what}[{name}]") for name, array in values.items()}
    return {"value": finite(values, what)}


def _drawer(
    n: int, m: int, clusters: Any, pairs: bool
) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    rows = np.arange(n + m)
    if pairs:

        def swap(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            swapped = rng.random(n) < 0.5
            first = np.where(swapped, rows[n:], rows[:n])
            return first, np.where(swapped, rows[:n], rows[n:])

        return swap
    if clusters is None:

        def shuffle(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            order = rng.permutation(n + m)
            return order[:n], order[n:]

        return shuffle
    cx, cy = np.asarray(clusters[0]), np.asarray(clusters[1])
    same_length(("x", range(n)), ("its clusters", cx))
    same_length(("y", range(m)), ("its clusters", cy))
    shared = np.intersect1d(cx, cy)
    if shared.size:
        raise BadOption("A cluster lies in both samples", value=shared[0], mend="Use pairs, or split the cluster's id")
    label, count = codes(np.concatenate([cx, cy]))
    mine = np.unique(label[:n]).size
    if min(mine, count - mine) < 2:
        raise TooFewRows("A permutation of clusters needs two in each sample", value=f"{mine} and {count - mine}")

    def move(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.zeros(count, dtype=bool)
        chosen[rng.permutation(count)[:mine]] = True
        inside = chosen[label]
        return rows[inside], rows[~inside]

    return move
