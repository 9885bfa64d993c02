"""What a unit of the ranking measures: scores of a layer beside permuted labels, its probe, its distance; a network's classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadInput, UndefinedMetric
from querist.features.captured import Capture, CapturedLayer
from querist.features.configs import RankConfig
from querist.features.normalise import fit_normaliser
from querist.features.profile import untested
from querist.features.scores import (
    gbc_of,
    h_score_of,
    leep,
    logme_of,
    nce,
    nleep_of,
    permuted,
    probe,
    transrate_of,
)

__all__ = [
    "CLASS_SCORES",
    "LAYER_SCORES",
    "chosen",
    "describe_network",
    "measure_classes",
    "measure_layer",
    "source_accuracy",
]

CLASS_SCORES = ("nce", "leep")
LAYER_SCORES = ("nleep", "logme", "h-score", "transrate", "gbc")
SHRUNK_BELOW = 10
"""Rows per unit: with fewer the plain H-score is near its largest value whatever the labels."""

Score = Callable[[ArrayLike], float]
Tables = dict[str, list[dict[str, Any]]]


def chosen(config: RankConfig) -> tuple[str, ...]:
    """The scores that are asked for, in their order."""
    return tuple(one for one in (*CLASS_SCORES, *LAYER_SCORES) if "all" in config.scores or one in config.scores)


def describe_network(config: RankConfig, name: str, network: Any, captured: Capture, few: Any) -> Tables:
    """The rows of `models` and `layers`: parameters, classes of its own, and its layers in forward order.

    The row of `layers` says which layers are ranked: not the logits where they were captured for the network's classes only.
    """
    module = getattr(network, "module", None)
    parts: Any = getattr(module, "parameters", None)
    count = sum(value.numel() for value in parts()) if parts is not None else None
    ranked = _ranked(config, network, captured, few)
    layers = [
        {
            "model": name,
            "data": "target",
            "layer": layer.name,
            "index": layer.index,
            "kind": layer.kind,
            "width": layer.width,
            "reduction": config.reduce if layer.kind != "input" else "projection",
            "dropped_units": 0,
            "n_rows": len(layer.rows),
            "n_images": captured.n,
        }
        for layer in captured
        if layer.name in ranked
    ]
    row = {
        "model": name,
        "parameters": count,
        "layers": len(layers),
        "classes": _classes(config, network, captured, few),
    }
    return {"models": [row], "layers": layers}


def _ranked(config: RankConfig, network: Any, captured: Capture, few: Any) -> set[str]:
    from querist.sources.taps import Tap

    with Tap(network, layers=config.layers, device=config.device) as tap:
        tap.look(few)
        return {site.name for site in tap.sites} & set(captured.names)


def _classes(config: RankConfig, network: Any, captured: Capture, few: Any) -> int | None:
    """Width of the network's output where that is one row of logits for each image."""
    from querist.sources.taps import Tap

    if "logits" not in captured.names:
        return None
    with Tap(network, layers="logits", device=config.device) as tap:
        tap.look(few)
        flat = [site for site in tap.sites if len(site.shape) == 1]
    return captured["logits"].width if flat and captured["logits"].width > 1 else None


def measure_layer(config: RankConfig, name: str, captures: Mapping[str, Capture], layer: str) -> Tables:
    """Scores of a layer with their nulls, the linear probe, and the distance to the source."""
    target = captures["target"]
    mine, labels = target[layer], target.labels
    where = {"model": name, "layer": layer, "index": mine.index}
    scores: list[dict[str, Any]] = []
    baselines: list[dict[str, Any]] = []
    passed: list[dict[str, Any]] = []
    try:
        Z = fit_normaliser(mine.rows, "iso")(mine.rows)
    except UndefinedMetric as error:
        return {"passed_over": [{"model": name, "what": layer, "reason": str(error)}]}
    assert labels is not None
    for score, function, note in _layer_scores(config, Z, labels):
        try:
            row = _scored(config, function(), labels)
        except UndefinedMetric as error:
            passed.append({"model": name, "what": f"{score} of {layer}", "reason": str(error)})
            continue
        scores.append({"score": score, **where, **row, "note": note})
    found = probe(Z, labels, level=1 - config.level, seed=config.seed)
    folds = [float(found.correct[found.fold == k].mean()) for k in range(int(found.fold.max()) + 1)]
    row = {"value": found.accuracy, "null_mean": found.majority, "low": found.low, "high": found.high, "folds": folds}
    baselines.append(
        {"score": "probe", **where, **row, "note": "" if found.converged else "a fit was stopped before it converged"}
    )
    if "source" in captures:
        baselines += _distance(config, where, captures["source"], mine, passed)
    return {"scores": scores, "baselines": baselines, "passed_over": passed}


def _layer_scores(
    config: RankConfig, Z: Float[np.ndarray, "n d"], labels: np.ndarray
) -> Iterator[tuple[str, Callable[[], Score], str]]:
    n, d = Z.shape
    shrunk = n < SHRUNK_BELOW * d
    made: dict[str, tuple[Callable[[], Score], str]] = {
        "nleep": (partial(nleep_of, Z, labels, seed=config.seed), ""),
        "logme": (partial(logme_of, Z), ""),
        "h-score": (
            partial(h_score_of, Z, shrunk),
            "Ledoit–Wolf shrinkage: fewer than 10 rows per unit" if shrunk else "",
        ),
        "transrate": (partial(transrate_of, Z), ""),
        "gbc": (partial(gbc_of, Z), ""),
    }
    for score in chosen(config):
        if score in made:
            yield score, *made[score]


def _scored(config: RankConfig, score: Score, labels: np.ndarray) -> dict[str, Any]:
    found = permuted(score, labels, permutations=config.permutations, seed=config.seed)
    return {"value": found.value, "p": found.p, "null_mean": found.mean, "null_sd": found.sd}


def _distance(
    config: RankConfig,
    where: Mapping[str, Any],
    source: Capture,
    mine: CapturedLayer,
    passed: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Raw W: the sliced distance of order 2, beside that of two parts of the source."""
    layer = mine.name
    if layer not in source.names:
        passed.append(
            {"model": where["model"], "what": f"w of {layer}", "reason": "it was not captured for the source"}
        )
        return []
    base = source[layer]
    try:
        scale = fit_normaliser(base.rows, "iso")
    except UndefinedMetric as error:
        passed.append({"model": where["model"], "what": f"w of {layer}", "reason": str(error)})
        return []
    options = {"projections": config.projections, "splits": config.splits, "seed": config.seed}
    found = untested(scale(base.rows), scale(mine.rows), **options)
    row = {"value": found.value, "null_mean": found.null_mean, "null_sd": found.null_sd}
    return [{"score": "w", **where, **row, "note": f"{found.n} examples per arm; a small distance ranks nothing"}]


def measure_classes(config: RankConfig, name: str, captures: Mapping[str, Capture], classes: int | None) -> Tables:
    """NCE and LEEP from what the network's own `classes` (None: it has none) say of the target."""
    target = captures["target"]
    wanted = [score for score in chosen(config) if score in CLASS_SCORES]
    if classes is None or "logits" not in target.names:
        reason = "the network's output is no row of class logits"
        return {"passed_over": [{"model": name, "what": score, "reason": reason} for score in wanted]}
    logits, labels = target["logits"], target.labels
    assert labels is not None
    passed: list[dict[str, Any]] = []
    scores = []
    theta = softmax(logits.rows)
    for score in wanted:
        function: Any = nce if score == "nce" else leep
        try:
            row = _scored(config, lambda y, function=function: function(y, theta), labels)
        except (BadInput, UndefinedMetric) as error:
            passed.append({"model": name, "what": score, "reason": str(error)})
            continue
        note = f"of the network's {logits.width} classes"
        scores.append({"score": score, "model": name, "layer": "logits", "index": logits.index, **row, "note": note})
    return {"scores": scores, "passed_over": passed}


def source_accuracy(source: Capture, classes: int | None) -> float | None:
    """Share of source rows whose largest logit is their label's; None where labels are not those of the network's classes."""
    if source.labels is None or classes is None or "logits" not in source.names:
        return None
    names = len(source.classes) if source.classes else int(source.labels.max()) + 1
    if names != classes or source.labels.min() < 0:
        return None
    return float((np.asarray(source["logits"].rows).argmax(axis=1) == source.labels).mean())


def softmax(logits: Any) -> Float[np.ndarray, "n k"]:
    """Probabilities of logits [n, k], in float64."""
    z = np.asarray(logits, dtype=np.float64)
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)
