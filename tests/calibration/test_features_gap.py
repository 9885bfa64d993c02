"""Do the gaps of the features room reject as often as they say, and do their intervals hold what they should?"""

from __future__ import annotations

import numpy as np
import pytest
from tests.harness import check_coverage, check_level

from querist.features.profile import consistency, gap, gap_draws, gaps

pytestmark = pytest.mark.slow

QUICK = {"projections": 32, "splits": 20, "permutations": 99}


def rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def two(n: int, m: int, d: int = 8):
    return lambda rng: (rows(rng, n, d), rows(rng, m, d), int(rng.integers(2**31)))


@pytest.mark.parametrize(("n", "m"), [(60, 60), (80, 40), (40, 120)])
def test_two_samples_of_one_law(n, m):
    check_level(lambda s: gap_draws(s[0], s[1], seed=s[2], **QUICK).p, two(n, m))


def clustered(rng: np.random.Generator):
    """40 images of 6 sites on each side; sites of an image share most of their variance."""
    S, T = (rows(rng, 40, 1, 6) + 0.5 * rows(rng, 40, 6, 6) for _ in range(2))
    return S, T, int(rng.integers(2**31))


def test_sites_of_one_image_are_one_cluster():
    check_level(lambda s: gap_draws(s[0], s[1], seed=s[2], **QUICK).p, clustered)
    ids = np.repeat(np.arange(40), 6), 100 + np.repeat(np.arange(40), 6)

    def by_ids(s) -> float:
        S, T, seed = s
        return gap_draws(S.reshape(240, 6), T.reshape(240, 6), clusters=ids, seed=seed, **QUICK).p

    check_level(by_ids, clustered)


def test_rows_taken_for_images_reject_far_too_often():
    def ignoring(s) -> float:
        return gap_draws(s[0].reshape(240, 6), s[1].reshape(240, 6), seed=s[2], **QUICK).p

    rejected = np.mean([ignoring(clustered(np.random.default_rng([0, run]))) <= 0.05 for run in range(100)])
    assert rejected > 0.2


def test_pairs_that_share_most_of_what_they_are():
    def paired(rng: np.random.Generator):
        image = rows(rng, 60, 8)
        return image + 0.3 * rows(rng, 60, 8), image + 0.3 * rows(rng, 60, 8), int(rng.integers(2**31))

    check_level(lambda s: gap_draws(s[0], s[1], pairs=True, seed=s[2], **QUICK).p, paired)


def test_the_largest_of_eight_correlated_layers():
    def layers(rng: np.random.Generator):
        sets = []
        for n in (60, 50):
            common = rows(rng, n, 6)
            sets.append({str(i): common + 0.5 * (i + 1) / 8 * rows(rng, n, 6) for i in range(8)})
        return *sets, int(rng.integers(2**31))

    def least(s) -> float:
        S, T, seed = s
        found = gaps({name: gap_draws(S[name], T[name], seed=seed, **QUICK) for name in S})
        return min(layer.p_adj for layer in found.values())

    check_level(least, layers)


def test_several_targets_are_one_family():
    def sets(rng: np.random.Generator):
        return rows(rng, 60, 6), [rows(rng, 60, 6) for _ in range(3)], int(rng.integers(2**31))

    def least(s) -> float:
        S, targets, seed = s
        draws = {i: gap_draws(S, T, seed=seed, **QUICK) for i, T in enumerate(targets)}
        return min(found.p_adj for found in gaps(draws).values())

    check_level(least, sets, runs=1200)


def test_a_tenth_of_a_standard_deviation_is_seen():
    found = 0
    for run in range(40):
        rng = np.random.default_rng([1, run])
        S, T = rows(rng, 1000, 16), rows(rng, 1000, 16) + np.float32(0.1)
        found += gap_draws(S, T, projections=64, splits=2, permutations=99, level=0.001, seed=run).p <= 0.05
    assert found / 40 > 0.9


@pytest.mark.parametrize(("n", "m", "d", "shift"), [(200, 200, 16, 0.3), (200, 200, 8, 0.8), (400, 150, 8, 0.4)])
def test_the_interval_of_a_known_shift(n, m, d, shift):
    """The empirical W_2² of a shift is the shift's square, twice the shift times the difference of means, and the null's."""

    def interval(s) -> tuple[float, float]:
        found = gap(s[0], s[1] + np.float32(shift), seed=s[2], projections=64, splits=30, permutations=99)
        assert found.interval_kind == "jackknife"
        return found.low, found.high

    check_coverage(interval, two(n, m, d), shift, within=0.03)


def test_the_upper_end_without_a_gap():
    def interval(s) -> tuple[float, float]:
        found = gap(s[0], s[1], seed=s[2], **QUICK)
        return found.low, found.high

    check_coverage(interval, two(80, 80), 0.0, conservative=True)


@pytest.mark.parametrize(("n", "shift"), [(200, 0.11), (800, 0.11), (800, 0.15)])
def test_no_is_seldom_said_of_a_gap_above_the_margin(n, shift):
    wrong = 0
    runs = 100
    for run in range(runs):
        rng = np.random.default_rng([2, n, run])
        found = gap(rows(rng, n, 8), rows(rng, n, 8) + np.float32(shift), seed=run, **QUICK)
        wrong += found.high < 0.1
    assert wrong / runs <= 0.05


def test_a_random_net_among_random_nets():
    """With nineteen nets alike p <= .05 means the most extreme of twenty: one time in twenty for each statistic."""

    def net(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        S, T, W = rows(rng, 60, 6), rows(rng, 60, 6) + 1, np.eye(6)
        layers: tuple[dict, dict] = ({}, {})
        for i in range(5):
            W = W @ (rng.standard_normal((6, 6)) / 2)
            for side, Z in zip(layers, (S, T), strict=True):
                side[str(i)] = np.tanh(Z @ W) + 0.01 * Z
        return layers

    p: dict[str, list[float]] = {"C": [], "tau": [], "slope": []}
    for run in range(60):
        rng = np.random.default_rng([3, run])
        nets = [net(rng) for _ in range(10)]
        found = consistency(
            *nets[0], [(S, {"target": T}) for S, T in nets[1:]], permutations=39, projections=20, splits=5
        )
        for name, frame in (("C", "own"), ("tau", "own"), ("slope", "")):
            value = found.row(name, "target", frame).p
            if value is not None:
                p[name].append(value)
    for name, values in p.items():
        assert len(values) >= 40, name
        assert 0.4 <= np.mean(values) <= 0.72, (name, np.mean(values))  # uniform on .1, .2, … 1 has the mean .55
        assert np.mean(np.array(values) <= 0.1) <= 0.2, name
