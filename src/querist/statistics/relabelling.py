"""Relabellings of two samples under which a null hypothesis leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.statistics.arrays import codes, same_length

__all__ = ["Draw", "relabeller", "unit_ids"]

Draw = Callable[[np.random.Generator], Bool[np.ndarray, "n+m"]]


def relabeller(n: int, m: int, *, clusters: Any = None, pairs: Any = None) -> Draw:
    """A function that draws who of n + m pooled rows is in the second sample (True), the first n rows being x.

    Rows are permuted; or whole clusters, as many to each side as there were; or, with pairs, the two sides of each pair
    (of each cluster, where pairs lie in clusters) are swapped by a fair coin.
    """
    second = np.arange(n + m) >= n
    if pairs is not None and pairs is not False:
        coin, units = unit_ids(n, m, clusters, pairs)
        if units < 2:
            raise TooFewRows("Swaps need two pairs, or two clusters of pairs", value=units, allowed="2 or more")
        return lambda rng: second ^ (rng.random(units) < 0.5)[coin]
    if clusters is None:
        return lambda rng: _all_but(n + m, rng.permutation(n + m)[:n])
    label, count = unit_ids(n, m, clusters, None)
    mine = np.unique(label[:n]).size
    shared = np.intersect1d(label[:n], label[n:])
    if shared.size:
        name = np.asarray(clusters[0])[label[:n] == shared[0]][0]
        raise BadOption("A cluster lies in both samples", value=str(name), mend="Use pairs, or split the cluster's id")
    if min(mine, count - mine) < 2:
        raise TooFewRows(
            "A permutation of clusters needs two in each sample",
            value=f"{mine} and {count - mine}",
            allowed="2 or more of each",
        )
    return lambda rng: _all_but(count, rng.permutation(count)[:mine])[label]


def _all_but(size: int, left_out: np.ndarray) -> np.ndarray:
    chosen = np.ones(size, dtype=bool)
    chosen[left_out] = False
    return chosen


def unit_ids(n: int, m: int, clusters: Any, pairs: Any) -> tuple[np.ndarray, int]:
    """The independent unit of each pooled row: its cluster, else its pair, else itself; and how many there are."""
    paired = _pair_ids(n, m, pairs) if pairs is not None and pairs is not False else None
    if clusters is None:
        return paired or (np.arange(n + m), n + m)
    label, count = _two_columns(n, m, clusters, "clusters")
    if paired is not None:
        cluster_of = np.empty(paired[1], dtype=int)
        cluster_of[paired[0]] = label
        if (cluster_of[paired[0]] != label).any():
            raise BadOption("A pair lies in two clusters", value="clusters and pairs", mend="Keep pairs in one cluster")
    return label, count


def _pair_ids(n: int, m: int, pairs: Any) -> tuple[np.ndarray, int]:
    if pairs is True:
        if n != m:
            raise ShapeMismatch(
                "Pairs need samples of one length", value=f"{n} and {m}", mend="Give the pairs' ids of both samples"
            )
        return np.tile(np.arange(n), 2), n
    label, count = _two_columns(n, m, pairs, "pairs")
    lone = np.setxor1d(label[:n], label[n:])
    if lone.size:
        ids = np.concatenate([np.asarray(pairs[0]), np.asarray(pairs[1])])
        raise BadOption(
            f"{lone.size} of the pairs have one side only",
            value=str(ids[label == lone[0]][0]),
            mend="Leave rows without a partner out beforehand",
        )
    return label, count


def _two_columns(n: int, m: int, ids: Any, what: str) -> tuple[np.ndarray, int]:
    if not isinstance(ids, tuple | list) or len(ids) != 2:
        raise BadOption(
            f"{what} must name the rows of both samples", value=type(ids).__name__, allowed="(ids of x, ids of y)"
        )
    of_x, of_y = np.asarray(ids[0]), np.asarray(ids[1])
    same_length(("x", range(n)), (f"its {what}", of_x))
    same_length(("y", range(m)), (f"its {what}", of_y))
    return codes(np.concatenate([of_x, of_y]), what.capitalize())
