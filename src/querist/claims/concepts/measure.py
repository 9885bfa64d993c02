"""What the claims measure on models: success of a trigger, a vote of groups, pixels, inverted triggers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from querist.claims.concepts.family import RENDERED
from querist.claims.concepts.pixels import invert_pixels
from querist.claims.concepts.tables import drawn, opened
from querist.concepts.attacks import (
    Parts,
    Setting,
    at_bottleneck,
    attack_report,
    clean_cell,
    planted,
    reachability,
    redrawn,
    repeat_parts,
    repeat_seed,
    select,
    sweep_cell,
    train_copies,
)
from querist.concepts.data import ConceptData
from querist.concepts.detectors import anomaly_index, invert_discrete
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.repairs import ConceptGuard
from querist.concepts.triggers import Trigger

__all__ = ["measure"]

MODEL = "model"
LARGEST = 20
"""Concepts of the largest trigger, which half of a small table is less than."""
OF_PICTURES: dict[str, Any] = {"epochs": 30, "lr": 2e-3, "batch": 64}
"""How the heads of a guard over drawn pictures are trained: as f is where g stays as it is."""
PIXEL = 1.0
"""Least MAD of masks, in pixels."""
INVERTED = 256
"""Rows that a discrete trigger is tried on."""
_NUMBERS = ("asr", "untriggered", "clean_model_asr", "natural", "excess", "low", "high")
_ACCURACIES = ("accuracy", "accuracy_drop", "accuracy_after", "reason")


def measure(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    """One piece."""
    work = {
        "picture-model": _picture_model,
        "head": _head,
        "attack": _attack,
        "table-attack": _table_attack,
        "guard": _guard,
        "reach": _reach,
        "inversion": _inversion,
    }
    return work[payload["kind"]](payload, seed, "cpu" if device == "auto" else device, folder)


# ------------------------------------------------------------------------------------------------------------- models


def _place(payload: Mapping[str, Any], target: Any = None) -> dict[str, Any]:
    table = payload.get("table", RENDERED)
    setting = "renderer" if table == RENDERED else "table"
    return {"setting": setting, "table": table, "target": target, "repeat": payload["repeat"]}


def _cell(cell: Any) -> dict[str, Any]:
    return dict(zip(("selector", "size", "rate", "mode"), cell, strict=True))


def _pictures(payload: Mapping[str, Any], seed: int) -> tuple[Parts, Any]:
    """The parts of the pictures, and the label of the target."""
    parts = repeat_parts(drawn(payload["n"], seed), payload["repeat"], seed=seed)
    target = payload["target"]
    return parts, None if target is None else parts.train.classes[target]


def _head_recipe(payload: Mapping[str, Any], device: str) -> Recipe:
    return Recipe("head", head=payload["head"], epochs=payload["head_epochs"], device=device)


def _loaded(path: str, device: str) -> CBM:
    return CBM.load(path).to(device)


def _picture_model(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    parts, target = _pictures(payload, seed)
    recipe, draw = Recipe("cbm", epochs=payload["epochs"], device=device), repeat_seed(seed, payload["repeat"])
    row = _place(payload, target) | _cell(payload["cell"]) | {"n_poisoned": 0, "path": str(folder / MODEL)}
    table = parts.train
    if target is not None:
        one = Setting(*payload["cell"])
        found = select(parts.train, target, [(one.selector, one.size)], seed=draw)[one.selector, one.size]
        copy = planted(parts.train, found.trigger, target, one, seed=draw)
        table = copy.data
        row |= {
            "n_poisoned": copy.n_poisoned,
            "trigger": found.trigger.to_json(),
            "saturated_at": found.saturated_at,
        }
    train_copies(recipe, parts, [table], draw)[0].save(folder / MODEL)
    return {"models": [row]}


def _head(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    made = clean_cell(opened(payload["table"]), payload["repeat"], recipe=_head_recipe(payload, device), seed=seed)
    made.save(folder / MODEL)
    row = _place(payload) | _cell(("none", 0, 0.0, "none")) | {"n_poisoned": 0, "path": str(folder / MODEL)}
    return {"models": [row]}


# ------------------------------------------------------------------------------------------------------------ attacks


def _attack(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    parts, target = _pictures(payload, seed)
    found = attack_report(
        _loaded(payload["path"], device),
        parts.test,
        Trigger.from_json(payload["trigger"]),
        target,
        baseline=_loaded(payload["clean"], device),
        seed=repeat_seed(seed, payload["repeat"]),
    )
    row = _place(payload, target) | _cell(payload["cell"])
    row |= {name: payload[name] for name in ("n_poisoned", "saturated_at")}
    return {"attacks": [row | {name: getattr(found, name) for name in (*_NUMBERS, *_ACCURACIES)}]}


def _sized(cell: Any, data: ConceptData) -> Setting:
    selector, size, rate, mode = cell
    return Setting(selector, min(LARGEST, data.k // 2) if size == "half" else size, rate, mode)


def _table_attack(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    data = opened(payload["table"])
    rows = sweep_cell(
        data,
        payload["target"],
        payload["repeat"],
        _loaded(payload["clean"], device),
        selectors=(),
        extra=[_sized(cell, data) for cell in payload["cells"]],
        recipe=_head_recipe(payload, device),
        seed=seed,
    )
    names = ("selector", "size", "rate", "mode", "n_poisoned", "saturated_at", *_NUMBERS, *_ACCURACIES)
    place = _place(payload, payload["target"])
    return {"attacks": [place | {name: row[name] for name in names} for row in rows if row["mode"] != "none"]}


# -------------------------------------------------------------------------------------------------------------- guard


def _guard(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    """Each poisoned model, and the clean one, with its head replaced by a vote."""
    draw = repeat_seed(seed, payload["repeat"])
    rows, mended = [], {}
    for parts, target, trigger, model, clean, poisoned in _poisoned(payload, seed, device):
        options: dict[str, Any] = OF_PICTURES | {"head": "linear"}
        if clean.g is None:
            options = {"head": payload["head"], "epochs": payload["head_epochs"]}
        before = attack_report(model, parts.test, trigger, target, baseline=clean, seed=draw)
        for by in payload["by"]:
            guard = ConceptGuard(payload["groups"], by=by, seed=draw, **options)
            if by not in mended:
                mended[by] = ConceptGuard(payload["groups"], by=by, seed=draw, **options)
                mended[by].fit(parts.train.changed(split=None), clean)
            guard.fit(poisoned.changed(split=None), model)
            after = attack_report(guard.model, parts.test, trigger, target, baseline=mended[by].model, seed=draw)
            certified = {row["r"]: row["certified_accuracy"] for row in guard.table(parts.test)}
            rows.append(
                _place(payload, str(target))
                | {"by": by, "groups": payload["groups"], "coverage": guard.coverage(trigger)}
                | {"accuracy_before": before.accuracy, "asr_before": before.asr}
                | {"accuracy_after": after.accuracy, "asr_after": after.asr}
                | {"clean_accuracy_after": after.clean_model_accuracy, "clean_asr_after": after.clean_model_asr}
                | {"certified": certified.get(1)}
            )
    return {"guards": rows}


def _poisoned(payload: Mapping[str, Any], seed: int, device: str) -> Any:
    """Parts, target, trigger, poisoned model, clean model and poisoned table of every target."""
    draw = repeat_seed(seed, payload["repeat"])
    if payload["setting"] == "renderer":
        for held in payload["held"]:
            parts, target = _pictures(held, seed)
            trigger = Trigger.from_json(held["trigger"])
            table = planted(parts.train, trigger, target, Setting(*held["cell"]), seed=draw).data
            yield parts, target, trigger, _loaded(held["path"], device), _loaded(held["clean"], device), table
        return
    data, recipe = opened(payload["table"]), _head_recipe(payload, device)
    parts, one, clean = (
        repeat_parts(data, payload["repeat"], seed=seed),
        _sized(payload["cell"], data),
        _loaded(payload["clean"], device),
    )
    for target in payload["targets"]:
        trigger = select(parts.train, target, [(one.selector, one.size)], seed=draw)[one.selector, one.size].trigger
        table = planted(parts.train, trigger, target, one, seed=draw).data
        yield parts, target, trigger, train_copies(recipe, parts, [table], draw)[0], clean, table


# ------------------------------------------------------------------------------------------------------------- pixels


def _reach(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    """The first test pictures; success is counted on those of other classes."""
    parts, target = _pictures(payload, seed)
    trigger, test = Trigger.from_json(payload["trigger"]), parts.test
    some = test.subset(np.arange(min(payload["pictures"], test.n)))
    found = reachability(
        _loaded(payload["path"], device),
        some,
        trigger,
        target,
        eps=payload["eps"],
        steps=payload["steps"],
        restarts=payload["restarts"],
        baseline=_loaded(payload["clean"], device),
        physical=redrawn(some, trigger, seed=seed),
        seed=repeat_seed(seed, payload["repeat"]),
    )
    names = ("eps", "hit", "null_hit", "clean_hit", "asr", "null_asr", "clean_asr", "collateral")
    whole = ("natural", "untriggered", "physical_hit", "physical_asr", "physical_clean_asr")
    place = _place(payload, str(target)) | {name: getattr(found, name) for name in whole}
    return {"reaches": [place | {name: getattr(one, name) for name in names} for one in found.at]}


def _inversion(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    """On the part val, which is clean; the same pictures for every model."""
    parts, target = _pictures(payload, seed)
    assert parts.val is not None
    model = _loaded(payload["path"], device)
    place = _place(payload, None if target is None else str(target))
    seen = invert_pixels(model, parts.val, rows=payload["rows"], steps=payload["steps"], seed=seed)
    index = anomaly_index(seen.norm, floor=PIXEL)
    rows = [_inverted("pixels", index, seen.norm, seen.asr, parts.val)]
    found = invert_discrete(model, at_bottleneck(model, parts.val), rows=INVERTED, seed=seed)
    rows.append(_inverted("concepts", found.index, found.norm, found.asr, parts.val))
    return {"inversions": [place | row for row in rows]}


def _inverted(space: str, index: np.ndarray, norm: np.ndarray, asr: np.ndarray, data: ConceptData) -> dict[str, Any]:
    top = int(index.argmax())
    return {
        "space": space,
        "largest": float(index[top]),
        "flagged": str(data.classes[top]),
        "norms": norm.tolist(),
        "asr": asr.tolist(),
    }
