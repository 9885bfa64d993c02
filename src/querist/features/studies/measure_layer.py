"""One layer of a comparison: its gap to every target, classes, single units, pooled values, and probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from querist.errors import TooFewRows, UndefinedMetric
from querist.features.captured import Capture
from querist.features.configs import CompareConfig
from querist.features.distances import per_unit_wasserstein
from querist.features.errors import BadLabels
from querist.features.normalise import Normaliser, fit_normaliser
from querist.features.profile import GapDraws, gap_draws, splits
from querist.features.relation import Relation, related, rows_of, sites_of
from querist.features.scores import probe

__all__ = ["BINS", "EDGE", "class_names", "measure_layer", "pooled_row", "probe_rows"]

Tables = dict[str, list[dict[str, Any]]]
EDGE, BINS = 6.0, 96
"""Of the densities of pooled values: from −6 to 6 standard deviations."""
TOP_UNITS = 10
UNIT_QUANTILES = (0.5, 0.9, 1.0)


def measure_layer(config: CompareConfig, source: Capture, targets: Mapping[str, Capture], layer: str) -> Tables:
    """The rows of every table that one layer gives. Targets by their name."""
    tables: Tables = {name: [] for name in ("layers", "draws", "probes", "units", "pooled", "passed_over")}
    sites = sites_of({"source": source, **targets}, layer)
    S = rows_of(source, layer, sites, config.seed)
    scale = fit_normaliser(S, config.normalise)
    pooled = fit_normaliser(S, "iso")
    tables["layers"].append(_layer_row(config, source, layer, "source", S, scale))
    tables["pooled"].append(pooled_row("model", "source", layer, pooled(S)))
    S = scale(S)
    for name, capture in targets.items():
        T = rows_of(capture, layer, sites, config.seed)
        tables["layers"].append(_layer_row(config, capture, layer, name, T, scale))
        tables["pooled"].append(pooled_row("model", name, layer, pooled(T)))
        probe_rows(config, tables, capture, layer, name, T)
        relation = related(source, capture, config.paired)
        X, Y = S[relation.source], scale(T)[relation.target]
        labels = _labels(source, relation.source), _labels(capture, relation.target)
        found = _draws(config, X, Y, relation.pairs, labels)
        place = {"target": name, "layer": layer, "index": source[layer].index}
        tables["draws"].append({**place, "class": "", **_draws_row(found)})
        tables["units"] += _units(config, X, Y, scale, place)
        if config.class_gaps:
            _classes(config, tables, X, Y, relation, (source, capture), place)
    return tables


def class_names(source: Capture, target: Capture) -> dict[str, tuple[int, int]]:
    """Classes that both sets name, as name to the labels of each; numbers alone are names only within one source."""
    if source.labels is None or target.labels is None:
        return {}
    if source.classes is not None and target.classes is not None:
        places = {name: i for i, name in enumerate(target.classes)}
        return {name: (i, places[name]) for i, name in enumerate(source.classes) if name in places}
    if source.source != target.source:
        return {}
    both = np.intersect1d(source.labels, target.labels)
    return {str(label): (int(label), int(label)) for label in both}


def pooled_row(model: str, data: str, layer: str, values: np.ndarray) -> dict[str, Any]:
    """The density of standardised values, all units and images together, as a row of the table `pooled`."""
    flat = values.reshape(-1)
    counts = np.histogram(flat, BINS, (-EDGE, EDGE))[0]
    density = counts / flat.size / (2 * EDGE / BINS)
    return {
        "model": model,
        "data": data,
        "layer": layer,
        "density": density.tolist(),
        "outside": 1 - counts.sum() / flat.size,
    }


def _layer_row(
    config: CompareConfig, capture: Capture, layer: str, data: str, rows: np.ndarray, scale: Normaliser
) -> dict[str, Any]:
    found = capture[layer]
    return {
        "model": "model",
        "data": data,
        "layer": layer,
        "index": found.index,
        "kind": found.kind,
        "width": found.width,
        "reduction": capture.reduce if found.kind != "input" else "flat",
        "dropped_units": scale.dropped,
        "n_rows": int(np.prod(rows.shape[:-1])),
        "n_images": len(rows),
    }


def _labels(capture: Capture, images: np.ndarray) -> np.ndarray | None:
    return None if capture.labels is None else capture.labels[images]


def _draws(config: CompareConfig, X: np.ndarray, Y: np.ndarray, pairs: Any, labels: tuple[Any, Any]) -> GapDraws:
    return gap_draws(
        X,
        Y,
        distance=config.distance,
        p=config.p,
        projections=config.projections,
        splits=config.splits,
        permutations=config.permutations,
        level=config.level,
        pairs=pairs,
        labels=labels if config.distance == "otdd" else None,
        epsilon=config.epsilon,
        seed=config.seed,
    )


def _draws_row(found: GapDraws) -> dict[str, Any]:
    row = {name: getattr(found, name) for name in ("order", "d", "n_c", "mc_se", "observed", "p", "se", "degrees")}
    return {**row, **{name: getattr(found, name).tolist() for name in ("raw", "null", "permuted")}}


def _units(
    config: CompareConfig, X: np.ndarray, Y: np.ndarray, scale: Normaliser, place: dict[str, Any]
) -> list[dict[str, Any]]:
    """One-dimensional distances of single units, from the first split: equal numbers of images on all sides."""
    if config.normalise == "whiten":  # its axes are no units
        return []
    split = splits(len(X), len(Y), 1, seed=config.seed)[0]
    pool = [part.reshape(-1, X.shape[-1]) for part in (X[split.a], Y[split.t - len(X)], X[split.b])]
    value, null = (per_unit_wasserstein(pool[0], other, config.p) for other in pool[1:])
    shift = Y.reshape(-1, X.shape[-1]).mean(0, dtype=np.float64) - X.reshape(-1, X.shape[-1]).mean(0, dtype=np.float64)
    rows = [
        {**place, "quantile": q, "value": float(np.quantile(value, q)), "null": float(np.quantile(null, q))}
        for q in UNIT_QUANTILES
    ]
    number = np.flatnonzero(scale.kept)
    rows += [
        {**place, "unit": int(number[i]), "value": value[i], "null": null[i], "shift": shift[i]}
        for i in np.argsort(-value, kind="stable")[:TOP_UNITS].tolist()
    ]
    return rows


def probe_rows(
    config: CompareConfig, tables: Tables, capture: Capture, layer: str, target: str, rows: np.ndarray
) -> None:
    """Add the probe's row of a layer, where the target has labels; classes of fewer than five images are left out."""
    if not config.probe:
        return
    if capture.labels is None:
        row = {"model": "model", "what": f"probe on {target}", "reason": "the target has no labels"}
        tables["passed_over"].append(row)
        return
    sites = rows.shape[1] if rows.ndim == 3 else 1
    labels, images = np.repeat(capture.labels, sites), np.repeat(np.arange(capture.n), sites)
    counts = np.bincount(capture.labels - capture.labels.min())
    enough = np.isin(labels - capture.labels.min(), np.flatnonzero(counts >= 5))
    for small in np.flatnonzero((counts > 0) & (counts < 5)).tolist():
        what = f"class {_name(capture, small + int(capture.labels.min()))} of {target} in the probe"
        reason = f"it has {counts[small]} examples, fewer than five"
        tables["passed_over"].append({"model": "model", "what": what, "reason": reason})
    if np.count_nonzero(counts >= 5) < 2:
        reason = "A probe needs two classes of five examples or more"
        tables["passed_over"].append({"model": "model", "what": f"probe of {layer} on {target}", "reason": reason})
        return
    flat = rows.reshape(-1, rows.shape[-1])[enough]
    clusters = images[enough] if sites > 1 else None
    found = probe(flat, labels[enough], clusters=clusters, level=1 - config.level, seed=config.seed)
    row = {name: getattr(found, name) for name in ("accuracy", "low", "high", "majority", "converged")}
    tables["probes"].append({"target": target, "layer": layer, **row})


def _name(capture: Capture, label: int) -> str:
    known = capture.classes is not None and 0 <= label < len(capture.classes)
    return capture.classes[label] if known and capture.classes is not None else str(label)


def _classes(
    config: CompareConfig,
    tables: Tables,
    X: np.ndarray,
    Y: np.ndarray,
    relation: Relation,
    captures: tuple[Capture, Capture],
    place: dict[str, Any],
) -> None:
    """Gaps of single classes; those with too few images are passed over by name."""
    source, target = captures
    for name, (one, other) in class_names(source, target).items():
        s = np.flatnonzero(_labels(source, relation.source) == one)
        t = np.flatnonzero(_labels(target, relation.target) == other)
        if relation.kind == "paired":
            s = t = np.intersect1d(s, t)
        pairs = (np.arange(len(s)),) * 2 if relation.kind == "paired" else None
        try:
            found = _draws(config, X[s], Y[t], pairs, (np.zeros(len(s)), np.zeros(len(t))))
        except (TooFewRows, BadLabels, UndefinedMetric) as error:
            what = f"class {name} of {place['target']}"
            what += (
                "" if isinstance(error, TooFewRows) else f" at {place['layer']}"
            )  # too few in one layer, too few in all
            tables["passed_over"].append({"model": "model", "what": what, "reason": str(error)})
            continue
        tables["draws"].append({**place, "class": name, **_draws_row(found)})
