"""The gap between two nets of one lineage: how far each layer moved on the same images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from querist.features.arrays import counted
from querist.features.profile._measures import Distances, measure
from querist.features.profile._relabelled import relabelled
from querist.features.profile._splits import splits as drawn_splits
from querist.statistics import max_t

__all__ = ["NetworkGap", "network_gap"]


@dataclass(frozen=True, slots=True)
class NetworkGap:
    """How far a layer moved between two nets of one lineage on the same images: value N_l, the null's mean, p and p_adj."""

    value: float
    null_mean: float
    p: float
    p_adj: float


def network_gap(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    distance: Distances = "sliced",
    p: float = 2.0,
    projections: int = 500,
    splits: int = 50,
    permutations: int = 199,
    clusters: Any = None,
    epsilon: float | None = None,
    seed: int = 0,
) -> dict[str, NetworkGap]:
    """N_l = D(P_l^a, P_l^b) for every layer of two nets of the same lineage (before and after fine-tuning), same images.

    a, b: mappings from layer to rows (n, d) or (n, sites, d), normalised alike, row i of both from image i. Rows that did not
    change give exactly 0. Null: two halves of net a; p: labels of the nets swapped within images, p_adj by max-T over layers.
    Units are matched by position, so nets of different training are compared by spectrum_distance or cka instead.

    Raises TooFewRows below 40 images, DimensionMismatch, ShapeMismatch, NonFinite, BadOption.
    """
    values, nulls, observed, permuted, alone = {}, {}, [], [], {}
    for name in a:
        options: dict[str, Any] = {"distance": distance, "p": p, "projections": projections, "epsilon": epsilon}
        made = measure(a[name], b[name], layer=str(name), seed=seed, **options)
        n = made.n
        same = np.arange(n), np.arange(n)
        halves = drawn_splits(
            n, made.m, counted(splits, "The number of splits", 2), clusters=clusters, pairs=same, seed=seed
        )
        test = relabelled(made, clusters=clusters, pairs=True, permutations=permutations, seed=seed)
        values[name] = max(test.observed, 0.0) ** (1 / made.p)
        nulls[name] = float(made.powers([(s.a, s.b) for s in halves]).mean()) ** (1 / made.p)
        observed.append(test.observed)
        permuted.append(test.null)
        alone[name] = test.p
    adjusted = max_t(observed, np.column_stack(permuted), standardise=True)
    return {
        name: NetworkGap(values[name], nulls[name], alone[name], float(q)) for name, q in zip(a, adjusted, strict=True)
    }
