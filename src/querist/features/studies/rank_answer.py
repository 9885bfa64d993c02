"""From scores to the answer of a ranking: ranks, baselines, agreement with the truth, findings, layout, summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.features.captured import Capture
from querist.features.configs import RankConfig
from querist.features.figures import rank as figures
from querist.features.scores import Agreement, agreement
from querist.features.studies.rank import paths_of
from querist.features.studies.rank_measure import CLASS_SCORES, chosen, source_accuracy
from querist.features.studies.rank_present import lay_out, summarise, warn
from querist.features.studies.rank_truth import matched, read_truth
from querist.features.studies.rank_verdicts import rank_findings
from querist.features.tables import AGREEMENT, BASELINES, MODELS, RANK_TABLES, SCORES, TRUTH
from querist.runs.study import Answer

__all__ = ["BASELINE_ORDER", "answer"]

BASELINE_ORDER = ("constant", "depth", "parameters", "width", "source-accuracy", "probe", "w")
Rows = list[dict[str, Any]]


def answer(config: RankConfig, tables: Mapping[str, pl.DataFrame], shared: int | None) -> Answer:
    """Rank, compare, judge, draw. shared: images that target and source share, None without source."""
    models, labels = _models(config, tables)
    place = {name: i for i, name in enumerate(config.models)}
    scores = _ranked(tables["scores"].to_dicts() if "scores" in tables else [])
    baselines = _ranked([*_plain_baselines(config, models, tables, labels), *tables["baselines"].to_dicts()])
    order = {name: i for i, name in enumerate((*chosen(config), *BASELINE_ORDER))}
    for rows in (scores, baselines):
        rows.sort(key=lambda row: (order[row["score"]], place[row["model"]], row["index"]))
    passed = tables["passed_over"].to_dicts() if "passed_over" in tables else []
    truth = TRUTH.frame([])
    agreed: Rows = []
    if config.truth:
        truth, left = matched(read_truth(config.truth), config.target, _candidates(tables))
        passed += left
        agreed, left = _agreement(config, truth, scores, baselines)
        passed += left
    ready = {
        **tables,
        "scores": SCORES.frame(scores),
        "baselines": BASELINES.frame(baselines),
        "agreement": AGREEMENT.frame(agreed),
        "truth": truth,
        "models": MODELS.frame(models),
        "passed_over": passed,
    }
    ready = {spec.name: spec.frame(ready.get(spec.name, [])) for spec in RANK_TABLES}
    findings = rank_findings(config, ready, agreed, shared)
    drawn = figures.draw(config, ready)
    told = [
        {"what": f"{row['what']} ({row['model']})" if row["model"] else row["what"], "reason": row["reason"]}
        for row in passed
    ]
    return Answer(
        tables=ready,
        findings=findings,
        figures=drawn,
        layout=lay_out(config, ready, drawn),
        summary=summarise(config, ready, scores, baselines),
        warnings=warn(config, ready),
        passed_over=told,
    )


def _candidates(tables: Mapping[str, pl.DataFrame]) -> set[tuple[str, str]]:
    return {(row["model"], row["layer"]) for row in tables["layers"].to_dicts() if row["kind"] != "input"}


def _models(config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> tuple[Rows, np.ndarray]:
    """Rows of the table `models` in the order of the command, and the target's labels."""
    known = {row["model"]: row for row in tables["models"].to_dicts()}
    rows, labels = [], None
    for name in config.models:
        paths = paths_of(tables, name)
        row = dict(known[name])
        if "source" in paths:
            row["source_accuracy"] = source_accuracy(Capture.read(paths["source"]), row["classes"])
        if labels is None:
            labels = Capture.read(paths["target"]).labels
        rows.append(row)
    assert labels is not None
    return rows, labels


def _plain_baselines(config: RankConfig, models: Rows, tables: Mapping[str, pl.DataFrame], labels: np.ndarray) -> Rows:
    """Constant, depth, parameters, width and source-accuracy of every network and layer."""
    majority = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    of = {row["model"]: row for row in models}
    layers = tables["layers"].filter(pl.col("kind") != "input").to_dicts()
    deepest: dict[str, int] = {}
    for layer in layers:
        deepest[layer["model"]] = max(deepest.get(layer["model"], 0), layer["index"])
    rows = []
    for layer in layers:
        model = of[layer["model"]]
        values = {
            "constant": majority,
            "depth": layer["index"] / deepest[layer["model"]],
            "parameters": model["parameters"],
            "width": layer["width"],
            "source-accuracy": model["source_accuracy"],
        }
        where = {name: layer[name] for name in ("model", "layer", "index")}
        rows += [{"score": name, **where, "value": value} for name, value in values.items() if value is not None]
    return rows


def _ranked(rows: Rows) -> Rows:
    """Rows with their place among those of one score: 1 for the largest value; the distance w has none."""
    values: dict[str, np.ndarray] = {}
    for row in rows:
        values.setdefault(row["score"], np.array([one["value"] for one in rows if one["score"] == row["score"]]))
    return [
        {**row, "rank": None if row["score"] == "w" else 1 + int((values[row["score"]] > row["value"]).sum())}
        for row in rows
    ]


def _agreement(config: RankConfig, truth: pl.DataFrame, scores: Rows, baselines: Rows) -> tuple[Rows, Rows]:
    """Weighted τ of every score and baseline with the truth, over the candidates that all cells have."""
    used = truth.filter("used")
    if not used.height:
        return [], [
            {"model": "", "what": "agreement", "reason": "no truth is of a network and layer that are ranked here"}
        ]
    candidates = used.select("model", "layer").unique(maintain_order=True).rows()
    cells = used.select("target", "seed").unique(maintain_order=True).rows()
    reached = {(row["target"], row["seed"], row["model"], row["layer"]): row["accuracy"] for row in used.to_dicts()}
    true = np.array([[reached[(*cell, *candidate)] for candidate in candidates] for cell in cells])
    orders = np.ptp(true, axis=1) > 0
    passed: Rows = [
        {
            "model": "",
            "what": f"truth of {target}, seed {seed}",
            "reason": "all its accuracies are equal: it orders nothing",
        }
        for (target, seed), kept in zip(cells, orders, strict=True)
        if not kept
    ]
    cells, true = [cell for cell, kept in zip(cells, orders, strict=True) if kept], true[orders]
    if not cells:
        return [], passed
    named = [*chosen(config), *BASELINE_ORDER]
    table = _values([*scores, *baselines])
    depth = _column(table, "depth", candidates)
    rows = []
    for name in named:
        column = _column(table, name, candidates)
        if column is None or depth is None:
            if any(row["score"] == name for row in (*scores, *baselines)):
                reason = "it has no value for some networks and layers that have a truth"
                passed.append({"model": "", "what": f"agreement of {name}", "reason": reason})
            continue
        signed = -column if name == "w" else column
        shape = true.shape
        found = agreement(
            np.broadcast_to(signed, shape),
            true,
            np.broadcast_to(depth, shape),
            level=1 - config.level,
            seed=config.seed,
        )
        rows.append(_agreement_row(config, name, found, cells, candidates))
    return rows, passed


def _values(rows: Rows) -> dict[tuple[str, str, str], float]:
    return {(row["score"], row["model"], row["layer"]): row["value"] for row in rows}


def _column(
    table: Mapping[tuple[str, str, str], float], score: str, candidates: Sequence[tuple[str, str]]
) -> np.ndarray | None:
    """The score's value of each candidate; None where one is missing."""
    values = [table.get((score, model, "logits" if score in CLASS_SCORES else layer)) for model, layer in candidates]
    return None if any(value is None for value in values) else np.array(values, dtype=float)


def _agreement_row(
    config: RankConfig, name: str, found: Agreement, cells: Sequence[Any], candidates: Sequence[Any]
) -> dict[str, Any]:
    return {
        "score": name,
        "target": config.target,
        "tau_w": found.tau_w,
        "low": found.low,
        "high": found.high,
        "difference_to_depth": found.difference,
        "diff_low": found.diff_low,
        "diff_high": found.diff_high,
        "cells": len(cells),
        "candidates": len(candidates),
    }
