"""Allocation against its reference values, a linear and an integer solver, and every enumerated answer; the multi-armed Qini."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from querist.effects.budget import allocate, budget_path, multi_arm_qini, spend_curve
from querist.effects.errors import BudgetRange, CostRange, Infeasible, LengthMismatch
from querist.effects.metrics import rate, rate_values_of
from querist.errors import BadOption, ShapeMismatch, UndefinedMetric
from querist.statistics import stream

REWARD = np.array([[5, 6], [4, 7], [2, 2.5], [-1, 3], [1, 0.5], [3, 3]])
COST = np.array([[1, 2], [2, 3], [1, 3], [1, 4], [1, 2], [2, 1.0]])
SEEDS = st.integers(0, 10_000)


def draw(seed: int, n: int = 12, arms: int = 3):
    """Whole numbers with ties, free arms, equal arms and losses."""
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 6, (n, arms)).astype(float), rng.integers(0, 4, (n, arms)).astype(float), rng


def solved(reward, cost, budget, whole=False):
    n, arms = reward.shape
    rows = np.kron(np.eye(n), np.ones((1, arms)))
    upper, limit = np.vstack([cost.ravel(), rows]), np.r_[budget, np.ones(n)]
    if whole:
        limits = optimize.LinearConstraint(upper, -np.inf, limit)
        bounds = optimize.Bounds(0, 1)
        options = {"mip_rel_gap": 0.0}
        ones = np.ones(n * arms)
        return -optimize.milp(-reward.ravel(), integrality=ones, bounds=bounds, constraints=limits, options=options).fun
    return -optimize.linprog(-reward.ravel(), A_ub=upper, b_ub=limit, bounds=(0, 1), method="highs").fun


def test_reference_values():
    path = budget_path(REWARD, COST)
    assert path.best([1, 2, 3, 5, 6, 8, 20]) == pytest.approx([5, 8, 31 / 3, 15, 17, 19, 22.5])
    assert path.best(4) == pytest.approx(38 / 3)
    exact = [allocate(REWARD, COST, budget, method="milp").value for budget in (3, 4)]
    assert exact == pytest.approx([10, 12])
    greedy = allocate(REWARD, COST, 4)
    assert (greedy.value, greedy.spent) == (11, 4)
    assert greedy.lp_bound == pytest.approx(38 / 3)
    assert greedy.gap == pytest.approx(5 / 3)
    assert greedy.shadow_price == pytest.approx(7 / 3)
    assert greedy.fractional == (1, 2, pytest.approx(2 / 3))
    assert allocate(REWARD, COST, 3, method="dual").shadow_price == pytest.approx(7 / 3)
    whole = allocate(REWARD, COST, np.inf)
    assert (whole.value, whole.gap, whole.shadow_price, whole.fractional) == (22.5, 0, 0, None)
    assert whole.arm.tolist() == [2, 2, 2, 2, 1, 2]
    assert whole.counts.tolist() == [0, 1, 5]


# The solver holds constraints to 1e-7: it may overspend a budget smaller than that by several times.
@settings(max_examples=50, deadline=None)
@given(SEEDS, st.just(0.0) | st.floats(1e-3, 30))
def test_the_path_is_the_linear_program_and_the_dual_too(seed, budget):
    reward, cost, _ = draw(seed)
    path = budget_path(reward, cost)
    wanted = solved(reward, cost, budget)
    assert path.best(budget) == pytest.approx(wanted, abs=1e-9)
    assert (np.diff(path.shadow_price) <= 0).all()
    for method in ("path", "dual"):
        found = allocate(reward, cost, budget, method=method)
        assert found.lp_bound == pytest.approx(wanted, abs=1e-8), method
        assert found.feasible
        assert found.spent <= budget + 1e-9
        rows = np.arange(12)
        own = np.where(found.arm > 0, reward[rows, found.arm - 1], 0)
        assert found.value == own.sum()
        largest = np.diff(path.value).max(initial=0)
        assert -1e-9 <= found.gap <= largest + 1e-9, method
        assert (found.fractional is None) or 0 < found.fractional[2] < 1
        for i in rows:  # nobody takes two steps in the wrong order: what is held is on the hull
            assert own[i] >= 0


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(0, 12))
def test_the_exact_answer_is_the_best_of_all(seed, budget):
    reward, cost, _ = draw(seed, 5, 2)
    best = -np.inf
    for arms in itertools.product(range(3), repeat=5):
        chosen = np.array(arms)
        on = chosen > 0
        if cost[np.arange(5)[on], chosen[on] - 1].sum() <= budget:
            best = max(best, reward[np.arange(5)[on], chosen[on] - 1].sum())
    exact = allocate(reward, cost, budget, method="milp")
    assert exact.value == pytest.approx(best)
    assert exact.lp_bound >= exact.value - 1e-9
    assert allocate(reward, cost, budget).value <= best + 1e-9
    assert solved(reward, cost, budget, whole=True) == pytest.approx(best)


def test_value_is_concave_and_costs_may_be_shared_or_taken_off():
    rng = np.random.default_rng(0)
    reward, cost = rng.normal(size=(50, 4)), rng.random((50, 4))
    values = budget_path(reward, cost).best(np.linspace(0, 20, 60))
    assert (np.diff(values, 2) <= 1e-9).all()
    per_arm = np.array([0.3, 0.2, 0.5, 0.1])
    assert allocate(reward, per_arm, 5).arm.tolist() == allocate(reward, np.tile(per_arm, (50, 1)), 5).arm.tolist()
    net = allocate(reward, cost, np.inf, net=True)
    assert net.value == pytest.approx(np.maximum(reward - cost, 0).max(axis=1).sum())
    free = allocate(reward, np.zeros(4), 0)
    assert free.value == pytest.approx(np.maximum(reward, 0).max(axis=1).sum())
    for method in ("path", "dual"):
        nobody = allocate(-np.abs(reward), cost, 3, method=method)
        assert (nobody.value, nobody.counts[0]) == (0, 50)
    scaled = allocate(7 * reward, 3 * cost, 3 * 5)
    assert scaled.arm.tolist() == allocate(reward, cost, 5).arm.tolist()


def test_many_ties_at_the_price():
    reward, cost = np.ones((1000, 2)), np.array([1.0, 2.0])
    for method in ("path", "dual"):
        found = allocate(reward, cost, 300.5, method=method)
        assert (found.value, found.lp_bound) == (300, pytest.approx(300.5))
        assert found.counts.tolist() == [700, 300, 0]


def test_a_large_table_matches_between_methods():
    rng = np.random.default_rng(1)
    reward, cost = rng.normal(size=(40_000, 3)), rng.random((40_000, 3))
    a, b = (allocate(reward, cost, 4000, method=method) for method in ("path", "dual"))
    assert a.lp_bound == pytest.approx(b.lp_bound, rel=1e-12)
    assert a.shadow_price == pytest.approx(b.shadow_price, rel=1e-9)
    assert a.gap / a.value < 1e-4
    assert (a.arm != b.arm).mean() < 1e-3


# -------------------------------------------------------------------------------------------------------- side constraints


def test_capacities_groups_and_several_budgets():
    base = allocate(REWARD, COST, 8, method="milp")
    capped = allocate(REWARD, COST, 8, capacity=[np.inf, 1])
    assert capped.counts[2] <= 1
    assert capped.value < base.value
    group = np.array(["a", "a", "a", "b", "b", "b"])
    least = allocate(REWARD, COST, 6, group=group, group_min={"b": 1.0})
    assert (least.arm[3:] > 0).all()
    assert least.feasible
    assert least.value <= allocate(REWARD, COST, 6, method="milp").value
    two = np.stack([COST, np.ones((6, 2))], axis=2)
    found = allocate(REWARD, two, [8, 2])
    assert (found.arm > 0).sum() <= 2
    assert found.value == 13  # the two best people
    with pytest.raises(Infeasible, match="budget stands in the way") as caught:
        allocate(REWARD, COST, 3, group=group, group_min=1.0)
    assert "at most 0.5" in str(caught.value)
    with pytest.raises(Infeasible, match="capacity stands"):
        allocate(REWARD, COST, 30, capacity=[2, 2], group=group, group_min=1.0)


def test_segments_stand_for_many_people():
    rng = np.random.default_rng(2)
    n = 4000
    kind = rng.integers(0, 300, n)
    reward = rng.normal(size=(300, 2))[kind] + 0.01 * rng.normal(size=(n, 2))
    cost = rng.uniform(0.5, 1.5, (300, 2))[kind]
    group = rng.integers(0, 3, n)
    found = allocate(reward, cost, 600, capacity=[500, np.inf], group=group, group_min=0.05)
    assert found.method == "milp on segments"
    assert found.feasible
    assert found.counts[1] <= 500
    assert found.aggregation_gap is not None
    assert 0 <= found.gap < 0.05 * found.value
    assert abs(found.aggregation_gap) < 0.02 * found.value


def test_allocation_refuses():
    for budget in (-1, float("nan"), [3, -1]):
        with pytest.raises(BudgetRange):
            allocate(REWARD, COST if np.ndim(budget) == 0 else np.ones((6, 2, 2)), budget)
    for cost in (-COST, COST * np.nan):
        with pytest.raises(CostRange):
            allocate(REWARD, cost, 1)
    with pytest.raises(ShapeMismatch):
        allocate(REWARD, COST[:3], 1)
    with pytest.raises(BadOption):
        allocate(REWARD, COST, 1, method="dual", capacity=[1, 1])
    with pytest.raises(BadOption):
        allocate(np.ones((3000, 1)), [1.0], 3, method="milp")
    with pytest.raises(BadOption):
        allocate(REWARD, COST, 1, group=[1] * 6)
    with pytest.raises(LengthMismatch):
        allocate(REWARD, COST, 1, group=[1] * 5, group_min=0.1)


# --------------------------------------------------------------------------------------------------- the multi-armed Qini


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([5, 10**9]))
def test_with_one_arm_of_cost_one_it_is_the_rate_qini(seed, levels):
    rng = np.random.default_rng(seed)
    score, psi = 1.0 + rng.integers(0, levels, 80), rng.normal(size=80)
    found, wanted = multi_arm_qini(score[:, None], psi[:, None], [1.0], max_spend=1.0), rate(psi, score)
    assert found.estimate == pytest.approx(wanted.estimate, abs=1e-12)
    assert found.se == pytest.approx(wanted.se, rel=1e-9)
    assert rate_values_of(psi, score)[0] == pytest.approx(found.estimate, abs=1e-12)


def test_the_number_is_the_area_between_the_curves():
    rng = np.random.default_rng(3)
    n = 60
    reward = rng.normal(size=(n, 3)) + 0.3
    psi, cost = reward + rng.normal(size=(n, 3)), rng.random((n, 3)) + 0.2
    cost[:, 0] = 0
    spend, value, reference = spend_curve(reward, psi, cost)
    grid = np.linspace(0, spend[-1], 20_001)
    for most in (spend[-1], spend[-1] / 3):
        part = grid[grid <= most]
        nodes = np.interp(part, spend, value)
        mean_path = budget_path(reward.mean(axis=0, keepdims=True), cost.mean(axis=0, keepdims=True))
        order = [int(mean_path.initial[0]), *mean_path.arm.tolist()]
        means, costs = np.r_[0, psi.mean(axis=0)][order], np.r_[0, cost.mean(axis=0)][order]
        area = np.trapezoid(nodes - np.interp(part, costs, means), part) / most
        assert multi_arm_qini(reward, psi, cost, max_spend=most).estimate == pytest.approx(area, abs=2e-3)
    assert reference[0] == pytest.approx(np.r_[0, psi.mean(axis=0)][order[0]])
    # Spending is in order of price, so a model that is the truth has a concave curve.
    truth = spend_curve(reward, reward, cost)
    slopes = np.diff(truth[1]) / np.diff(truth[0])
    assert (np.diff(slopes) <= 1e-9).all()


def test_influence_is_the_spread_over_tables():
    """Constant costs of two kinds, a cut spend, free arms: the standard error against that over 400 tables."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(400):
        x = rng.normal(size=(300, 2))
        reward = np.column_stack([0.5 + x[:, 0], 1 + x[:, 1], 0.1 * x[:, 0]])
        psi = 0.5 * reward + rng.normal(size=(300, 3))
        cost = np.column_stack([1 + (x[:, 1] > 0), np.full(300, 2.0), np.zeros(300)])
        found.append(multi_arm_qini(reward, psi, cost, max_spend=0.8))
    estimates, errors = np.array([f.estimate for f in found]), np.array([f.se for f in found])
    assert errors.mean() == pytest.approx(estimates.std(ddof=1), rel=0.12)
    coverage = np.mean([f.low <= estimates.mean() <= f.high for f in found])
    assert coverage == pytest.approx(0.95, abs=0.035)


def test_the_multi_armed_qini_refuses():
    with pytest.raises(UndefinedMetric):
        multi_arm_qini(-np.ones((5, 2)), np.ones((5, 2)), [1.0, 1.0])
    for most in (0.0, np.inf):
        with pytest.raises(BudgetRange):
            multi_arm_qini(np.ones((5, 2)), np.ones((5, 2)), [1.0, 1.0], max_spend=most)
    with pytest.raises(BudgetRange):
        multi_arm_qini(np.ones((5, 2)), np.ones((5, 2)), [1.0, 1.0], max_spend=-1)


@pytest.mark.parametrize(("method", "most"), [("path", 1.6), ("dual", 0.9)])
def test_an_allocation_holds_little_beside_its_table(method, most):
    """Bytes at most beside rewards and costs, in theirs: 1.42 and 0.71 when this was written."""
    rng = stream(0, "allocation", "memory")
    reward, cost = rng.standard_normal((100_000, 5)), rng.random((100_000, 5))
    allocate(reward[:100], cost[:100], 10.0, method=method)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        allocate(reward, cost, 10_000.0, method=method)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < most * (reward.nbytes + cost.nbytes)
