"""What the methods of detection would find in this table: clean resamples of it, and beside each the same rows with known poison.

A try is one resample. Without trusted rows it is a subsample: four fifths of the rows of every class, without replacement. A bootstrap
would hold rows several times, and a method that is fitted on one copy of a row knows the other by heart: on CUB it raises mean masked
agreement from .26 to .35 and the median pattern excess from 1.99 to 2.27 nats, a subsample gives .25 and 2.00. With trusted rows the two
sides exchange rows inside every class, which is the null of what compares them, and keeps every size. Tries share rows, so that an
interval speaks of resamples of this table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from querist.concepts.attacks import Setting, choose_targets, select
from querist.concepts.configs import DetectConfig
from querist.concepts.data import ConceptData
from querist.concepts.detectors import LEAST_CLASSES, ConceptCleanse, Detector, TwoSample, conflicts, evaluate
from querist.concepts.model import CBM
from querist.concepts.studies.audit_measure import recipe_of
from querist.concepts.studies.detect_measure import NEEDS_MODEL, Truth, fitted, views
from querist.concepts.studies.opening import Material
from querist.concepts.triggers import Poisoned, checked, floor_count, poison
from querist.errors import BadInput, BadOption
from querist.runs.study import Unit
from querist.statistics import stream, torch_seed

__all__ = ["CLEAN", "KEPT", "PowerPlan", "carry_out_try", "detectors_of", "plan_power", "power_units", "resample"]

RATES, SIZE, TARGETS, SELECTORS = (0.01, 0.05, 0.1), 5, 5, ("cat", "cat+")
KEPT = 0.8
"""Share of the rows of every class that a resample keeps where there are no trusted rows to exchange them with."""
CLEAN = 0.0
"""The rate of a clean resample."""
A_CLASS = {"pattern": 0.03, "clustering": 0.04, "cleanse": 0.2}
A_ROW = {"spectral": 1e-4, "trajectory": 1e-4, "two-sample": 2.5e-4}
TRAINING = 2e-5
"""Seconds of one core that a copy costs: by class, by row, by row and epoch of its head. CUB takes 2.5 for the head, 44 for cleanse."""
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """Tries, and what is planted in each: every target with every selector before one of them comes again, then the next size."""

    tries: int
    targets: tuple[Any, ...]
    selectors: tuple[str, ...]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    mode: str

    @property
    def planted(self) -> tuple[Any, ...]:
        """The targets that come to their turn."""
        return self.targets[: self.tries]

    def case(self, repeat: int) -> tuple[Any, str, int]:
        """Target, selector and size of a try, the same at every rate."""
        rest, target = divmod(repeat, len(self.targets))
        rest, selector = divmod(rest, len(self.selectors))
        return self.targets[target], self.selectors[selector], self.sizes[rest % len(self.sizes)]


def plan_power(config: DetectConfig, data: ConceptData) -> PowerPlan:
    """data: the suspect rows. Raises BadOption for options without tries, sizes beyond the usable concepts and rates that
    plant nothing; NotBinary for CAT+ on other concepts without binarise; UnknownName for a target without rows.
    """
    given = {name: getattr(config, name) for name in ("targets", "selectors", "sizes", "rates")}
    if not config.power:
        if named := [name for name, value in given.items() if value]:
            raise BadOption(
                "Nothing is planted without tries",
                value=f"--{named[0]}",
                mend="Say how many with --power, or leave it out",
            )
        return PowerPlan(0, (), (), (), (), config.poison_mode)
    binary = data.binary_values or config.binarise is not None
    selectors = config.selectors or (SELECTORS if binary else SELECTORS[:1])
    if "cat+" in selectors:
        data.binary(config.binarise)
    sizes = config.sizes or (min(SIZE, max(len(data.usable()), 1)),)
    checked(data, max(sizes), "exclude")
    text = config.targets.strip()
    how: Any = text if text == "all" else int(text or TARGETS) if not text or text.isdigit() else None
    if how is None:
        how = [part.strip() for part in text.split(",") if part.strip()]
    plan = PowerPlan(
        config.power,
        tuple(choose_targets(data, how, seed=config.seed)),
        selectors,
        sizes,
        tuple(sorted(set(config.rates or RATES))),
        config.poison_mode,
    )
    for rate in plan.rates if plan.mode != "mix" else ():
        least = (
            min(int(data.class_sizes[data.code(target)]) for target in plan.targets) if plan.mode == "clean" else data.n
        )
        if not floor_count(rate, int(KEPT * least)):
            raise BadOption(
                f"This rate leaves no row to poison in mode {plan.mode}",
                value=f"{rate:g} of {int(KEPT * least)} rows",
                mend="Raise the rate, or plant in mode mix",
            )
    return plan


def detectors_of(methods: Sequence[str], trusted: bool) -> list[str]:
    """The methods as they are told apart here: `pattern` is the reference test, where there are trusted rows, and the agreement test."""
    tests = ["reference", "agreement"] if trusted else ["agreement"]
    return [one for name in methods for one in (tests if name == "pattern" else [name])]


def power_units(config: DetectConfig, plan: PowerPlan, methods: Sequence[str], data: ConceptData) -> list[Unit]:
    """One for every try and rate, the clean resample among them."""
    cost = 0.1 + data.n_classes * sum(A_CLASS.get(name, 0) for name in methods)
    cost += data.n * sum(A_ROW.get(name, 0) for name in methods)
    if set(methods) & set(NEEDS_MODEL):
        cost += data.n * config.epochs * TRAINING
    return [
        Unit(f"power/try={repeat:03d}/rate={rate:g}", {"repeat": repeat, "rate": rate}, cost)
        for repeat in range(plan.tries)
        for rate in (CLEAN, *plan.rates)
    ]


def resample(
    data: ConceptData, reference: ConceptData | None, rng: np.random.Generator
) -> tuple[ConceptData, ConceptData | None]:
    """A resample of the suspect rows, and the trusted rows that it is held against; no row is in it twice.

    Without a reference: the rounded share `KEPT` of the rows of every class, one at least, in their old order. With one: rows
    of a class change sides at random, the rows of classes that one side lacks stay.
    """
    if reference is None:
        kept = []
        for code in np.flatnonzero(data.class_sizes):
            rows = np.flatnonzero(data.codes == code)
            kept.append(rng.permutation(rows)[: max(1, round(KEPT * len(rows)))])
        return data.subset(np.sort(np.concatenate(kept))), None
    values = [np.array(side.concepts) for side in (data, reference)]
    pictures = [None if side.images is None else np.array(side.images) for side in (data, reference)]
    both = pictures[0] is not None and pictures[1] is not None
    names = reference.labels.astype(str)
    for code, label in enumerate(data.classes):
        mine = np.flatnonzero(data.codes == code)
        theirs = np.flatnonzero(names == str(label))
        if not mine.size or not theirs.size:
            continue
        order = rng.permutation(mine.size + theirs.size)
        for one, other in [values, pictures] if both else [values]:
            pool = np.concatenate([one[mine], other[theirs]])[order]  # type: ignore[index]
            one[mine], other[theirs] = pool[: mine.size], pool[mine.size :]  # type: ignore[index]
    made = [
        side.changed(concepts=cells, images=shown if both else None, ids=None, split=None)
        for side, cells, shown in zip((data, reference), values, pictures, strict=True)
    ]
    return made[0], made[1]


def carry_out_try(
    config: DetectConfig, material: Material, plan: PowerPlan, methods: Sequence[str], repeat: int, rate: float
) -> Mapping[str, Any]:
    """Table power_runs of one try at one rate: every detector on the resample, planted with known poison where the rate is not 0.

    A try has one seed at all rates: the same rows, trigger, initial weights and batches.
    """
    table, _ = material.suspect(config)
    draw = torch_seed(config.seed, "power", repeat)
    suspect, trusted = resample(table, material.reference(config), stream(config.seed, "power", repeat))
    target, selector, size = plan.case(repeat)
    planted: Poisoned | None = None
    if rate != CLEAN:
        chosen = select(
            suspect, target, [(selector, size)], options={"cat+": {"binarise": config.binarise}}, seed=draw
        )[selector, size]
        one = Setting(selector, size, rate, plan.mode)
        planted = poison(suspect, chosen.trigger, target, one.rate, mode=one.mode, strength=config.strength, seed=draw)  # type: ignore[arg-type]
        suspect = planted.data
    told = config.model_copy(update={"seed": draw, "retrains": 0})
    model: CBM | None = None
    if set(methods) & set(NEEDS_MODEL):
        model = recipe_of(config, suspect).fit(suspect, seed=draw)
    about = {
        "repeat": repeat,
        "rate": rate,
        "target": str(target),
        "selector": selector,
        "size": size,
        "n": suspect.n,
        "n_poisoned": 0 if planted is None else planted.n_poisoned,
    }
    truth: Truth | None = None if planted is None else (planted.mask, planted.trigger)
    rows = []
    for name in detectors_of(methods, trusted is not None):
        begun = time.perf_counter()
        row = about | {"method": name} | _judged(told, name, suspect, trusted, model, str(target), truth)
        rows.append(row | {"seconds": time.perf_counter() - begun})
    return {"power_runs": rows}


def _judged(
    config: DetectConfig,
    name: str,
    table: ConceptData,
    reference: ConceptData | None,
    model: CBM | None,
    target: str,
    truth: Truth | None,
) -> dict[str, Any]:
    """What one detector says of the copy. The target is only compared with what it named, the truth with what it scored."""
    if name == "conflicts":
        scores, flags = conflicts(table).mask.astype(float), np.zeros(table.n, dtype=bool)
        return {"reason": "it scores rows and reports none"} | _beside(scores, flags, truth)
    method = "pattern" if name in ("reference", "agreement") else name
    seen, trusted = views(table, None if name == "agreement" else reference, model, method)
    try:
        if method == "two-sample":
            found: Detector = TwoSample(permutations=config.permutations, seed=config.seed).fit(seen, reference=trusted)
        else:
            found = fitted(config, method, seen, trusted, model)
    except BadInput as error:
        return {"reason": str(error)}
    said: dict[str, Any] = {
        "alarm": bool(found.classes or found.concepts),
        "named": target in {str(label) for label in found.classes},
    }
    if (
        isinstance(found, ConceptCleanse)
        and found.inversion is not None
        and len(found.inversion.codes) >= LEAST_CLASSES
    ):
        # Its null are the clean resamples of all tries, which this one does not know.
        largest = int(found.inversion.index.argmax())
        said = {
            "statistic": found.inversion.largest,
            "named": str(seen.classes[found.inversion.codes[largest]]) == target,
        }
    elif found.reason is not None and name != "agreement":
        said = {"reason": found.reason}
    elif method == "two-sample":
        said["named"] = None  # it names concepts, of no class
    return said | _beside(found.scores, found.flags, truth)


def _beside(scores: np.ndarray, flags: np.ndarray, truth: Truth | None) -> dict[str, Any]:
    if truth is None:
        return {"flagged": int(flags.sum())}
    judged = evaluate(scores, flags, truth[0])
    return {"flagged": judged.flagged, "auc": judged.auc, "precision": judged.precision, "recall": judged.recall}
