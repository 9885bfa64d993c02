"""The gap of a layer: the distance between source and target beside that between two parts of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.features.arrays import counted
from querist.features.profile._measures import Distances, Measure, measure
from querist.features.profile._relabelled import relabelled
from querist.features.profile._splits import Split, groups
from querist.features.profile._splits import splits as drawn_splits
from querist.statistics import jackknife, max_t
from querist.statistics.arrays import check_level

__all__ = ["Gap", "GapDraws", "gap", "gap_draws", "gaps", "largest_gap", "mean_excess"]

GROUPS = 20
JACKKNIFED = 10
"""Draws that the jackknife averages over, balanced: ten random ones would add up to a tenth to its standard error."""
POWER_IS_LOW = 100


@dataclass(frozen=True, slots=True)
class GapDraws:
    """What one layer and target gave: D^p of every draw, the statistic and its permutations, the jackknife's error.

    se, degrees: of excess_p, None where p is above the level already, so that no interval will be asked of it.
    """

    order: float
    d: int
    n_c: int
    raw: Float[np.ndarray, "R"]
    null: Float[np.ndarray, "R"]
    mc_se: float | None
    observed: float
    permuted: Float[np.ndarray, "B"]
    p: float
    se: float | None
    degrees: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A layer's gap; all but excess_p, ratio, z and p in the unit of the rows.

    raw, null_mean: roots of the mean D^p between source and target, and between two parts of the source; null_q95: root of
    the 95 % quantile. excess_p = raw^p − null_mean^p, signed; excess its root, 0 where it is negative. low, high: interval of
    excess, by `interval_kind`: "jackknife" where p_adj is at most the level, else "null quantile" (low 0). ratio = raw/null_mean.
    z = excess_p over the sd of the null's draws, which overlap: it describes and gives no p. p_adj: max-T over all layers and
    targets joined. w2_scale: d·raw² of a sliced distance of order 2. n_c: images per arm.
    """

    raw: float
    null_mean: float
    null_q95: float
    excess_p: float
    excess: float
    low: float
    high: float
    interval_kind: Literal["jackknife", "null quantile"]
    ratio: float | None
    z: float | None
    mc_se: float | None
    p: float
    p_adj: float
    n_c: int
    w2_scale: float | None = None
    warnings: tuple[str, ...] = ()


def gap(
    source: Any,
    target: Any,
    *,
    distance: Distances = "sliced",
    p: float = 2.0,
    projections: int = 500,
    splits: int = 50,
    permutations: int = 199,
    level: float = 0.05,
    clusters: Any = None,
    pairs: Any = None,
    labels: Any = None,
    epsilon: float | None = None,
    seed: int = 0,
) -> Any:
    """The gap A_l of one layer, or of every layer of two mappings from layer to rows: a Gap, or a dictionary of them.

    source: (n, d) or (n, sites, d), target likewise, normalised already; the same images in the same order in every layer.
    n_c = min(floor(n/2), m) images per arm, over `splits` draws of two disjoint parts of the source and one of the target.
    p: permutations of images (whole clusters; swaps within pairs) of the distance between all of source and all of target,
    one permutation for all layers; p_adj by max-T over the layers. For several targets use `gaps`.

    Raises TooFewRows below 20 images per arm, DimensionMismatch, ShapeMismatch, NonFinite, BadOption.
    """
    plain = not isinstance(source, Mapping)
    layers = {"layer": (source, target)} if plain else {name: (source[name], target[name]) for name in source}
    options: dict[str, Any] = {
        "distance": distance,
        "p": p,
        "projections": projections,
        "splits": splits,
        "permutations": permutations,
    }
    options |= {
        "level": level,
        "clusters": clusters,
        "pairs": pairs,
        "labels": labels,
        "epsilon": epsilon,
        "seed": seed,
    }
    named = {name: {} if plain else {"layer": str(name)} for name in layers}
    found = gaps({name: gap_draws(S, T, **named[name], **options) for name, (S, T) in layers.items()}, level=level)
    return found["layer"] if plain else found


def gap_draws(
    source: Any,
    target: Any,
    *,
    distance: Distances = "sliced",
    p: float = 2.0,
    projections: int = 500,
    splits: int = 50,
    permutations: int = 199,
    level: float = 0.05,
    clusters: Any = None,
    pairs: Any = None,
    labels: Any = None,
    epsilon: float | None = None,
    layer: str | None = None,
    seed: int = 0,
) -> GapDraws:
    """All that is drawn for one layer and target; `gaps` turns several of these into gaps.

    Splits, permutations and directions depend on the seed and on the numbers of images (and the width) only, so that layers
    measured apart share them. layer: its name in errors. Other options as in `gap`.
    """
    check_level(level)
    made = measure(
        source,
        target,
        distance=distance,
        p=p,
        projections=projections,
        epsilon=epsilon,
        labels=labels,
        layer=layer,
        seed=seed,
    )
    n, m = made.n, made.m
    drawn = drawn_splits(n, m, counted(splits, "The number of splits", 2), clusters=clusters, pairs=pairs, seed=seed)
    terms = made.terms([(s.a, s.t) for s in drawn])
    raw, null = terms.mean(axis=1), made.powers([(s.a, s.b) for s in drawn])
    error = made.error(terms.mean(axis=0))
    test = relabelled(made, clusters=clusters, pairs=pairs, permutations=permutations, seed=seed)
    se, degrees = None, 0
    if test.p <= level:
        of = groups(n, m, GROUPS, clusters=clusters, pairs=pairs, seed=seed)
        turned = drawn_splits(n, m, JACKKNIFED, clusters=clusters, pairs=pairs, balanced=True, seed=seed)
        se, degrees = _jackknifed(made, turned, of)
    mean = float(raw.mean())
    return GapDraws(
        order=made.p,
        d=made.d if distance == "sliced" else 0,
        n_c=len(drawn[0].a),
        raw=raw,
        null=null,
        mc_se=None if error is None or mean <= 0 else error * mean ** (1 / made.p - 1) / made.p,
        observed=test.observed,
        permuted=test.null,
        p=test.p,
        se=se,
        degrees=degrees,
    )


def mean_excess(
    source: Any, target: Any, *, p: float = 2.0, projections: int = 500, splits: int = 50, seed: int = 0
) -> float:
    """The excess of a layer alone, from the same draws as `gap_draws`, without test or interval; sliced distance."""
    made = measure(source, target, p=p, projections=projections, seed=seed)
    drawn = drawn_splits(made.n, made.m, counted(splits, "The number of splits", 2), seed=seed)
    powers = made.powers([(s.a, s.t) for s in drawn] + [(s.a, s.b) for s in drawn])
    return _root(float(powers[: len(drawn)].mean() - powers[len(drawn) :].mean()), made.p)


def _jackknifed(made: Measure, drawn: Sequence[Split], of: np.ndarray) -> tuple[float | None, int]:
    """Standard error of excess_p over images: groups are left out of every part of the same few draws."""

    def excess(keep: np.ndarray) -> float:
        kept = [[part[keep[part]] for part in split] for split in drawn]
        powers = made.powers([(a, t) for a, _, t in kept] + [(a, b) for a, b, _ in kept])
        return float(powers[: len(kept)].mean() - powers[len(kept) :].mean())

    found = jackknife(of, excess)
    return found.se, found.n - 1


def gaps(draws: Mapping[Any, GapDraws], *, level: float = 0.05) -> dict[Any, Gap]:
    """Gaps by key (layer, or layer and target): one family, p_adj by max-T over all of them.

    Draws of one seed and size are joint over layers. Over targets they share the source's part only where all targets have
    one size; else their maximum is that of less dependent draws, which errs towards larger p_adj.
    """
    check_level(level)
    adjusted = _adjusted(draws)
    return {key: _gap(found, adjusted[key], level) for key, found in draws.items()}


def _adjusted(draws: Mapping[Any, GapDraws]) -> dict[Any, float]:
    keys = list(draws)
    observed = [draws[key].observed for key in keys]
    null = np.column_stack([draws[key].permuted for key in keys])
    return dict(zip(keys, max_t(observed, null, standardise=True).tolist(), strict=True))


def largest_gap(draws: Mapping[Any, GapDraws]) -> tuple[float, float]:
    """The largest statistic of a family, each standardised by its permutation mean and sd, and its p: is there any gap?"""
    spread = [found.permuted.std() for found in draws.values()]
    above = [found.observed - found.permuted.mean() for found in draws.values()]
    largest = max(a / s if s > 0 else 0.0 for a, s in zip(above, spread, strict=True))
    return float(largest), min(_adjusted(draws).values())


def _gap(found: GapDraws, p_adj: float, level: float) -> Gap:
    raw, null, order = float(found.raw.mean()), float(found.null.mean()), found.order
    excess_p = raw - null
    q95, sd = float(np.quantile(found.null, 0.95)), float(found.null.std(ddof=1))
    kind: Literal["jackknife", "null quantile"] = "null quantile"
    low, high = 0.0, max(excess_p, 0.0) + max(q95 - null, 0.0)
    if p_adj <= level and found.se is not None:
        from scipy.special import stdtrit

        kind, half = "jackknife", float(stdtrit(found.degrees, 1 - level / 2)) * found.se
        low, high = excess_p - half, excess_p + half
    return Gap(
        raw=_root(raw, order),
        null_mean=_root(null, order),
        null_q95=_root(q95, order),
        excess_p=excess_p,
        excess=_root(excess_p, order),
        low=_root(low, order),
        high=_root(high, order),
        interval_kind=kind,
        ratio=_root(raw, order) / _root(null, order) if null > 0 else None,
        z=excess_p / sd if sd > 0 else None,
        mc_se=found.mc_se,
        p=found.p,
        p_adj=p_adj,
        n_c=found.n_c,
        w2_scale=found.d * raw if found.d and order == 2 else None,
        warnings=_warnings(found.n_c),
    )


def _root(value: float, order: float) -> float:
    return max(value, 0.0) ** (1 / order)


def _warnings(n_c: int) -> tuple[str, ...]:
    if n_c >= POWER_IS_LOW:
        return ()
    return (f"{n_c} examples per arm: below {POWER_IS_LOW} a gap must be large to be seen.",)
