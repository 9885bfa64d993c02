"""One repair carried out, measured on test rows with the attack that is known, and on validation rows with inverted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from querist.concepts.attacks import at_bottleneck, joined
from querist.concepts.data import ConceptData
from querist.concepts.detectors import Inversion, invert_discrete
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.repairs import (
    ConceptGuard,
    Repaired,
    Trial,
    concept_guard,
    drop_rows,
    fine_prune,
    mask_concepts,
    relabel,
    stability_train,
    unlearn,
)
from querist.concepts.triggers import Trigger
from querist.errors import BadInput, BadOption
from querist.statistics import folds, wilson

__all__ = [
    "METHODS",
    "Case",
    "certificate_rows",
    "chosen_attacks",
    "inverted",
    "run_repair",
    "two_halves",
    "unsuspected",
]

METHODS = (
    "drop-rows",
    "relabel",
    "mask-concepts",
    "fine-prune",
    "unlearn",
    "stability",
    "guard-names",
    "guard-correlation",
    "guard-random",
)
FEW = 3
"""Inverted triggers that repairs are chosen and unlearnt by."""
FEWEST = 4
"""Validation rows below which none is left to tune on."""
Attack = tuple[Trigger, Any]


@dataclass(frozen=True)
class Case:
    """What is repaired: the model and the rows it learnt from, the clean model with its rows (or None), and rows to judge on.

    flags: suspect rows of train, None where nothing is flagged. Unlearning trains on rows of no such suspicion, for on poisoned ones
    it would plant the backdoor anew. val: unsuspected rows that neither model learnt from; repairs, epochs and the units that are
    pruned are chosen by them, and no repair trains on them. tune: further such rows, on which a pruned head is tuned; None where
    there are too few.
    """

    model: CBM
    train: ConceptData
    tune: ConceptData | None
    val: ConceptData
    test: ConceptData
    attacks: tuple[Attack, ...]
    chosen_by: tuple[Attack, ...]
    clean: tuple[CBM, ConceptData] | None
    flags: np.ndarray | None
    recipe: Recipe
    strength: str
    groups: int
    head: str
    epochs: int
    seed: int


def two_halves(val: ConceptData, flags: np.ndarray | None, seed: int) -> tuple[ConceptData | None, ConceptData]:
    """Validation rows that nothing flags, each class in two: rows to tune a pruned head on, and rows to choose by.

    Were they the same, a pruned head would be chosen by rows that it was tuned on. Below four rows all are for choosing.
    """
    kept = unsuspected(val, flags)
    if kept.n < FEWEST:
        return None, kept
    first = folds(kept.n, 2, strata=kept.codes, seed=seed) == 0
    return kept.subset(first), kept.subset(~first)


def inverted(model: CBM, table: ConceptData, strength: str, seed: int) -> tuple[Inversion, tuple[Attack, ...]]:
    """The smallest triggers of a model, as (trigger, label): those of the largest anomaly indices."""
    seen = at_bottleneck(model, table.changed(split=None))
    found = invert_discrete(model, seen, strength=strength, seed=seed)
    order = np.argsort(found.norm, kind="stable")
    pairs: list[Attack] = []
    for i in order:
        trigger = found.triggers[i]
        if found.found[i] and trigger is not None and len(pairs) < FEW:
            pairs.append((trigger, seen.classes[found.codes[i]]))
    return found, tuple(pairs)


def chosen_attacks(rows: Sequence[Mapping[str, Any]], data: ConceptData) -> tuple[Attack, ...]:
    """The smallest triggers that the table inversion holds, as `inverted` gives them: (trigger, label)."""
    found = [
        row for row in rows if row["method"] == "discrete" and row["trigger"] is not None and row["size"] is not None
    ]
    found = sorted(found, key=lambda row: row["norm"])[:FEW]
    return tuple((Trigger.from_json(row["trigger"]), data.classes[data.code(row["target"])]) for row in found)


def run_repair(name: str, case: Case, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the tables repair and certificate; one row with the reason where it cannot be made."""
    try:
        done, guard = _made(name, case)
    except BadInput as error:
        return [{"method": name, "stage": "before", "detail": str(error)}], []
    done.model.save(folder / "model")
    rows = done.measured(Trial(case.test, case.attacks, strength=case.strength, seed=case.seed))
    scores: Mapping[str, Any] = {}
    if case.chosen_by:
        chosen = done.measured(Trial(case.val, case.chosen_by, strength=case.strength, seed=case.seed))
        scores = {row["stage"]: row for row in chosen}
    for row in rows:
        held = scores.get(row["stage"])
        row |= {"method": name, "score": None if held is None else held["excess"]}
        row |= {"accuracy_validation": None if held is None else held["accuracy"]}
        if row["stage"] == "after":
            row["path"] = str(folder / "model")
    certified = (
        [] if guard is None else certificate_rows(guard, case.test, [attack[0] for attack in case.attacks], name)
    )
    return rows, certified


def certificate_rows(
    guard: ConceptGuard, test: ConceptData, triggers: Sequence[Trigger], name: str
) -> list[dict[str, Any]]:
    """Rows of the table certificate; coverage is the mean over the triggers."""
    covered = float(np.mean([guard.coverage(trigger) for trigger in triggers])) if triggers else None
    rows = []
    for row in guard.table(test):
        spread = wilson(round(row["certified_accuracy"] * test.n), test.n)
        rows.append(row | {"grouping": name, "low": spread.low, "high": spread.high, "coverage": covered, "n": test.n})
    return rows


def _made(name: str, case: Case) -> tuple[Repaired, ConceptGuard | None]:
    shared: dict[str, Any] = {"clean": case.clean, "seed": case.seed}
    concepts = sorted({i for trigger, _ in case.chosen_by for i in trigger.index})
    if name.startswith("guard-"):
        by: Any = name.removeprefix("guard-")
        options = {"head": case.head, "epochs": case.epochs}
        groups = min(case.groups, case.train.k)
        done = concept_guard(case.model, case.train, groups=groups, by=by, **options, **shared)
        guard = ConceptGuard(groups, by=by, seed=case.seed, **options).fit(case.train, case.model)
        return done, guard
    flags = np.zeros(case.train.n, dtype=bool) if case.flags is None else case.flags
    if name in ("drop-rows", "relabel") and not flags.any():
        raise _lacking("no row is flagged", "Give --flags rows.parquet")
    if name in ("mask-concepts", "unlearn") and not concepts:
        raise _lacking("no trigger of up to 8 concepts was inverted", "Give --truth, or use another repair")
    if name == "drop-rows":
        return drop_rows(case.model, case.train, flags, recipe=case.recipe, **shared), None
    if name == "relabel":
        return relabel(case.model, case.train, flags, concepts=concepts, recipe=case.recipe, **shared), None
    if name == "mask-concepts":
        return mask_concepts(case.model, case.train, concepts, recipe=case.recipe, **shared), None
    if name == "fine-prune":
        if case.tune is None:
            raise _lacking(f"{case.val.n} validation rows are too few to prune and tune by", "Name more rows val")
        both = joined(case.tune, case.val)
        return fine_prune(case.model, both, clean=_beside(case, both), seed=case.seed), None
    held = {"clean": None if case.clean is None else _beside(case, joined(case.clean[1], case.val)), "seed": case.seed}
    if name == "unlearn":
        trusted = joined(unsuspected(case.train, case.flags), case.val)
        return unlearn(case.model, trusted, case.chosen_by, strength=case.strength, **held), None
    return stability_train(case.model, joined(case.train, case.val), **held), None


def _beside(case: Case, rows: ConceptData) -> tuple[CBM, ConceptData] | None:
    """The clean model with the rows that its own repair trains on."""
    return None if case.clean is None else (case.clean[0], rows)


def unsuspected(rows: ConceptData, flags: np.ndarray | None) -> ConceptData:
    """The rows that nothing flags; all of them where everything is flagged or nothing is."""
    return rows if flags is None or flags.all() or not flags.any() else rows.subset(~flags)


def _lacking(what: str, mend: str) -> BadInput:
    return BadOption("The repair cannot be made", value=what, mend=mend)
