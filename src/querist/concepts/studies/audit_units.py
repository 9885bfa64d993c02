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
from querist.concepts.tables.models import INVERSION
from querist.runs.study import Unit

__all__ = ["REPAIRS", "carry_out_unit", "units_of"]

PER_WEIGHT = 1e-9
"""Seconds of one core per row, weight of the head and pass; only to order units by."""
PER_PICTURE = 4e-4
"""Seconds of one core per picture and pass of the small network."""
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
    """Stages models, measure and follow; without `whole` the sweep alone."""
    from querist.concepts.studies.audit_inversion import gradient_units, inversion_units
    from querist.concepts.studies.audit_models import TWIN

    data = material.data(config)
    one = _cost(config, data)
    if stage == "models":
        found = [Unit(f"model/repeat={r}", {"repeat": r}, one) for r in range(plan.repeats)]
        if whole:
            found += [Unit("evidence", {}, 1 + 1e-6 * data.n * data.k), Unit("attacked", {}, one)]
            found += [Unit("model/given", {}, 1.0)] if material.model(config) is not None else []
        return found
    models = done["models"]
    paths = {row["repeat"]: row["path"] for row in models.to_dicts() if row["repeat"] is not None}
    attacked = next(iter(models.filter(pl.col("model") == "attacked")["path"]), None)
    twin = next(iter(models.filter(pl.col("model") == TWIN)["path"]), paths[0])
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
        given = {"clean": paths[0], "attacked": attacked}
        found.append(Unit("attack", given | {"clean": twin}, 3 * one))
        found.append(Unit("certificate", given, one * config.groups))
        found += inversion_units(config, data, plan, paths[0], attacked, one)
        if plan.transfer:
            found.append(Unit("transfer", given, 12 * one))
        return found
    if not whole:
        return []
    inverted = done.get("inversion", INVERSION.frame([]))
    found = list(gradient_units(plan, paths[0], inverted))
    if config.repair == "none" or attacked is None:
        return found
    kept = ("target", "method", "size", "norm", "trigger")
    triggers = inverted.filter((pl.col("model") == "attacked") & pl.col("size").is_not_null()).select(kept)
    given = {"clean": twin, "attacked": attacked, "inverted": triggers.to_dicts()}
    return found + [Unit(f"repair/{name}", given | {"method": name}, 2 * one) for name in REPAIRS[config.repair]]


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
    from querist.concepts.studies import audit_inversion as inverted
    from querist.concepts.studies import audit_measure as measure
    from querist.concepts.studies import audit_models as models

    by: dict[str, Callable[..., Mapping[str, Any]]] = {
        "model": measure.clean_model,
        "evidence": measure.evidence,
        "attacked": models.attacked_model,
        "attack": models.attack,
        "certificate": models.certificate,
        "inversion": inverted.inversion,
        "gradient": inverted.gradient,
        "retrains": inverted.retrains,
        "transfer": models.transfer,
        "repair": models.repair,
    }
    word = unit.key.partition("/")[0]
    work = measure.target_cell if word.startswith("target=") else by[word]
    return work(config, material, plan, unit.key, unit.payload, folder)
