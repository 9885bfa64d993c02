"""How often each detector of the room cries wolf on clean tables, and how often it finds what is planted: counts of yes, by run.

`count(group, family, runs)` adds up hits and trials of every detector of a group; the quick tests take a few runs of a few families,
`tests/calibration/test_concepts_levels.py` all of them. What is counted is the decision that a user is told: p <= .05, "yes", an alarm.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from tests.concepts.clean import drawn, twice

from querist.concepts import ConceptData, fit_head, poison, random_trigger
from querist.concepts.attacks import two_sample
from querist.concepts.configs import DetectOptions
from querist.concepts.detectors import (
    ActivationClustering,
    LossTrajectory,
    RuntimeMonitor,
    SpectralSignature,
    association,
    clean_indices,
    cleanse_test,
    invert_discrete,
    reference_test,
)
from querist.concepts.studies.evidence import measure_evidence
from querist.errors import BadOption

__all__ = ["GROUPS", "LEVEL", "Count", "count", "planted"]

LEVEL = 0.05
ALARMS = 0.05
HEAD = {"head": "mlp:32", "epochs": 10, "batch": 64}
SMALL = {"head": "mlp:16", "epochs": 8, "batch": 64}
Count = dict[str, tuple[int, int]]
"""Hits and trials of each detector."""


def count(group: str, family: str, runs: Iterable[int]) -> Count:
    """Hits and trials over runs."""
    hits: Counter[str] = Counter()
    trials: Counter[str] = Counter()
    for run in runs:
        for name, (hit, of) in GROUPS[group](family, run).items():
            hits[name] += int(hit)
            trials[name] += int(of)
    return {name: (hits[name], trials[name]) for name in trials}


def _shares(p: np.ndarray) -> tuple[int, int]:
    known = ~np.isnan(p)
    return int((p[known] <= LEVEL).sum()), int(known.sum())


def _any(p: np.ndarray) -> tuple[int, int]:
    """Whether a family of tests names one; no trial where none could be made."""
    return (int(np.nanmin(p) <= LEVEL), 1) if not np.isnan(p).all() else (0, 0)


def decided(suspect: ConceptData, trusted: ConceptData | None, seed: int) -> Count:
    """The tests that `table-poisoned` is taken from, as `concepts detect` makes them; yes where one of them says it."""
    config = DetectOptions(permutations=199, seed=seed)
    tests = measure_evidence(config, suspect, np.arange(suspect.n), None)["tests"]
    found: Count = {row["test"]: (int(row["verdict"] == "yes"), 1) for row in tests}
    found.setdefault("class-level", (0, 1))
    found["table-poisoned, no reference"] = (int(any(hit for hit, _ in found.values())), 1)
    if trusted is not None:
        draws = max(199, 2 * math.ceil(int((suspect.class_sizes > 0).sum()) / LEVEL))
        test = reference_test(suspect, trusted, permutations=draws, seed=seed)
        found["reference, a class"], found["reference, Holm"] = _shares(test.p), _any(test.p_adj)
        found["table-poisoned"] = (max(found["table-poisoned, no reference"][0], found["reference, Holm"][0]), 1)
    return found


def tables(family: str, run: int) -> Count:
    """Detectors that read a table. The null of an association is that labels mean nothing, so there they are permuted."""
    suspect, trusted = drawn(family, run, 2)
    rng = np.random.default_rng([1, run])
    shuffled = association(suspect.changed(codes=rng.permutation(suspect.codes)))
    found: Count = {"association, a cell": _shares(shuffled.p), "association, BH": _any(shuffled.p_adj)}
    return found | decided(suspect, trusted if suspect.n_classes < 200 else None, run)


def samples(family: str, run: int) -> Count:
    """Two sets of rows of one law, divided at random; and rows before and after, both with errors of their own."""
    one, other = drawn(family, run, 2)
    rng = np.random.default_rng([2, run, *family.encode()])
    rows = rng.permutation(np.concatenate([one.concepts, other.concepts]))[:400]
    apart = two_sample(rows[: len(rows) // 2], rows[len(rows) // 2 :], permutations=199, seed=run)
    before, after = twice(one.subset(rng.permutation(one.n)[:150]), rng)
    paired = two_sample(before, after, paired=True, permutations=199, seed=run)
    wrong = two_sample(before, after, permutations=199, seed=run)
    found: Count = {}
    for name, test in (("two-sample", apart), ("two-sample, pairs", paired), ("pairs taken apart (wrong)", wrong)):
        found[f"{name}, AUC"], found[f"{name}, MMD"] = (int(test.p <= LEVEL), 1), (int(test.p_mmd <= LEVEL), 1)
    return found


def models(family: str, run: int) -> Count:
    """Detectors that read a head, trained on the suspect table as it is in use, and monitors on rows that nobody has seen."""
    suspect, trusted, fresh = drawn(family, run, 3)
    head = fit_head(suspect, seed=run, **HEAD)
    found: Count = {}
    with contextlib.suppress(
        BadOption
    ):  # fewer than a hundred trusted rows have no score that one in a hundred exceeds
        signature = SpectralSignature().fit(suspect, head, trusted)
        found["spectral, rows at 1 %"] = (int(signature.flags.sum()), suspect.n)
    trajectory = LossTrajectory(head="mlp:32", batch=64, seed=run).fit(suspect, reference=trusted)
    clusters = ActivationClustering(seed=run).fit(suspect, head)
    found |= {
        "trajectory, rows at 1 %": (int(trajectory.flags.sum()), suspect.n),
        "trajectory, a class": (int(bool(trajectory.classes)), 1),
        "clustering, classes": (len(clusters.classes), int((suspect.class_sizes >= 10).sum())),
    }
    for rule in ("conjunction", "entropy", "both"):
        monitor = RuntimeMonitor(rule, false_alarms=ALARMS, seed=run).fit(trusted, head)
        found[f"monitor, {rule}"] = (int(monitor.update(fresh.concepts).sum()), fresh.n)
        found[f"monitor, {rule}, expected"] = (round(monitor.expected["any"] * fresh.n), fresh.n)
    return found


def cleanse(family: str, run: int) -> Count:
    """A clean head on the suspect table beside 19 clean retrains, of trusted rows and of the table itself."""
    suspect, trusted = drawn(family, run, 2)
    head = fit_head(suspect, seed=5000 + run, **SMALL)
    found: Count = {}
    for name, rows in (("cleanse", trusted), ("cleanse, no reference", suspect)):
        null = clean_indices(rows, head, retrains=19, seed=run, epochs=SMALL["epochs"], batch=SMALL["batch"])
        test = cleanse_test(invert_discrete(head, rows, seed=run).index, null)
        found[name] = (int(test.p <= LEVEL), 1)
    return found


def planted(family: str, run: int, rate: float, mode: str) -> Count:
    """What the tests of a table say of a copy with a random trigger of five concepts planted in a class of middle size."""
    suspect, trusted = drawn(family, run, 2, seed=1)
    middle = suspect.classes[int(np.argsort(suspect.class_sizes, kind="stable")[suspect.n_classes // 2])]
    trigger = random_trigger(suspect, middle, 5, seed=run).trigger
    made = poison(suspect, trigger, middle, rate, mode=mode, seed=run).data  # type: ignore[arg-type]
    found = decided(made, trusted, run)
    rows = np.random.default_rng([3, run]).permutation(min(made.n, trusted.n))[:600]
    test = two_sample(trusted.concepts[rows], made.concepts[rows], permutations=199, seed=run)
    kept = {name: found[name] for name in ("agreement", "reference, Holm", "table-poisoned")}
    return kept | {"two-sample, AUC": (int(test.p <= LEVEL), 1), "two-sample, MMD": (int(test.p_mmd <= LEVEL), 1)}


GROUPS: dict[str, Callable[[str, int], Count]] = {
    "tables": tables,
    "samples": samples,
    "models": models,
    "cleanse": cleanse,
}
