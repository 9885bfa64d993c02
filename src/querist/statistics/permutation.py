"""Permutation tests of two samples: exchangeable rows, whole clusters, or swaps within pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics.arrays import as_array, refuse_nonfinite, same_length
from querist.statistics.multiplicity import max_t
from querist.statistics.ranks import rank_p
from querist.statistics.relabelling import relabeller
from querist.statistics.streams import stream

__all__ = ["PermutationResult", "permutation_test", "snap"]

Number = TypeVar("Number")
Draws = TypeVar("Draws")
Statistic = Callable[[np.ndarray, np.ndarray], float]
Ids = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, slots=True)
class PermutationResult(Generic[Number, Draws]):
    """p, p_adj (max-T over the names), the observed statistic and its null draws [B].

    Plain numbers and one array where x and y were arrays (p_adj is then p); dictionaries by name where they were mappings.
    """

    p: Number
    p_adj: Number
    observed: Number
    null: Draws


@overload
def permutation_test(
    x: Mapping[str, ArrayLike],
    y: Mapping[str, ArrayLike],
    statistic: Statistic,
    *,
    clusters: Ids | None = None,
    pairs: bool | Ids | None = None,
    permutations: int = 199,
    seed: int = 0,
) -> PermutationResult[dict[str, float], dict[str, np.ndarray]]: ...
@overload
def permutation_test(
    x: ArrayLike,
    y: ArrayLike,
    statistic: Statistic,
    *,
    clusters: Ids | None = None,
    pairs: bool | Ids | None = None,
    permutations: int = 199,
    seed: int = 0,
) -> PermutationResult[float, np.ndarray]: ...
def permutation_test(
    x: Any,
    y: Any,
    statistic: Statistic,
    *,
    clusters: Ids | None = None,
    pairs: bool | Ids | None = None,
    permutations: int = 199,
    seed: int = 0,
) -> PermutationResult[Any, Any]:
    """Is x distributed as y? Large values of `statistic(x, y)` count against it.

    x: [n, …], y: [m, …], kept in their own dtype; or mappings from name to such arrays: one permutation serves all names, so
    that their largest statistic, each standardised by its permutation mean and sd, gives a family-wise p_adj (max-T).
    Several rows of one unit are a further axis, or are held together by clusters. The statistic gets rows in their first
    order, and draws within rounding of the observed value count as equal to it.

    clusters: ids of the rows of x and of y; rows of a cluster move together, and a cluster lies in one sample.
    pairs: True where row i of x and of y belong together (n = m), or ids of the rows of x and of y: labels are swapped within
    pairs. With both, a cluster holds whole pairs and is swapped as one.

    p = (1 + #{null >= observed})/(1 + B), valid at every B. Memory: the pooled rows and one relabelled copy. Raises
    ShapeMismatch, TooFewRows, NonFinite (a value, or a statistic that is not finite), BadOption.

    Source: Phipson & Smyth (2010) for p; Westfall & Young (1993) for max-T.
    """
    if permutations < 1:
        raise BadOption("A permutation test needs permutations", value=permutations, allowed="1 or more")
    plain = not isinstance(x, Mapping)
    whole, n, m = _pooled(_named(x, "x"), _named(y, "y"))
    draw = relabeller(n, m, clusters=clusters, pairs=pairs)
    aligned = n == m and _aligned(pairs)
    rows, rng = np.arange(n + m), stream(seed, "permutation test")
    observed = {name: _value(statistic(values[:n], values[n:]), name) for name, values in whole.items()}
    null = {name: np.empty(permutations) for name in whole}
    for b in range(permutations):
        second = draw(rng)
        if aligned:  # row i of one side stays beside row i of the other
            first, other = np.where(second[:n], rows[n:], rows[:n]), np.where(second[:n], rows[:n], rows[n:])
        else:
            first, other = rows[~second], rows[second]
        for name, values in whole.items():
            null[name][b] = _value(statistic(values[first], values[other]), name)
    null = {name: snap(observed[name], draws) for name, draws in null.items()}
    p = {name: rank_p(observed[name], draws) for name, draws in null.items()}
    if plain:
        return PermutationResult(p["x"], p["x"], observed["x"], null["x"])
    return PermutationResult(p, max_t(observed, null, standardise=True), observed, null)


def _named(values: Any, what: str) -> dict[str, np.ndarray]:
    if isinstance(values, Mapping):
        return {str(name): refuse_nonfinite(as_array(array), f"{what}[{name}]") for name, array in values.items()}
    return {"x": refuse_nonfinite(as_array(values), what)}


def _pooled(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int, int]:
    if left.keys() != right.keys() or not left:
        raise ShapeMismatch(
            "x and y must have the same names", value=f"{sorted(left)} and {sorted(right)}", mend="Give both every name"
        )
    n, m = same_length(*left.items()), same_length(*right.items())
    if min(n, m) < 2:
        raise TooFewRows("A permutation test needs two rows in each sample", value=f"{n} and {m}", allowed="2 or more")
    for name in left:
        if left[name].shape[1:] != right[name].shape[1:]:
            raise ShapeMismatch(
                f"Rows of x and y differ in shape ({name})",
                value=f"{left[name].shape[1:]} and {right[name].shape[1:]}",
                mend="Measure both samples alike",
            )
    return {name: np.concatenate([left[name], right[name]]) for name in left}, n, m


def _aligned(pairs: Any) -> bool:
    ids = isinstance(pairs, tuple | list)
    return pairs is True or (ids and np.array_equal(np.asarray(pairs[0]), np.asarray(pairs[1])))


def _value(value: Any, name: str) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise NonFinite("The statistic must be finite under every relabelling", value=f"{number} for {name}")
    return number


def snap(observed: float, draws: Float[np.ndarray, "B"]) -> Float[np.ndarray, "B"]:
    """Draws within rounding (1e-12 of the largest magnitude) of the observed value, made equal to it.

    A relabelling that restores the grouping, or mirrors it, may sum in another order; left below the observed value by its
    last bit it would not be counted, and p would come out too small.
    """
    scale = max(abs(observed), float(np.abs(draws).max(initial=0.0)))
    return np.where(np.abs(draws - observed) <= 1e-12 * scale, observed, draws)
