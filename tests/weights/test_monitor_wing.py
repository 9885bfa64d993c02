"""The parts of the monitor: triplets that follow a matrix, strengths, pace, what is kept, levels of alarms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from querist.errors import BadOption, NonFinite, UnknownName
from querist.sources.datasets.matrices import gaussian, low_rank, spiked
from querist.weights.monitor import (
    BINS,
    FirstLook,
    Kept,
    Look,
    Memory,
    Pace,
    Plan,
    Stopwatch,
    bulk_variance,
    dense,
    log_histogram,
    look,
    strength,
    top_triplets,
    unwrapped,
    watched,
    work,
)
from querist.weights.monitor._alarms import SMALLEST, level_at
from querist.weights.spectrum import LayerMatrix, esd
from querist.weights.spectrum._krylov import largest_pairs


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -------------------------------------------------------------------------------------------------------- triplets

MATRICES = {
    "dense": lambda: torch.from_numpy(gaussian(150, 90)).float(),
    "tall bulk": lambda: torch.from_numpy(gaussian(500, 300)).float(),
    "wide bulk, float64": lambda: torch.from_numpy(gaussian(300, 500)).double(),
    "spiked": lambda: torch.from_numpy(spiked(400, 300, strengths=(30.0, 12.0, 6.0, 4.0))).float(),
    "wide spiked": lambda: torch.from_numpy(spiked(300, 400, strengths=(30.0, 12.0, 6.0, 4.0))).float(),
    "rank 5": lambda: torch.from_numpy(low_rank(400, 300, rank=5)).double(),
    "tiny entries": lambda: 1e-20 * torch.from_numpy(gaussian(400, 300)).double(),
}


def check_triplets(found, W: torch.Tensor, k: int) -> None:
    exact = torch.linalg.svdvals(W.double())
    kept = min(k, int((exact > 1e-7 * exact[0]).sum()))
    assert found.rank == kept
    torch.testing.assert_close(found.sigma, exact[:kept], rtol=1e-6, atol=0)
    eye = torch.eye(kept, dtype=torch.float64)
    assert (found.left.T @ found.left - eye).abs().max() < 1e-9
    assert (found.right.T @ found.right - eye).abs().max() < 1e-9
    product = found.left.T @ W.double() @ found.right
    assert (product - torch.diag(found.sigma)).abs().max() < 1e-6 * exact[0]
    residual = torch.linalg.vector_norm(W.double() @ found.right - found.left * found.sigma, dim=0)
    assert (residual <= 2e-4 * found.sigma).all()
    assert found.total == pytest.approx(float(W.double().square().sum()), rel=1e-6)


@pytest.mark.parametrize("name", MATRICES)
def test_triplets_from_nothing_and_from_a_neighbour_are_those_of_the_svd(name):
    W = MATRICES[name]()
    before = W.clone()
    first = top_triplets(W, 6, generator())
    check_triplets(first, W, 6)
    moved = W + 0.02 * W.std() * torch.randn(W.shape, generator=generator(1), dtype=W.dtype)
    if name != "rank 5":
        again = top_triplets(moved, 6, generator(), start=first.block)
        check_triplets(again, moved, 6)
    same = top_triplets(W, 6, generator(), start=first.block)
    check_triplets(same, W, 6)
    assert same.products <= first.products
    assert torch.equal(W, before)


def test_separated_values_are_followed_by_a_few_sweeps():
    W = torch.from_numpy(spiked(500, 400, strengths=(40.0, 30.0, 20.0))).float()
    first = top_triplets(W, 3, generator())
    moved = W + 0.02 * torch.randn(W.shape, generator=generator(1))
    again = top_triplets(moved, 3, generator(), start=first.block)
    assert (first.method, again.method) == ("krylov", "warm")
    assert again.products <= 6
    check_triplets(again, moved, 3)


def test_a_start_that_is_no_help_does_no_harm():
    W = torch.from_numpy(gaussian(400, 300)).float()
    wrong = torch.linalg.qr(torch.randn(300, 14, generator=generator(3), dtype=torch.float64)).Q
    check_triplets(top_triplets(W, 6, generator(), start=wrong), W, 6)
    short = torch.ones(20, 14, dtype=torch.float64)
    check_triplets(top_triplets(W, 6, generator(), start=short), W, 6)


def test_zero_and_damaged_matrices():
    none = top_triplets(torch.zeros(30, 20), 4, generator())
    assert (none.rank, none.total, tuple(none.left.shape), tuple(none.right.shape)) == (0, 0.0, (30, 0), (20, 0))
    broken = torch.ones(30, 20)
    broken[2, 3] = math.inf
    with pytest.raises(NonFinite):
        top_triplets(broken, 4, generator())


def test_a_krylov_space_may_begin_where_one_is_told():
    A = torch.diag(torch.linspace(1, 2, 300, dtype=torch.float64) ** 4)
    exact = A.diagonal().flip(0)
    start = torch.eye(300, dtype=torch.float64).flip(1)[:, :8]
    count = itertools.count()

    def apply(V: torch.Tensor) -> torch.Tensor:
        next(count)
        return A @ V

    found = largest_pairs(apply, 300, 4, generator(), tolerance=1e-8, most=300, start=start, extra=4)
    assert found.values.shape == (8,)
    torch.testing.assert_close(found.values[:4], exact[:4], rtol=1e-10, atol=0)
    begun_well = next(count)
    largest_pairs(apply, 300, 4, generator(), tolerance=1e-8, most=300)
    assert begun_well < (next(count) - begun_well) / 2


# -------------------------------------------------------------------------------------------------------- strength


def test_the_outlier_of_a_random_matrix_is_where_theory_puts_it():
    h, d = 800, 400
    noise = torch.from_numpy(gaussian(h, d, seed=2)).double()
    u, v = (
        torch.nn.functional.normalize(torch.randn(n, generator=generator(n), dtype=torch.float64), dim=0)
        for n in (h, d)
    )
    for times in (1.2, 2.0, 4.0):
        theta = times * (h * d) ** 0.25
        inner = float(u @ noise @ v)
        told = strength((h, d), theta, inner, 1.0, 0.1)
        top = float(torch.linalg.matrix_norm(noise + theta * torch.outer(u, v), 2)) ** 2
        assert told.regime == "spike"
        assert top / told.lambda_predicted == pytest.approx(1, abs=0.03)
    weak = strength((h, d), 0.8 * (h * d) ** 0.25, 0.0, 1.0, 0.1)
    assert (weak.regime, weak.ratio) == ("random", pytest.approx(0.8))
    # The scale of the entries is no part of the answer.
    scaled = strength((h, d), 0.01 * 2 * (h * d) ** 0.25, 0.0, 0.01**2, 0.1)
    assert scaled.ratio == pytest.approx(2.0)
    assert strength((h, d), 1.0, 0.0, 1.0, 0.5).regime == "heavy"


def test_a_step_that_replaces_rows_counts_for_less():
    """A gradient holds −Wᵀa: the spec's θ_e² = θ² + 2θ·uᵀWv, against the matrix itself, over seeds."""
    h, d, ratios, naive = 300, 200, [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        W = torch.from_numpy(rng.standard_normal((h, d)))
        a = torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal(h)), dim=0)
        v = (
            torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal(d)), dim=0) * math.sqrt(d) * 0.8
            - W.T @ a
        )
        size, v = float(v.norm()), torch.nn.functional.normalize(v, dim=0)
        theta = 1.5 * size
        told = strength((h, d), theta, float(a @ W @ v), 1.0, 0.1)
        top = float(torch.linalg.matrix_norm(W + theta * torch.outer(a, v), 2)) ** 2
        ratios.append(top / told.lambda_predicted)
        naive.append(top / strength((h, d), theta, 0.0, 1.0, 0.1).lambda_predicted)
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)
    assert np.mean(naive) < 0.9


def test_an_update_that_takes_away_has_no_strength_and_a_bulk_without_variance_is_outdone():
    gone = strength((300, 200), 5.0, -10.0, 1.0, 0.1)
    assert (gone.theta_effective, gone.regime) == (0.0, "random")
    assert strength((300, 200), 5.0, 0.0, 0.0, math.inf).regime == "heavy"
    assert strength((300, 200), 0.0, 0.0, 0.0, 0.0).regime == "random"


def test_the_bulks_variance_leaves_spikes_out():
    W = 0.3 * spiked(300, 200, strengths=(8.0, 4.0, 2.0))
    evals = esd(torch.from_numpy(W)).evals[::-1]
    variance, spikes = bulk_variance(float(evals.sum()), evals[:8].tolist(), (300, 200))
    assert spikes == 3
    assert variance == pytest.approx(0.09, rel=0.02)
    plain = esd(torch.from_numpy(gaussian(300, 200))).evals[::-1]
    variance, spikes = bulk_variance(float(plain.sum()), plain[:8].tolist(), (300, 200))
    assert spikes == 0
    assert variance == pytest.approx(1, rel=0.02)
    assert bulk_variance(0.0, [], (300, 200)) == (0.0, 0)


# ------------------------------------------------------------------------------------------------------------ pace


def simulated(pace: Pace, steps: int, *, step_seconds: float, cost: dict[str, float]) -> list[tuple[int, str, float]]:
    """Events of a training whose steps and looks take these times, with the overhead after each."""
    made, training = [], 0.0
    for step in range(1, steps + 1):
        training += step_seconds
        if not pace.candidate(step):
            continue
        event = pace.decide(step, training)
        if event is not None:
            pace.spent(event, cost[event])
            made.append((step, event, pace.own / training))
    return made


def test_without_a_limit_every_look_is_made_and_every_mth_is_whole():
    made = simulated(Pace(100, 5, 1e9), 2100, step_seconds=1.0, cost={"whole": 0.1, "top": 0.01})
    assert [step for step, _, _ in made] == [1, *range(100, 2101, 100)]
    assert [step for step, event, _ in made if event == "whole"] == [400, 900, 1400, 1900]


@settings(max_examples=60, deadline=None)
@given(
    limit=st.floats(0.005, 0.5),
    whole=st.floats(0.01, 30.0),
    share=st.floats(0.01, 1.0),
    full_every=st.integers(1, 12),
    every=st.integers(1, 60),
    page=st.floats(0.01, 30.0),
    pages=st.floats(0.0, 0.9),
)
def test_thinning_keeps_the_limit_and_is_not_idle(limit, whole, share, full_every, every, page, pages):
    pace = Pace(every, full_every, limit, pages)
    pace.costs = {"whole": whole, "top": share * whole, "page": page}
    cost = dict(pace.costs)
    made, drawn = 0, 0
    for step in range(1, 3001):
        if not pace.candidate(step):
            continue
        event = pace.decide(step, float(step))
        if event is not None:
            pace.spent(event, cost[event])
            made += 1
        if pace.affords_page():
            pace.drew(cost["page"])
            drawn += 1
        assert pace.overhead <= limit * (1 + 1e-9)
        assert pace.drawn <= pages * limit * step * (1 + 1e-9)
    # Nor is it idle: what was not spent is less than one more look, and one more page, would have cost.
    spare = (1 - pages) * limit * 3000 - pace.looked
    assert spare <= cost["top"] + every * limit or made >= 3000 // every
    spare = pages * limit * 3000 - pace.drawn
    assert spare <= page + every * limit or drawn >= 3000 // every


def test_what_cannot_be_afforded_is_counted_and_a_whole_look_stays_due():
    pace = Pace(10, 2, 0.1)
    cost = {"whole": 4.0, "top": 0.1}
    pace.costs = dict(cost)
    made = simulated(pace, 400, step_seconds=1.0, cost=cost)
    assert pace.training - made[-1][0] <= 10
    whole = [step for step, event, _ in made if event == "whole"]
    assert len(whole) >= 3
    skipped = Pace(10, 2, 0.1)
    skipped.spent("whole", 4.0)
    assert [skipped.decide(step, float(step)) for step in (10, 20, 30)] == [None] * 3
    assert skipped.spent("top", 0.1) == 3
    other = Pace(10, 2, 0.1)
    other.load_state(skipped.state())
    assert other.state() == skipped.state()


def test_a_whole_spectrum_brought_forward_does_not_make_small_looks_dear():
    pace = Pace(10, 100, 0.1)
    pace.spent("whole", 4.0, whole=3.0)
    assert pace.costs == {"whole": 4.0, "top": 1.0}
    assert pace.decide(40, 49.0) is None  # 4 spent, 1 to come
    assert pace.decide(50, 50.0) == "top"
    pace.spent("top", 3.0, whole=2.0)
    assert pace.costs["top"] == 1.0
    pace.spent("top", 5.0)
    assert pace.costs["top"] == 5.0
    pace.spent("top", 1.0)
    assert pace.costs["top"] == 3.0


def test_the_first_look_goes_from_small_to_large_and_guesses_what_comes():
    shapes = {"large": (400, 500), "small": (10, 16), "middle": (300, 400)}
    matrices = [LayerMatrix(name, name, "linear", "", shape, shape, "float32", ()) for name, shape in shapes.items()]
    first = FirstLook(7, [(matrix, torch.zeros(1), torch.device("cpu")) for matrix in matrices])
    assert first.expected() == pytest.approx(0.05 + 1600 / 1e9)
    order = []
    for seconds in (0.002, 0.03, 0.08):
        matrix, _, _ = first.next()
        order.append(matrix.layer_id)
        first.seen(Look({"layer_id": matrix.layer_id}), work(matrix), seconds)
        if matrix.layer_id == "small":  # nothing near its size was measured: speed as it is at least
            assert first.expected() == pytest.approx(300 * 300 * 400 / 1e9)
        elif matrix.layer_id == "middle":
            assert first.expected() == pytest.approx(0.03 * 400**2 * 500 / (300**2 * 400))
    assert order == ["small", "middle", "large"]
    assert [look.row["layer_id"] for look in first.looks()] == ["large", "small", "middle"]
    assert first.seconds == pytest.approx(0.112)
    assert first.expected() == pytest.approx(0.05)


def test_the_stopwatch_leaves_booked_time_out():
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    assert watch.training() == 0.0
    watch.start()
    now[0] = 5.0
    assert watch.training() == 5.0
    now[0] = 7.0
    assert watch.book(5.0) == 2.0
    now[0] = 8.0
    assert watch.training() == 6.0
    watch.before = 10.0
    assert watch.training() == 16.0


# ------------------------------------------------------------------------------------------------------------ kept


@given(limit=st.integers(2, 20), events=st.integers(1, 500))
@settings(max_examples=40, deadline=None)
def test_what_is_kept_is_bounded_and_spread_evenly(limit, events):
    kept = Kept(limit)
    for event in range(events):
        kept.add([{"step": event}])
    steps = [row["step"] for row in kept]
    assert len(steps) <= limit
    assert steps[0] == 0
    assert steps[-1] == events - 1
    gaps = np.diff(steps[:-1])
    assert gaps.size == 0 or gaps.max() == gaps.min() == kept.stride
    assert len(steps) > limit / 2 - 1 or events <= limit
    again = Kept(1)
    again.load_state(kept.state())
    again.add([{"step": events}])
    kept.add([{"step": events}])
    assert list(again) == list(kept)


def test_histograms_share_one_grid_and_lose_no_eigenvalue():
    first = esd(torch.from_numpy(gaussian(90, 60))).evals
    second = esd(torch.from_numpy(low_rank(90, 60, rank=10)).double()).evals
    for evals, zeros in ((first, 0), (second, 50)):
        start, counts, dropped = log_histogram(evals, 90)
        assert counts.sum() + dropped == 60
        assert dropped == zeros
        edges = 10 ** (np.arange(start, start + counts.size + 1) / BINS)
        positive = evals[evals > 2e-14 * evals[-1]]
        assert np.array_equal(np.histogram(positive, edges)[0], counts)
        assert counts[0] > 0
        assert counts[-1] > 0
    assert log_histogram(np.zeros(4), 4) == (0, pytest.approx(np.zeros(0)), 4)
    assert log_histogram(np.array([1.0, 10.0]), 4)[0] == 0


# ---------------------------------------------------------------------------------------------------------- levels


def test_levels_of_all_looks_layers_and_tests_make_five_per_cent_together():
    spent = sum(2 * 7 * level_at(event, 7) for event in range(2, 20000))
    assert 0.049 < spent <= 0.05 + 2 * 7 * 20000 * SMALLEST
    assert level_at(10**9, 1000) == SMALLEST


# ---------------------------------------------------------------------------------------------------------- alarms


def layer(h: int = 120, d: int = 80):
    net = nn.Linear(d, h, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(gaussian(h, d)))
    (matrix,), _ = watched(net, ["*"])
    return net, matrix


def see(net, matrix, memory, event, *, whole=True):
    plan = Plan(100 * event, event, whole, 6, 1, 0, lambda: True)
    with torch.no_grad():
        return look(dense(matrix), matrix, memory, plan)


def plant(net, strength_of_edge: float, seed: int = 5) -> None:
    h, d = net.weight.shape
    u, v = (torch.nn.functional.normalize(torch.randn(n, generator=generator(seed + n)), dim=0) for n in (h, d))
    with torch.no_grad():
        net.weight += strength_of_edge * (h * d) ** 0.25 * torch.outer(u, v)


def test_a_planted_spike_is_told_once_and_the_next_one_again():
    net, matrix = layer()
    memory = Memory()
    assert see(net, matrix, memory, 1).alarms == []
    assert memory.known.spikes == 0
    assert see(net, matrix, memory, 2).alarms == []
    plant(net, 3.0)
    told = see(net, matrix, memory, 3)
    (alarm,) = told.alarms
    assert alarm.kind == "spike-born"
    assert alarm.value > alarm.null
    assert alarm.p <= alarm.level == level_at(3, 1)
    assert told.row["regime"] == "spike"
    assert told.row["lambda_observed"] / told.row["lambda_predicted"] == pytest.approx(1, abs=0.05)
    assert see(net, matrix, memory, 4).alarms == []
    plant(net, 6.0, seed=9)
    (alarm,) = see(net, matrix, memory, 5).alarms
    assert "2 eigenvalues lie beyond" in alarm.because
    assert "1 did before" in alarm.because


def test_a_candidate_brings_the_whole_spectrum_forward():
    net, matrix = layer()
    memory = Memory()
    see(net, matrix, memory, 1)
    assert see(net, matrix, memory, 2, whole=False).row["event"] == "top"
    plant(net, 3.0)
    told = see(net, matrix, memory, 3, whole=False)
    assert told.row["event"] == "whole"
    assert [alarm.kind for alarm in told.alarms] == ["spike-born"]
    poor = Plan(400, 4, False, 6, 1, 0, lambda: False)
    plant(net, 9.0, seed=9)
    with torch.no_grad():
        assert look(dense(matrix), matrix, memory, poor).row["event"] == "top"


def test_spikes_that_were_there_from_the_start_are_not_born():
    net, matrix = layer()
    plant(net, 4.0)
    memory = Memory()
    assert see(net, matrix, memory, 1).alarms == []
    assert memory.known.spikes == 1
    assert see(net, matrix, memory, 2).alarms == []


def test_uneven_rows_raise_no_alarm_and_are_not_tested_at_every_look():
    """Row scales pass Tracy–Widom and shuffles; copies with random signs explain them."""
    net, matrix = layer(200, 100)
    memory = Memory()
    see(net, matrix, memory, 1)
    with torch.no_grad():
        net.weight *= torch.logspace(-0.5, 0.5, 200).unsqueeze(1)
    told = see(net, matrix, memory, 2)
    assert told.row["n_spikes_tw"] > 0
    assert told.row["bulk_p"] < 1e-3
    assert told.alarms == []
    refuted = memory.known.top_refuted
    assert refuted > 0
    assert see(net, matrix, memory, 3, whole=False).row["event"] == "top"


def test_a_bulk_that_departs_is_told_once():
    net, matrix = layer(200, 150)
    memory = Memory()
    see(net, matrix, memory, 1)
    scale = torch.logspace(-0.3, 0.3, 150)
    Q = torch.linalg.qr(torch.randn(150, 150, generator=generator(1))).Q
    with torch.no_grad():
        net.weight.copy_(net.weight @ (Q * scale) @ Q.T)  # correlated columns, no row or column scales
    told = see(net, matrix, memory, 2)
    assert "bulk-departs" in [alarm.kind for alarm in told.alarms]
    assert "bulk-departs" not in [alarm.kind for alarm in see(net, matrix, memory, 3).alarms]


def test_lost_rank_is_told_at_one_and_at_ten_per_cent():
    net, matrix = layer(120, 100)
    memory = Memory()
    see(net, matrix, memory, 1)
    with torch.no_grad():
        net.weight[:, :3] = 0
    (alarm,) = see(net, matrix, memory, 2).alarms
    assert (alarm.kind, alarm.value, alarm.null) == ("rank-drop", 0.03, 0.01)
    with torch.no_grad():
        net.weight[:, :20] = 0
    assert ("rank-drop", 0.2) in [(alarm.kind, alarm.value) for alarm in see(net, matrix, memory, 3).alarms]
    assert "rank-drop" not in [alarm.kind for alarm in see(net, matrix, memory, 4).alarms]
    with torch.no_grad():
        net.weight.zero_()
    assert see(net, matrix, memory, 5).row["rank_loss"] == 100


def test_damage_is_told_when_it_begins_and_costs_its_row():
    net, matrix = layer()
    memory = Memory()
    see(net, matrix, memory, 1)
    with torch.no_grad():
        net.weight[3, 4] = math.nan
    told = see(net, matrix, memory, 2)
    (alarm,) = told.alarms
    assert (alarm.kind, alarm.value) == ("non-finite", 1)
    assert "(3, 4)" in alarm.because
    assert (told.row["status"], told.row["n_nonfinite"]) == ("nonfinite", 1)
    assert see(net, matrix, memory, 3).alarms == []
    with torch.no_grad():
        net.weight[3, 4] = 0.0
    mended = see(net, matrix, memory, 4)
    assert mended.row["status"] == "ok"
    assert mended.row.get("update_norm") is None
    with torch.no_grad():
        net.weight[0, 0] = math.inf
    assert [alarm.kind for alarm in see(net, matrix, memory, 5).alarms] == ["non-finite"]


def test_overlaps_of_updates_find_a_repeated_direction():
    net, matrix = layer()
    memory = Memory()
    see(net, matrix, memory, 1, whole=False)
    plant(net, 0.5)
    assert see(net, matrix, memory, 2, whole=False).row["overlap_weights_left_null"] == 6 / 120
    plant(net, 0.5)
    told = see(net, matrix, memory, 3, whole=False)
    top = [o for o in told.overlaps if (o["pair"], o["i"], o["j"]) == ("update-update", 0, 0)]
    assert [o["value"] for o in top] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert {o["side"]: o["null"] for o in top} == {"left": 1 / 120, "right": 1 / 80}


def test_frozen_weights_have_an_update_of_size_nothing():
    net, matrix = layer()
    memory = Memory()
    see(net, matrix, memory, 1)
    row = see(net, matrix, memory, 2).row
    assert (row["update_norm"], row["strength"], row["regime"]) == (0.0, 0.0, "random")


# --------------------------------------------------------------------------------------------------------- reading


def test_wrappers_are_looked_through_and_every_kind_of_layer_is_read():
    net = nn.Sequential(
        nn.Conv2d(8, 16, 3, groups=1),
        nn.utils.parametrizations.weight_norm(nn.Linear(32, 24)),
        nn.LSTM(16, 12),
        nn.MultiheadAttention(16, 2),
    )
    tied = nn.Linear(20, 20)
    net.append(tied)
    net.append(nn.Module())
    net[-1].again = tied.weight
    made, passed = watched(unwrapped(nn.DataParallel(net)), ["*"])
    names = {matrix.layer_id: matrix for matrix in made}
    assert names["0.weight"].shape == (16, 72)
    assert names["4.weight"].aliases == ("5.again",)
    assert sum(name.startswith("2.weight") for name in names) == 8
    assert {name for name in names if name.startswith("3.in_proj")} == {f"3.in_proj_weight:{p}" for p in "qkv"}
    composed = names["1.weight"]
    torch.testing.assert_close(dense(composed), net[1].weight.detach(), rtol=1e-5, atol=1e-6)
    assert all(item.reason for item in passed)
    assert unwrapped(torch.compile(net, backend="eager")) is net


def test_a_low_rank_pair_is_watched_as_its_product():
    net = nn.Module()
    net.lora_A, net.lora_B = nn.Module(), nn.Module()
    net.lora_A.weight = nn.Parameter(torch.from_numpy(gaussian(4, 60)).float())
    net.lora_B.weight = nn.Parameter(torch.from_numpy(gaussian(50, 4)).float())
    (matrix,), _ = watched(net, ["*"])
    W = dense(matrix)
    torch.testing.assert_close(W, (net.lora_B.weight @ net.lora_A.weight).detach())
    told = see(net, matrix, Memory(), 1)
    assert told.row["lambda_max"] == pytest.approx(float(torch.linalg.matrix_norm(W, 2)) ** 2, rel=1e-5)
    assert told.row["rank_loss"] == 0
    assert told.row.get("n_spikes") is None


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(BadOption, match="no network"):
        unwrapped("model.pt")
    with pytest.raises(UnknownName, match="No tensor"):
        watched(nn.Linear(20, 30), ["nothing.*"])
    with pytest.raises(UnknownName, match="min_side"):
        watched(nn.Linear(3, 2), ["*"])
    sharded = type("FullyShardedDataParallel", (nn.Linear,), {})(20, 20)
    with pytest.raises(BadOption, match="fully_shard"):
        unwrapped(nn.Sequential(sharded))
