"""From cells to the answer of a sweep: paired differences, break-even, findings, layout, the summary's own keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.features.configs import FreezeConfig
from querist.features.figures import freeze as figures
from querist.features.freezing import BreakEven, break_even, paired_effect
from querist.features.studies.findings import capture_health, overlapping
from querist.features.studies.freeze_data import Target
from querist.features.studies.freeze_present import accuracies, lay_out, summarise, warn
from querist.features.studies.freeze_verdicts import depth_finding, reuse_finding
from querist.features.studies.opening import Material
from querist.features.tables import EFFECTS, FREEZE_TABLES, TARGETS
from querist.results.finding import Finding
from querist.runs.study import Answer

__all__ = ["ALL_TARGETS", "answer"]

ALL_TARGETS = "*"
Rows = list[dict[str, Any]]


def answer(
    config: FreezeConfig,
    targets: Sequence[Target],
    ks: Sequence[int],
    tables: Mapping[str, pl.DataFrame],
    material: Material,
) -> Answer:
    """Join cells into effects, judge, draw."""
    order = {arm: place for place, arm in enumerate(config.arms)}
    place = {target.name: i for i, target in enumerate(targets)}
    cells = _with_scratch(config, tables["cells"], ks)
    cells = cells.sort(
        pl.col("target").replace_strict(place, return_dtype=pl.Int64),
        pl.col("arm").replace_strict(order, return_dtype=pl.Int64),
        "k",
        "repeat",
    )
    names = [target.name for target in targets]
    groups = {name: [name] for name in names} | ({ALL_TARGETS: names} if len(names) > 1 else {})
    effects = _effects(config, cells, groups, ks)
    evens = {group: _even(config, cells, members, ks) for group, members in groups.items()}
    ready = {
        **tables,
        "cells": cells,
        "effects": EFFECTS.frame(effects),
        "targets": TARGETS.frame([_target_row(target, evens[target.name]) for target in targets]),
    }
    ready = {spec.name: ready.get(spec.name, spec.frame([])) for spec in FREEZE_TABLES}
    findings = _findings(config, cells, groups, effects, evens, ready, targets, material)
    drawn = figures.draw(config, names, ks, ready)
    main = evens[ALL_TARGETS if len(names) > 1 else names[0]]
    passed = [{"what": row["what"], "reason": row["reason"]} for row in ready["passed_over"].to_dicts()]
    return Answer(
        tables=ready,
        findings=findings,
        figures=drawn,
        layout=lay_out(config, names, ks, drawn, bool(passed)),
        summary=summarise(config, names, ks, cells, effects, main, ready),
        warnings=warn(config, cells, ready),
        passed_over=passed,
    )


def _with_scratch(config: FreezeConfig, cells: pl.DataFrame, ks: Sequence[int]) -> pl.DataFrame:
    """`scratch` is `random` with nothing frozen: trained once, and there under both names."""
    if "scratch" not in config.arms or "random" not in config.arms or 0 not in ks:
        return cells
    twins = cells.filter((pl.col("arm") == "random") & (pl.col("k") == 0)).with_columns(arm=pl.lit("scratch"))
    return pl.concat([cells, twins])


def _effects(config: FreezeConfig, cells: pl.DataFrame, groups: Mapping[str, Sequence[str]], ks: Sequence[int]) -> Rows:
    rows = []
    for group, members in groups.items():
        step = 1 / int(cells.filter(pl.col("target").is_in(list(members)))["n_test"].min())  # type: ignore[arg-type]
        for k in ks:
            first = accuracies(cells, members, "pretrained", k, config.repeats)
            for arm in config.arms:
                if arm == "pretrained":
                    continue
                other = accuracies(cells, members, arm, 0 if arm == "scratch" else k, config.repeats)
                found = paired_effect(first, other, level=1 - config.level, resolution=step)
                row = {"target": group, "k": k, "contrast": f"pretrained - {arm}", "estimate": found.estimate}
                rows.append(row | {"low": found.low, "high": found.high, "p": found.p, "n": found.n})
    return rows


def _even(config: FreezeConfig, cells: pl.DataFrame, members: Sequence[str], ks: Sequence[int]) -> BreakEven | None:
    """Break-even of the pretrained arm; None where no cell has an accuracy for every number of blocks."""
    table = np.column_stack([accuracies(cells, members, "pretrained", k, config.repeats) for k in ks])
    if not np.isfinite(table).all(axis=1).any():
        return None
    return break_even(table, ks, delta=config.delta, level=1 - config.level, seed=config.seed)


def _target_row(target: Target, even: BreakEven | None) -> dict[str, Any]:
    sizes = np.unique(target.test_labels, return_counts=True)[1]
    row = {
        "target": target.name,
        "train": target.train.name,
        "test": target.test.name,
        "classes": len(target.classes),
        "majority_accuracy": float(sizes.max() / sizes.sum()),
        "n_test": int(sizes.sum()),
    }
    if even is None:
        return row
    return row | {"best_k": even.best_k, "break_even_k": even.k, "low": even.low, "high": even.high}


def _findings(
    config: FreezeConfig,
    cells: pl.DataFrame,
    groups: Mapping[str, Sequence[str]],
    effects: Rows,
    evens: Mapping[str, BreakEven | None],
    tables: Mapping[str, pl.DataFrame],
    targets: Sequence[Target],
    material: Material,
) -> list[Finding]:
    found = []
    for group, members in groups.items():
        name = "all targets" if group == ALL_TARGETS else group
        mine = cells.filter(pl.col("target").is_in(list(members)))
        found.append(depth_finding(config, name, evens[group], mine))
    for group, members in groups.items():
        name = "" if len(groups) == 1 else ("all targets " if group == ALL_TARGETS else f"{group} ")
        for row in effects:
            if row["target"] == group and row["contrast"] == "pretrained - moments":
                mine = cells.filter(pl.col("target").is_in(list(members)) & (pl.col("k") == row["k"]))
                found.append(reuse_finding(config, f"{name}k={row['k']}", row, mine))
    captured = tables["captured"]
    reasons = [f"{row['what']}: {row['reason']}" for row in tables["passed_over"].to_dicts()]
    found.append(capture_health(config.model, int(captured["captured"].sum()), int(captured["found"].sum()), reasons))
    if config.source:
        from querist.sources.data import choose_ids

        source = material.data("source", config)
        chosen = choose_ids(source, config.n, seed=config.seed)
        for target in targets:
            same = source.source == target.test.source
            shared = len(np.intersect1d(chosen, target.measured())) if same else 0
            found.append(overlapping(f"source, {target.name}", shared, len(chosen)))
    return found
