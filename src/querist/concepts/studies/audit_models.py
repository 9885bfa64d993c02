"""What is measured of models: the worked attack, the certificate, inverted triggers, other architectures, repairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from querist.concepts.attacks import (
    Parts,
    Setting,
    at_bottleneck,
    planted,
    repeat_parts,
    repeat_seed,
    select,
    train_copies,
    transfer_cell,
    transfer_models,
    transfer_table,
)
from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.detectors import RuntimeMonitor, clean_indices, invert_discrete, invert_gradient
from querist.concepts.model import CBM
from querist.concepts.repairs import ConceptGuard
from querist.concepts.studies.audit_measure import model_row, recipe_of, selector_options
from querist.concepts.studies.evidence import measure_evidence
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.repair_measure import (
    Case,
    certificate_rows,
    chosen_attacks,
    inverted,
    part_with,
    run_repair,
)
from querist.concepts.studies.stealth import shift_rows, stealth_rows
from querist.concepts.triggers import Poisoned, Selection, Trigger
from querist.errors import BadInput, BadOption
from querist.statistics import wilson

__all__ = ["attack", "certificate", "inversion", "repair", "retrains", "transfer"]

RULES: tuple[Any, ...] = ("conjunction", "entropy")
GROUPINGS: tuple[Any, ...] = ("names", "random")
GRADIENT_CLASSES, GRADIENT_ROWS, GRADIENT_STEPS = 20, 32, 100


def worked(config: AuditConfig, material: Material, plan: Plan) -> tuple[Parts, Selection, Poisoned | str]:
    """The headline attack on the worked target in the first repeat, as the sweep mounts it; a reason where it cannot be."""
    data = material.data(config)
    parts = repeat_parts(data, 0, seed=config.seed)
    one, seed = plan.headline, repeat_seed(config.seed, 0)
    wanted = [(one.selector, one.size)]
    found = select(parts.train, plan.worked, wanted, options=selector_options(config), seed=seed)[wanted[0]]
    setting = Setting(one.selector, one.size, one.rate, one.mode)
    try:
        return parts, found, planted(parts.train, found.trigger, plan.worked, setting, base=config.base, seed=seed)
    except BadOption as error:
        return parts, found, str(error)


def attack(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The worked attack looked at closely: stealth, the monitor, images; the attacked model is kept for repairs."""
    parts, found, made = worked(config, material, plan)
    if isinstance(made, str):
        return {"stealth": [{"comparison": "label", "reason": made}]}
    data = material.data(config)
    model = train_copies(recipe_of(config, data), parts, [made.data], repeat_seed(config.seed, 0))[0]
    model.save(folder / "attacked")
    row = model_row(model, parts.test, config.seed) | {"model": "attacked", "path": str(folder / "attacked")}
    tables: dict[str, Any] = {
        "models": [row | {"n_train": parts.train.n}],
        "stealth": stealth_rows(made, parts.train.concepts, permutations=config.permutations, seed=config.seed),
        "shift": shift_rows(made, parts.train.concepts),
        "passed_over": [],
    }
    tables["monitor"] = _watched(config, plan, parts, found.trigger, model, tables["passed_over"])
    if config.repair != "none":
        inversion, _ = inverted(model, made.data, config.strength, config.seed)
        tables["inversion"] = [{"model": "attacked", **one} for one in inversion.table(data.classes).to_dicts()]
    if data.images is not None:
        from querist.concepts.studies.pixels import reached

        clean = CBM.load(given["clean"])
        tables |= reached(config, plan, parts.test, found.trigger, model, clean, tables["passed_over"])
    return tables


def _watched(
    config: AuditConfig, plan: Plan, parts: Parts, trigger: Trigger, model: CBM, passed: list[dict[str, str]]
) -> list[dict[str, Any]]:
    """Monitors fitted on clean training rows as the attacked model's head reads them, judged on test rows without and with the trigger."""
    clean, test = _seen(config, model, parts.train), _seen(config, model, parts.test)
    others = test.subset(test.codes != test.code(plan.worked))
    scale = model.scale.cpu().numpy() if len(model.scale) else None
    rows: list[dict[str, Any]] = []
    for rule in RULES:
        try:
            monitor = RuntimeMonitor(rule, seed=config.seed).fit(clean, model)
            wrong = monitor.update(test.concepts)
            if not others.n:
                passed.append({"what": f"monitor, {rule}", "reason": "no test row of another class"})
                continue
            made = trigger.apply(others.concepts, space=others.space, strength=config.strength, scale=scale)
            right = monitor.update(made)
        except BadInput as error:
            passed.append({"what": f"monitor, {rule}", "reason": str(error)})
            continue
        spread = wilson(int(right.sum()), len(right))
        rates = {"false_alarm_rate": float(wrong.mean()), "detection_rate": float(right.mean())}
        rows.append({"rule": rule, **rates, "low": spread.low, "high": spread.high, "n": len(right)})
    return rows


def certificate(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """A vote of concept groups on the clean table; coverage by the headline triggers of all targets."""
    parts = repeat_parts(material.data(config), 0, seed=config.seed)
    one, seed = plan.headline, repeat_seed(config.seed, 0)
    triggers = []
    for target in plan.targets:
        if parts.train.class_sizes[parts.train.code(target)]:
            chosen = select(
                parts.train, target, [(one.selector, one.size)], options=selector_options(config), seed=seed
            )
            triggers.append(chosen[one.selector, one.size].trigger)
    model = CBM.load(given["clean"])
    rows, passed = [], []
    for by in GROUPINGS:
        try:
            guard = ConceptGuard(
                min(config.groups, parts.train.k), by=by, head=config.head, epochs=config.epochs, seed=config.seed
            ).fit(parts.train, model)
        except BadInput as error:
            passed.append({"what": f"certificate of groups by {by}", "reason": str(error)})
        else:
            rows += certificate_rows(guard, parts.test, triggers, by)
    return {"certificate": rows, "passed_over": passed}


def _subject(config: AuditConfig, material: Material, clean: str) -> CBM:
    return material.model(config) or CBM.load(clean)


def _seen(config: AuditConfig, model: CBM, table: ConceptData) -> ConceptData:
    """The table as the model's head reads it."""
    return at_bottleneck(model, table.changed(split=None))


def inversion(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The smallest trigger of every class, of the given model or of the clean one."""
    model = _subject(config, material, given["clean"])
    table, _ = material.suspect(config)
    if model.g is not None and table.images is None:
        return {}
    seen = _seen(config, model, table)
    made = invert_discrete(model, seen, strength=config.strength, seed=config.seed)
    rows = [{"model": "audited", **row} for row in made.table(seen.classes).to_dicts()]
    if plan.gradient:
        first = np.argsort(made.norm, kind="stable")[:GRADIENT_CLASSES]
        labels = [seen.classes[made.codes[i]] for i in first]
        soft = invert_gradient(
            model,
            seen,
            classes=labels,
            rows=GRADIENT_ROWS,
            steps=GRADIENT_STEPS,
            strength=config.strength,
            seed=config.seed,
        )
        rows += [{"model": "audited", **row} for row in soft.table(seen.classes).to_dicts()]
    return {"inversion": rows}


def retrains(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The largest index of some clean retrains: on the reference where there is one, else on the table itself."""
    from querist.concepts.studies.audit_units import CHUNK

    model = _subject(config, material, given["clean"])
    trusted = material.reference(config)
    table = material.suspect(config)[0] if trusted is None else trusted
    if model.g is not None and table.images is None:
        return {}
    start = given["start"]
    count = min(CHUNK, plan.retrains - start)
    seen = _seen(config, model, table)
    found = clean_indices(
        seen,
        model,
        retrains=count,
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


def transfer(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The worked attack under other architectures."""
    data, one = material.data(config), plan.headline
    options: dict[str, Any] = {} if data.images is not None else {"epochs": config.epochs}
    table = transfer_table(data, 0, seed=config.seed)
    clean = transfer_models(table, seed=repeat_seed(config.seed, 0), **options)
    passed = list(clean.passed_over)
    rows: list[dict[str, Any]] = []
    try:
        rows = transfer_cell(
            data,
            plan.worked,
            0,
            clean,
            selectors=(one.selector,),
            size=one.size,
            rate=one.rate,
            mode=one.mode,
            base=config.base,
            strength=config.strength,
            sources=config.sources or None,
            seed=config.seed,
            **options,
        )
    except BadOption as error:
        passed.append({"what": "transfer", "reason": str(error)})
    kept = ("head", "mode", "input", "selector", "asr", "clean_model_asr")
    return {"transfer": [{name: row[name] for name in kept} for row in rows], "passed_over": passed}


def _flags(config: AuditConfig, train: ConceptData) -> np.ndarray:
    """Rows that the audit's own look at the attacked copy flags."""
    flags = np.zeros(train.n, dtype=bool)
    for row in measure_evidence(config, train, np.arange(train.n), None)["rows"]:
        flags[row["row"]] |= row["flag"]
    return flags


def repair(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """One repair of the attacked model, and of the clean one: the owner knows neither the trigger nor which rows are poisoned."""
    parts, found, made = worked(config, material, plan)
    assert not isinstance(made, str)
    data = material.data(config)
    attacked, clean = CBM.load(given["attacked"]), CBM.load(given["clean"])
    train, val = part_with(made.data, parts.val, config.seed)
    pure, _ = part_with(parts.train, parts.val, config.seed)
    chosen_by = chosen_attacks(given["inverted"], data)
    flags = _flags(config, train)
    case = Case(
        model=attacked,
        train=train,
        val=val,
        test=parts.test,
        attacks=((found.trigger, plan.worked),),
        chosen_by=chosen_by,
        clean=(clean, pure),
        flags=flags,
        val_flags=None,
        recipe=recipe_of(config, data),
        strength=config.strength,
        groups=config.groups,
        head=config.head,
        epochs=config.epochs,
        seed=config.seed,
    )
    rows, certified = run_repair(given["method"], case, folder)
    del certified  # of the attacked table: the certificate of the report is the clean one's
    if len(rows) == 1:
        return {"passed_over": [{"what": f"repair {given['method']}", "reason": rows[0]["detail"]}]}
    return {"repair": rows}
