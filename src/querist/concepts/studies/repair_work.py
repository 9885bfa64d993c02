"""The units of `concepts repair`: the model with its inverted triggers, and each method."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.attacks import Parts, repeat_parts, repeat_seed, with_validation
from querist.concepts.configs import RepairConfig
from querist.concepts.data import ConceptData
from querist.concepts.heads import head_widths
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.studies.audit_check import check_strength
from querist.concepts.studies.audit_measure import model_row, recipe_of
from querist.concepts.studies.detect_measure import read_truth
from querist.concepts.studies.opening import Material
from querist.concepts.studies.repair_measure import Case, chosen_attacks, inverted, run_repair, two_halves
from querist.errors import BadOption, CorruptFile, ShapeMismatch, SourceNotFound

__all__ = ["check_repair", "flags_of", "known_attack", "method_unit", "model_unit", "parts_of"]


def check_repair(config: RepairConfig, material: Material) -> None:
    """Raise BadInput for flags and truth of another table, a model of other concepts, groups beyond the concepts."""
    data = material.data(config)
    head_widths(config.head)
    check_strength(config.strength, data)
    if config.groups > data.k:
        raise BadOption("There are more groups than concepts", value=config.groups, allowed=f"1 to {data.k}")
    model = material.model(config)
    if model is not None and model.g is not None and data.images is None:
        raise BadOption(
            "The model reads images, and the table has none", value="images=None", mend="Give a table with images"
        )
    parts_of(config, material)
    flags_of(config, data)
    if config.truth is not None:
        read_truth(config.truth, data)


def flags_of(config: RepairConfig, data: ConceptData) -> np.ndarray | None:
    """Flagged rows [n] of DATA, from a table `rows`; those of clustering are left out, for it splits honest classes too.

    Raises SourceNotFound, CorruptFile, ShapeMismatch.
    """
    if config.flags is None:
        return None
    path = Path(config.flags)
    if not path.is_file():
        raise SourceNotFound("There are no flags here", value=config.flags, mend="Name tables/rows.parquet of a run")
    try:
        frame = pl.read_parquet(path)
        frame = frame.filter(
            pl.col("flag") & (pl.col("method") != "clustering") if "method" in frame.columns else pl.col("flag")
        )
        places = frame["row"].unique().to_numpy()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CorruptFile(
            "The flags cannot be read", value=f"{path}: {error}", mend="Name tables/rows.parquet of a run"
        ) from error
    if len(places) and places.max() >= data.n:
        raise ShapeMismatch(
            "The flags are not of this table", value=f"row {places.max()}", allowed=f"0 to {data.n - 1}"
        )
    mask = np.zeros(data.n, dtype=bool)
    mask[places] = True
    return mask


def known_attack(config: RepairConfig, data: ConceptData) -> tuple[Any, ...]:
    """((trigger, label),) where trigger.json lies beside the truth, else nothing."""
    if config.truth is None:
        return ()
    _, trigger = read_truth(config.truth, data)
    if trigger is None:
        return ()
    target = json.loads(Path(config.truth).with_name("trigger.json").read_text("utf-8"))["target"]
    return ((trigger, data.classes[data.code(target)]),)


def parts_of(config: RepairConfig, material: Material) -> Parts:
    """Parts of the first repeat, with rows to choose by that the model has not learnt from; ids are the rows' places in DATA.

    Where no rows are named val they are set aside: of train before a model is trained here, of test where one is given, which may
    have seen all of train.
    """
    data = material.data(config)
    named = data.changed(ids=[str(i) for i in range(data.n)])
    apart = "train" if material.model(config) is None else "test"
    return with_validation(repeat_parts(named, 0, seed=config.seed), apart=apart, seed=config.seed)


def _validation(parts: Parts) -> ConceptData:
    assert parts.val is not None
    return parts.val


def _places(rows: ConceptData) -> np.ndarray:
    assert rows.ids is not None
    return rows.ids.astype(int)


def model_unit(config: RepairConfig, material: Material, folder: Path) -> Mapping[str, Any]:
    """The given model, or one trained on rows of the table that repairs are not chosen by; the smallest trigger of every class."""
    begun = time.perf_counter()
    data = material.data(config)
    parts = parts_of(config, material)
    given = material.model(config)
    model, trained = given, None
    if model is None:
        trained = parts.train.n
        model = recipe_of(config, data).fit(parts.train.changed(split=None), seed=repeat_seed(config.seed, 0))
        model.save(folder / "model")
    row = model_row(model, parts.test, config.seed)
    row |= {"model": "trained here" if given is None else "given", "n_train": trained, "n_val": _validation(parts).n}
    found, _ = inverted(model, parts.train, config.strength, config.seed)
    return {
        "models": [
            row | {"path": str(folder / "model") if given is None else None, "seconds": time.perf_counter() - begun}
        ],
        "inversion": [{"model": "audited", **one} for one in found.table(data.classes).to_dicts()],
    }


def method_unit(config: RepairConfig, material: Material, given: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """One repair, with the attack that is known, else with inverted triggers."""
    method, path, first = given["method"], given["path"], given["first"]
    data = material.data(config)
    parts = parts_of(config, material)
    model = material.model(config)
    if model is None:
        assert path is not None
        model = CBM.load(path)
    flags = flags_of(config, data)
    kept, held = parts.train.changed(split=None), _validation(parts)
    mine, others = (None if flags is None else flags[_places(rows)] for rows in (kept, held))
    tune, val = two_halves(held, others, config.seed)
    chosen_by = chosen_attacks(given["inverted"], data)
    attacks = known_attack(config, data) or chosen_by
    if not attacks:
        reason = "no trigger is known (--truth), and none of up to 8 concepts was inverted: there is nothing to repair"
        return {"passed_over": [{"what": method, "reason": reason}]}
    test, n_left = _honest(config, data, parts.test)
    case = Case(
        model=model,
        train=kept,
        tune=tune,
        val=val,
        test=test,
        attacks=attacks,
        chosen_by=chosen_by,
        clean=None,
        flags=mine,
        recipe=recipe_for(config, data, model),
        strength=config.strength,
        groups=config.groups,
        head=config.head,
        epochs=config.epochs,
        seed=config.seed,
    )
    rows, certified = run_repair(method, case, folder)
    if len(rows) == 1:
        return {"passed_over": [{"what": method, "reason": rows[0]["detail"]}]}
    left = (
        [{"what": "poisoned test rows", "reason": f"{n_left} rows of the truth are not tested on"}]
        if n_left and first
        else []
    )
    return {"repair": rows, "certificate": certified, "passed_over": left}


def _honest(config: RepairConfig, data: ConceptData, test: ConceptData) -> tuple[ConceptData, int]:
    """Test rows that the truth does not name: the label of a poisoned row is no label to be right by."""
    if config.truth is None:
        return test, 0
    poisoned = read_truth(config.truth, data)[0][_places(test)]
    return test.subset(~poisoned), int(poisoned.sum())


def recipe_for(config: RepairConfig, data: ConceptData, model: CBM) -> Recipe:
    """How the model is trained anew: as the table asks, with the model's own kind of head and input."""
    recipe = recipe_of(config, data)
    if model.g is None and recipe.kind == "cbm":
        recipe = Recipe(head=config.head, epochs=config.epochs)
    own = getattr(model.f, "head", None)
    if isinstance(own, str):
        recipe = recipe.changed(head=own)
    return recipe.changed(mode=model.mode, input=model.input) if recipe.kind == "cbm" else recipe
