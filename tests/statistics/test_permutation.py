"""Permutation tests: exact p values, clusters, pairs, max-T."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.harness import check_level

from querist.errors import BadOption, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics import max_t, permutation_test, rank_p


def gap(x, y):
    return abs(float(x.mean()) - float(y.mean()))


def test_p_converges_to_that_of_every_permutation():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(5), rng.standard_normal(6) + 1
    pool = np.r_[x, y]
    every = [gap(pool[list(one)], np.delete(pool, list(one))) for one in itertools.combinations(range(11), 5)]
    exact = np.mean(np.array(every) >= gap(x, y) - 1e-12)
    assert permutation_test(x, y, gap, permutations=4000).p == pytest.approx(exact, abs=0.02)


def test_p_converges_to_that_of_every_swap():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(8), rng.standard_normal(8) + 0.7
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    exact = np.mean(np.abs((signs * (x - y)).mean(axis=1)) >= gap(x, y) - 1e-12)
    assert permutation_test(x, y, gap, pairs=True, permutations=4000).p == pytest.approx(exact, abs=0.02)


def test_groupings_that_come_back_in_another_order_of_sums_count_as_equal():
    def one_by_one(x, y):  # rounding differs with the order of rows
        return abs(float(sum(x)) - float(sum(y)))

    x, y = np.array([0.1, 0.2, 0.3]), np.array([0.7, 1.1, 1.3])
    ids = (np.array([2, 0, 1]), np.array([1, 2, 0]))
    found = permutation_test(x, y, one_by_one, pairs=ids, permutations=4000)
    assert found.p == pytest.approx(2 / 8, abs=0.02)  # all swapped, or none, of eight


def test_the_family_is_free_of_scale():
    rng = np.random.default_rng(0)
    x, y, noise = rng.standard_normal(40), rng.standard_normal(40) + 1.2, rng.standard_normal((2, 40)) * 1e6
    found = permutation_test({"small": x, "large": noise[0]}, {"small": y, "large": noise[1]}, gap)
    assert found.p_adj["small"] <= 0.01
    assert all(found.p_adj[name] >= found.p[name] for name in found.p)


def test_plain_arrays_give_plain_numbers_and_are_repeatable():
    x, y = np.arange(8.0), np.arange(8.0) + 3
    one, again, other = (permutation_test(x, y, gap, seed=seed) for seed in (0, 0, 1))
    assert isinstance(one.p, float)
    assert one.p_adj == one.p == rank_p(one.observed, one.null)
    assert one.null.tolist() == again.null.tolist() != other.null.tolist()
    assert x.tolist() == list(range(8))


def test_rows_keep_their_dtype_and_shape_and_torch_is_welcome():
    seen = set()

    def look(x, y):
        seen.add((x.dtype.name, x.shape[1:]))
        return gap(x, y)

    batch = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    permutation_test(batch, batch.numpy() + 1, look, permutations=3)
    permutation_test(np.arange(6), np.arange(6), look, permutations=3)
    assert seen == {("float32", (4,)), ("int64", ())}


def test_clusters_move_whole():
    ids = (np.repeat(np.arange(6), 3), np.repeat(np.arange(6, 11), 2))

    def whole(x, y):
        assert not np.intersect1d(x, y).size
        assert len(np.unique(x)) == 6
        return float(len(x))

    assert len(set(permutation_test(*ids, whole, clusters=ids, permutations=50).null)) > 1


def test_pairs_keep_their_partner_beside_them():
    x = np.arange(10)

    def partner(a, b):
        assert np.array_equal(a % 100, b % 100)
        return float((a < 100).sum())

    found = permutation_test(x, x + 100, partner, pairs=True, permutations=400)
    assert found.null.mean() == pytest.approx(5, abs=0.4)
    assert permutation_test(x, x + 100, partner, pairs=(x, x), permutations=400).null.tolist() == found.null.tolist()


def test_pairs_by_id_in_another_order_and_inside_clusters():
    x, order = np.arange(12), np.random.default_rng(0).permutation(12)
    cluster = x // 3

    def swapped(a, b):
        moved = {int(v) for v in b if v < 100}
        assert {int(v) - 100 for v in a if v >= 100} == moved
        assert all(len(moved & {3 * c, 3 * c + 1, 3 * c + 2}) in (0, 3) for c in range(4))
        return float(len(moved))

    ids = {"pairs": (x, x[order]), "clusters": (cluster, cluster[order])}
    assert set(permutation_test(x, x[order] + 100, swapped, permutations=100, **ids).null) == {0, 3, 6, 9, 12}


def test_permutation_test_refuses():
    x = np.arange(4.0)
    with pytest.raises(BadOption, match="both samples"):
        permutation_test(x, x, gap, clusters=([0, 0, 1, 1], [1, 1, 2, 2]))
    with pytest.raises(TooFewRows, match="1 and 2"):
        permutation_test(x, x, gap, clusters=([0, 0, 0, 0], [1, 1, 2, 2]))
    with pytest.raises(BadOption, match="one side only: 3"):
        permutation_test(x, x, gap, pairs=([0, 1, 2, 3], [0, 1, 2, 2]))
    with pytest.raises(BadOption, match="two clusters"):
        permutation_test(x, x, gap, pairs=True, clusters=([0, 0, 1, 1], [0, 1, 1, 1]))
    with pytest.raises(ShapeMismatch):
        permutation_test(x, x[:3], gap, pairs=True)
    with pytest.raises(ShapeMismatch, match="names"):
        permutation_test({"a": x}, {"b": x}, gap)
    with pytest.raises(ShapeMismatch, match="shape"):
        permutation_test(np.zeros((4, 2)), np.zeros((4, 3)), gap)
    with pytest.raises(TooFewRows):
        permutation_test(x[:1], x, gap)
    with pytest.raises(NonFinite, match="y must be finite"):
        permutation_test(x, [1.0, math.nan], gap)
    with pytest.raises(NonFinite, match="statistic"):
        permutation_test(x, x, lambda a, b: math.nan)
    with pytest.raises(BadOption, match="permutations"):
        permutation_test(x, x, gap, permutations=0)


@given(st.integers(0, 50), st.integers(1, 5))
def test_max_t_bounds_and_is_free_of_scale_where_standardised(seed, k):
    draws = np.random.default_rng(seed).standard_normal((20, k))
    observed, null = draws[0] + 1, draws[1:]
    raw = np.array([rank_p(observed[i], null[:, i]) for i in range(k)])
    for standardise in (False, True):
        assert (max_t(observed, null, standardise=standardise) >= raw - 1e-12).all()
    scale = 2.0 ** np.arange(0, 10 * k, 10)
    free = max_t(observed, null, standardise=True)
    assert max_t(observed * scale, null * scale, standardise=True).tolist() == free.tolist()
    if k == 1:
        assert free.tolist() == raw.tolist()


def test_max_t_refuses():
    with pytest.raises(NonFinite):
        max_t([1.0, 1.0], np.array([[math.nan, 0.0]]))
    with pytest.raises(ShapeMismatch):
        max_t([1.0], np.zeros((3, 2)))
    with pytest.raises(ShapeMismatch):
        max_t({"a": 1.0}, {"b": [1.0]})
    with pytest.raises(BadOption):
        max_t([1.0], np.empty((0, 1)))
    assert max_t({"a": 2.5, "b": None}, {"a": [0.0, 3.0], "b": [9.0, 9.0]})["a"] == 2 / 3


CLUSTERS = (np.repeat(np.arange(15), 4), np.repeat(np.arange(15, 30), 4))


def clustered(rng):
    return rng.standard_normal((2, 15))[:, CLUSTERS[0]] + 0.5 * rng.standard_normal((2, 60))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "options"),
    [
        (lambda rng: (rng.standard_normal(20), rng.standard_normal(31)), {}),
        (lambda rng: rng.standard_normal((2, 20)) + 2 * rng.standard_normal(20), {"pairs": True}),
        (clustered, {"clusters": CLUSTERS}),
        (
            lambda rng: clustered(rng) + 3 * rng.standard_normal(15)[CLUSTERS[0]],
            {"pairs": True, "clusters": (CLUSTERS[0], CLUSTERS[0])},
        ),
    ],
    ids=["rows", "pairs", "clusters", "pairs in clusters"],
)
def test_the_level_is_kept(draw, options):
    check_level(lambda xy: permutation_test(*xy, gap, permutations=99, **options).p, draw, runs=1600)


@pytest.mark.slow
def test_the_family_wise_level_is_kept_over_correlated_statistics():
    def family(xy):
        x, y = ({str(i): side[:, i] * 10.0**i for i in range(8)} for side in xy)
        return min(permutation_test(x, y, gap, permutations=99).p_adj.values())

    def draw(rng):
        return rng.standard_normal((2, 20, 8)) + rng.standard_normal((2, 20, 1))

    check_level(family, draw, runs=1000)


@pytest.mark.slow
def test_ignored_clusters_break_the_level():
    with pytest.raises(AssertionError, match=r"0\.[2-9]\d* of 400 true nulls are rejected"):
        check_level(lambda xy: permutation_test(*xy, gap, permutations=99).p, clustered)
