"""Every detector of the concepts room on clean tables of all families, and what is planted at known rates: levels, coverage, power.

Two hundred and sixty clean tables here; docs/concepts.md has the rates of a longer run, by family.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom
from tests.concepts.clean import FAMILIES
from tests.concepts.levels import LEVEL, Count, count, planted

from querist.concepts.attacks import excess_interval
from querist.concepts.attacks import over_targets as over
from querist.errors import SourceNotFound
from querist.statistics import wilson

pytestmark = pytest.mark.slow
RUNS = {"tables": 20, "samples": 20, "models": 4, "cleanse": 60}


@cache
def counted(group: str, family: str) -> Count:
    try:
        return count(group, family, range(RUNS[group]))
    except SourceNotFound:
        return pytest.skip(f"{family} is not beside the checkout")


def pooled(group: str, name: str, families=tuple(FAMILIES)) -> tuple[int, int]:
    held = [counted(group, family)[name] for family in families if name in counted(group, family)]
    return sum(hit for hit, _ in held), sum(of for _, of in held)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("group", ["tables", "samples"])
def test_no_test_of_a_clean_table_rejects_more_than_its_level(group, family):
    for name, (hits, trials) in counted(group, family).items():
        # Rows, concepts and classes of one table depend on each other, so that only whole tables are counted as draws.
        if trials == RUNS[group]:
            assert hits <= binom.ppf(0.999, trials, LEVEL), f"{name} on {family}: {hits} of {trials}"


@pytest.mark.parametrize(
    "test", ["two-sample, AUC", "two-sample, MMD", "two-sample, pairs, AUC", "two-sample, pairs, MMD"]
)
def test_two_samples_reject_one_true_null_in_twenty(test):
    hits, trials = pooled("samples", test)
    assert trials >= 200
    found = wilson(hits, trials, 0.99)
    assert found.low <= LEVEL <= found.high


@pytest.mark.parametrize("test", ["AUC", "MMD"])
def test_pairs_that_are_taken_apart_never_differ(test):
    """Each row has its twin on the other side, and a relabelling that ignores it is far too wide."""
    hits, trials = pooled("samples", f"pairs taken apart (wrong), {test}")
    assert hits <= 0.01 * trials


def test_the_reference_test_rejects_one_class_in_twenty_and_one_table_in_twenty():
    known = tuple(name for name in FAMILIES if name not in ("CUB", "nearly uniform", "tiny classes", "rare concepts"))
    hits, trials = pooled("tables", "reference, a class", known)
    assert 0.03 <= hits / trials <= 0.07
    hits, trials = pooled("tables", "reference, Holm", known)
    assert wilson(hits, trials, 0.99).low <= LEVEL
    assert hits > 0


@pytest.mark.parametrize("name", ["agreement", "class-level", "table-poisoned", "association, BH"])
def test_verdicts_are_wrong_in_one_clean_table_of_twenty_at_most(name):
    hits, trials = pooled("tables", name)
    assert trials >= 200
    assert hits / trials <= LEVEL


@pytest.mark.parametrize("family", ["renderer", "mushroom", "one-hot groups", "CUB, 40 classes", "unknown cells"])
def test_flags_and_alarms_come_as_often_as_was_asked(family):
    found = counted("models", family)
    rate = {name: hits / of for name, (hits, of) in found.items()}
    assert rate["spectral, rows at 1 %"] <= 0.015
    assert rate["trajectory, rows at 1 %"] <= 0.02
    for rule in ("conjunction", "entropy", "both"):
        expected = rate[f"monitor, {rule}, expected"]
        assert rate[f"monitor, {rule}"] <= 1.5 * LEVEL
        assert rate[f"monitor, {rule}"] >= 0.5 * expected - 0.005
    assert found["trajectory, a class"][0] <= 1


def test_clean_heads_are_seldom_called_backdoored():
    """VinAIResearch/input-aware-backdoor-attack-release#10, on sixty heads of a real table, with and without trusted rows."""
    for name, (hits, trials) in counted("cleanse", "zoo").items():
        assert trials == RUNS["cleanse"]
        assert hits <= binom.ppf(0.999, trials, LEVEL), name


@pytest.mark.parametrize(
    ("n", "rates"),
    [
        (40, (0.7, 0.05, 0.2)),
        (100, (0.5, 0.3, 0.2)),
        (300, (0.5, 0.3, 0.3)),
        (300, (0.05, 0.03, 0.03)),
        (1000, (0.3, 0.02, 0.01)),
    ],
)
def test_the_excess_interval_covers_the_excess_of_simulated_heads(n, rates):
    """Heads of known success, on few rows and many, with nulls that are alike, apart, and hard to tell apart."""
    held, truth = 0, rates[0] - max(rates[1:])
    for run in range(3000):
        hits = np.random.default_rng([8, n, run]).random((n, 3)) < rates
        _, low, high = excess_interval(*hits.T, seed=run)
        held += low <= truth <= high
    assert 0.93 <= held / 3000 <= 0.97


@pytest.mark.parametrize(("targets", "repeats"), [(10, 1), (10, 3), (30, 2)])
def test_the_mean_excess_over_targets_covers_that_of_all_targets(targets, repeats):
    held = 0
    for run in range(400):
        rng = np.random.default_rng([9, targets, run])
        true = rng.beta(1, 2, targets)
        rows = [
            {"target": str(t), "repeat": r, "excess": true[t] + rng.normal(0, 0.05)}
            for t in range(targets)
            for r in range(repeats)
        ]
        found = over(rows, "excess", replicates=1000, seed=run)
        held += found.low <= 1 / 3 <= found.high
    assert 0.91 <= held / 400 <= 0.98


@pytest.mark.parametrize("family", ["renderer", "mushroom"])
def test_power_rises_with_the_rate_and_is_what_was_recorded(family):
    """docs/concepts.md: at 5 % mix with a reference nearly every table is told, at 1 % most of them."""
    power = {
        rate: np.mean([planted(family, run, rate, "mix")["table-poisoned"][0] for run in range(10)])
        for rate in (0.0025, 0.05)
    }
    assert power[0.05] >= 0.9
    assert power[0.0025] <= power[0.05]
