"""What is measured of a network, each against its plain definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from querist.errors import NonFinite
from querist.weights.laboratory import (
    alignment,
    alignment_profile,
    draw_problem,
    entry_histogram,
    features,
    kta,
    refit,
    scores,
    sim_null,
    step_strength,
    top_triple,
    train,
)


@given(n=st.integers(1, 30), h=st.integers(1, 20), seed=st.integers(0, 50))
def test_kta_is_the_alignment_of_the_kernel_without_the_kernel(n, h, seed):
    rng = np.random.default_rng(seed)
    Z, y = rng.standard_normal((n, h)), rng.standard_normal(n)
    K = Z @ Z.T
    plain = y @ K @ y / (np.linalg.norm(K) * np.linalg.norm(np.outer(y, y)))
    assert kta(torch.from_numpy(Z), torch.from_numpy(y)) == pytest.approx(plain, rel=1e-9)
    assert 0 <= plain <= 1 + 1e-12


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_the_refitted_layer_is_ridge_regression_on_scaled_features(ridge):
    problem = draw_problem(15, 10, 30, 12, seed=2)
    Z, Z_test = (features(problem.W, part.X) for part in (problem.fresh, problem.test))
    n, h = Z.shape
    Phi, Phi_test = Z / math.sqrt(h), Z_test / math.sqrt(h)
    a = torch.linalg.solve(Phi.T @ Phi + ridge * n / h * torch.eye(h, dtype=Z.dtype), Phi.T @ problem.fresh.y)
    expected = [float(((F @ a - part.y) ** 2).mean()) for F, part in ((Phi, problem.fresh), (Phi_test, problem.test))]
    assert refit(Z, problem.fresh.y, Z_test, problem.test.y, ridge) == pytest.approx(expected, rel=1e-10)


def test_features_in_both_scales():
    problem = draw_problem(15, 10, 30, 12, seed=2)
    product = problem.train.X @ problem.W.T
    torch.testing.assert_close(features(problem.W, problem.train.X), torch.tanh(product / math.sqrt(10)))
    torch.testing.assert_close(features(problem.W, problem.train.X, "repo"), torch.tanh(product / 10))
    found = scores(problem.W, problem, 0.01)
    for scale, score in found.items():
        Z, Z_fresh, Z_test = (
            features(problem.W, part.X, scale) for part in (problem.train, problem.fresh, problem.test)
        )
        assert score.kta == pytest.approx(kta(Z, problem.train.y), rel=1e-12)
        errors = refit(Z_fresh, problem.fresh.y, Z_test, problem.test.y, 0.01)
        assert (score.refit_train, score.refit_test) == pytest.approx(errors, rel=1e-12)
    assert found["formula"].refit_test != found["repo"].refit_test


@given(h=st.integers(1, 30), d=st.integers(1, 30), seed=st.integers(0, 50), power=st.integers(-120, 120))
def test_the_top_triple_is_that_of_the_svd(h, d, seed, power):
    M = torch.from_numpy(np.random.default_rng(seed).standard_normal((h, d))) * 10.0**power
    sigma, u, v = top_triple(M)
    assert sigma == pytest.approx(float(torch.linalg.svdvals(M / 10.0**power)[0]) * 10.0**power, rel=1e-10)
    assert float(u @ (M / sigma) @ v) == pytest.approx(1, rel=1e-9)
    assert float(u.norm()) == pytest.approx(1)
    assert float(v.norm()) == pytest.approx(1)


def test_the_top_triple_of_zero_and_of_nan():
    sigma, u, v = top_triple(torch.zeros(4, 3))
    assert (sigma, u.shape, v.shape) == (0.0, (4,), (3,))
    with pytest.raises(NonFinite):
        top_triple(torch.full((3, 3), float("nan")))


def test_alignment_is_the_first_entry_of_the_profile_and_the_profile_fills_the_space():
    problem = draw_problem(30, 20, 10, seed=4)
    values = alignment_profile(problem.W, problem.beta)
    assert alignment(problem.W, problem.beta) == pytest.approx(values[0], rel=1e-9)
    assert np.sum(values**2) == pytest.approx(1)
    wide = draw_problem(12, 20, 10, seed=4)
    assert alignment_profile(wide.W, wide.beta).shape == (12,)


def test_the_null_of_alignment_is_that_of_random_directions():
    """The profile of untrained weights itself: 60 matrices of 40 columns, every singular vector a random direction."""
    drawn = np.concatenate(
        [alignment_profile(p.W, p.beta) for p in (draw_problem(50, 40, 2, repeat=i) for i in range(60))]
    )
    assert drawn.mean() == pytest.approx(sim_null(40), rel=0.03)
    assert np.mean(drawn > sim_null(40, 0.99)) == pytest.approx(0.01, abs=0.006)
    assert sim_null(40, 0.99) == pytest.approx(math.sqrt(stats.beta(0.5, 19.5).ppf(0.99)), rel=1e-9)
    assert sim_null(2000) == pytest.approx(math.sqrt(2 / (math.pi * 2000)), rel=1e-3)


def test_entries_before_training_are_normal():
    edges, shares, normal = entry_histogram(draw_problem(200, 150, 2).W)
    assert shares.sum() == pytest.approx(1)
    assert normal.sum() == pytest.approx(1, abs=1e-3)
    assert np.abs(shares - normal).max() < 5 * math.sqrt(normal.max() / 30_000)
    assert edges[0] == -edges[-1]


def test_the_strength_of_a_step():
    problem = draw_problem(30, 20, 40, seed=4)
    first, second = list(train(problem, "gd", 50.0, 1))
    assert step_strength(first) is None
    step = step_strength(second)
    U, S, Vh = np.linalg.svd(second.update.numpy())
    theta_e2 = S[0] ** 2 + 2 * S[0] * (U[:, 0] @ problem.W.numpy() @ Vh[0])
    assert step.theta == pytest.approx(S[0])
    assert step.theta_effective == pytest.approx(math.sqrt(max(theta_e2, 0)))
    assert step.beyond == (theta_e2 > math.sqrt(600))
    assert step.norm == pytest.approx(np.linalg.norm(S))
    assert step.of_second_scale == pytest.approx(np.linalg.norm(S) / float(problem.W.norm()))
