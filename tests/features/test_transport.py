"""Labelled sets, the Sinkhorn divergence and large plans; POT and geomloss as oracles where they are installed."""

from __future__ import annotations

import math
import sys
import types

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from tests.features.clouds import X, Y, cloud, gaussian, rotation

from querist.errors import NumericalFailure
from querist.features import (
    exact_wasserstein,
    gaussian_w2,
    gaussian_w2_moments,
    otdd,
    per_unit_wasserstein,
    sinkhorn_divergence,
    sliced_wasserstein,
)
from querist.features.distances import random_directions

LABELS = np.arange(1, 41) % 2


class TestLabelledSets:
    def test_the_reference_value(self):
        assert otdd(X, LABELS, Y, LABELS).power == pytest.approx(0.5257152152, abs=1e-8)

    def test_against_the_definition(self):
        A, B = gaussian(60, 3), 2 * gaussian(60, 3, seed=1)
        ya, yb = np.arange(60) % 3, np.arange(60) % 2
        of_class = np.array(
            [
                [
                    gaussian_w2_moments(
                        A[ya == i].mean(0), np.cov(A[ya == i].T), B[yb == j].mean(0), np.cov(B[yb == j].T)
                    )
                    for j in range(2)
                ]
                for i in range(3)
            ]
        )
        cost = np.linalg.norm(A[:, None] - B, axis=2) ** 2 + of_class[ya][:, yb] ** 2
        found = otdd(A, ya, B, yb)
        assert found.power == pytest.approx(cost[linear_sum_assignment(cost)].mean(), rel=1e-9)
        assert found.n_used == 60
        assert found.warnings == ()

    def test_names_of_labels_and_order_of_rows_do_not_matter(self):
        names = np.array(["odd", "even"])[LABELS]
        order = np.random.default_rng(0).permutation(40)
        for method in ("gaussian", "sliced"):
            value = otdd(X, LABELS, Y, LABELS, method=method).value
            assert otdd(X[order], names[order], Y, 1 - LABELS, method=method).value == pytest.approx(value, rel=1e-9)
            assert otdd(2 * X, LABELS, 2 * Y, LABELS, method=method).value == pytest.approx(2 * value, rel=1e-9)
            assert otdd(Y, LABELS, X, LABELS, method=method).value == pytest.approx(value, rel=1e-9)

    def test_it_lies_between_the_rows_distance_and_that_with_the_largest_label_distance(self):
        assert exact_wasserstein(X, Y).value <= otdd(X, LABELS, Y, LABELS).value
        assert otdd(X @ rotation(3), LABELS, Y @ rotation(3), LABELS).value == pytest.approx(
            otdd(X, LABELS, Y, LABELS).value, rel=1e-9
        )

    def test_small_classes_are_shrunk(self):
        from sklearn.covariance import ledoit_wolf

        from querist.features.moments import class_moments

        A, code = gaussian(30, 10), np.r_[np.zeros(10, int), np.ones(20, int)]
        small, large = class_moments(A, code, 2)
        weight = ledoit_wolf(A[:10])[1]
        S = np.cov(A[:10].T)
        np.testing.assert_allclose(small[1], (1 - weight) * S + weight * np.trace(S) / 10 * np.eye(10), rtol=1e-12)
        np.testing.assert_allclose(large[1], np.cov(A[10:].T), rtol=1e-12)

    def test_labels_tell_sets_apart_that_rows_do_not(self):
        A = gaussian(400, 4)
        split = (A[:, 0] > 0).astype(int)
        mixed = np.arange(400) % 2
        for method in ("gaussian", "sliced"):
            assert otdd(A, split, A, split, method=method).value == 0
            apart = otdd(A, split, A, mixed, method=method).value
            alike = otdd(A, mixed, A, 1 - mixed, method=method).value
            assert apart > 0.15 > 5 * alike

    def test_the_sliced_kind_is_the_mean_over_joined_lines(self):
        d = 5
        A, B = gaussian(50, d), 1 + gaussian(37, d, seed=1)
        ya, yb = np.arange(50) % 4, np.arange(37) % 3
        found = otdd(A, ya, B, yb, method="sliced", seed=3)
        assert found.mc_se is not None
        assert 0 < found.mc_se < found.value
        again = [otdd(A, ya, B, yb, method="sliced", seed=s).value for s in range(30)]
        assert np.std(again) == pytest.approx(found.mc_se, rel=0.4)
        shift = [otdd(A, ya, A + 3, ya, method="sliced", seed=s).power for s in range(20)]
        # ψ_0 θ·c + ψ_1 φ·c, c a shift of length 3√5: E of its square is (1/4)(9·5/5)·2.
        assert np.mean(shift) == pytest.approx(4.5, rel=0.1)

    @pytest.mark.parametrize("d", [1, 3])
    def test_one_unit(self, d):
        assert otdd(X[:, :d], LABELS, Y[:, :d], LABELS, method="sliced").value > 0
        assert otdd(X[:, :d], LABELS, Y[:, :d], LABELS).value > 0

    def test_subsamples_are_told_and_seeded(self):
        A, B = gaussian(90, 3), gaussian(80, 3, seed=1)
        first = otdd(A, np.arange(90) % 2, B, np.arange(80) % 2, max_rows=50, seed=1)
        assert (first.n, first.m, first.n_used) == (90, 80, 50)
        assert "50 of 90 and 50 of 80" in first.warnings[0]
        assert otdd(A, np.arange(90) % 2, B, np.arange(80) % 2, max_rows=50, seed=1) == first
        assert otdd(A, np.arange(90) % 2, B, np.arange(80) % 2, max_rows=50, seed=2).value != first.value


def dense_sinkhorn(A: np.ndarray, B: np.ndarray, epsilon: float, sweeps: int) -> float:
    """OT_ε by plain log-domain iterations of the definition, to convergence."""
    from scipy.special import logsumexp

    cost = np.linalg.norm(A[:, None] - B, axis=2) ** 2
    f, g = np.zeros(len(A)), np.zeros(len(B))
    for _ in range(sweeps):
        f = -epsilon * logsumexp((g - cost) / epsilon - math.log(len(B)), axis=1)
        g = -epsilon * logsumexp((f[:, None] - cost) / epsilon - math.log(len(A)), axis=0)
    return float(f.mean() + g.mean())


class TestSinkhorn:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("geomloss")

    def test_the_reference_value(self):
        assert sinkhorn_divergence(X, Y, epsilon=1.0).power == pytest.approx(0.1593734683, abs=1e-6)

    @pytest.mark.parametrize("epsilon", [0.3, 2.0, 20.0])
    def test_against_the_definition(self, epsilon):
        A, B = X[:30], Y
        terms = [dense_sinkhorn(*pair, epsilon, 1500) for pair in ((A, B), (A, A), (B, B))]
        found = sinkhorn_divergence(A, B, epsilon=epsilon)
        error = abs(found.power - (terms[0] - (terms[1] + terms[2]) / 2))
        assert error <= (1e-4 if epsilon < 1 else 3e-6)
        assert found.warnings == () or epsilon < 1

    def test_small_and_large_epsilon_are_transport_and_means(self):
        shift = X.mean(axis=0) - Y.mean(axis=0)
        assert sinkhorn_divergence(X, Y, epsilon=1e4).power == pytest.approx(float(shift @ shift), rel=1e-2)
        assert sinkhorn_divergence(X, Y, epsilon=1e-3).power == pytest.approx(exact_wasserstein(X, Y).power, rel=1e-2)

    def test_a_very_small_epsilon_is_finite(self):
        # POT#723
        mean = float((np.linalg.norm(X[:, None] - Y, axis=2) ** 2).mean())
        try:
            found = sinkhorn_divergence(X, Y, epsilon=1e-4 * mean)
        except NumericalFailure:
            return
        assert math.isfinite(found.value)

    def test_near_clouds_in_many_units_are_not_below_0(self):
        # geomloss#24, #25
        A = cloud(50, 160, 0)
        assert sinkhorn_divergence(A, A + 1e-3, epsilon=0.5).value >= 0
        assert sinkhorn_divergence(A, A[::-1], epsilon=0.5).power <= 1e-6 * 160

    def test_the_contract_with_the_library(self):
        # geomloss#86
        from geomloss import SamplesLoss  # type: ignore[reportMissingImports]

        loss = SamplesLoss("sinkhorn", p=2, blur=0.5, scaling=0.9, debias=True, backend="tensorized")
        x, y = torch.from_numpy(X), torch.from_numpy(Y)
        assert abs(float(loss(x, x))) < 1e-12
        assert math.isfinite(float(loss(x, y)))
        assert float(loss(x, x + 1)) == pytest.approx(1.5, rel=1e-6)  # ‖1‖²/2 in three units


class TestTheAdapterAlone:
    """What the adapter does with an answer, whatever library gives it."""

    @pytest.fixture
    def answers(self, monkeypatch):
        given: list[float] = []

        class SamplesLoss:
            def __init__(self, name, *, p, blur, scaling, debias, backend):
                assert (name, p, debias, backend) == ("sinkhorn", 2, True, "tensorized")
                assert blur == pytest.approx(1.0)  # ε of 2 here is 1 there
                assert scaling >= 0.9

            def __call__(self, x, y):
                assert x.dtype == torch.float64
                return torch.tensor(given.pop(0), dtype=torch.float64)

        module = types.ModuleType("geomloss")
        module.SamplesLoss = SamplesLoss  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "geomloss", module)
        return given

    def test_twice_the_value_once_it_stands_still(self, answers):
        answers += [0.1, 0.08, 0.08 + 1e-9, 99.0]
        found = sinkhorn_divergence(X, Y, epsilon=2.0)
        assert found.power == pytest.approx(0.16, abs=1e-8)
        assert answers == [99.0]
        assert found.warnings == ()

    def test_a_value_that_still_moves_is_told(self, answers):
        answers += [0.1, 0.09, 0.08, 0.07, 0.06]
        assert "Not settled" in sinkhorn_divergence(X, Y, epsilon=2.0).warnings[0]

    def test_rounding_below_0_is_0_and_more_is_a_failure(self, answers):
        answers += [-1e-8, -1e-8]
        assert sinkhorn_divergence(X, Y, epsilon=2.0).value == 0
        answers += [-0.1, -0.1]
        with pytest.raises(NumericalFailure, match="epsilon 2"):
            sinkhorn_divergence(X, Y, epsilon=2.0)
        answers[:] = [math.nan]
        with pytest.raises(NumericalFailure, match="nan"):
            sinkhorn_divergence(X, Y, epsilon=2.0)

    def test_a_set_against_itself_asks_nobody(self, answers):
        assert sinkhorn_divergence(X, X.copy(), epsilon=2.0).value == 0

    def test_a_simplex_that_stops_early_is_a_failure(self, monkeypatch):
        import warnings

        class Early(types.ModuleType):
            @staticmethod
            def emd(a, b, C, numItermax, log):
                assert numItermax >= 10**7
                warnings.warn("numItermax reached before optimality", UserWarning, stacklevel=1)
                return np.outer(a, b), {"warning": "numItermax reached before optimality"}

        monkeypatch.setitem(sys.modules, "ot", Early("ot"))
        with pytest.raises(NumericalFailure, match="reached before optimality"):
            exact_wasserstein(gaussian(600, 2), gaussian(500, 2, seed=1))


class TestAgainstPOT:
    @pytest.fixture
    def ot(self):
        return pytest.importorskip("ot")

    def test_network_simplex(self, ot, monkeypatch):
        A, B = gaussian(600, 3), gaussian(500, 3, seed=1)
        found = exact_wasserstein(A, B)
        assert found.method == "exact, network simplex"
        small = gaussian(120, 3), gaussian(90, 3, seed=1)
        w = np.arange(1.0, 121)
        by_program = exact_wasserstein(*small, wx=w)
        monkeypatch.setattr("querist.features.distances._exact.PROGRAMMED", 0)
        by_simplex = exact_wasserstein(*small, wx=w)
        assert (by_program.method, by_simplex.method) == ("exact, linear program", "exact, network simplex")
        assert by_simplex.power == pytest.approx(by_program.power, rel=1e-9)

    def test_lines_and_slices(self, ot):
        A, B = gaussian(300, 8, dtype=np.float32), 1.3 * gaussian(300, 8, seed=1, dtype=np.float32)
        for p in (1, 2):
            expected = ot.wasserstein_1d(A.astype(float), B.astype(float), p=p) ** (1 / p)
            np.testing.assert_allclose(per_unit_wasserstein(A, B, p), expected, rtol=1e-6)
            theta = random_directions(8, 200, 0).vectors
            slices = ot.sliced_wasserstein_distance(A.astype(float), B.astype(float), projections=theta.T.copy(), p=p)
            assert sliced_wasserstein(A, B, p, projections=200).value == pytest.approx(slices, rel=1e-6)

    def test_gaussian_laws(self, ot):
        A, B = gaussian(300, 8), 1.3 * gaussian(300, 8, seed=1)
        pot = ot.gaussian.empirical_bures_wasserstein_distance(A, B, reg=0)
        assert gaussian_w2(A, B, ddof=0).value == pytest.approx(float(pot), rel=1e-8)

    def test_assignment(self, ot):
        pot = ot.emd2(np.full(40, 1 / 40), np.full(40, 1 / 40), ot.dist(X, Y))
        assert exact_wasserstein(X, Y).power == pytest.approx(float(pot), rel=1e-9)
