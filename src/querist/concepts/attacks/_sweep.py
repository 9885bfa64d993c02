"""The exposure sweep in pieces that do not know of each other: the clean model of a repeat, and one target under it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from querist.concepts.attacks._attack import AttackReport, attack_report
from querist.concepts.attacks._parts import Parts, joined, repeat_parts, repeat_seed
from querist.concepts.attacks._subject import Subject
from querist.concepts.attacks._targets import choose_targets
from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.triggers import (
    Base,
    Mode,
    Poisoned,
    Selection,
    Trigger,
    cat,
    cat_plus,
    checked,
    poison,
    random_trigger,
)
from querist.errors import BadOption
from querist.runs.threads import limited

__all__ = [
    "SELECTORS",
    "Setting",
    "Swept",
    "clean_cell",
    "grid",
    "planted",
    "select",
    "sweep",
    "sweep_cell",
    "train_copies",
]

SELECTORS = ("cat", "cat+", "random")
MODES = (*get_args(Mode), "none")


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of the grid. mode "none": nothing is planted, which is the clean model under the same trigger."""

    selector: str
    size: int
    rate: float
    mode: str = "mix"

    def __post_init__(self):
        if self.selector not in SELECTORS or self.mode not in MODES:
            raise BadOption(
                "No such selector or mode",
                value=f"{self.selector}, {self.mode}",
                allowed=f"{', '.join(SELECTORS)}; {', '.join(MODES)}",
            )
        if self.mode != "none" and not 0 < self.rate <= 1:
            raise BadOption("A rate of poisoning lies outside its range", value=self.rate, allowed="0 < rate <= 1")


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """A sweep in memory: `rows` of table `exposure`, the clean model of each repeat, and the targets."""

    rows: list[dict[str, Any]]
    clean: list[CBM]
    targets: list[Any]
    recipe: Recipe


def grid(
    selectors: Iterable[str], sizes: Iterable[int], rates: Iterable[float], modes: Iterable[str] = ("mix",)
) -> list[Setting]:
    """Every combination, the selectors outermost."""
    return [Setting(*values) for values in itertools.product(selectors, sizes, rates, modes)]


def clean_cell(data: ConceptData, repeat: int, *, recipe: Recipe | None = None, seed: int = 0) -> CBM:
    """The clean model of a repeat, which all its targets are held against.

    The same parts, initial weights and batches as in `sweep_cell`. A head is trained on the part train alone, to its last epoch;
    a bottleneck model is kept at its best epoch on the part val, which is never poisoned.
    """
    parts = repeat_parts(data, repeat, seed=seed)
    with limited(1):
        return train_copies(recipe or Recipe.of(data), parts, [parts.train], repeat_seed(seed, repeat))[0]


def sweep_cell(
    data: ConceptData,
    target: Any,
    repeat: int,
    clean: CBM,
    *,
    selectors: Iterable[str] = SELECTORS,
    sizes: Iterable[int] = (5,),
    rates: Iterable[float] = (0.01,),
    modes: Iterable[str] = ("mix",),
    extra: Iterable[Setting] = (),
    base: Any = "auto",
    sources: Iterable[Any] | None = None,
    strength: str = "quantile",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    recipe: Recipe | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of table `exposure` for one target in one repeat: every setting of the grid, then those of `extra`, once each.

    Each selector and size begins with its row of mode "none" and rate 0, the clean model under that trigger. Poisoned rows,
    negatives, initial weights and batches depend on seed, repeat and target alone, so that settings differ in nothing else; a
    trigger of fewer concepts is the beginning of the larger one. All heads of the cell are trained as one stack. The trigger is set
    at the bottleneck: for pictures on what each model's own g says, in logits by `strength`. options: further arguments
    of a selector by its name ({"cat+": {"binarise": "0.5"}}).

    sources: success is counted on rows of these classes, the target aside. A setting that this class cannot have (no row to poison
    at this rate, more rows than there are, no training row) has null rates and its `reason`.

    Raises BadOption for a size beyond the usable concepts and for options that no class could have.
    """
    recipe, draw = recipe or Recipe.of(data), repeat_seed(seed, repeat)
    settings = list(dict.fromkeys([*grid(selectors, sizes, rates, modes), *extra]))
    if not settings:
        raise BadOption(
            "There is no setting to sweep over", value="none", allowed="one selector, size and rate or more"
        )
    wanted = {(one.selector, one.size): None for one in settings}
    blanks = [Setting(*pair, 0.0, "none") for pair in wanted]
    settings = [*blanks, *(one for one in settings if one.mode != "none")]
    if base not in get_args(Base):
        raise BadOption("No such base of a rate", value=base, allowed=", ".join(get_args(Base)))
    parts = repeat_parts(data, repeat, seed=seed)
    checked(parts.train, max(size for _, size in wanted), "exclude")
    code = data.code(target)
    if sources is not None:
        sources = [source for source in sources if data.code(source) != code]
    rows: dict[Setting, dict[str, Any]] = {
        one: _row(data.classes[code], one, repeat, base if base != "auto" else None) for one in settings
    }
    if not parts.train.class_sizes[code]:
        for row in rows.values():
            row["reason"] = "the class has no training row in this repeat"
        return list(rows.values())
    with limited(1):
        triggers = select(parts.train, target, wanted, options=options, seed=draw)
        made: dict[Setting, Poisoned] = {}
        for one in settings:
            if one.mode == "none":
                continue
            try:
                trigger = triggers[one.selector, one.size].trigger
                made[one] = planted(parts.train, trigger, target, one, base=base, seed=draw)
            except BadOption as error:
                rows[one]["reason"] = str(error)
        models = train_copies(recipe, parts, [copy.data for copy in made.values()], draw)
        baseline = Subject(clean, parts.test, strength=strength)
        # The same cells are set on both sides: a head has no concepts of its own, and poison would move the quantiles.
        scale = baseline.scale if recipe.kind == "head" else None
        subjects: dict[Setting, Subject] = {
            one: Subject(model, parts.test, strength=strength, scale=scale)
            for one, model in zip(made, models, strict=True)
        }
        for one in settings:
            if one.mode != "none" and one not in made:
                continue
            found = triggers[one.selector, one.size]
            model = subjects.get(one, baseline)
            report = attack_report(
                model, parts.test, found.trigger, target, sources=sources, baseline=baseline, seed=draw
            )
            _fill(rows[one], report, found, parts.train, made.get(one))
    return list(rows.values())


def sweep(
    data: ConceptData,
    targets: Any = "full",
    repeats: int = 1,
    *,
    recipe: Recipe | None = None,
    seed: int = 0,
    **cell: Any,
) -> Swept:
    """The whole sweep in memory: targets as in `choose_targets`, `cell` as in `sweep_cell`; heads, or models of pictures."""
    recipe, chosen = recipe or Recipe.of(data), choose_targets(data, targets, seed=seed)
    clean = [clean_cell(data, repeat, recipe=recipe, seed=seed) for repeat in range(repeats)]
    rows = [
        row
        for target in chosen
        for repeat in range(repeats)
        for row in sweep_cell(data, target, repeat, clean[repeat], recipe=recipe, seed=seed, **cell)
    ]
    return Swept(rows, clean, chosen, recipe)


def select(
    train: ConceptData,
    target: Any,
    wanted: Iterable[tuple[str, int]],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int,
) -> dict[tuple[str, int], Selection]:
    """The triggers of (selector, size) pairs: each selector runs once, for its largest size, and smaller ones are its beginnings."""
    pairs = list(wanted)
    largest: dict[str, int] = {}
    for selector, size in pairs:
        largest[selector] = max(size, largest.get(selector, 0))
    by = {"cat": cat, "cat+": cat_plus, "random": random_trigger}
    found = {
        selector: by[selector](train, target, size, seed=seed, **((options or {}).get(selector) or {}))
        for selector, size in largest.items()
    }
    return {(selector, size): found[selector].first(size) for selector, size in pairs}


def planted(
    train: ConceptData, trigger: Trigger, target: Any, setting: Setting, *, base: Any = "auto", seed: int
) -> Poisoned:
    """The poisoned copy of a setting; the strength is that of the table's own quantiles, for logits stand in tables as well."""
    mode: Any = setting.mode
    return poison(train, trigger, target, setting.rate, mode=mode, base=base, seed=seed)


def train_copies(recipe: Recipe, parts: Parts, tables: Sequence[ConceptData], seed: int) -> list[CBM]:
    """Models of copies of the training rows; the part val goes with them, as it is, where the recipe chooses an epoch by it."""
    if not tables:
        return []
    if recipe.kind == "head" or parts.val is None:
        return recipe.fit_many([table.changed(split=None) for table in tables], seed=seed)
    # One at a time: a table of both has pictures of its own.
    return [recipe.fit(joined(table, parts.val), seed=seed) for table in tables]


def _row(target: Any, one: Setting, repeat: int, base: str | None) -> dict[str, Any]:
    held: dict[str, Any] = {
        "target": target,
        "selector": one.selector,
        "size": one.size,
        "rate": one.rate,
        "mode": one.mode,
        "repeat": repeat,
        "n_poisoned": 0,
        "base": base,
    }
    names = ("accuracy", "accuracy_drop", "asr", "untriggered", "clean_model_asr", "natural", "excess", "low", "high")
    return held | dict.fromkeys((*names, "accuracy_after", "saturated_at", "violates_groups", "reason"))


def _fill(
    row: dict[str, Any], report: AttackReport, found: Selection, train: ConceptData, copy: Poisoned | None
) -> None:
    names = ("accuracy", "accuracy_drop", "asr", "untriggered", "clean_model_asr", "natural", "excess", "low", "high")
    row |= {name: getattr(report, name) for name in (*names, "accuracy_after", "reason")}
    row["saturated_at"] = found.saturated_at
    row["violates_groups"] = found.trigger.violates(train.groups, train.concepts)
    if copy is not None:
        row["n_poisoned"], row["base"] = copy.n_poisoned, copy.base
