"""What one network does over all its layers: evolutions and untested excesses, matrices of layers, and a second network's move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from querist.errors import UndefinedMetric
from querist.features.captured import INPUT, Capture
from querist.features.configs import CompareConfig
from querist.features.normalise import fit_normaliser
from querist.features.profile import Gap, NetProfile, layer_matrix, net_profile, network_gap
from querist.features.relation import rows_of, sites_of
from querist.features.studies.measure_layer import Tables, pooled_row

__all__ = ["measure_matrix", "measure_move", "measure_profile", "profile_from", "profiled"]


def profiled(layers: Sequence[str]) -> list[str]:
    """Layers whose evolution is followed: those of the network, and not the input, for which a projection of pixels stands."""
    return [name for name in layers if name != INPUT]


def measure_profile(
    config: CompareConfig, model: str, source: Capture, targets: Mapping[str, Capture], layers: Sequence[str]
) -> Tables:
    """Evolutions and excesses of a network as rows, always with the sliced distance after `iso`, as the random networks'."""
    layers = profiled(layers)
    S = _rows(config, source, {"source": source, **targets}, layers)
    T = {name: _rows(config, one, {"source": source, **targets}, layers) for name, one in targets.items()}
    found = net_profile(
        S,
        T,
        permutations=None,
        projections=config.projections,
        splits=config.splits,
        seed=config.seed,
        kind=config.evolution,
    )
    evolution = [
        {"model": model, "data": data, "frame": frame, "layer_from": a, "layer_to": b, "value": value}
        for (data, frame), values in found.evolution.items()
        for (a, b), value in zip(pairwise(found.layers), values.tolist(), strict=True)
    ]
    excess = [
        {"model": model, "target": target, "layer": layer, "excess": value}
        for target, values in found.excess.items()
        for layer, value in values.items()
    ]
    pooled = []
    if model == "random-001":
        for layer in layers:
            rows = S[layer]
            pooled.append(pooled_row(model, "source", layer, fit_normaliser(rows, "iso")(rows)))
    return {"evolution": evolution, "net_profiles": excess, "pooled": pooled}


def profile_from(
    model: str,
    layers: Sequence[str],
    evolution: pl.DataFrame,
    excess: pl.DataFrame,
    tested: Mapping[Any, Gap] | None,
    level: float,
) -> NetProfile:
    """The profile of one network from its rows. tested: gaps by (target, layer), of the network whose gaps were tested."""
    mine = evolution.filter(pl.col("model") == model)
    place = {name: i for i, name in enumerate(layers)}
    found: dict[tuple[str, str], np.ndarray] = {}
    for (data, frame), part in mine.group_by("data", "frame", maintain_order=True):
        order = np.argsort([place[name] for name in part["layer_from"]])
        found[str(data), str(frame)] = part["value"].to_numpy()[order]
    own = excess.filter(pl.col("model") == model)
    by_target: dict[str, dict[str, float]] = {}
    for row in own.to_dicts():
        by_target.setdefault(row["target"], {})[row["layer"]] = row["excess"]
    profile = {target: {name: values[name] for name in layers} for target, values in by_target.items()}
    significant = None
    if tested is not None:
        significant = {
            target: tuple(name for name in layers if tested[target, name].p_adj <= level) for target in profile
        }
    return NetProfile(tuple(layers), found, profile, significant)


def measure_matrix(
    config: CompareConfig, captures: Mapping[tuple[str, str], Capture], layers: Mapping[str, Sequence[str]]
) -> Tables:
    """Layers by layers: the source beside itself and each target, and beside the second network on the source's images.

    captures by (network, data); layers by network. Every set is standardised by its own network's source.
    """
    base = captures["model", "source"]
    rows = []
    for (model, data), capture in captures.items():
        if model != "model" and data != "source":
            continue
        one = _standardised(config, base, base, layers["model"])
        other = _standardised(config, capture, captures[model, "source"], layers[model])
        found = layer_matrix(one, other, same_images=data == "source")
        for i, a in enumerate(one):
            for j, b in enumerate(other):
                values = {"spectrum": found.spectrum[i, j], "pooled": found.pooled[i, j]}
                values["cka"] = None if found.cka is None else found.cka[i, j]
                names = {"model_a": "model", "data_a": "source", "layer_a": a}
                rows.append({**names, "model_b": model, "data_b": data, "layer_b": b, **values})
    return {"matrix": rows}


def measure_move(
    config: CompareConfig, first: Capture, second: Capture, source: Capture, data: str, layers: Sequence[str]
) -> Tables:
    """N_l of every layer that both networks have, on the same images, both normalised by the first network's source."""
    a, b = {}, {}
    for name in layers:
        sites = sites_of({"first": first, "second": second, "source": source}, name)
        scale = fit_normaliser(rows_of(source, name, sites, config.seed), config.normalise)
        a[name], b[name] = (scale(rows_of(one, name, sites, config.seed)) for one in (first, second))
    found = network_gap(
        a,
        b,
        distance="sliced" if config.distance == "otdd" else config.distance,
        p=config.p,
        projections=config.projections,
        splits=config.splits,
        permutations=config.permutations,
        epsilon=config.epsilon,
        seed=config.seed,
    )
    rows = [
        {"data": data, "layer": name, "index": first[name].index, "value": gap.value, "null_mean": gap.null_mean}
        | {"p": gap.p, "p_adj": gap.p_adj}
        for name, gap in found.items()
    ]
    pooled = []
    for name in layers:
        sites = sites_of({"first": first, "second": second, "source": source}, name)
        scale = fit_normaliser(rows_of(source, name, sites, config.seed), "iso")
        pooled.append(pooled_row("against", data, name, scale(rows_of(second, name, sites, config.seed))))
    return {"network_gaps": rows, "pooled": pooled}


def _rows(
    config: CompareConfig, capture: Capture, together: Mapping[str, Capture], layers: Sequence[str]
) -> dict[str, np.ndarray]:
    return {name: rows_of(capture, name, sites_of(together, name), config.seed) for name in layers}


def _standardised(
    config: CompareConfig, capture: Capture, source: Capture, layers: Sequence[str]
) -> dict[str, np.ndarray]:
    found = {}
    for name in layers:
        sites = sites_of({"one": capture, "source": source}, name)
        try:
            scale = fit_normaliser(rows_of(source, name, sites, config.seed), "iso")
        except UndefinedMetric:
            continue
        found[name] = scale(rows_of(capture, name, sites, config.seed))
    return found
