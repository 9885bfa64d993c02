"""Distances against published and closed-form values, against scipy, and against their own inequalities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.optimize import linear_sum_assignment, linprog
from scipy.stats import wasserstein_distance
from tests.features.clouds import X, Y, cloud, gaussian, rotation

from querist.features import (
    cka,
    exact_wasserstein,
    gaussian_w2,
    gaussian_w2_moments,
    max_sliced_wasserstein,
    per_unit_wasserstein,
    sliced_wasserstein,
    spectrum_distance,
    wasserstein_1d,
)
from querist.features.distances import random_directions
from querist.features.distances._directions import Directions, chunks
from querist.features.distances._one_dim import knots, sorted_powers
from querist.features.distances._sliced import projected_distances

ORDERS = (1, 1.5, 2, 3, 7, math.inf)


def test_the_reference_cloud_is_the_one_of_the_formula():
    np.testing.assert_allclose(X[0], [-0.25991518, -0.9260959, 0.41990001], atol=1e-8)


class TestReferenceValues:
    def test_per_unit(self):
        expected = [0.2370488465, 0.1867565742, 0.1188118370]
        np.testing.assert_allclose(per_unit_wasserstein(X, Y, 1), expected, atol=1e-9)

    def test_unequal_sizes(self):
        assert wasserstein_1d(X[:25, 0], Y[:, 0], 1) == pytest.approx(0.2621560924, abs=1e-9)

    @pytest.mark.parametrize(("p", "power"), [(1, 1.3), (2, 2.3)])
    def test_weights(self, p, power):
        value = wasserstein_1d([0, 1], [0, 1, 3], p, wx=[0.5, 0.5], wy=[0.2, 0.3, 0.5])
        assert value**p == pytest.approx(power, abs=1e-12)

    def test_sliced_along_axes(self):
        assert sliced_wasserstein(X, Y, directions=np.eye(3)).value == pytest.approx(0.2290979471, abs=1e-9)

    @pytest.mark.parametrize(("p", "value"), [(2, 0.23481), (1, 0.19043)])
    def test_sliced(self, p, value):
        for seed in range(5):
            found = sliced_wasserstein(X, Y, p, projections=3000, seed=seed)
            assert found.mc_se is not None
            assert 0 < found.mc_se < 0.001
            assert abs(found.value - value) <= 3 * found.mc_se + 5e-6

    def test_max_sliced(self):
        for seed in range(3):
            value = max_sliced_wasserstein(X, Y, seed=seed).value
            assert 0.31483 - 1e-3 <= value <= 0.31483 + 1e-6

    def test_exact(self):
        assert exact_wasserstein(X, Y).power == pytest.approx(0.3142239074, abs=1e-9)

    @pytest.mark.parametrize(("ddof", "power"), [(1, 0.1472491472), (0, 0.1448167492)])
    def test_gaussian(self, ddof, power):
        assert gaussian_w2(X, Y, ddof).power == pytest.approx(power, abs=1e-9)

    def test_gaussian_by_rows_in_place_of_moments(self):
        # 40 rows in 60 units, of which 57 are constant: the same law, by the other formula.
        wide = [np.hstack([Z, np.zeros((40, 57))]) for Z in (X, Y)]
        assert gaussian_w2(*wide).power == pytest.approx(0.1472491472, abs=1e-9)

    def test_cka(self):
        A = np.tanh(X @ [[1, 0.5], [-0.3, 1], [0.2, -0.7]])
        assert cka(X, A, unbiased=False) == pytest.approx(0.9533258023, abs=1e-9)

    @pytest.mark.parametrize(("n", "gauss", "slice_"), [(200, 510.7, 13.9), (1000, 132.7, 3.26), (5000, 26.4, 0.72)])
    def test_what_a_law_costs_against_itself(self, n, gauss, slice_):
        A, B = gaussian(n, 512, seed=1, dtype=np.float32), gaussian(n, 512, seed=2, dtype=np.float32)
        assert gaussian_w2(A, B).power == pytest.approx(gauss, rel=0.1)
        assert sliced_wasserstein(A, B, projections=200).w2_scale == pytest.approx(slice_, rel=0.1)

    def test_how_far_off_each_estimate_is_of_a_distance_of_10_24(self):
        A, B = gaussian(10_000, 512, seed=3), 0.1 + 1.1 * gaussian(10_000, 512, seed=4)
        assert sliced_wasserstein(A, B, projections=200).w2_scale == pytest.approx(10.5, rel=0.05)
        assert gaussian_w2(A, B).power == pytest.approx(24.9, rel=0.05)
        assert exact_wasserstein(A[:2000], B[:2000]).power == pytest.approx(972, rel=0.05)


class TestOnTheLine:
    @settings(max_examples=80, deadline=None)
    @given(
        n=st.integers(1, 30),
        m=st.integers(1, 30),
        weighted=st.booleans(),
        ties=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    def test_against_scipy(self, n, m, weighted, ties, seed):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal(n), 2 * rng.standard_normal(m) + 1
        if ties:
            x, y = np.round(x), np.round(y)
        wx, wy = (rng.random(n) + 0.01, rng.random(m) + 0.01) if weighted else (None, None)
        assert wasserstein_1d(x, y, 1, wx, wy) == pytest.approx(
            wasserstein_distance(x, y, wx, wy), rel=1e-12, abs=1e-13
        )

    @settings(max_examples=40, deadline=None)
    @given(n=st.integers(1, 8), m=st.integers(1, 8), p=st.sampled_from(ORDERS), seed=st.integers(0, 2**32))
    def test_unequal_sizes_are_equal_sizes_of_repeated_rows(self, n, m, p, seed):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal(n), rng.standard_normal(m)
        assert wasserstein_1d(x, y, p) == pytest.approx(wasserstein_1d(np.repeat(x, m), np.repeat(y, n), p), rel=1e-12)

    @settings(max_examples=40, deadline=None)
    @given(n=st.integers(1, 8), p=st.sampled_from(ORDERS), seed=st.integers(0, 2**32))
    def test_whole_weights_are_repeated_rows(self, n, p, seed):
        rng = np.random.default_rng(seed)
        x, y, wx, wy = rng.standard_normal(n), rng.standard_normal(9), rng.integers(0, 4, n), rng.integers(0, 4, 9)
        wx[0] = wy[0] = 1
        repeated = wasserstein_1d(np.repeat(x, wx), np.repeat(y, wy), p)
        assert wasserstein_1d(x, y, p, wx, wy) == pytest.approx(repeated, rel=1e-11)

    @settings(max_examples=30, deadline=None)
    @given(n=st.integers(1, 7), m=st.integers(1, 7), p=st.sampled_from((1, 1.5, 2, 3)), seed=st.integers(0, 2**32))
    def test_against_the_linear_program(self, n, m, p, seed):
        rng = np.random.default_rng(seed)
        x, y, a, b = rng.standard_normal(n), rng.standard_normal(m), rng.random(n) + 0.01, rng.random(m) + 0.01
        a, b = a / a.sum(), b / b.sum()
        cost = np.abs(x[:, None] - y) ** p
        rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
        found = linprog(cost.ravel(), A_eq=np.vstack([rows, columns])[:-1], b_eq=np.r_[a, b][:-1])
        assert wasserstein_1d(x, y, p, a, b) ** p == pytest.approx(found.fun, rel=1e-7, abs=1e-10)

    @pytest.mark.parametrize("p", ORDERS)
    def test_a_shift_is_its_own_distance_and_a_scale_scales(self, p):
        x = gaussian(50, 1).ravel()
        assert wasserstein_1d(x, x + 3, p) == pytest.approx(3, rel=1e-12)
        assert wasserstein_1d(-2 * x, -2 * (x + 1), p) == pytest.approx(2, rel=1e-12)
        assert wasserstein_1d([1.5], [-2.5], p) == pytest.approx(4, rel=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(p=st.sampled_from(ORDERS), seed=st.integers(0, 2**32))
    def test_it_is_a_metric(self, p, seed):
        rng = np.random.default_rng(seed)
        x, y, z = rng.standard_normal(7), rng.standard_normal(11), rng.standard_normal(5)
        xy, yz, xz = (wasserstein_1d(a, b, p) for a, b in ((x, y), (y, z), (x, z)))
        assert wasserstein_1d(y, x, p) == pytest.approx(xy, rel=1e-12)
        assert xz <= (xy + yz) * (1 + 1e-12)
        assert wasserstein_1d(x, x[::-1], p) == 0

    def test_orders_ascend_and_infinity_is_their_limit(self):
        x, y = gaussian(30, 1).ravel(), gaussian(41, 1).ravel()
        values = [wasserstein_1d(x, y, p) for p in (1, 1.5, 2, 5, 50, 500, math.inf)]
        assert values == sorted(values)
        assert values[-2] == pytest.approx(values[-1], rel=0.02)

    def test_infinity_does_not_see_pieces_that_only_rounding_made(self):
        # Ten tenths and five fifths end at the same places, which their sums miss by a rounding each.
        x, y = np.arange(10) // 2, np.arange(5)
        assert wasserstein_1d(x, y, math.inf, np.full(10, 0.1), np.full(5, 0.2)) == 0
        assert wasserstein_1d(x, y, math.inf) == 0

    def test_values_without_weight_are_absent(self):
        assert wasserstein_1d([0, 1, 99], [0, 1], math.inf, wx=[1, 1, 0]) == 0

    def test_pieces_are_exact_in_whole_numbers(self):
        assert knots(7, 7) is None
        found = knots(4, 6)
        assert found is not None
        np.testing.assert_array_equal(found.x, [0, 0, 1, 1, 2, 2, 3, 3])
        np.testing.assert_array_equal(found.y, [0, 1, 1, 2, 3, 4, 4, 5])
        np.testing.assert_allclose(found.width * 12, [2, 1, 1, 2, 2, 1, 1, 2])


class TestPerUnit:
    @pytest.mark.parametrize("m", [50, 37])
    @pytest.mark.parametrize("p", ORDERS)
    def test_each_unit_is_a_line(self, p, m):
        A, B = gaussian(50, 40), 2 * gaussian(m, 40, seed=1)
        expected = [wasserstein_1d(a, b, p) for a, b in zip(A.T, B.T, strict=True)]
        np.testing.assert_allclose(per_unit_wasserstein(A, B, p), expected, rtol=1e-12)
        float32 = per_unit_wasserstein(A.astype(np.float32), B.astype(np.float32), p)
        np.testing.assert_allclose(float32, expected, rtol=2e-6)

    def test_a_constant_unit_gives_its_shift(self):
        A, B = gaussian(20, 3), gaussian(20, 3, seed=1)
        A[:, 1], B[:, 1] = 1.0, 4.0
        assert per_unit_wasserstein(A, B)[1] == pytest.approx(3)

    @pytest.mark.parametrize("n", [37, 64, 250, 331])
    @pytest.mark.parametrize("p", [1, 2, 3])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_quick_powers_are_the_powers(self, n, p, dtype):
        A, B = np.sort(gaussian(6, n, dtype=dtype)), np.sort(gaussian(6, n, seed=1, dtype=dtype))
        expected = [wasserstein_1d(a, b, p) ** p for a, b in zip(A, B, strict=True)]
        rtol = 1e-12 if dtype is np.float64 else 2e-6
        np.testing.assert_allclose(sorted_powers(A.copy(), B, p, None), expected, rtol=rtol)


class TestSliced:
    def test_directions_are_orthogonal_in_blocks_and_on_the_sphere(self):
        for d, count in ((3, 500), (16, 100), (200, 500), (1000, 64)):
            vectors, block = random_directions(d, count, 0)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-12)
            assert block[-1] + 1 >= 4
            for b in np.unique(block):
                mine = vectors[block == b]
                np.testing.assert_allclose(mine @ mine.T, np.eye(len(mine)), atol=1e-12)

    def test_directions_are_uniform(self):
        vectors = random_directions(4, 40_000, 3).vectors
        np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=0.01)
        np.testing.assert_allclose(vectors.T @ vectors / len(vectors), np.eye(4) / 4, atol=0.005)
        # A coordinate of a uniform direction in R⁴ has fourth moment 3/(4·6).
        np.testing.assert_allclose((vectors**4).mean(axis=0), 3 / 24, atol=0.003)
        wide = random_directions(64, 4000, 1).vectors  # blocks of 64: signs matter here
        np.testing.assert_allclose(wide.mean(axis=0), 0, atol=0.01)

    def test_seeds_and_sizes_change_the_directions_and_nothing_else_does(self):
        assert sliced_wasserstein(X, Y, seed=1) == sliced_wasserstein(X, Y, seed=1)
        assert sliced_wasserstein(X, Y, seed=1).value != sliced_wasserstein(X, Y, seed=2).value

    @pytest.mark.parametrize("d", [5, 40])
    def test_a_shift(self, d):
        A = gaussian(300, d)
        shift = np.arange(d) / d
        found = sliced_wasserstein(A, A + shift, projections=4000)
        truth = float(shift @ shift) / d
        assert found.power == pytest.approx(truth, rel=1e-9 if 4000 % d == 0 else 0.02)
        assert found.w2_scale == pytest.approx(d * found.power)

    def test_two_widths_of_a_normal_law(self):
        A, B = 1.5 * gaussian(40_000, 4), 0.5 * gaussian(40_000, 4, seed=1)
        assert sliced_wasserstein(A, B).power == pytest.approx(1.0, rel=0.03)

    def test_the_monte_carlo_error_is_the_spread_over_seeds(self):
        for d, projections, p in ((3, 90, 2), (3, 90, 1), (30, 64, 2)):
            A, B = gaussian(60, d) * np.arange(1, d + 1), gaussian(60, d, seed=1)
            found = [sliced_wasserstein(A, B, p, projections=projections, seed=s) for s in range(300)]
            spread = np.std([f.value for f in found])
            told = np.sqrt(np.mean([(f.mc_se or 0) ** 2 for f in found]))
            assert told == pytest.approx(spread, rel=0.15)

    def test_one_dimension_needs_one_direction(self):
        found = sliced_wasserstein(X[:, :1], Y[:, :1])
        assert found.value == pytest.approx(wasserstein_1d(X[:, 0], Y[:, 0]), rel=1e-12)
        assert found.mc_se == 0
        assert found.warnings == ()

    def test_few_projections_are_told(self):
        assert "Only 7 projections" in sliced_wasserstein(X, Y, projections=7).warnings[0]
        assert sliced_wasserstein(X, Y, projections=30).warnings == ()

    @pytest.mark.parametrize("m", [40, 33])
    def test_it_is_the_mean_over_directions_of_distances_on_the_line(self, m):
        theta = gaussian(9, 3)
        unit = theta / np.linalg.norm(theta, axis=1, keepdims=True)
        for p in (1, 2, 3.5):
            powers = [wasserstein_1d(X @ t, Y[:m] @ t, p) ** p for t in unit]
            found = sliced_wasserstein(X, Y[:m], p, directions=theta)
            assert found.power == pytest.approx(np.mean(powers), rel=1e-12)
            error = np.std(powers, ddof=1) / 3 / p * np.mean(powers) ** (1 / p - 1)
            assert found.mc_se == pytest.approx(error, rel=1e-9)

    def test_chunks_cover_every_direction_once(self, monkeypatch):
        drawn = random_directions(3, 1000, 0)
        whole = projected_distances(X, Y, drawn, 2)
        monkeypatch.setattr("querist.features.distances._directions._BYTES", 7000)
        monkeypatch.setattr("querist.features.distances._directions._LEAST", 3)
        parts = chunks(1000, 40, 8)
        assert len(parts) > 10
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(1000))
        np.testing.assert_allclose(projected_distances(X, Y, drawn, 2), whole, rtol=1e-12)

    def test_chunks_are_of_64_mib_but_of_200_directions_up_to_512_mib(self):
        sizes = {n: (lambda part: part.stop - part.start)(chunks(10_000, n, 4)[0]) for n in (1000, 50_000, 1_000_000)}
        assert sizes[1000] * 4000 <= 64 << 20
        assert sizes[50_000] > 190
        assert sizes[1_000_000] * 4_000_000 <= 512 << 20

    def test_the_device_path_gives_the_same_numbers(self):
        import torch

        from querist.features.distances._one_dim import torch_distances

        for m in (40, 31):
            a, b = torch.from_numpy(X.T.copy()), torch.from_numpy(Y[:m].T.copy())
            for p in ORDERS:
                np.testing.assert_allclose(torch_distances(a, b, p), per_unit_wasserstein(X, Y[:m], p), rtol=1e-12)
            drawn = Directions(*random_directions(3, 50, 0))
            on_device = projected_distances(torch.from_numpy(X), torch.from_numpy(Y[:m]), drawn, 2)
            np.testing.assert_allclose(on_device, projected_distances(X, Y[:m], drawn, 2), rtol=1e-12)


class TestMaxSliced:
    def test_the_direction_gives_the_value(self):
        for A, B, p in ((X, Y, 2), (X[:25], Y, 2), (X, Y, 1), (X, Y, 3)):
            found = max_sliced_wasserstein(A, B, p)
            assert found.direction is not None
            assert np.linalg.norm(found.direction) == pytest.approx(1, rel=1e-12)
            assert wasserstein_1d(A @ found.direction, B @ found.direction, p) == pytest.approx(found.value, rel=1e-9)
            assert "biased upwards" in found.warnings[0]

    def test_it_finds_a_shift_and_a_width_in_many_units(self):
        A = gaussian(400, 60)
        shift = np.zeros(60)
        shift[7] = 2.0
        found = max_sliced_wasserstein(A, A + shift)
        assert found.value == pytest.approx(2.0, rel=1e-3)
        assert found.direction is not None
        assert abs(found.direction[7]) > 0.99
        wider = A.copy()
        wider[:, 3] *= 5
        wide = max_sliced_wasserstein(A, wider)
        assert wide.value >= wasserstein_1d(A[:, 3], wider[:, 3]) * (1 - 1e-6)

    def test_the_gradient_is_the_slope_of_the_value(self):
        from querist.features.distances._max_sliced import _Climb

        for m, p in ((40, 2), (31, 2), (40, 1.5), (40, 1)):
            climb = _Climb(X, Y[:m], p)
            theta = random_directions(3, 30, 1).vectors
            value, gradient = climb.with_gradient(theta)
            tangent = gaussian(30, 3) - (gaussian(30, 3) * theta).sum(axis=1, keepdims=True) * theta
            step = 1e-7
            moved = theta + step * tangent
            slope = (climb.values(moved / np.linalg.norm(moved, axis=1, keepdims=True)) - value) / step
            assert np.median(np.abs(slope - (gradient * tangent).sum(axis=1))) < 1e-5


class TestGaussian:
    def test_commuting_covariances(self):
        a, b = np.array([1.0, 4.0, 9.0]), np.array([4.0, 4.0, 1.0])
        value = gaussian_w2_moments(np.zeros(3), np.diag(a), np.array([0, 2.0, 0]), np.diag(b))
        assert value**2 == pytest.approx(4 + np.sum((np.sqrt(a) - np.sqrt(b)) ** 2), rel=1e-12)

    @settings(max_examples=20, deadline=None)
    @given(d=st.integers(1, 8), seed=st.integers(0, 2**32))
    def test_any_covariances_against_the_matrix_square_root(self, d, seed):
        rng = np.random.default_rng(seed)
        R, Q = rng.standard_normal((d, d + 2)), rng.standard_normal((d, d + 2))
        S, T, m = R @ R.T, Q @ Q.T, rng.standard_normal(d)
        root = sqrtm(S)
        cross = np.real(np.trace(sqrtm(root @ T @ root)))
        expected = float(m @ m) + np.trace(S) + np.trace(T) - 2 * cross
        assert gaussian_w2_moments(m, S, np.zeros(d), T) ** 2 == pytest.approx(expected, rel=1e-6, abs=1e-8)

    @pytest.mark.parametrize(("n", "m", "d"), [(50, 40, 5), (12, 15, 30), (12, 200, 30), (9, 8, 8)])
    def test_both_formulas_agree_and_do_not_turn(self, n, m, d):
        A, B = gaussian(n, d) * 2, gaussian(m, d, seed=1) + 1
        for ddof in (0, 1):
            by_moments = gaussian_w2_moments(A.mean(0), np.cov(A.T, ddof=ddof), B.mean(0), np.cov(B.T, ddof=ddof))
            assert gaussian_w2(A, B, ddof).value == pytest.approx(by_moments, rel=1e-7)
        Q = rotation(d)
        assert gaussian_w2(A @ Q, B @ Q).value == pytest.approx(gaussian_w2(A, B).value, rel=1e-9)

    def test_triangle(self):
        A, B, C = gaussian(60, 5), 2 * gaussian(60, 5, seed=1), gaussian(60, 5, seed=2) ** 2
        assert gaussian_w2(A, C).value <= gaussian_w2(A, B).value + gaussian_w2(B, C).value

    def test_few_rows_are_told(self):
        assert gaussian_w2(X, Y).warnings == ()
        assert "biased upwards" in gaussian_w2(X[:20], Y).warnings[0]


class TestSpectrum:
    def test_sorted_roots_padded_with_zeros(self):
        A, B = gaussian(300, 4) * [1, 2, 3, 4], gaussian(200, 6, seed=1)
        a, b = (np.sort(np.sqrt(np.linalg.eigvalsh(np.cov(Z.T))))[::-1] for Z in (A, B))
        expected = np.sqrt(np.sum((np.r_[a, 0, 0] - b) ** 2))
        assert spectrum_distance(A, B) == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize(("n", "d"), [(50, 6), (10, 25)])
    def test_it_is_the_least_gaussian_distance_over_rotations(self, n, d):
        A, B = gaussian(n, d) * np.arange(1, d + 1), gaussian(n, d, seed=1)
        least = spectrum_distance(A, B)
        A, B = A - A.mean(0), B - B.mean(0)
        for seed in range(5):
            assert gaussian_w2(A, B @ rotation(d, seed)).value >= least * (1 - 1e-9)
        (_, a), (_, b) = (np.linalg.eigh(np.cov(Z.T)) for Z in (A, B))
        assert gaussian_w2(A, B @ b @ a.T).value == pytest.approx(least, rel=1e-6, abs=1e-6)

    def test_means_and_rotations_do_not_enter(self):
        assert spectrum_distance(X, X @ rotation(3) + 5) == pytest.approx(0, abs=1e-12)
        assert spectrum_distance(3 * X, 3 * Y) == pytest.approx(3 * spectrum_distance(X, Y), rel=1e-9)


class TestExact:
    @settings(max_examples=15, deadline=None)
    @given(n=st.integers(1, 25), d=st.integers(1, 4), p=st.sampled_from((1, 2, 3)), seed=st.integers(0, 2**32))
    def test_against_scipys_assignment(self, n, d, p, seed):
        rng = np.random.default_rng(seed)
        A, B = rng.standard_normal((n, d)), rng.standard_normal((n, d))
        cost = np.linalg.norm(A[:, None] - B, axis=2) ** p
        found = exact_wasserstein(A, B, p)
        assert found.power == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-10)
        assert found.plan is not None
        assert found.plan.mass.sum() == pytest.approx(1)
        assert exact_wasserstein(None, None, p, cost=cost).power == pytest.approx(found.power, rel=1e-10)

    @settings(max_examples=25, deadline=None)
    @given(n=st.integers(1, 12), m=st.integers(1, 12), p=st.sampled_from((1, 2)), seed=st.integers(0, 2**32))
    def test_weights_and_unequal_sizes_on_the_line(self, n, m, p, seed):
        rng = np.random.default_rng(seed)
        x, y, a, b = rng.standard_normal((n, 1)), rng.standard_normal((m, 1)), rng.random(n), rng.random(m)
        a[0] = b[0] = 0.5
        a[1:] *= rng.random(n - 1) > 0.3  # some without weight
        expected = wasserstein_1d(x.ravel(), y.ravel(), p, a, b)
        found = exact_wasserstein(x, y, p, a / a.sum(), b / b.sum())
        assert found.value == pytest.approx(expected, rel=1e-7, abs=1e-9)
        assert exact_wasserstein(x, y, p).value == pytest.approx(
            wasserstein_1d(x.ravel(), y.ravel(), p), rel=1e-7, abs=1e-9
        )

    def test_plans_have_the_marginals_and_few_pairs(self):
        a, b = np.arange(1.0, 41), np.full(25, 820 / 25)
        found = exact_wasserstein(X, Y[:25], wx=a, wy=b)
        assert found.plan is not None
        i, j = found.plan.pairs.T
        np.testing.assert_allclose(np.bincount(i, found.plan.mass, minlength=40), a / 820, atol=1e-12)
        np.testing.assert_allclose(np.bincount(j, found.plan.mass, minlength=25), 1 / 25, atol=1e-12)
        assert len(found.plan.mass) <= 40 + 25 - 1
        cost = np.linalg.norm(X[i] - Y[j], axis=1) ** 2
        assert found.power == pytest.approx(found.plan.mass @ cost, rel=1e-12)

    def test_products_and_differences_give_one_plan(self, monkeypatch):
        by_differences = exact_wasserstein(X, Y)
        monkeypatch.setattr("querist.features.distances._exact._PRODUCT", 0)
        assert exact_wasserstein(X, Y).power == pytest.approx(by_differences.power, rel=1e-12)
        assert exact_wasserstein(X, X).value == 0

    def test_point_masses_and_shifts(self):
        assert exact_wasserstein([[0.0, 0.0]], [[3.0, 4.0]], 1).value == pytest.approx(5)
        assert exact_wasserstein(X, X + np.array([0, 3, 4]), 2).value == pytest.approx(5, rel=1e-12)

    @settings(max_examples=15, deadline=None)
    @given(p=st.sampled_from((1, 2)), seed=st.integers(0, 2**32))
    def test_triangle(self, p, seed):
        rng = np.random.default_rng(seed)
        A, B, C = (rng.standard_normal((n, 2)) for n in (7, 5, 9))
        ab, bc, ac = (exact_wasserstein(*pair, p).value for pair in ((A, B), (B, C), (A, C)))
        assert ac <= (ab + bc) * (1 + 1e-9)

    def test_many_dimensions_are_told(self):
        assert exact_wasserstein(X, Y).warnings == ()
        assert "measures the number of rows" in exact_wasserstein(gaussian(9, 9), gaussian(9, 9, seed=1)).warnings[0]


@settings(max_examples=15, deadline=None)
@given(n=st.integers(4, 40), d=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_the_inequalities_between_distances(n, d, seed):
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((n, d)), 0.5 * rng.standard_normal((n, d)) + rng.standard_normal(d)
    exact, one = exact_wasserstein(A, B), exact_wasserstein(A, B, 1)
    sliced, top = sliced_wasserstein(A, B, projections=64 * d), max_sliced_wasserstein(A, B)
    slack = 1 + 1e-9
    assert gaussian_w2(A, B, ddof=0).power <= exact.power * slack + 1e-12
    assert sliced.power <= exact.power / d * slack + 3 * (sliced.mc_se or 0)
    assert sliced.value <= top.value * slack
    assert top.value <= exact.value * slack
    assert one.value <= exact.value * slack
    assert np.all(per_unit_wasserstein(A, B, 1) <= per_unit_wasserstein(A, B, 2) * slack)
    assert np.all(per_unit_wasserstein(A, B) <= top.value * (1 + 1e-3))


@pytest.mark.parametrize(
    "distance",
    [
        lambda a, b: sliced_wasserstein(a, b).value,
        lambda a, b: max_sliced_wasserstein(a, b).value,
        lambda a, b: gaussian_w2(a, b).value,
        spectrum_distance,
        lambda a, b: exact_wasserstein(a, b).value,
    ],
)
def test_order_of_rows_scale_and_the_law_itself(distance):
    order = np.random.default_rng(0).permutation(40)
    assert distance(X, X) == 0
    assert distance(X, Y[order]) == pytest.approx(distance(X, Y), rel=1e-9)
    assert distance(-3 * X, -3 * Y) == pytest.approx(3 * distance(X, Y), rel=1e-6)
    assert distance(Y, X) == pytest.approx(distance(X, Y), rel=1e-6)


class TestCka:
    @pytest.mark.parametrize("unbiased", [False, True])
    def test_one_for_itself_turned_and_scaled(self, unbiased):
        A = gaussian(30, 7)
        assert cka(A, A, unbiased) == pytest.approx(1, abs=1e-12)
        assert cka(A, 5 * A @ rotation(7) + 3, unbiased) == pytest.approx(1, abs=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(n=st.integers(4, 20), d=st.integers(1, 30), e=st.integers(1, 30), seed=st.integers(0, 2**32))
    def test_against_the_definition_by_kernels(self, n, d, e, seed):
        rng = np.random.default_rng(seed)
        A, B = rng.standard_normal((n, d)) + 2, rng.standard_normal((n, e))
        K, L = A @ A.T, B @ B.T

        def unbiased(K, L):
            K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
            one = np.ones(n)
            return (
                np.trace(K @ L)
                + one @ K @ one * (one @ L @ one) / ((n - 1) * (n - 2))
                - 2 / (n - 2) * (one @ K @ L @ one)
            ) / (n * (n - 3))

        def biased(K, L):
            H = np.eye(n) - 1 / n
            return np.trace(K @ H @ L @ H)

        for flag, hsic in ((True, unbiased), (False, biased)):
            expected = hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))
            assert cka(A, B, flag) == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def test_unbiased_is_near_0_for_unrelated_rows_and_may_be_below(self):
        values = [cka(gaussian(50, 200, seed=s), gaussian(50, 200, seed=s + 1000)) for s in range(60)]
        assert abs(np.mean(values)) < 0.02
        assert min(values) < 0
        assert cka(gaussian(50, 200), gaussian(50, 200, seed=1), unbiased=False) > 0.7
        assert cka(cloud(5, 3, 0), cloud(5, 3, 1)) == cka(cloud(5, 3, 0), cloud(5, 3, 1))
