"""The agreement test on clean tables of many shapes, and the reference test's level and power, at length."""

from __future__ import annotations

import numpy as np
import pytest

from querist.concepts import ConceptData, cat, poison
from querist.concepts.detectors import agreement_test, masked_agreement, pattern_excess, reference_test, size_outlier
from querist.concepts.readers import registered

pytestmark = pytest.mark.slow
RUNS, RESAMPLES = 200, 19


def statistics(data, clusters=None):
    return {
        "size": size_outlier(data.class_sizes),
        "D": pattern_excess(data).excess,
        "1-A": 1 - masked_agreement(data, clusters=clusters),
    }


def uneven(rng):
    """Forty classes of 4 to 80 rows around their templates."""
    labels = np.repeat(np.arange(40), rng.integers(4, 80, 40))
    templates = rng.random((40, 24)) < 0.35
    return (ConceptData((templates[labels] ^ (rng.random((len(labels), 24)) < 0.12)).astype(float), labels),)


def one_hot(rng):
    """Thirty classes, six groups of four exclusive values."""
    labels = np.repeat(np.arange(30), rng.integers(10, 40, 30))
    shares = rng.dirichlet(np.ones(4), (30, 6)).cumsum(axis=2)
    value = (rng.random((len(labels), 6, 1)) > shares[labels]).sum(axis=2).clip(max=3)
    return (ConceptData(np.eye(4)[value].reshape(len(labels), 24), labels),)


def random_labels(rng):
    """Zoo's animals with labels that mean nothing: thirty classes."""
    zoo = registered("zoo")
    return (ConceptData(zoo.concepts, np.concatenate([np.arange(30), rng.integers(0, 30, zoo.n - 30)])),)


def resampled(rng):
    """Rows of drawn birds, twenty classes, resampled; copies of a row stay in one fold."""
    rows = rng.integers(0, 600, 600)
    templates = np.random.default_rng(0).random((20, 16)) < 0.4
    whole = templates[np.arange(600) % 20] ^ (np.random.default_rng(1).random((600, 16)) < 0.07)
    return ConceptData(whole[rows].astype(float), (np.arange(600) % 20)[rows]), rows


@pytest.mark.parametrize("draw", [uneven, one_hot, random_labels, resampled])
def test_agreement_says_yes_of_at_most_one_clean_table_in_twenty(draw):
    found = [statistics(*draw(np.random.default_rng([3, run]))) for run in range(RUNS)]
    yes = 0
    for run, own in enumerate(found):
        others = [found[(run + 1 + j) % RUNS] for j in range(RESAMPLES)]
        clean = {name: max(float(np.nanmax(other[name])) for other in others) for name in own}
        yes += agreement_test(own, clean=clean).verdict == "yes"
    assert yes / RUNS <= 0.05


def test_the_reference_test_holds_its_level_over_classes_and_finds_what_is_hidden():
    mushroom = registered("mushroom")
    level = power = 0
    for run in range(RUNS):
        rng = np.random.default_rng([4, run])
        rows = rng.permutation(mushroom.n)[:600]
        suspect, trusted = mushroom.subset(rows[:300]), mushroom.subset(rows[300:])
        level += bool(np.nanmin(reference_test(suspect, trusted, permutations=199, seed=run).p_adj) <= 0.05)
        if run % 10 == 0:
            trigger = cat(suspect, "e", 5, seed=run).trigger
            made = poison(suspect, trigger, "e", 0.05, seed=run).data
            found = reference_test(made, trusted, permutations=199, seed=run)
            power += bool(found.p_adj[made.target("e")] <= 0.05)
    assert 0.01 <= level / RUNS <= 0.09
    assert power >= 18
