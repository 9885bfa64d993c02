"""A few clean tables of the families that are hardest on each detector; `tests/calibration/test_concepts_levels.py` takes them all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from tests.concepts.clean import BUNDLED, FAMILIES, drawn, twice
from tests.concepts.levels import LEVEL, count

from querist.concepts.data import same_schema
from querist.concepts.detectors import LossTrajectory, RuntimeMonitor
from querist.concepts.detectors._tails import fuller_classes


def no_more(found, name, level=LEVEL):
    """Not more often than by one chance in a thousand."""
    hits, trials = found[name]
    assert trials
    assert hits <= binom.ppf(0.999, trials, level), f"{name}: {hits} of {trials}"


@pytest.mark.parametrize("family", BUNDLED)
def test_tables_of_a_family_are_of_one_law_and_the_same_for_everybody(family):
    one, other = drawn(family, 3, 2)
    same_schema(one, other)
    assert one.classes == other.classes
    assert np.array_equal(drawn(family, 3, 2)[1].concepts, other.concepts, equal_nan=True)
    assert not np.array_equal(one.concepts, other.concepts, equal_nan=True)
    assert not np.array_equal(drawn(family, 4)[0].concepts, one.concepts, equal_nan=True)
    before, after = twice(one, np.random.default_rng(0))
    assert 0.02 < (before != after).mean() < 0.2


def test_families_are_as_hard_as_they_say():
    sizes = drawn("sizes 4 to 600", 0)[0].class_sizes
    assert (sizes.min(), sizes.max()) == (4, 600)
    assert len(np.unique(drawn("heavy ties", 0)[0].concepts, axis=0)) <= 16
    assert drawn("unknown cells", 0)[0].missing > 0
    zoo = drawn("zoo", 0)[0]
    assert len(np.unique(zoo.concepts, axis=0)) < 0.6 * zoo.n
    assert len(FAMILIES) == len(BUNDLED) + 2


@pytest.mark.parametrize(
    ("family", "runs"), [("zoo", 20), ("nearly uniform", 8), ("rare concepts", 3), ("tiny classes", 4)]
)
def test_clean_tables_are_not_called_planted(family, runs):
    found = count("tables", family, range(runs))
    for name, (_, trials) in found.items():
        if trials:
            no_more(found, name)
    for name in ("class-level", "agreement"):
        assert found[name][0] == 0


def test_two_samples_of_one_law_are_seldom_told_apart_and_pairs_must_stay_together():
    found = count("samples", "zoo", range(30))
    for name in found:
        no_more(found, name)
    for test in ("AUC", "MMD"):
        assert found[f"pairs taken apart (wrong), {test}"][0] == 0


def test_detectors_that_read_a_head_flag_no_more_rows_than_asked():
    found = count("models", "one-hot groups", range(2))
    assert found["spectral, rows at 1 %"][0] <= 0.015 * found["spectral, rows at 1 %"][1]
    assert found["trajectory, rows at 1 %"][0] <= 0.03 * found["trajectory, rows at 1 %"][1]
    assert found["trajectory, a class"][0] == 0
    assert 0.5 <= found["monitor, entropy"][0] / (0.05 * found["monitor, entropy"][1]) <= 1.5
    assert found["monitor, conjunction"][0] <= 0.01 * found["monitor, conjunction"][1]


def test_a_monitor_says_where_it_cannot_use_up_its_false_alarms():
    trusted = drawn("one-hot groups", 0)[0]
    monitor = RuntimeMonitor(false_alarms=0.05).fit(trusted, reference=trusted)
    assert monitor.expected["conjunction"] < 0.025
    assert "where 0.05 may" in monitor.reason
    assert monitor.status["expected"].to_list() == [monitor.expected["conjunction"]] * 2


def test_a_class_is_named_for_more_marked_rows_than_its_trusted_ones():
    codes = np.repeat([0, 1, 2], 100)
    marked = np.isin(np.arange(300), [*range(3), *range(100, 130), *range(200, 230)])
    trusted = np.isin(np.arange(300), [*range(2), *range(100, 128)])
    assert fuller_classes(marked, codes, trusted, codes).tolist() == [2]
    assert fuller_classes(marked, codes, trusted[:200], codes[:200]).tolist() == [], "no trusted row of class 2"
    assert fuller_classes(marked, codes, trusted, np.where(codes == 2, -1, codes)).tolist() == []


def test_a_trajectory_trains_on_few_trusted_rows():
    """So many that one in a hundred of them can be beyond the threshold, and a fifth of the table's otherwise."""
    table, trusted = drawn("renderer", 0, 2)
    found = LossTrajectory(head="linear", epochs=1).fit(table, reference=trusted)
    assert found.trajectory.losses.shape == (1, 600)
    assert [part.shape for part in found.trajectory.watched] == [(1, 120)]
    again = LossTrajectory(head="linear", epochs=1, false_alarms=0.005).fit(table, reference=trusted)
    assert again.trajectory.watched[0].shape == (1, 200)
