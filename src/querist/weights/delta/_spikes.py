"""Singular values of an update beyond those of its resampled copies, where there is no bulk to take an edge from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from querist.statistics import stream
from querist.weights.delta._lowrank import Factors
from querist.weights.nulls import predicted_edge, predicted_p, rank_edge, replica, tied_rank_p

__all__ = ["Beyond", "beyond", "factor_replicas"]


@dataclass(frozen=True, slots=True)
class Beyond:
    """n: squared singular values above `edge`, the largest of the edges of all nulls; None where nothing was drawn.
    low, high: the count at the .01 and .05 predicted edges. p: one-sided prediction of log λ_max from its draws, p_rank its
    rank among them, each the larger over the nulls, None for fewer than 19 draws."""

    n: int | None
    low: int | None
    high: int | None
    edge: float | None
    p: float | None
    p_rank: float | None


def beyond(
    evals: Float[np.ndarray, "N"],
    draws: Mapping[str, Float[np.ndarray, "r"]],
    *,
    edges: tuple[float, float] = (0.0, 0.0),
    tie: float = 1e-5,
) -> Beyond:
    """How many eigenvalues lie above all nulls. draws: largest eigenvalues of copies, by null; edges: further edges at the
    levels .01 and .05, such as those of a fitted bulk; tie: relative error of a draw."""
    drawn = {null: values for null, values in draws.items() if len(values)}
    if not drawn:
        return Beyond(None, None, None, edges[0] or None, None, None)
    top = float(evals[-1])
    ranked = [values for values in drawn.values() if len(values) >= 19]
    edge = max([edges[0], *(rank_edge(values, tie) for values in drawn.values())])
    n = int(np.count_nonzero(evals > edge))
    strict = max([edges[0], *(predicted_edge(values, 0.01) for values in ranked)], default=edge)
    loose = max([edges[1], *(predicted_edge(values, 0.05) for values in ranked)], default=edge)
    return Beyond(
        n=n,
        low=min(n, int(np.count_nonzero(evals > strict))),
        high=max(n, int(np.count_nonzero(evals > loose))),
        edge=edge,
        p=max((predicted_p(top, values, tie) for values in ranked), default=None),
        p_rank=max((tied_rank_p(top, values, tie) for values in ranked), default=None),
    )


def factor_replicas(update: Factors, kind: str, count: int, seed: int, layer: str) -> list[Factors]:
    """Copies of B·A whose factors are resampled, each on its own: the null of a low-rank update.

    kind: "signflip" gives every entry of A and of B an independent random sign, "shuffle" permutes the entries of each.
    The rank and the entries stay, correlation within and between the factors goes. Resampling the entries of the product
    itself would say no more than that its rank is low. Copy i is drawn from `stream(seed, layer, kind, i)`.
    """
    copies = []
    for i in range(count):
        rng = stream(seed, layer, kind, i)
        copies.append(Factors(replica(update.A, kind, rng), replica(update.B, kind, rng)))
    return copies
