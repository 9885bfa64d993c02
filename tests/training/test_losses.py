"""Shared losses beside closed forms, scipy and numeric gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from tests.harness import check_bad_input
from torch.nn import functional

from querist.errors import BadOption, BadValues, ShapeMismatch, TooFewRows
from querist.training.losses import (
    balance,
    binary_cross_entropy,
    cross_entropy,
    mmd,
    sliced_wasserstein,
    squared_error,
    weighted_sum,
)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ----------------------------------------------------------------------------------------------------- weighted sums


def test_weighted_sums():
    values = drawn(5, 3)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0]).double()
    total, whole = weighted_sum(values, weight)
    assert total == pytest.approx(float((values * weight[:, None]).sum()))
    assert whole == 4.5 * 3
    assert weighted_sum(values)[1] == 15
    assert weighted_sum(values.half())[0].dtype == torch.float32
    entries = torch.rand(5, 3).double()
    assert weighted_sum(values, entries)[0] == pytest.approx(float((values * entries).sum()))


def test_losses_are_torchs():
    weight = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits, target = drawn(6), torch.tensor([0.0, 1, 1, 0, 0.3, 1]).double()
    total, whole = binary_cross_entropy(logits, target, weight)
    expected = functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="sum")
    assert (float(total), float(whole)) == pytest.approx((float(expected), float(weight.sum())))
    scores, classes = drawn(6, 4), torch.tensor([0, 3, 1, 2, 2, 0])
    total, _ = cross_entropy(scores, classes, weight)
    assert float(total) == pytest.approx(
        float((functional.cross_entropy(scores, classes, reduction="none") * weight).sum())
    )
    total, whole = squared_error(logits, target)
    assert float(total / whole) == pytest.approx(float(functional.mse_loss(logits, target)))


@pytest.mark.parametrize("loss", [squared_error, binary_cross_entropy])
def test_what_has_no_weight_may_be_missing_in_value_and_gradient(loss):
    prediction = drawn(4).requires_grad_()
    target = torch.tensor([1.0, math.nan, 0.0, math.inf]).double()
    weight = torch.tensor([1.0, 0.0, 3.0, 0.0]).double()
    total, whole = loss(prediction, target, weight)
    total.backward()
    kept = prediction.detach()[[0, 2]].requires_grad_()
    expected, whole_2 = loss(kept, target[[0, 2]], weight[[0, 2]])
    expected.backward()
    assert (total.item(), whole.item()) == (pytest.approx(expected.item()), whole_2.item())
    assert prediction.grad.tolist() == pytest.approx([float(kept.grad[0]), 0.0, float(kept.grad[1]), 0.0])


def test_rows_without_a_class():
    scores = torch.tensor([[1.0, 2.0], [math.nan, 0.0]], requires_grad=True)
    total, whole = cross_entropy(scores, torch.tensor([1, -1]), torch.tensor([1.0, 0.0]))
    total.backward()
    assert whole == 1
    assert total.item() == pytest.approx(math.log1p(math.exp(-1)))
    assert scores.grad[1].tolist() == [0.0, 0.0]


# ------------------------------------------------------------------------------------------------ sliced Wasserstein


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 9), m=st.integers(1, 9), seed=st.integers(0, 10**6), weighted=st.booleans())
def test_in_one_dimension_it_is_scipys(n, m, seed, weighted):
    draw = np.random.default_rng(seed)
    x, y = np.round(draw.normal(size=n), 1), np.round(draw.normal(size=m), 1)  # with ties
    weights = (
        (draw.integers(0, 4, n) + (np.arange(n) == 0), draw.integers(0, 4, m) + (np.arange(m) == 0))
        if weighted
        else (None, None)
    )
    options = {"weight_x": weights[0], "weight_y": weights[1]}
    options = {name: None if w is None else torch.tensor(w, dtype=torch.float64) for name, w in options.items()}
    found = sliced_wasserstein(torch.tensor(x)[:, None], torch.tensor(y)[:, None], p=1, **options)
    assert float(found) == pytest.approx(wasserstein_distance(x, y, *weights), abs=1e-12)


def test_the_square_in_one_dimension_is_that_of_the_best_plan():
    from scipy.optimize import linprog

    x, y = drawn(4, 1, seed=1), drawn(3, 1, seed=2)
    a, b = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.5, 0.25, 0.25])
    cost = ((x - y.T) ** 2).numpy()
    rows = np.kron(np.eye(4), np.ones(3))
    columns = np.kron(np.ones(4), np.eye(3))
    best = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b])).fun
    found = sliced_wasserstein(x, y, weight_x=torch.tensor(a), weight_y=torch.tensor(b))
    assert float(found) == pytest.approx(best, rel=1e-9)


def test_a_shift_costs_its_mean_square_along_directions():
    x, shift = drawn(50, 4), torch.tensor([1.0, -2.0, 0.5, 3.0]).double()
    found = sliced_wasserstein(x, x + shift, directions=20_000)
    # E (θ·δ)² = |δ|²/d; its standard error over L directions is |δ|² √((2(d-1))/(d²(d+2)L)).
    expected = float(shift @ shift) / 4
    error = float(shift @ shift) * math.sqrt(2 * 3 / (16 * 6 * 20_000))
    assert abs(float(found) - expected) < 5 * error
    assert float(sliced_wasserstein(x, x.flip(0))) == pytest.approx(0, abs=1e-24)
    repeated = torch.cat([x, x, x])
    assert float(sliced_wasserstein(x, repeated)) == pytest.approx(0, abs=1e-12)


def test_weights_are_repetitions():
    x, y = drawn(6, 3, seed=3), drawn(8, 3, seed=4)
    counts = torch.tensor([1, 0, 3, 2, 0, 1])
    options = {"p": 2.0, "directions": 32}
    weighted = sliced_wasserstein(x, y, weight_x=counts.double(), **options)
    repeated = sliced_wasserstein(x.repeat_interleave(counts, 0), y, **options)
    assert float(weighted) == pytest.approx(float(repeated), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_gradients_of_the_sliced_distance(p):
    x, y = drawn(5, 3, seed=5).requires_grad_(), drawn(7, 3, seed=6).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]).double()
    assert torch.autograd.gradcheck(lambda x, y: sliced_wasserstein(x, y, p=p, directions=4, weight_x=weight), (x, y))
    same = x.detach().clone().requires_grad_()
    sliced_wasserstein(same, same.detach()).backward()
    assert torch.equal(same.grad, torch.zeros_like(same))


def test_directions_are_those_of_the_seed_or_of_the_training():
    x, y = drawn(9, 5), drawn(9, 5, seed=1) + 1
    one = sliced_wasserstein(x, y, directions=3)
    before = torch.get_rng_state()
    assert torch.equal(one, sliced_wasserstein(x, y, directions=3))
    assert not torch.equal(one, sliced_wasserstein(x, y, directions=3, seed=1))
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        a, b = (sliced_wasserstein(x, y, directions=3, seed=None) for _ in range(2))
        torch.manual_seed(0)
        assert torch.equal(a, sliced_wasserstein(x, y, directions=3, seed=None))
    assert not torch.equal(a, b)


# ---------------------------------------------------------------------------------------------------------------- mmd


def by_pairs(x, y, kernel, biased):
    def mean(a, b, same):
        values = [kernel(p, q) for i, p in enumerate(a) for j, q in enumerate(b) if biased or not same or i != j]
        return sum(values) / len(values)

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_mmd_is_the_mean_over_pairs(kind, biased):
    x, y = drawn(5, 3), drawn(6, 3, seed=1) + 0.5

    def kernel(a, b):
        return float(a @ b) if kind == "linear" else math.exp(-float(((a - b) ** 2).sum()) / (2 * 1.3**2))

    found = mmd(x, y, kernel=kind, bandwidth=1.3, biased=biased)
    assert float(found) == pytest.approx(by_pairs(x, y, kernel, biased), rel=1e-10)
    ones = {"weight_x": torch.full((5,), 3.0), "weight_y": torch.full((6,), 0.1)}
    assert float(mmd(x, y, kernel=kind, bandwidth=1.3, biased=biased, **ones)) == pytest.approx(float(found), rel=1e-10)


def test_linear_mmd_is_the_squared_distance_of_means():
    x, y = drawn(7, 2), drawn(3, 2, seed=1)
    assert float(mmd(x, y, kernel="linear")) == pytest.approx(float(((x.mean(0) - y.mean(0)) ** 2).sum()))
    weight = torch.tensor([0.0, 1.0, 3.0]).double()
    expected = ((x.mean(0) - (y[1] + 3 * y[2]) / 4) ** 2).sum()
    assert float(mmd(x, y, kernel="linear", weight_y=weight)) == pytest.approx(float(expected))


def test_rbf_mmd_of_two_gaussians_has_its_closed_form():
    # k with bandwidth s between N(0, I) and N(δ, I) in d dimensions: 2 (s²/(s²+2))^{d/2} (1 - exp(-|δ|²/(2(s²+2)))).
    d, s, n, repeats = 3, 1.5, 60, 200
    shift = torch.tensor([0.8, 0.0, -0.3]).double()
    expected = 2 * (s**2 / (s**2 + 2)) ** (d / 2) * (1 - math.exp(-float(shift @ shift) / (2 * (s**2 + 2))))
    values = torch.stack(
        [mmd(drawn(n, d, seed=i), drawn(n, d, seed=-1 - i) + shift, bandwidth=s, biased=False) for i in range(repeats)]
    )
    assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / math.sqrt(repeats)
    null = torch.stack(
        [mmd(drawn(n, d, seed=i), drawn(n, d, seed=-1 - i), bandwidth=s, biased=False) for i in range(repeats)]
    )
    assert abs(float(null.mean())) < 4 * float(null.std()) / math.sqrt(repeats)


def test_the_bandwidth_is_the_median_distance_without_a_gradient():
    x, y = drawn(6, 2).requires_grad_(), drawn(5, 2, seed=1)
    both = torch.cat([x.detach(), y])
    median = torch.pdist(both).median()
    found = mmd(x, y)
    assert float(found.detach()) == pytest.approx(float(mmd(x.detach(), y, bandwidth=float(median))))
    grad = torch.autograd.grad(found, x)[0]
    fixed = torch.autograd.grad(mmd(x, y, bandwidth=float(median)), x)[0]
    assert torch.allclose(grad, fixed, rtol=1e-10)
    same = torch.ones(4, 2).double().requires_grad_()
    mmd(same, torch.ones(3, 2).double()).backward()
    assert torch.isfinite(same.grad).all()


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {"bandwidth": 1.0}, {"bandwidth": 1.0, "biased": False}])
def test_gradients_of_mmd(options):
    x, y = drawn(4, 3).requires_grad_(), drawn(5, 3, seed=1).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0]).double()
    assert torch.autograd.gradcheck(lambda x, y: mmd(x, y, weight_x=weight, **options), (x, y))


# ------------------------------------------------------------------------------------------------------------ balance


@pytest.mark.parametrize("distance", ["wasserstein", "mmd-rbf", "mmd-linear"])
def test_balance_is_the_mean_distance_of_groups_by_rows(distance):
    features = drawn(20, 3).requires_grad_()
    group = torch.tensor([0] * 8 + [1] * 6 + [2] * 5 + [7])
    total, weight = balance(features, group, distance=distance)
    assert weight == 11, "a group of one row adds nothing"
    kind = {"mmd-rbf": "rbf", "mmd-linear": "linear"}.get(distance)

    def between(a, b):
        return mmd(a, b, kernel=kind) if kind else sliced_wasserstein(a, b)

    expected = sum(len(features[group == g]) * between(features[group == g], features[:8]) for g in (1, 2))
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    total.backward()
    assert features.grad[-1].tolist() == [0, 0, 0]
    assert features.grad[:-1].abs().min() > 0


def test_balance_without_enough_of_the_reference_adds_nothing_and_can_be_differentiated():
    features = drawn(5, 2).requires_grad_()
    total, weight = balance(features, torch.tensor([0, 1, 1, 1, 2]))
    total.backward()
    assert (total.item(), weight.item(), features.grad.abs().sum().item()) == (0, 0, 0)
    weighed = balance(features, torch.tensor([0, 0, 1, 1, 1]), weight=torch.tensor([1.0, 1, 1, 0, 0]))
    assert weighed[1] == 0
    _, count = balance(features, torch.tensor([3, 3, 1, 1, 1]), reference=3, distance="mmd-rbf", biased=False)
    assert count == 3


def test_bad_input():
    x, y = drawn(4, 2), drawn(3, 2)
    nan = float("nan")
    check_bad_input(
        [
            (lambda: weighted_sum(x, torch.ones(3)), ShapeMismatch, ["(4, 2)", "(3,)"]),
            (lambda: weighted_sum(x, -torch.ones(4)), BadValues, ["-1.0"]),
            (lambda: weighted_sum(x, torch.tensor([nan, 1, 1, 1])), BadValues, ["nan"]),
            (lambda: squared_error(x, y), ShapeMismatch, ["(4, 2), (3, 2)"]),
            (lambda: binary_cross_entropy(x, y), ShapeMismatch, ["one shape"]),
            (lambda: cross_entropy(x, torch.ones(3)), ShapeMismatch, ["[n, classes]"]),
            (lambda: sliced_wasserstein(x, drawn(3, 3)), ShapeMismatch, ["(3, 3)"]),
            (lambda: sliced_wasserstein(x, y[:0]), TooFewRows, ["at least 1"]),
            (lambda: sliced_wasserstein(x, y, p=0.5), BadOption, ["p >= 1"]),
            (lambda: sliced_wasserstein(x, y, directions=0), BadOption, ["directions"]),
            (lambda: sliced_wasserstein(x, y, weight_x=torch.ones(3)), ShapeMismatch, ["(4,)"]),
            (lambda: sliced_wasserstein(x, y, weight_x=torch.zeros(4)), BadValues, ["not all of them 0"]),
            (lambda: sliced_wasserstein(x, y, weight_x=torch.tensor([nan, 1, 1, 1])), BadValues, ["nan"]),
            (lambda: mmd(x, y, kernel="cosine"), BadOption, ["rbf, linear"]),
            (lambda: mmd(x, y, bandwidth=0.0), BadOption, ["positive"]),
            (lambda: mmd(x, y[:1], biased=False), TooFewRows, ["at least 2"]),
            (lambda: mmd(x, y, biased=False, weight_y=torch.tensor([1.0, 0, 0])), TooFewRows, ["at least 2"]),
            (lambda: balance(x, torch.ones(3)), ShapeMismatch, ["[n]"]),
            (lambda: balance(x, torch.ones(4), distance="cka"), BadOption, ["wasserstein, mmd-rbf"]),
        ]
    )
