"""The test of spikes on matrices whose spikes are known."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from querist.errors import BadOption, NonFinite, NumericalFailure, ShapeMismatch, UnknownName
from querist.sources.datasets.matrices import gaussian, spiked
from querist.statistics import stream
from querist.weights.nulls import fit_mp, spike_test
from querist.weights.nulls._deflate import without_top
from querist.weights.nulls._rank import predicted_edge, predicted_p, rank_edge

NULLS = ("shuffle", "signflip")


def tensor(W: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(W, dtype=np.float32))


def squares(W: torch.Tensor) -> np.ndarray:
    return np.sort(np.linalg.svd(W.double().numpy(), compute_uv=False).ravel() ** 2)


def scaled_rows(h: int, d: int, seed: int = 0) -> torch.Tensor:
    rng = stream(seed, "rows", h, d)
    return tensor(rng.standard_normal((h, d)) * np.exp(0.5 * rng.standard_normal((h, 1))))


def heavy_entries(h: int, d: int, seed: int = 0) -> torch.Tensor:
    return tensor(stream(seed, "t3", h, d).standard_t(3, (h, d)))


def test_spikes_are_found_and_counted():
    W = tensor(spiked(300, 200, strengths=(3.0, 2.0)))
    test = spike_test(W, layer="a")
    evals = squares(W)
    assert (test.verdict, test.n_spikes, test.screened) == ("yes", 2, False)
    assert (test.p_rank, test.n_low, test.n_high) == (0.05, 2, 2)
    assert test.p is not None
    assert test.p < 1e-6
    assert test.lambda_max == pytest.approx(evals[-1])
    assert evals[-3] < test.edge < evals[-2]
    assert test.edge == max(test.edges.values())
    assert set(test.edges) == {"tracy-widom", *NULLS}
    assert all(len(test.draws[null]) == 19 and len(test.replicas[null]) == 3 for null in NULLS)
    assert all(test.draws[null][i] == test.replicas[null][i][-1] for null in NULLS for i in range(3))


def test_noise_is_screened_and_stays_in_the_family():
    test = spike_test(tensor(gaussian(120, 80)))
    assert (test.verdict, test.n_spikes, test.n_spikes_tw, test.screened) == ("no", 0, 0, True)
    assert (test.p, test.p_rank, test.p_family) == (None, None, 1.0)
    assert all(len(test.draws[null]) == 3 for null in NULLS)
    assert "does not pass" in test.reason


def test_without_the_screen_noise_is_ranked():
    test = spike_test(tensor(gaussian(120, 80)), screen=False)
    assert test.p_rank is not None
    assert test.p_rank > 0.05
    assert test.p_family == test.p
    assert test.p >= test.p_rank or len(test.p_by_null) == 2


def test_heavy_entries_pass_tracy_widom_and_are_no_spikes():
    test = spike_test(heavy_entries(90, 60))
    assert test.n_spikes_tw > 0
    assert (test.verdict, test.n_spikes) == ("no", 0)


def test_row_scales_pass_the_shuffle_and_are_no_spikes():
    W = scaled_rows(90, 60)
    both = spike_test(W)
    assert both.n_spikes_tw > 0
    assert (both.verdict, both.n_spikes) == ("no", 0)
    assert "random signs" in both.reason
    # Sign flips explain it, so the shuffle is not drawn to the end.
    assert (len(both.draws["signflip"]), len(both.draws["shuffle"])) == (19, 3)
    assert both.p is not None
    assert both.p >= both.p_rank > 0.05
    alone = spike_test(W, nulls=("shuffle",))
    assert (alone.verdict, alone.p_rank) == ("cannot say", 0.05)
    assert "only the null shuffle" in alone.reason
    assert "signflip" in alone.reason


def test_one_null_that_explains_is_enough_for_no():
    assert spike_test(scaled_rows(90, 60), nulls=("signflip",)).verdict == "no"


def test_no_null_no_verdict():
    W = tensor(spiked(300, 200, strengths=(3.0,)))
    for W_, found in ((W, 1), (tensor(gaussian(120, 80)), 0)):
        test = spike_test(W_, nulls=())
        assert (test.verdict, test.n_spikes, test.n_spikes_tw) == ("cannot say", None, found)
        assert (test.p, test.p_rank, test.p_family, test.null_max_ratio, test.rand_num_spikes) == (None,) * 5
        assert test.n_low == found <= test.n_high
        assert "Tracy-Widom" in test.reason


def test_no_rank_test_no_verdict():
    test = spike_test(tensor(spiked(300, 200, strengths=(3.0,))), rank_replicas=0, replicas=1, nulls=("shuffle",))
    assert (test.verdict, test.p, len(test.draws["shuffle"])) == ("cannot say", None, 1)


@pytest.mark.parametrize("kind", ["normal", "spiked"])
def test_the_scale_of_the_weights_changes_nothing(kind):
    W = tensor(gaussian(100, 70) if kind == "normal" else spiked(100, 70, strengths=(2.5,)))
    one, ten = (spike_test(factor * W, layer="a") for factor in (1.0, 16.0))
    assert (one.n_spikes, one.n_spikes_tw, one.verdict) == (ten.n_spikes, ten.n_spikes_tw, ten.verdict)
    assert ten.lambda_max == pytest.approx(256 * one.lambda_max)
    assert ten.p == pytest.approx(one.p) if one.p is not None else ten.p is None
    assert ten.null_max_ratio == pytest.approx(one.null_max_ratio)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not():
    W = tensor(spiked(90, 60, strengths=(3.0,)))
    one, same, other = (spike_test(W, seed=seed, layer="a") for seed in (0, 0, 1))
    for null in NULLS:
        assert np.array_equal(one.draws[null], same.draws[null])
        assert not np.array_equal(one.draws[null], other.draws[null])
    assert (one.p, one.p_rank) == (same.p, same.p_rank)
    assert one.p != spike_test(W, seed=0, layer="b").p


def test_what_is_known_is_not_computed_again():
    W = tensor(spiked(90, 60, strengths=(3.0,)))
    evals = squares(W)
    told = spike_test(W, evals, fit=fit_mp(evals, (90, 60)))
    found = spike_test(W)
    assert told.p == pytest.approx(found.p)
    assert told.edges["tracy-widom"] == pytest.approx(found.edges["tracy-widom"])


def test_the_matrix_is_left_alone():
    W = tensor(spiked(90, 60, strengths=(5.0,)))
    before = W.clone()
    spike_test(W, deflate=True)
    assert torch.equal(W, before)


def test_the_outcome_travels_between_processes():
    test = spike_test(tensor(spiked(90, 60, strengths=(3.0,))))
    again = pickle.loads(pickle.dumps(test))
    assert (again.p, again.n_spikes, again.null_max_ratio) == (test.p, test.n_spikes, test.null_max_ratio)


def test_p_is_a_students_t_prediction_of_the_logarithm():
    draws = stream(0, "draws").lognormal(3, 0.1, 19)
    top = float(draws.max() * 1.1)
    logs = np.log(draws)
    # The prediction interval of one more observation, as scipy's own distribution gives it.
    law = stats.t(df=18, loc=logs.mean(), scale=logs.std(ddof=1) * np.sqrt(20 / 19))
    assert predicted_p(top, draws) == pytest.approx(law.sf(np.log(top)))
    assert predicted_edge(draws, 0.01) == pytest.approx(np.exp(law.isf(0.01)))
    assert predicted_p(2.0, np.ones(19)) == 0.05
    assert predicted_p(1.0, np.ones(19)) == 1.0


@pytest.mark.parametrize(("draws", "place"), [(3, 1), (19, 1), (38, 1), (39, 2), (99, 5)])
def test_the_edge_is_the_draw_that_a_rank_of_five_percent_must_pass(draws, place):
    values = np.arange(1.0, draws + 1)
    edge = rank_edge(values)
    assert edge == pytest.approx(draws + 1 - place, rel=2e-5)
    assert edge > draws + 1 - place
    if draws >= 19:
        assert (
            (1 + np.sum(values >= edge + 0.5)) / (1 + draws) <= 0.05 < (1 + np.sum(values >= edge - 0.5)) / (1 + draws)
        )


def test_an_extreme_entry_is_a_trap_that_every_shuffle_keeps():
    W = tensor(gaussian(120, 80))
    W[3, 5] = 60.0
    test = spike_test(W)
    # One entry w gives a rank-one term of strength w: (h + w²)(d + w²)/w², and the shuffle keeps it.
    expected = (120 + 3600) * (80 + 3600) / 3600
    np.testing.assert_allclose([evals[-1] for evals in test.replicas["shuffle"]], expected, rtol=0.05)
    assert (test.null_ratios > 1).all()
    assert test.null_max_ratio > 5
    assert test.rand_num_spikes == 1
    assert (test.verdict, test.n_spikes, test.n_spikes_tw) == ("no", 0, 1)


def test_a_random_matrix_has_no_traps():
    test = spike_test(tensor(gaussian(120, 80)))
    assert test.null_max_ratio < 1
    assert test.rand_num_spikes == 0


@pytest.mark.parametrize("side", [60, 300])
def test_rounding_tells_no_copy_from_its_equal(side):
    """Every sign flip of a scaled permutation matrix has its very spectrum."""
    rng = stream(0, "permutation")
    W = tensor(np.diag(rng.random(side) + 0.5)[rng.permutation(side)])
    for replicas in (0, 3):
        test = spike_test(W, replicas=replicas, nulls=("signflip",), screen=False)
        assert (test.p_rank, test.p, test.verdict, test.n_spikes) == (1.0, 1.0, "no", 0)


def test_strong_spikes_hide_weak_ones_until_they_are_taken_out():
    W = tensor(spiked(200, 150, strengths=(12.0, 9.0, 1.6)))
    plain, deflated = spike_test(W), spike_test(W, deflate=True)
    assert plain.n_spikes == 2
    assert deflated.n_spikes == 3
    assert [found.n_spikes for found in deflated.rounds] == [2, 1, 0]
    assert deflated.p == plain.p
    assert not plain.rounds


def test_deflation_finds_nothing_in_noise():
    assert spike_test(tensor(gaussian(100, 80)), deflate=True, screen=False).n_spikes == 0


@pytest.mark.parametrize("shape", [(40, 25), (25, 40), (3, 12, 20)])
def test_taking_components_out_is_exact(shape):
    W = torch.from_numpy(stream(0, "deflate", *shape).standard_normal(shape))
    evals = squares(W)
    edge = (evals[-4] + evals[-5]) / 2
    left, kept, (h, d) = without_top(W, edge)
    assert left.shape == W.shape
    np.testing.assert_allclose(kept, evals[:-4], rtol=1e-9)
    np.testing.assert_allclose(squares(left)[-len(kept) :], kept, atol=1e-9 * evals[-1])
    taken = 4 if len(shape) == 2 else 1
    assert (h, d) == (shape[-2] - taken, shape[-1] - taken)


def test_a_stack_is_pooled():
    rng = stream(0, "stack")
    stack = rng.standard_normal((6, 30, 20))
    quiet = spike_test(tensor(stack), screen=False)
    assert len(quiet.replicas["shuffle"][0]) == 120
    assert (quiet.verdict, quiet.shape) == ("no", (30, 20))
    u, v = rng.standard_normal(30), rng.standard_normal(20)
    stack[2] += 4 * 600**0.25 * np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v))
    test = spike_test(tensor(stack))
    assert (test.verdict, test.n_spikes) == ("yes", 1)
    assert test.lambda_max == pytest.approx(squares(tensor(stack))[-1])
    assert [found.n_spikes for found in spike_test(tensor(stack), deflate=True).rounds] == [1, 0]


def test_a_spectrum_of_ones_own_serves_what_is_no_plain_matrix():
    kernel = tensor(stream(0, "kernel").standard_normal((12, 10, 3)))

    def spectrum(copy: torch.Tensor) -> np.ndarray:
        waves = torch.fft.fft(copy.double(), n=8, dim=-1).permute(2, 0, 1)
        return np.sort(torch.linalg.svdvals(waves).square().flatten().numpy())

    test = spike_test(kernel, spectrum=spectrum, shape=(12, 10), screen=False)
    assert len(test.replicas["signflip"][0]) == 80
    assert test.lambda_max == pytest.approx(spectrum(kernel)[-1])
    assert len(test.draws["signflip"]) == 19


@pytest.mark.parametrize(
    ("W", "options", "error"),
    [
        (torch.ones(20, 20), {"nulls": ("permute",)}, UnknownName),
        (torch.ones(20, 20), {"replicas": -1}, BadOption),
        (torch.ones(20, 20), {"rank_replicas": 5}, BadOption),
        (torch.ones(20, 20), {"deflate": True, "rank_replicas": 0}, BadOption),
        (torch.ones(20, 20), {"deflate": True, "spectrum": squares}, BadOption),
        (torch.ones(20), {}, ShapeMismatch),
        (torch.full((20, 20), float("inf")), {}, NonFinite),
        (torch.zeros(20, 20), {}, NumericalFailure),
        (torch.rand(2, 20), {}, NumericalFailure),
    ],
)
def test_bad_input_is_refused(W, options, error):
    with pytest.raises(error):
        spike_test(W, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_number_format_is_tested(dtype):
    test = spike_test(tensor(spiked(120, 90, strengths=(3.0,))).to(dtype))
    assert (test.verdict, test.n_spikes) == ("yes", 1)


def test_large_sides_draw_by_lanczos_what_small_ones_draw_whole(monkeypatch):
    from querist.weights.nulls import _replicas

    W = tensor(spiked(140, 100, strengths=(2.0,)))
    whole = spike_test(W)
    monkeypatch.setattr(_replicas, "_WHOLE_SIDE", 1)
    drawn = spike_test(W)
    for null in NULLS:
        np.testing.assert_allclose(drawn.draws[null], whole.draws[null], rtol=2e-3)
    assert (drawn.n_spikes, drawn.verdict) == (whole.n_spikes, whole.verdict)
