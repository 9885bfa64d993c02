"""The units of an audit, and which function carries out each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.repair_measure import METHODS
from querist.runs.study import Unit

__all__ = ["CHUNK", "REPAIRS", "carry_out_unit", "units_of"]

PER_WEIGHT = 1e-9
"""Seconds of one core per row, weight of the head and pass; only to order units by."""
PER_PICTURE = 4e-4
"""Seconds of one core per picture and pass of the small network."""
CHUNK = 8
"""Clean retrains of one unit: they are trained as one stack."""
REPAIRS = {
    "best": ("drop-rows", "mask-concepts", "fine-prune", "unlearn", "guard-names"),
    "all": METHODS,
}


def units_of(
    config: AuditConfig,
    material: Material,
    plan: Plan,
    stage: str,
    done: Mapping[str, pl.DataFrame],
    *,
    whole: bool,
) -> Sequence[Unit]:
    """Stages models, measure and repair; without `whole` the sweep alone."""
    data = material.data(config)
    one = _cost(config, data)
    if stage == "models":
        found = [Unit(f"model/repeat={r}", {"repeat": r}, one) for r in range(plan.repeats)]
        if whole:
            found.append(Unit("evidence", {}, 1 + 1e-6 * data.n * data.k))
            found += [Unit("model/given", {}, 1.0)] if material.model(config) is not None else []
        return found
    paths = {row["repeat"]: row["path"] for row in done["models"].to_dicts() if row["repeat"] is not None}
    if stage == "measure":
        found = [
            Unit(
                f"target={target}/repeat={r}",
                {"target": str(target), "repeat": r, "clean": paths[r]},
                one * len(plan.settings),
            )
            for target in plan.targets
            for r in range(plan.repeats)
        ]
        if not whole:
            return found
        given = {"clean": paths[0]}
        found.append(Unit("attack", given, 3 * one))
        found.append(Unit("certificate", given, one * config.groups))
        found.append(Unit("inversion", given, 2e-6 * data.n_classes * data.k * 2000))
        starts = range(0, plan.retrains, CHUNK)
        found += [Unit(f"retrains/{start:03d}", given | {"start": start}, CHUNK * one) for start in starts]
        if plan.transfer:
            found.append(Unit("transfer", given, 12 * one))
        return found
    if not whole or config.repair == "none":
        return []
    attacked = done["models"].filter(pl.col("model") == "attacked")
    if not attacked.height:
        return []
    kept = ("target", "method", "size", "norm", "trigger")
    found = done["inversion"].filter((pl.col("model") == "attacked") & pl.col("size").is_not_null()).select(kept)
    given = {"clean": paths[0], "attacked": attacked["path"][0], "inverted": found.to_dicts()}
    return [Unit(f"repair/{name}", given | {"method": name}, 2 * one) for name in REPAIRS[config.repair]]


def _cost(config: AuditConfig, data: ConceptData) -> float:
    if data.images is not None:
        return PER_PICTURE * data.n * 10
    hidden = 0
    if config.head.startswith("mlp"):
        hidden = sum(int(part) for part in (config.head.partition(":")[2] or "512").split(",") if part.isdigit())
    weights = hidden * (data.k + data.n_classes) or data.k * data.n_classes
    return 0.2 + PER_WEIGHT * data.n * config.epochs * weights / 5


def carry_out_unit(config: AuditConfig, material: Material, plan: Plan, unit: Unit, folder: Path) -> Mapping[str, Any]:
    """The unit's tables."""
    from querist.concepts.studies import audit_measure as measure
    from querist.concepts.studies import audit_models as models

    by: dict[str, Callable[..., Mapping[str, Any]]] = {
        "model": measure.clean_model,
        "evidence": measure.evidence,
        "attack": models.attack,
        "certificate": models.certificate,
        "inversion": models.inversion,
        "retrains": models.retrains,
        "transfer": models.transfer,
        "repair": models.repair,
    }
    word = unit.key.partition("/")[0]
    work = measure.target_cell if word.startswith("target=") else by[word]
    return work(config, material, plan, unit.key, unit.payload, folder)
