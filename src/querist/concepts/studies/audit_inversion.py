"""Inverted triggers of an audit: classes in ranges that engines share, the gradient's shortlist, clean retrains, and all put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from querist.concepts.attacks import at_bottleneck, repeat_seed
from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.detectors import clean_indices, cleanse_test, discrete_index, invert_discrete, invert_gradient
from querist.concepts.model import CBM
from querist.concepts.studies.audit_models import worked
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.runs.study import Unit

__all__ = ["LEAST", "gradient", "gradient_units", "inversion", "inversion_units", "put_together", "retrains"]

RANGE = 25
"""Classes of one unit: of 200 classes and 98 concepts a unit then takes five seconds, and two cores end together."""
CHUNK = 8
"""Clean retrains of one unit: they are trained as one stack."""
GRADIENT_CLASSES, GRADIENT_ROWS, GRADIENT_STEPS = 20, 32, 100
LEAST = 19
"""Clean retrains below which no p could reach 5 %."""
PER_CELL = 2e-3
"""Seconds of one core per class and concept; only to order units by."""


def inversion_units(
    config: AuditConfig, data: ConceptData, plan: Plan, clean: str, attacked: str | None, cost: float
) -> Iterator[Unit]:
    """Ranges of classes of the audited model, and of the attacked one where repairs will need its triggers; chunks of retrains."""
    given = {"clean": clean}
    width = len(str(data.n_classes - 1))
    models = {"audited": None} | ({"attacked": attacked} if attacked and config.repair != "none" else {})
    for name, path in models.items():
        for first in range(0, data.n_classes, RANGE):
            codes = range(first, min(first + RANGE, data.n_classes))
            payload = given | {"model": name, "path": path, "codes": [codes.start, codes.stop]}
            yield Unit(f"inversion/{name}/{first:0{width}d}", payload, PER_CELL * len(codes) * data.k)
    each = cost + PER_CELL * data.n_classes * data.k
    for start in range(0, plan.retrains, CHUNK):
        count = min(CHUNK, plan.retrains - start)
        yield Unit(f"retrains/{start:03d}", given | {"start": start, "count": count}, count * each)


def gradient_units(plan: Plan, clean: str, found: pl.DataFrame) -> Iterator[Unit]:
    """The classes of the smallest discrete triggers, inverted by gradient as well: a unit that waits for all ranges."""
    own = found.filter((pl.col("model") == "audited") & (pl.col("method") == "discrete"))
    if plan.gradient and own.height:
        first = own.sort("norm", maintain_order=True).head(GRADIENT_CLASSES)["target"].to_list()
        yield Unit("gradient", {"clean": clean, "targets": first}, 5.0)


def inversion(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The smallest triggers of a range of classes; their index waits for the others."""
    if given["model"] == "attacked":
        model, made = CBM.load(given["path"]), worked(config, material, plan)[2]
        assert not isinstance(made, str)
        table = made.data
    else:
        model, table = _audited(config, material, given["clean"])
    if not _readable(model, table):
        return {}
    seen = at_bottleneck(model, table.changed(split=None))
    labels = seen.classes[slice(*given["codes"])]
    made = invert_discrete(model, seen, classes=labels, strength=config.strength, seed=config.seed)
    return {"inversion": [{"model": given["model"], **row, "index": None} for row in _rows(made, seen)]}


def gradient(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """Masks by gradient of a shortlist of classes."""
    model, table = _audited(config, material, given["clean"])
    seen = at_bottleneck(model, table)
    made = invert_gradient(
        model,
        seen,
        classes=given["targets"],
        rows=GRADIENT_ROWS,
        steps=GRADIENT_STEPS,
        strength=config.strength,
        seed=config.seed,
    )
    return {"inversion": [{"model": "audited", **row} for row in _rows(made, seen)]}


def retrains(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The largest index of some clean retrains: on the reference where there is one, else on the table itself."""
    model, table = _audited(config, material, given["clean"])
    trusted = material.reference(config)
    table = table if trusted is None else trusted
    if not _readable(model, table):
        return {}
    start = given["start"]
    found = clean_indices(
        at_bottleneck(model, table.changed(split=None)),
        model,
        retrains=given["count"],
        head=config.head,
        epochs=config.epochs,
        strength=config.strength,
        seed=repeat_seed(config.seed, 1000 + start),
    )
    return {
        "inversion": [
            {"model": f"retrain/{start + i:03d}", "target": "(largest)", "method": "discrete", "index": float(value)}
            for i, value in enumerate(found)
        ]
    }


def put_together(inversion: pl.DataFrame) -> pl.DataFrame:
    """The index of each class among all of its model, and p: the audited model's largest beside those of enough clean retrains."""
    held = [inversion.filter(pl.lit(False))]
    for _, part in inversion.group_by("model", "method", maintain_order=True):
        ranged = part["method"][0] == "discrete" and part["norm"].null_count() == 0
        if ranged:
            index = discrete_index(part["norm"].to_numpy(), names=part["target"].to_list())
            part = part.with_columns(pl.Series("index", index))
        held.append(part)
    inversion = pl.concat(held)
    own = (pl.col("model") == "audited") & (pl.col("method") == "discrete")
    index = inversion.filter(own)["index"].to_numpy()
    null = inversion.filter(pl.col("model").str.starts_with("retrain"))["index"].drop_nulls().to_numpy()
    if len(null) < LEAST or len(index) < 5:
        return inversion
    p, top = cleanse_test(index, null).p, pl.col("index") == float(index.max())
    return inversion.with_columns(pl.when(own & top).then(p).otherwise(pl.col("p")).alias("p"))


def _audited(config: AuditConfig, material: Material, clean: str) -> tuple[CBM, ConceptData]:
    """The model under audit, and the rows that are searched."""
    return material.model(config) or CBM.load(clean), material.suspect(config)[0]


def _readable(model: CBM, table: ConceptData) -> bool:
    return model.g is None or table.images is not None


def _rows(made: Any, seen: ConceptData) -> list[dict[str, Any]]:
    return made.table(seen.classes).to_dicts()
