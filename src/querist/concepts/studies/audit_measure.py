"""What is measured of the table and of attacks on copies of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from querist.concepts.attacks import (
    at_bottleneck,
    clean_cell,
    concept_quality,
    model_quality,
    repeat_parts,
    repeat_seed,
    select,
    sweep_cell,
)
from querist.concepts.configs import AuditConfig, HeadOptions
from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.studies.evidence import measure_evidence, table_facts
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.errors import TooFewRows
from querist.statistics import bootstrap, stream

__all__ = ["clean_model", "evidence", "model_row", "recipe_of", "selector_options", "target_cell"]


def recipe_of(config: HeadOptions, data: ConceptData) -> Recipe:
    """A bottleneck model of the pictures where there are pictures, else a head on the table."""
    if data.images is not None:
        return Recipe.of(data)
    return Recipe.of(data, head=config.head, epochs=config.epochs)


def selector_options(config: AuditConfig) -> dict[str, dict[str, Any]]:
    """Options of CAT+."""
    return {"cat+": {"tie_break": config.tie_break, "binarise": config.binarise}}


def clean_model(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The model of unpoisoned data of a repeat, or the given model: its accuracy beside what constants reach."""
    data = material.data(config)
    begun = time.perf_counter()
    if key == "model/given":
        model, repeat = material.model(config), None
        assert model is not None
        parts = repeat_parts(data, 0, seed=config.seed)
        trained = None
    else:
        repeat = given["repeat"]
        parts = repeat_parts(data, repeat, seed=config.seed)
        model = clean_cell(data, repeat, recipe=recipe_of(config, data), seed=config.seed)
        trained = parts.train.n
    row = model_row(model, parts.test, config.seed)
    row |= {"model": "given" if repeat is None else f"clean/repeat={repeat}", "repeat": repeat, "n_train": trained}
    if repeat is not None and parts.val is not None:
        row["n_val"] = parts.val.n
    if repeat is not None:
        model.save(folder / "model")
        row |= {"path": str(folder / "model")}
    return {"models": [row | {"seconds": time.perf_counter() - begun}]}


def model_row(model: CBM, test: ConceptData, seed: int) -> dict[str, Any]:
    """Accuracy of classes and concepts on test rows; concept accuracies with their interval and their null."""
    if model.g is not None and test.images is None:
        return {"kind": "cbm", "input": model.input, "n_test": test.n}
    found = model_quality(model, test)
    row = found.as_dict() | {"kind": "head" if model.g is None else f"cbm, {model.mode}", "n_test": test.n}
    if model.g is not None:
        said = at_bottleneck(model, test).concepts
        cut = 0.0 if model.input == "logit" else 0.5
        balanced = concept_quality(said, test, cut=cut).balanced
        shuffled = said[stream(seed, "permuted pictures").permutation(test.n)]
        kept = balanced[~np.isnan(balanced)]
        try:
            spread = bootstrap(kept, np.mean, seed=seed)
            row |= {"concept_low": spread.low, "concept_high": spread.high}
        except TooFewRows:
            pass
        row["concept_permuted"] = float(np.nanmean(concept_quality(shuffled, test, cut=cut).balanced))
    return row


def evidence(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """Facts, evidence of classes, tests of the table."""
    data, rows = material.suspect(config)
    found = dict(measure_evidence(config, data, rows, material.reference(config)))
    whole = material.data(config)
    found |= {"facts": whole.facts().to_dicts(), "table_facts": table_facts(whole)}
    return found


def target_cell(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """Every setting of one target in one repeat."""
    data = material.data(config)
    target = data.classes[data.target(given["target"])]
    repeat = given["repeat"]
    rows = sweep_cell(
        data,
        target,
        repeat,
        CBM.load(given["clean"]),
        selectors=(),
        extra=plan.settings,
        base=config.base,
        sources=config.sources or None,
        strength=config.strength,
        options=selector_options(config),
        recipe=recipe_of(config, data),
        seed=config.seed,
    )
    return {
        "exposure": [row | {"target": str(target)} for row in rows],
        "selection": _selection(config, plan, data, target, repeat),
    }


def _selection(config: AuditConfig, plan: Plan, data: ConceptData, target: Any, repeat: int) -> list[dict[str, Any]]:
    train = repeat_parts(data, repeat, seed=config.seed).train
    if not train.class_sizes[data.code(target)]:
        return []
    largest = {one.selector: 0 for one in plan.settings}
    for one in plan.settings:
        largest[one.selector] = max(largest[one.selector], one.size)
    seed = repeat_seed(config.seed, repeat)
    found = select(train, target, list(largest.items()), options=selector_options(config), seed=seed)
    rows = []
    for (selector, size), chosen in found.items():
        cell = {"target": str(target), "selector": selector, "size": size, "repeat": repeat}
        rows += [cell | row for row in chosen.table.to_dicts()]
    return rows
