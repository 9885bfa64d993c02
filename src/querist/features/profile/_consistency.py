"""Is a net's change of laws over layers the same for every data set, more so than in random nets of its architecture?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, TooFewRows, UndefinedMetric, UnknownName, near
from querist.features.captured import INPUT, Capture
from querist.features.normalise import fit_normaliser
from querist.features.profile._evolution import FRAMES, evolution
from querist.features.profile._gap import Gap, gap_draws, gaps, mean_excess
from querist.features.profile._statistics import change, concordance, slope
from querist.features.relation import rows_of, sites_of
from querist.statistics import kendall, rank_p, stream

__all__ = ["Consistency", "ConsistencyRow", "NetProfile", "consistency", "judged", "net_profile"]

Layers = Mapping[str, Any]
SIDES = {"C": "less", "tau": "greater", "slope": "less", "kappa": "greater"}
"""Which side of the random nets speaks for the claim."""


@dataclass(frozen=True, slots=True)
class NetProfile:
    """What one net's layers do to the source and the targets: evolutions by (data, frame), excess by target and layer.

    The source's data name is "source"; its second half, the floor's, is "floor" beside "half", its first. significant: for
    each target the layers whose gap was found (None for a net that is only compared with: its gaps were not tested).
    """

    layers: tuple[str, ...]
    evolution: dict[tuple[str, str], Float[np.ndarray, "L-1"]]
    excess: dict[str, dict[str, float]]
    significant: dict[str, tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class ConsistencyRow:
    """One statistic ("C", "tau", "slope", "kappa") of a target in a frame, beside its floor and the random nets.

    target is "" for kappa, which is over all; frame "" for slope and kappa. floor: the same between two halves of the source.
    p: (1 + #{random nets at least as extreme})/(1 + R); p_all: the largest p of the statistic over targets and frames. None
    where there is no value, or no random net.
    """

    target: str
    statistic: str
    frame: str
    value: float | None
    floor: float | None
    p: float | None
    p_all: float | None
    n_null: int
    null_q05: float | None
    null_q50: float | None
    null_q95: float | None


@dataclass(frozen=True, slots=True)
class Consistency:
    """The statistics' rows, and the profile of the net they are of."""

    rows: tuple[ConsistencyRow, ...]
    profile: NetProfile

    def row(self, statistic: str, target: str = "", frame: str = "") -> ConsistencyRow:
        """The row of a statistic, target and frame. Raises UnknownName."""
        for row in self.rows:
            if (row.statistic, row.target, row.frame) == (statistic, target, frame):
                return row
        known = [f"{row.statistic}, {row.target}, {row.frame}" for row in self.rows]
        wanted = f"{statistic}, {target}, {frame}"
        raise UnknownName("No such statistic, target and frame", value=wanted, allowed=near(wanted, known))


def consistency(
    source: Any,
    targets: Any,
    null_nets: Sequence[tuple[Any, Any]] = (),
    *,
    permutations: int = 199,
    projections: int = 500,
    splits: int = 50,
    level: float = 0.05,
    seed: int = 0,
) -> Consistency:
    """C, τ (in both frames), contraction slope and concordance of a net's layers, each beside the same of random nets.

    source: mapping from layer to rows (n, d) or (n, sites, d), in the order of the layers, or a `Capture`, whose input is left
    out. targets: mapping from name to the same, or a sequence of them (named 0, 1, …). null_nets:
    (source, targets) of nets of the same architecture with random weights, the same images.

    C = mean |E^S − E^T|/mean E^S and τ of E^S and E^T compare evolutions (see `evolution`); b is the slope of log excess over
    the layers whose gap has p_adj <= level, the same layers in random nets; κ the median τ of the excess profiles of two
    targets. A random net without a value counts as at least as extreme. Contraction and consistency are different questions:
    all rows are given, none is chosen.

    Raises TooFewRows, DimensionMismatch, ShapeMismatch, NonFinite, BadOption, UndefinedMetric for a constant layer.
    The definitions are ours.
    """
    options: dict[str, Any] = {"projections": projections, "splits": splits, "seed": seed}
    profile = net_profile(source, targets, permutations=permutations, level=level, **options)
    nulls = [net_profile(S, T, permutations=None, **options) for S, T in null_nets]
    return judged(profile, nulls)


def net_profile(
    source: Any,
    targets: Any,
    *,
    permutations: int | None = 199,
    projections: int = 500,
    splits: int = 50,
    level: float = 0.05,
    seed: int = 0,
    tested: Mapping[str, Mapping[str, Gap]] | None = None,
    kind: Literal["pooled", "joint", "spectrum"] = "pooled",
) -> NetProfile:
    """The evolutions and excesses of one net. permutations None leaves the gaps untested, as for a random net.

    tested: gaps by target and layer where they are known already. kind: of the evolutions, as `evolution` has it. Rows are
    normalised here (`iso`, by the source). The source's halves are drawn at random: files are often in the order of their
    classes, and then a first and a second half would be different laws.
    """
    S, named = _layers(source), _named(targets)
    images = {len(rows) for rows in S.values()}
    if len(images) > 1:
        raise BadOption("Layers of one set hold other images", value=f"{sorted(images)} rows", allowed="one number")
    names = tuple(S)
    for target, T in named.items():
        if tuple(T) != names:
            raise BadOption(f"Source and {target} have other layers", value=", ".join(T), allowed=", ".join(names))
    follow = partial(evolution, kind=kind, projections=projections, seed=seed)
    found = {("source", "source"): follow(S)}
    found["source", "own"] = found["source", "source"]  # its own moments are the source's
    for target, T in named.items():
        found[target, "source"], found[target, "own"] = follow(T, source=S), follow(T)
    half, floor = _halves(S, seed)
    found["half", "source"] = found["half", "own"] = follow(half)
    found["floor", "source"], found["floor", "own"] = follow(floor, source=half), follow(floor)
    scale = {name: fit_normaliser(S[name], "iso") for name in names}
    options: dict[str, Any] = {"projections": projections, "splits": splits, "seed": seed}
    excess: dict[str, dict[str, float]] = {}
    significant: dict[str, tuple[str, ...]] = {}
    for target, T in named.items():
        pairs = {name: (scale[name](S[name]), scale[name](T[name])) for name in names}
        if tested is not None:
            known = tested[target]
        elif permutations is not None:
            test = {**options, "permutations": permutations, "level": level}
            known = gaps({name: gap_draws(*pair, **test) for name, pair in pairs.items()}, level=level)
        else:
            excess[target] = {name: mean_excess(*pair, **options) for name, pair in pairs.items()}
            continue
        excess[target] = {name: known[name].excess for name in names}
        significant[target] = tuple(name for name in names if known[name].p_adj <= level)
    return NetProfile(names, found, excess, significant or None)


def judged(profile: NetProfile, nulls: Sequence[NetProfile]) -> Consistency:
    """The statistics of a profile beside those of random nets of the same layers and targets."""
    for null in nulls:
        if null.layers != profile.layers or list(null.excess) != list(profile.excess):
            raise BadOption(
                "A random net has other layers or targets",
                value=", ".join((*null.layers, *null.excess)),
                allowed=", ".join((*profile.layers, *profile.excess)),
            )
    values = _statistics(profile, profile)
    drawn = [_statistics(null, profile) for null in nulls]
    floors = _floors(profile)
    p = {key: _p(value, [d[key] for d in drawn], key[1]) for key, value in values.items()}
    rows = []
    for key, value in values.items():
        target, statistic, frame = key
        family = [p[other] for other in values if other[1] == statistic]
        known = [q for q in family if q is not None]
        null = [v for d in drawn if (v := d[key]) is not None]
        q05, q50, q95 = (float(q) for q in np.quantile(null, (0.05, 0.5, 0.95))) if null else (None, None, None)
        p_all = max(known) if known and len(known) == len(family) else None
        floor = floors.get((statistic, frame))
        rows.append(ConsistencyRow(target, statistic, frame, value, floor, p[key], p_all, len(drawn), q05, q50, q95))
    return Consistency(tuple(rows), profile)


Key = tuple[str, str, str]


def _statistics(net: NetProfile, tested: NetProfile) -> dict[Key, float | None]:
    """By (target, statistic, frame); slopes over the layers that the tested net's gaps named."""
    values: dict[Key, float | None] = {}
    for target in net.excess:
        for frame in FRAMES:
            S, T = net.evolution["source", frame], net.evolution[target, frame]
            values[target, "C", frame] = change(S, T)
            values[target, "tau", frame] = _tau(S, T)
    for target, profile in net.excess.items():
        chosen = (tested.significant or {}).get(target, ())
        at = [net.layers.index(name) for name in chosen]
        values[target, "slope", ""] = slope([profile[name] for name in chosen], at) if chosen else None
    if len(net.excess) > 1:
        values["", "kappa", ""] = concordance([list(profile.values()) for profile in net.excess.values()])
    return values


def _floors(net: NetProfile) -> dict[tuple[str, str], float | None]:
    floors: dict[tuple[str, str], float | None] = {}
    for frame in FRAMES:
        one, other = net.evolution["half", frame], net.evolution["floor", frame]
        floors["C", frame], floors["tau", frame] = change(one, other), _tau(one, other)
    return floors


def _p(value: float | None, null: list[float | None], statistic: str) -> float | None:
    if value is None or not null:
        return None
    return rank_p(value, [value if v is None else v for v in null], SIDES[statistic])  # type: ignore[arg-type]


def _tau(x: np.ndarray, y: np.ndarray) -> float | None:
    try:
        return kendall(x, y)
    except UndefinedMetric:
        return None


def _halves(S: Layers, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    n = len(next(iter(S.values())))
    if n < 4:
        raise TooFewRows("Two halves of the source need two images each", value=n, allowed="4 or more")
    order = stream(seed, "halves", n).permutation(n)
    first, second = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
    return {name: rows[first] for name, rows in S.items()}, {name: rows[second] for name, rows in S.items()}


def _layers(capture: Any) -> Layers:
    layers = capture if isinstance(capture, Mapping) else getattr(capture, "layers", None)
    if isinstance(capture, Capture):
        layers = {
            name: rows_of(capture, name, sites_of({"": capture}, name)) for name in capture.names if name != INPUT
        }
    if not isinstance(layers, Mapping):
        raise BadOption(
            "Layers must come as a mapping from name to rows",
            value=type(capture).__name__,
            allowed="a mapping, a capture",
        )
    if len(layers) < 2:
        raise TooFewRows("Consistency is asked of two layers or more", value=len(layers), allowed="2 or more")
    return layers


def _named(targets: Any) -> dict[str, Layers]:
    single = not isinstance(targets, Mapping | Sequence) or (
        isinstance(targets, Mapping)
        and not all(isinstance(v, Mapping) or hasattr(v, "layers") for v in targets.values())
    )
    if single:
        targets = {"target": targets}
    elif not isinstance(targets, Mapping):
        targets = {str(i): target for i, target in enumerate(targets)}
    if not targets:
        raise TooFewRows("Consistency needs a target", value=0, allowed="1 or more")
    reserved = {"source", "half", "floor", ""} & set(targets)
    if reserved:
        raise BadOption("A target has a name that is taken", value=sorted(reserved)[0], mend="Give it another name")
    return {str(name): _layers(target) for name, target in targets.items()}
