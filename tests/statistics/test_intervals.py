"""Intervals of means: few groups, blocks, weights, and equal ways to say the same data; verdicts; streams."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from tests.harness import check_coverage, check_level

from querist.errors import BadOption, BadValues, NonFinite, TooFewRows
from querist.statistics import jackknife, mean_interval, paired_t, stream, torch_seed, verdict, wilson


def test_two_groups_are_enough_and_one_is_not():
    found = mean_interval([1.0, 1.0, 3.0, 3.0], cluster=["a", "a", "b", "b"])
    assert (found.estimate, found.n) == (2, 2)
    assert found.se == pytest.approx(1)  # |3 − 1|/2: the t interval of two numbers
    assert found.high - found.estimate == pytest.approx(12.706204736)  # t, one degree
    for options in ({"cluster": [0, 0]}, {"block": [0, 1]}):
        with pytest.raises(TooFewRows):
            mean_interval([1.0, 2.0], **options)
    with pytest.raises(TooFewRows):
        mean_interval([])


@given(st.integers(0, 40))
def test_equal_ways_to_say_the_same_data_agree(seed):
    rng = np.random.default_rng(seed)
    x, ids, weight = rng.standard_normal(24), rng.permutation(np.repeat(np.arange(8), 3)), rng.random(24) + 0.5
    known = mean_interval(x, weight=weight, cluster=ids)
    for same in (
        mean_interval(x, weight=weight * 7, cluster=ids),
        mean_interval(x, weight=weight, cluster=[f"id {i}" for i in ids]),
        mean_interval(np.repeat(x, 2), weight=np.repeat(weight, 2), cluster=np.repeat(ids, 2)),
        mean_interval(np.r_[x, 99.0], weight=np.r_[weight, 0.0], cluster=np.r_[ids, 77]),
        mean_interval(x, weight=weight, cluster=ids, block=np.zeros(24)),
    ):
        assert [same.estimate, same.se, same.low, same.n] == pytest.approx(
            [known.estimate, known.se, known.low, known.n]
        )


def test_weighted_linearisation_is_the_jackknife_to_first_order():
    rng = np.random.default_rng(3)
    ids = np.repeat(np.arange(200), 3)
    x, w = rng.standard_normal(600) + rng.standard_normal(200)[ids], rng.random(600) + 0.5
    left_out = jackknife(ids, lambda keep: float(np.average(x[keep], weights=w[keep])))
    assert mean_interval(x, weight=w, cluster=ids).se == pytest.approx(left_out.se, rel=0.01)


def test_blocks_give_the_stratified_mean_of_the_textbook():
    rng = np.random.default_rng(0)
    sizes = np.array([5, 9, 16])
    parts = [rng.standard_normal(size) + 50 * i for i, size in enumerate(sizes)]
    known = math.sqrt(sum((s / 30) ** 2 * part.var(ddof=1) / s for s, part in zip(sizes, parts, strict=True)))
    found = mean_interval(np.concatenate(parts), block=np.repeat([0, 1, 2], sizes))
    assert found.se == pytest.approx(known)
    assert found.high - found.estimate == pytest.approx(known * scipy.stats.t.ppf(0.975, 27))


def test_a_block_of_one_counts_its_whole_deviation():
    found = mean_interval([0.0, 1.0, 2.0, 9.0], block=[0, 0, 0, 1])
    # The three: influences ±1/4 about their mean, times 3/2. The lone one: (9 − 3)/4.
    assert found.se**2 == pytest.approx(3 / 2 * 2 / 16 + 1.5**2)


def test_intervals_refuse():
    with pytest.raises(BadValues):
        mean_interval([1.0, 2.0], weight=[0, 0])
    with pytest.raises(BadValues, match="missing"):
        mean_interval([1.0, 2.0, 3.0], cluster=[1.0, 2.0, math.nan])
    with pytest.raises(BadOption, match="two blocks"):
        mean_interval([1.0, 2.0, 3.0], cluster=[0, 0, 1], block=[0, 1, 1])
    with pytest.raises(BadOption, match="level"):
        mean_interval([1.0, 2.0], level=95)
    with pytest.raises(NonFinite, match="b must"):
        paired_t([1.0, 2.0], [2.0, math.nan])
    for k, n in ((3, 2), (0, 0), (-1, 4), (math.nan, 3)):
        with pytest.raises(BadValues):
            wilson(k, n)  # type: ignore[arg-type]


def test_verdicts_that_cannot_be_meant_and_one_sided_ones():
    assert verdict(-math.inf, 0, yes_above=0.5) == "no"
    assert verdict(0, math.nan, yes_below=1) == "cannot say"
    assert verdict(-0.1, 0.15, yes_above=0.2, no_within=(-0.1, 0.1)) == "cannot say"
    for options in ({}, {"yes_above": 0.5, "no_within": (0, 1)}, {"yes_above": 0, "yes_below": 1}):
        with pytest.raises(BadOption):
            verdict(0, 1, **options)
    with pytest.raises(BadValues):
        verdict(2, 1, yes_above=0)


def test_another_process_draws_the_same():
    code = "from querist.statistics import stream, torch_seed; print(stream(7, 'x', 3).random(), torch_seed(7, 'x', 3))"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "5"},
    )
    assert said.stdout.split() == [str(stream(7, "x", 3).random()), str(torch_seed(7, "x", 3))]
    assert stream(0, "layer", 3, Path("a/b")).random() == stream(np.int64(0), "layer", "3", "a/b").random()


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_different_names_are_different_seeds(one, other):
    assert (torch_seed(0, *one) == torch_seed(0, *other)) == (one == other)


@pytest.mark.parametrize("name", [object(), len, lambda: 0])
def test_names_with_an_address_in_memory_are_refused(name):
    with pytest.raises(BadOption, match="lasting text"):
        stream(0, name)
    with pytest.raises(BadOption, match=r"1\.5"):
        stream(1.5, "a")  # type: ignore[arg-type]


def ends(found):
    return found.low, found.high


@pytest.mark.slow
@pytest.mark.parametrize("groups", [5, 20])
def test_means_of_few_clusters_cover(groups):
    ids = np.repeat(np.arange(groups), 6)

    def draw(rng):
        return rng.standard_normal(groups)[ids] + rng.standard_normal(ids.size)

    check_coverage(lambda x: ends(mean_interval(x, cluster=ids)), draw, 0.0, runs=2000)
    check_level(lambda x: mean_interval(x, cluster=ids).p or 0.0, draw, runs=2000)
    with pytest.raises(AssertionError, match="only 0"):
        check_coverage(lambda x: ends(mean_interval(x)), draw, 0.0)


@pytest.mark.slow
def test_weighted_means_of_blocks_pairs_and_shares_cover():
    block, weight = np.repeat([0, 1, 2], [12, 20, 30]), np.random.default_rng(0).random(62) + 0.5
    truth = float(np.average(block * 10.0, weights=weight))
    check_coverage(
        lambda x: ends(mean_interval(x - 10.0 * block + truth, weight=weight, block=block)),
        lambda rng: rng.standard_normal(62) + block * 10,
        truth,
        runs=2000,
    )
    check_coverage(
        lambda ab: ends(paired_t(*ab)),
        lambda rng: rng.standard_normal((2, 8)) + 5 * rng.standard_normal(8),
        0.0,
        runs=2000,
    )
    check_coverage(lambda k: ends(wilson(int(k), 60)), lambda rng: rng.binomial(60, 0.3), 0.3, runs=2000)
