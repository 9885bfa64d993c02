"""What is measured of models: the worked attack, the certificate, other architectures, repairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from querist.concepts.attacks import (
    Parts,
    Setting,
    at_bottleneck,
    joined,
    planted,
    repeat_parts,
    repeat_seed,
    select,
    train_copies,
    transfer_cell,
    transfer_models,
    transfer_table,
    with_validation,
)
from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.detectors import RuntimeMonitor
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
    run_repair,
    two_halves,
)
from querist.concepts.studies.stealth import shift_rows, stealth_rows
from querist.concepts.triggers import Poisoned, Selection, Trigger
from querist.errors import BadInput, BadOption
from querist.statistics import wilson

__all__ = ["TWIN", "attack", "attacked_model", "certificate", "repair", "transfer"]

TWIN = "clean/set-aside"
"""The clean model that was trained without the rows that were set aside to choose by."""
RULES: tuple[Any, ...] = ("conjunction", "entropy")
GROUPINGS: tuple[Any, ...] = ("names", "random")


def worked(
    config: AuditConfig, material: Material, plan: Plan, *, whole: bool = False
) -> tuple[Parts, Selection, Poisoned | str]:
    """The headline attack on the worked target in the first repeat, with the trigger of the sweep; a reason where it cannot be mounted.

    It is planted in the rows that the attacked model learns from, which are short of those that are chosen by; `whole`: in all that
    the sweep trains on.
    """
    data = material.data(config)
    parts = repeat_parts(data, 0, seed=config.seed)
    one, seed = plan.headline, repeat_seed(config.seed, 0)
    wanted = [(one.selector, one.size)]
    found = select(parts.train, plan.worked, wanted, options=selector_options(config), seed=seed)[wanted[0]]
    if not whole:
        parts = with_validation(parts, seed=config.seed)
    setting = Setting(one.selector, one.size, one.rate, one.mode)
    try:
        return parts, found, planted(parts.train, found.trigger, plan.worked, setting, base=config.base, seed=seed)
    except BadOption as error:
        return parts, found, str(error)


def attacked_model(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The model of the worked attack's table, which monitors, inversion and repairs look at; no row where it cannot be mounted.

    Where rows were set aside to choose by, its clean twin is trained without them as well: that of the sweep has seen them.
    """
    parts, _, made = worked(config, material, plan)
    if isinstance(made, str):
        return {}
    recipe = recipe_of(config, material.data(config))
    apart = repeat_parts(material.data(config), 0, seed=config.seed).val is None
    tables = {"attacked": made.data} | ({TWIN: parts.train} if apart else {})
    models = train_copies(recipe, parts, list(tables.values()), repeat_seed(config.seed, 0))
    rows = []
    for name, model in zip(tables, models, strict=True):
        path = folder / name.replace("/", "-")
        model.save(path)
        of = {"model": name, "path": str(path), "n_train": parts.train.n, "n_val": _validation(parts).n}
        rows.append(model_row(model, parts.test, config.seed) | of)
    return {"models": rows}


def attack(
    config: AuditConfig, material: Material, plan: Plan, key: str, given: Mapping[str, Any], folder: Path
) -> Mapping[str, Any]:
    """The worked attack looked at closely: stealth of all that is planted, the monitor, images."""
    parts, found, made = worked(config, material, plan, whole=True)
    if isinstance(made, str):
        return {"stealth": [{"comparison": "label", "reason": made}]}
    tables: dict[str, Any] = {
        "stealth": stealth_rows(made, parts.train.concepts, permutations=config.permutations, seed=config.seed),
        "shift": shift_rows(made, parts.train.concepts),
        "passed_over": [],
    }
    if given["attacked"] is None:
        reason = "the attack cannot be planted in the rows that are left to train on"
        return tables | {"passed_over": [{"what": what, "reason": reason} for what in ("monitor", "reachability")]}
    model = CBM.load(given["attacked"])
    apart = with_validation(parts, seed=config.seed)
    tables["monitor"] = _watched(config, plan, apart, found.trigger, model, tables["passed_over"])
    if material.data(config).images is not None:
        from querist.concepts.studies.pixels import reached

        clean = CBM.load(given["clean"])
        tables |= reached(config, plan, parts.test, found.trigger, model, clean, tables["passed_over"])
    return tables


def _validation(parts: Parts) -> ConceptData:
    assert parts.val is not None
    return parts.val


def _watched(
    config: AuditConfig, plan: Plan, parts: Parts, trigger: Trigger, model: CBM, passed: list[dict[str, str]]
) -> list[dict[str, Any]]:
    """Monitors fitted on clean rows as the attacked model's head reads them, judged on test rows without and with the trigger.

    Where a rule reads the model its threshold is set on validation rows, which the model has not learnt from; a rule that reads the
    table's own concepts takes all clean rows alike.
    """
    split = (parts.train, _validation(parts), parts.test)
    clean, unseen, test = (at_bottleneck(model, part.changed(split=None)) for part in split)
    others = test.subset(test.codes != test.code(plan.worked))
    scale = model.scale.cpu().numpy() if len(model.scale) else None
    rows: list[dict[str, Any]] = []
    for rule in RULES:
        reads = rule == "entropy" or model.g is not None
        try:
            monitor = RuntimeMonitor(rule, seed=config.seed)
            if reads:
                monitor.fit(clean, model, unseen=unseen)
            else:
                monitor.fit(joined(clean, unseen))
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
    tune, val = two_halves(_validation(parts), None, config.seed)
    chosen_by = chosen_attacks(given["inverted"], data)
    flags = _flags(config, made.data)
    case = Case(
        model=attacked,
        train=made.data,
        tune=tune,
        val=val,
        test=parts.test,
        attacks=((found.trigger, plan.worked),),
        chosen_by=chosen_by,
        clean=(clean, parts.train),
        flags=flags,
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
