"""The laboratory's data and its training by hand, against torch's autograd and optimisers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tests.harness import Bad, check_bad_input

from querist.errors import BadOption, UnknownName
from querist.weights.laboratory import Problem, device_for, draw_problem, first_direction, gradients, train

SIZES = (12, 9, 20)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return draw_problem(*SIZES, n_test=7, seed=5)


def loss_of(W, a, sample):
    h, d = W.shape
    f = torch.tanh(sample.X @ W.T / math.sqrt(d)) @ a / math.sqrt(h)
    return ((sample.y - f) ** 2).mean()


def test_gradients_are_those_of_autograd(problem):
    W, a = problem.W.clone().requires_grad_(), problem.a.clone().requires_grad_()
    expected = loss_of(W, a, problem.train)
    expected.backward()
    loss, G, g = gradients(problem.W, problem.a, problem.train)
    assert loss == pytest.approx(expected.item(), rel=1e-13)
    torch.testing.assert_close(G, W.grad, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(g, a.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("train_last", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize(("optimizer", "eta"), [("gd", 3.0), ("adam", 0.05)])
def test_steps_are_those_of_torch(problem, optimizer, eta, gamma, train_last):
    W, a = problem.W.clone().requires_grad_(), problem.a.clone().requires_grad_()
    parameters = [W, a] if train_last else [W]
    rule = torch.optim.SGD(parameters, lr=eta) if optimizer == "gd" else torch.optim.Adam(parameters, lr=eta)
    schedule = torch.optim.lr_scheduler.StepLR(rule, 1, gamma)
    for state in train(problem, optimizer, eta, 8, gamma=gamma, train_last=train_last):
        torch.testing.assert_close(state.W, W.detach(), rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(state.a, a.detach(), rtol=1e-10, atol=1e-11)
        rule.zero_grad()
        loss = loss_of(W, a, problem.train)
        loss.backward()
        assert state.loss == pytest.approx(loss.item(), rel=1e-10)
        assert state.grad_norm == pytest.approx(W.grad.norm().item(), rel=1e-8)
        rule.step()
        schedule.step()
    assert state.step == 8
    assert torch.equal(state.a, problem.a) != train_last


def test_an_update_is_the_difference_of_weights_and_the_first_step_is_the_rate_times_its_direction(problem):
    for optimizer in ("gd", "adam"):
        states = list(train(problem, optimizer, 0.3, 3))
        assert [state.step for state in states] == [0, 1, 2, 3]
        assert states[0].update is None
        for one, next_one in itertools.pairwise(states):
            torch.testing.assert_close(next_one.update, next_one.W - one.W)
            assert torch.equal(next_one.before, one.W)
        direction = first_direction(optimizer, problem.W, problem.a, problem.train)
        torch.testing.assert_close(states[1].update, 0.3 * direction, rtol=1e-9, atol=1e-12)


def test_the_first_step_of_adam_is_the_sign_of_the_gradient(problem):
    _, G, _ = gradients(problem.W, problem.a, problem.train)
    torch.testing.assert_close(
        first_direction("adam", problem.W, problem.a, problem.train), -torch.sign(G), atol=1e-4, rtol=0
    )


def test_weight_normalisation_scales_w_before_each_step(problem):
    W = problem.W
    for state in train(problem, "gd", 5.0, 4, weight_norm=True):
        torch.testing.assert_close(state.W, W)
        assert state.loss == pytest.approx(float(loss_of(W, problem.a, problem.train)), rel=1e-12)
        scaled = W * math.sqrt(W.numel()) / W.norm()
        if state.step < 4:
            W = scaled - 5.0 * gradients(scaled, problem.a, problem.train)[1]
        if state.before is not None:
            assert float(state.before.norm()) == pytest.approx(math.sqrt(W.numel()), rel=1e-12)


def test_training_changes_nothing_it_was_given(problem):
    W, a, y = problem.W.clone(), problem.a.clone(), problem.train.y.clone()
    list(train(problem, "adam", 0.5, 3, weight_norm=True, train_last=True))
    assert torch.equal(problem.W, W)
    assert torch.equal(problem.a, a)
    assert torch.equal(problem.train.y, y)


def test_training_ends_where_it_stops_being_finite(problem):
    states = list(train(problem, "gd", 1e6, 400, train_last=True))
    assert not states[-1].finite
    assert all(state.finite for state in states[:-1])
    assert len(states) < 401


def test_the_teacher_and_its_labels():
    big = draw_problem(60, 40, 5000, 3000, 0.3, seed=1, repeat=2)
    assert float(big.beta.norm()) == pytest.approx(1)
    assert float(big.W.var()) == pytest.approx(1, abs=0.06)
    for sample in (big.train, big.fresh, big.test):
        noise = sample.y - torch.nn.functional.softplus(sample.X @ big.beta)
        assert float(noise.std()) == pytest.approx(0.3, rel=0.05)
        assert abs(float(noise.mean())) < 0.02
    assert not torch.equal(big.train.X, big.fresh.X)


def test_repeats_differ_and_sizes_share_what_they_have_in_common():
    short, long = draw_problem(10, 8, 20, seed=3), draw_problem(10, 8, 50, rho=0.7, seed=3)
    assert torch.equal(short.W, long.W)
    assert torch.equal(short.beta, long.beta)
    assert torch.equal(short.train.X, long.train.X[:20])
    clean = draw_problem(10, 8, 20, rho=0.0, seed=3).train.y
    torch.testing.assert_close((short.train.y - clean) / 0.3, (long.train.y[:20] - clean) / 0.7)
    assert not torch.equal(short.W, draw_problem(10, 8, 20, seed=3, repeat=1).W)
    assert not torch.equal(short.W, draw_problem(10, 8, 20, seed=4).W)
    half = draw_problem(10, 8, 20, seed=3, dtype=torch.float32)
    torch.testing.assert_close(half.W, short.W.float())


def test_devices():
    assert device_for("cpu", "").type == "cpu"
    assert device_for("auto", "a").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_bad_input(problem):
    check_bad_input(
        [
            Bad(lambda: next(train(problem, "gd", 0.0, 3)), BadOption, ["0.0", "above 0"]),
            Bad(lambda: next(train(problem, "gd", -1.0, 3)), BadOption, ["-1.0"]),
            Bad(lambda: next(train(problem, "gd", np.inf, 3)), BadOption, ["inf"]),
            Bad(lambda: next(train(problem, "sgd", 1.0, 3)), UnknownName, ["sgd", "adam"]),
            Bad(lambda: device_for("cuda:99", ""), BadOption, ["cuda:99", "cpu"]),
            Bad(lambda: device_for("abacus", ""), BadOption, ["abacus"]),
        ]
    )
