"""What a repair gives back, and its four numbers before and after, beside the same repair of a clean model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from querist.concepts.attacks import Subject, as_model, concept_quality, excess_interval
from querist.concepts.data import ConceptData
from querist.concepts.heads import Head, SmallBackbone
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.triggers import Trigger
from querist.errors import BadOption

__all__ = ["Attack", "Numbers", "Repaired", "Trial", "measure", "refit", "repaired"]

Attack = tuple[Trigger, Any]
"""A trigger and the label of its target."""
Refit = Recipe | Callable[[ConceptData, int], Any]
"""How a model is trained anew: a recipe, or a function of a table and a seed that gives a CBM or a network f."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What repairs are measured on: rows, and attacks on them (inverted triggers to choose by, the true one to know by).

    strength, sources: as in `attack_report`.
    """

    data: ConceptData
    attacks: tuple[Attack, ...]
    strength: str = "quantile"
    sources: tuple[Any, ...] | None = None
    seed: int = 0

    def __post_init__(self):
        if not self.attacks:
            raise BadOption("A trial needs an attack", value="none", allowed="one (trigger, target) or more")


@dataclass(frozen=True, slots=True)
class Numbers:
    """accuracy, accuracy of concepts (None without g), success, untriggered rate, and the excess with its 95 % interval.

    With several attacks the rates are over the rows of all of them. None over no rows.
    """

    accuracy: float
    concept_accuracy: float | None
    asr: float | None
    untriggered: float | None
    excess: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Repaired:
    """A repair done: the `model` it gave, the `data` it was trained on where the table was mended, `detail` in words.

    `before`: the model that was given. `clean`: (before, after) of the same repair of a clean model and its table, the null.
    """

    method: str
    before: CBM
    model: CBM
    data: ConceptData | None
    detail: str
    clean: tuple[CBM, CBM] | None = None
    clean_detail: str | None = None

    def measured(self, trial: Trial) -> list[dict[str, Any]]:
        """Rows of table `repair`: stages before and after, and clean-before and clean-after where there is a clean model.

        The excess is over the untriggered rate and the clean model's success at the same stage, so that what the repair itself
        does to a clean model is no success of the attack; without a clean model, and for the clean model itself, it is over the
        untriggered rate alone.
        """
        stages: list[tuple[str, CBM, CBM | None]] = []
        clean = self.clean or (None, None)
        stages += [("before", self.before, clean[0]), ("after", self.model, clean[1])]
        if self.clean is not None:
            stages += [("clean-before", self.clean[0], None), ("clean-after", self.clean[1], None)]
        rows = []
        for stage, model, baseline in stages:
            found = measure(model, trial, baseline=baseline)
            numbers = {name: getattr(found, name) for name in Numbers.__slots__}
            detail = self.clean_detail if stage.startswith("clean") else self.detail
            rows.append({"method": self.method, "stage": stage} | numbers | {"detail": detail})
        return rows


def measure(model: Any, trial: Trial, *, baseline: Any = None) -> Numbers:
    """The numbers of a model in a trial; baseline: the clean model."""
    data = trial.data
    subject = Subject(model, data, strength=trial.strength)
    clean = None if baseline is None else Subject(baseline, data, strength=trial.strength)
    asr, untriggered, null = [], [], []
    for trigger, target in trial.attacks:
        code = data.code(target)
        counted = data.codes != code
        if trial.sources is not None:
            counted &= np.isin(data.codes, [data.code(source) for source in trial.sources])
        asr.append(subject.after(trigger)[counted] == code)
        untriggered.append(subject.before[counted] == code)
        null.append(np.zeros(counted.sum(), bool) if clean is None else clean.after(trigger)[counted] == code)
    hits = [np.concatenate(part) for part in (asr, untriggered, null)]
    concepts = None
    if subject.table is not data:
        of = concept_quality(subject.table.concepts, data, cut=0.0 if subject.space == "logit" else 0.5).accuracy
        concepts = None if np.isnan(of).all() else float(np.nanmean(of))
    accuracy = float((subject.before == data.codes).mean())
    if not hits[0].size:
        return Numbers(accuracy, concepts, None, None, None, None, None)
    excess = excess_interval(*hits, seed=trial.seed)
    return Numbers(accuracy, concepts, float(hits[0].mean()), float(hits[1].mean()), *excess)


def repaired(
    method: str,
    repair: Callable[[CBM, ConceptData], tuple[CBM, ConceptData | None, str]],
    model: Any,
    data: ConceptData,
    clean: tuple[Any, ConceptData] | None,
) -> Repaired:
    """A repair of a model and its table, and of the clean model and the clean table in the same way."""
    held = as_model(model, data)
    made, table, detail = repair(held, data)
    if clean is None:
        return Repaired(method, held, made, table, detail)
    pure = as_model(*clean)
    mended, _, said = repair(pure, clean[1])
    return Repaired(method, held, made, table, detail, (pure, mended), said)


def refit(model: CBM, data: ConceptData, recipe: Refit | None, seed: int) -> CBM:
    """A model of this table, made as `recipe` says; without one as a model of querist's own networks is made by default.

    Raises BadOption for other networks.
    """
    if recipe is None:
        ours = type(model.f) is Head and (model.g is None or type(model.g) is SmallBackbone)
        if not ours:
            raise BadOption(
                "How this network is trained is not known",
                value=type(model.f).__name__ if model.g is None else type(model.g).__name__,
                mend="Pass recipe=, a function of a table and a seed",
            )
        kind: Any = "head" if model.g is None else "cbm"
        head = model.f.head if isinstance(model.f, Head) else None
        recipe = Recipe(kind, head=head, mode=model.mode, input=model.input)
    made = recipe.fit(data, seed=seed) if isinstance(recipe, Recipe) else recipe(data, seed)
    return as_model(made, data)


def accepted(rows: Iterable[dict[str, Any]], drop: float) -> tuple[float, float] | None:
    """(excess after, drop of accuracy) of a repair that keeps accuracy within `drop`; None where it does not, or has no excess."""
    stages = {row["stage"]: row for row in rows}
    lost = stages["before"]["accuracy"] - stages["after"]["accuracy"]
    if stages["after"]["excess"] is None or lost > drop + 1e-12:
        return None
    return stages["after"]["excess"], lost
