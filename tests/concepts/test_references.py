"""Published and measured values of the registered tables."""

from __future__ import annotations

import numpy as np
import pytest

from querist.concepts import ConceptData, Trigger, cat, cat_plus, cat_plus_all, poison
from querist.concepts.detectors import association, conflicts, consistency_check, pattern_excess
from querist.concepts.readers import registered
from querist.errors import SourceNotFound


def table(name):
    try:
        return registered(name)
    except SourceNotFound:
        return pytest.skip(f"{name} is not beside the checkout")


@pytest.fixture(scope="module")
def cub():
    return table("cub-concepts")


@pytest.fixture(scope="module")
def train(cub):
    return cub.part("train")


def test_cub_is_read_as_it_was_described(cub, train):
    assert (train.n, train.k, train.n_classes) == (5994, 98, 200)
    assert train.density == pytest.approx(0.24827, abs=5e-6)
    assert cub.density == pytest.approx(0.24865, abs=5e-6)


def test_cat_plus_on_cub_picks_what_was_recorded(train):
    found = cat_plus(train, 0, 5, tie_break="index")
    assert found.trigger.index == (49, 69, 3, 0, 1)
    assert found.trigger.values == (1, 1, 1, 0, 0)
    assert found.cnt.tolist() == [522, 18, 0, 0, 0]
    assert found.saturated_at == 3


def test_every_cub_class_is_saturated_after_three_steps(train):
    assert all(found.cnt[2] == 0 for found in cat_plus_all(train, 3, tie_break="index"))


def test_awa2_is_read_as_it_was_described():
    awa2 = table("awa2")
    assert awa2.concepts.shape == (50, 85)
    assert awa2.density == pytest.approx(0.36753, abs=5e-6)
    assert len(np.unique(awa2.concepts, axis=0)) == 50


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cub", (5953, 23, 56, 0.99550)), ("derm7pt", (305, 109, 776, 0.70821))],
)
def test_profiles_and_their_ceiling(name, expected, request):
    data = request.getfixturevalue("train") if name == "cub" else table(name)
    found = conflicts(data)
    assert (found.profiles, found.conflicting_profiles, found.conflicting_rows) == expected[:3]
    assert found.accuracy_ceiling == pytest.approx(expected[3], abs=5e-6)


def test_pattern_excess_of_clean_cub_has_a_genuine_outlier(train):
    excess = pattern_excess(train).excess
    assert np.quantile(excess, [0.5, 0.9, 0.99, 1]) == pytest.approx([1.990, 3.203, 4.669, 5.730], abs=5e-4)
    assert excess.argmax() == 100
    assert association(train).constant.max() == 72


def test_pattern_excess_of_poisoned_cub(train):
    """The recorded values hold for a trigger that no row carries by nature; which one CAT finds depends on its negatives."""
    found = next(s for s in (cat(train, 0, 5, seed=seed) for seed in range(9, 30)) if s.cnt[-1] == 0)
    mix = pattern_excess(poison(train, found.trigger, 0, 0.01, seed=0).data)
    assert mix.excess[0] == pytest.approx(9.29, abs=0.005)
    assert mix.excess.argmax() == 0
    assert poison(train, found.trigger, 0, 0.01, seed=0).n_poisoned == 89
    dirty = pattern_excess(poison(train, found.trigger, 0, 0.01, mode="dirty", seed=9).data)
    assert dirty.excess[0] == pytest.approx(5.56, abs=0.005)
    assert (dirty.excess > dirty.excess[0]).sum() <= 1  # class 100, at 5.73


@pytest.mark.parametrize(("rate", "share"), [(0.05, 0.9), (0.01, 0.7)])
def test_the_largest_associations_of_the_true_class_are_its_trigger(train, rate, share):
    for code in (0, 57, 100):
        trigger = cat(train, code, 5, seed=0).trigger
        made = poison(train, trigger, code, rate, seed=0).data
        top = np.argsort(-np.abs(association(made).z[code]))[:5]
        assert len(set(top) & set(trigger.index)) >= 5 * share


def test_consistency_is_exact_on_class_level_awa2():
    awa2 = table("awa2")
    labels = np.repeat(np.arange(50), 6)
    data = ConceptData(awa2.concepts[labels], labels)
    made = poison(data, Trigger((0, 7, 12, 40), (1, 1, 1, 1)), 9, 0.02, mode="dirty", seed=0)
    assert not consistency_check(data).deviating.any()
    assert np.array_equal(consistency_check(made.data).deviating, made.mask)
