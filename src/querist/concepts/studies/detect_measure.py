"""Each method of detection on a suspect table; what it found is held against the truth afterwards, where that is known."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.attacks import at_bottleneck, repeat_seed
from querist.concepts.configs import DetectConfig
from querist.concepts.data import ConceptData
from querist.concepts.detectors import (
    ActivationClustering,
    AssociationAudit,
    ConceptCleanse,
    Consistency,
    Detector,
    LossTrajectory,
    SpectralSignature,
    agreement_test,
    clean_indices,
    conflicts,
    evaluate,
)
from querist.concepts.model import CBM
from querist.concepts.studies.audit_measure import model_row, recipe_of
from querist.concepts.studies.evidence import class_statistics, clean_range, measure_evidence, table_facts
from querist.concepts.studies.opening import Material
from querist.concepts.studies.stealth import delivery_rows
from querist.concepts.triggers import Trigger
from querist.errors import BadInput, CorruptFile, ShapeMismatch, SourceNotFound

__all__ = [
    "METHODS",
    "NEEDS_MODEL",
    "NEEDS_REFERENCE",
    "Truth",
    "carry_out_method",
    "evidence_unit",
    "fitted",
    "model_unit",
    "read_truth",
    "views",
]

METHODS = ("pattern", "consistency", "conflicts", "spectral", "clustering", "trajectory", "cleanse", "two-sample")
NEEDS_REFERENCE = ("two-sample",)
NEEDS_MODEL = ("spectral", "clustering", "cleanse")
LISTED = 50
"""Rows listed below those that are flagged."""
POINTS = 200
"""Points of a curve."""
Truth = tuple[np.ndarray, Trigger | None]


def read_truth(path: str, data: ConceptData) -> Truth:
    """Which rows of DATA are poisoned, and the trigger where trigger.json lies beside.

    Raises SourceNotFound, CorruptFile, ShapeMismatch.
    """
    where = Path(path)
    if not where.is_file():
        raise SourceNotFound(
            "There is no truth here", value=path, mend="Name truth.parquet of `querist concepts poison`"
        )
    try:
        frame = pl.read_parquet(where)
        mask = frame.sort("row")["poisoned"].to_numpy()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CorruptFile(
            "The truth cannot be read", value=f"{path}: {error}", mend="Name truth.parquet of `concepts poison`"
        ) from error
    if mask.shape != (data.n,) or mask.dtype != bool:
        raise ShapeMismatch(
            "The truth is not of this table",
            value=f"{len(mask)} rows",
            allowed=f"{data.n} rows",
            mend="Give the truth of this copy",
        )
    beside = where.with_name("trigger.json")
    if not beside.is_file():
        return mask, None
    held = json.loads(beside.read_text("utf-8"))
    return mask, Trigger(tuple(held["index"]), tuple(held["values"]))


def model_unit(config: DetectConfig, material: Material, folder: Path) -> Mapping[str, Any]:
    """The given model, or a head trained on the suspect rows, tested on rows that it has not learnt from: those named test, else the
    reference's; without either its accuracy is not known."""
    begun = time.perf_counter()
    table, _ = material.suspect(config)
    given = material.model(config)
    model = given
    if model is None:
        model = recipe_of(config, table).fit(table, seed=repeat_seed(config.seed, 0))
        model.save(folder / "model")
    data = material.data(config)
    tested = (
        data.part("test")
        if data.split is not None and "test" in data.split
        else _trusted(data, material.reference(config))
    )
    row: dict[str, Any] = {"kind": "head" if model.g is None else f"cbm, {model.mode}", "input": model.input}
    if tested is not None:
        row |= model_row(model, tested, config.seed)
    row |= {"model": "trained here" if given is None else "given", "n_train": table.n if given is None else None}
    path = str(folder / "model") if given is None else None
    return {"models": [row | {"path": path, "seconds": time.perf_counter() - begun}]}


def _trusted(data: ConceptData, reference: ConceptData | None) -> ConceptData | None:
    """The reference's rows of the table's classes, under the table's codes; None where there are none."""
    if reference is None:
        return None
    place = {str(label): code for code, label in enumerate(data.classes)}
    codes = np.array([place.get(str(label), -1) for label in reference.classes])[reference.codes]
    rows = reference.subset(codes >= 0) if (codes >= 0).any() else None
    if rows is None:
        return None
    held = {"concepts": rows.concepts, "images": rows.images, "space": rows.space}
    return data.changed(codes=codes[codes >= 0], split=None, ids=None, **held)


def evidence_unit(config: DetectConfig, material: Material) -> Mapping[str, Any]:
    """Class evidence and tests, without the rows: those come from the methods."""
    table, rows = material.suspect(config)
    reference = material.reference(config)
    found = dict(measure_evidence(config, table, rows, reference))
    del found["rows"]
    whole = material.data(config)
    found |= {"facts": whole.facts().to_dicts(), "table_facts": table_facts(whole)}
    if reference is not None:
        found["stealth"], found["shift"] = delivery_rows(
            table, reference, permutations=config.permutations, seed=config.seed
        )
    return found


def carry_out_method(config: DetectConfig, material: Material, method: str, path: str | None) -> Mapping[str, Any]:
    """Tables rows, inversion (of cleanse), detection and roc (with the truth)."""
    table, places = material.suspect(config)
    reference = material.reference(config)
    model = material.model(config) or (None if path is None else CBM.load(path))
    tables: dict[str, Any] = {}
    pattern: Trigger | None = None
    if method == "conflicts":
        mask = conflicts(table).mask
        scores, flags, reason = (
            mask.astype(float),
            np.zeros(table.n, dtype=bool),
            "its concepts are those of a row with another label",
        )
    else:
        seen, trusted = views(table, reference, model, method)
        try:
            found = fitted(config, method, seen, trusted, model)
        except BadInput as error:
            return {"rows": [], "passed_over": [{"what": method, "reason": str(error)}]}
        scores, flags, pattern = found.scores, found.flags, found.found.pattern
        reason = found.reason or f"reported by {method}"
        if isinstance(found, ConceptCleanse) and found.inversion is not None:
            p = None if found.test is None else found.test.p
            tables["inversion"] = [
                {"model": "audited", **row} for row in found.inversion.table(seen.classes, p).to_dicts()
            ]
            if found.null is not None:
                tables["inversion"] += [
                    {"model": f"retrain/{i:03d}", "target": "(largest)", "method": "discrete", "index": float(value)}
                    for i, value in enumerate(found.null)
                ]
    tables["rows"] = _listed(table, places, method, scores, flags, reason)
    if config.truth is not None:
        truth, trigger = read_truth(config.truth, material.data(config))
        judged = evaluate(scores, flags, truth[places], pattern=pattern, trigger=trigger)
        values = {name: getattr(judged, name) for name in judged.__slots__}
        tables["detection"] = [{"method": method, **values}]
        tables["roc"] = _curve(method, scores, truth[places])
    return tables


def views(
    table: ConceptData, reference: ConceptData | None, model: CBM | None, method: str
) -> tuple[ConceptData, ConceptData | None]:
    """The tables as the method reads them: what a model's head reads, for methods that read the model."""
    if model is None or model.g is None or method not in NEEDS_MODEL:
        return table, reference
    trusted = (
        reference
        if reference is None or reference.images is None
        else at_bottleneck(model, reference.changed(split=None))
    )
    return at_bottleneck(model, table), trusted


def fitted(
    config: DetectConfig, method: str, table: ConceptData, reference: ConceptData | None, model: CBM | None
) -> Detector:
    """The detector of a method, other than conflicts and two-sample, fitted. Raises what it raises."""
    seed = config.seed
    if method == "pattern":
        draws = max(config.permutations, 40 * table.n_classes)  # so many that Holm's smallest p can reach the level
        options: dict[str, Any] = {"binarise": config.binarise, "permutations": draws, "seed": seed}
        if reference is None:
            options["clean"] = _clean(config, table)
        return AssociationAudit(**options).fit(table, reference=reference)
    if method == "consistency":
        return Consistency(declared=config.class_level).fit(table, reference=reference if config.class_level else None)
    if method == "spectral":
        return SpectralSignature().fit(table, model, reference)
    if method == "clustering":
        return ActivationClustering(seed=seed).fit(table, model, reference)
    if method == "trajectory":
        return LossTrajectory(seed=seed, head=config.head).fit(table, reference=reference)
    null = None
    if config.retrains:
        trusted = table if reference is None else reference
        null = clean_indices(
            trusted, model, retrains=config.retrains, head=config.head, epochs=config.epochs, seed=seed
        )
    return ConceptCleanse(null=null, strength=config.strength, seed=seed).fit(table, model, reference)


def _clean(config: DetectConfig, table: ConceptData) -> dict[str, float] | None:
    """What the agreement test is held against, by the names that the detector gives its statistics."""
    statistics, _ = class_statistics(table, config.binarise, config.seed)
    if len(statistics) < 3:
        return None
    found = clean_range(table, config.binarise, config.seed, agreement_test(statistics))
    names = ("size", "pattern_excess", "masked_agreement")
    return None if found is None else dict(zip(names, (found[name] for name in statistics), strict=True))


def _listed(
    table: ConceptData, places: np.ndarray, method: str, scores: np.ndarray, flags: np.ndarray, reason: str
) -> list[dict[str, Any]]:
    values = np.where(np.isnan(scores), -np.inf, scores)
    order = np.lexsort((np.arange(table.n), -values, ~flags))
    kept = [i for i in order[: int(flags.sum()) + LISTED] if flags[i] or values[i] > values.min()]
    rows = []
    for i in kept:
        row = {
            "row": int(places[i]),
            "id": None if table.ids is None else str(table.ids[i]),
            "label": str(table.labels[i]),
        }
        score = float(scores[i]) if np.isfinite(scores[i]) else None
        rows.append(row | {"method": method, "score": score, "flag": bool(flags[i]), "reason": reason})
    return rows


def _curve(method: str, scores: np.ndarray, truth: np.ndarray) -> list[dict[str, Any]]:
    """Shares above each cut, thinned; rows without a score rank below all others."""
    if not truth.any() or truth.all():
        return []
    values = np.where(np.isnan(scores), -np.inf, scores)
    cuts = np.unique(values)[::-1]
    if len(cuts) > POINTS:
        cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, POINTS).astype(int))]
    above = np.sort(values[truth]), np.sort(values[~truth])
    tpr, fpr = (1 - np.searchsorted(part, cuts, side="left") / len(part) for part in above)
    points = [(0.0, 0.0), *zip(fpr.tolist(), tpr.tolist(), strict=True)]
    return [{"method": method, "point": i, "fpr": x, "tpr": y} for i, (x, y) in enumerate(points)]
