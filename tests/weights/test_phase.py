"""The phase of a spectrum: each rule alone on made-up evidence, then whole matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from querist.errors import BadOption
from querist.sources.datasets.matrices import gaussian, low_rank, spiked
from querist.statistics import stream
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import MPFit, Phase, SpikeTest, fit_mp, phase, phase_stability, spike_test
from querist.weights.nulls._phase import PHASES, row_block_deletions
from querist.weights.spectrum import esd

N = 200


def bulk(p: float = 0.5, ks: float = 2.0) -> MPFit:
    evals = np.sort(np.linalg.svd(gaussian(300, N), compute_uv=False).astype(float) ** 2)
    return replace(fit_mp(evals, (300, N)), bulk_p=p, bulk_ks=ks)


def copies(**change) -> SpikeTest:
    """A test of spikes: edge 1000, λ_max 900, three sign-flipped copies whose bulks deviate by 2, 2.2 and 2.4."""
    known = SpikeTest(
        shape=(300, N),
        nulls=("signflip", "shuffle"),
        lambda_max=900.0,
        n_spikes=0,
        n_spikes_tw=0,
        n_low=0,
        n_high=0,
        edge=1000.0,
        edges={"tracy-widom": 1000.0, "shuffle": 980.0, "signflip": 980.0},
        p=None,
        p_rank=None,
        p_by_null={},
        p_rank_by_null={},
        draws={},
        replicas={},
        fits={"signflip": tuple(bulk(ks=ks) for ks in (2.0, 2.2, 2.4))},
        screened=True,
        verdict="no",
        reason="",
    )
    return replace(known, **change)


def tail(n_tail: int = 120, exponential=(30.0, 1e-6), lognormal=(0.1, 0.9), ambiguous=False) -> SimpleNamespace:
    return SimpleNamespace(
        n_tail=n_tail, ratios={"exponential": exponential, "lognormal": lognormal}, ambiguous=ambiguous
    )


def judged(*, rank_loss: int | None = 0, mp=None, spikes=None, fit=None) -> Phase:
    return phase(N=N, rank_loss=rank_loss, mp=mp or bulk(), spikes=spikes or copies(), fit=fit)


SPIKED = {"n_spikes": 1, "verdict": "yes", "screened": False}


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"rank_loss": 60}, "rank-collapse"),
        ({}, "random-like"),
        ({"spikes": copies(lambda_max=1025.0, **SPIKED)}, "bleeding-out"),
        ({"spikes": copies(lambda_max=1300.0, **SPIKED)}, "bulk+spikes"),
        ({"mp": bulk(1e-9, 30.0), "fit": tail()}, "heavy-tailed"),
        ({"mp": bulk(1e-9, 30.0), "fit": tail(n_tail=20)}, "bulk-decay"),
        ({"mp": bulk(1e-9, 30.0), "fit": None}, "bulk-decay"),
        ({"mp": bulk(1e-9, 30.0), "fit": tail(exponential=(-3.0, 1e-3))}, "bulk-decay"),
        ({"mp": bulk(1e-9, 30.0), "fit": tail(exponential=(1.0, 0.5))}, "bulk-decay"),
        ({"mp": bulk(1e-9, 30.0), "fit": tail(lognormal=(-9.0, 1e-4))}, "bulk-decay"),
        # A deviation that sign-flipped copies share is not one of correlation.
        ({"mp": bulk(1e-9, 1.5), "fit": tail()}, "random-like"),
    ],
)
def test_each_rule_decides_alone(given, label):
    found = judged(**given)
    assert found.label == label in PHASES
    assert all(math.isfinite(item.margin) for item in found.evidence)
    assert found.because


def test_the_order_is_fixed():
    everything = {"mp": bulk(1e-9, 30.0), "fit": tail(), "spikes": copies(lambda_max=1300.0, **SPIKED)}
    assert judged(rank_loss=60, **everything).label == "rank-collapse"
    assert judged(**everything).label == "heavy-tailed"
    assert judged(**{**everything, "fit": tail(n_tail=20)}).label == "bulk-decay"
    assert judged(spikes=everything["spikes"]).label == "bulk+spikes"


def evidence(found: Phase) -> dict[str, tuple[float, float, float]]:
    return {item.name: (item.value, item.threshold, item.margin) for item in found.evidence}


def test_margins_are_in_null_standard_deviations():
    found = evidence(judged(rank_loss=26))
    assert found["rank_loss_share"] == pytest.approx((0.13, 0.1, 0.03 / math.sqrt(0.09 / N)))
    found = evidence(judged(mp=bulk(0.001, 5.0), fit=tail(lognormal=(-2.0, 0.3))))
    assert found["bulk_score"] == pytest.approx((stats.norm.isf(0.001), stats.norm.isf(0.01), 0.7638), abs=1e-3)
    # .2 is the deviation of the three copies; its upper limit at .9 is by the chi-square law of two degrees.
    assert found["bulk_ks"] == pytest.approx((5.0, 2.4, 2.6 / (0.2 * math.sqrt(2 / stats.chi2.ppf(0.1, 2)))))
    assert found["vuong_exponential"][:2] == pytest.approx((stats.norm.isf(5e-7), stats.norm.isf(0.05)))
    assert found["vuong_lognormal"][:2] == pytest.approx((-stats.norm.isf(0.15), -stats.norm.isf(0.05)))
    found = evidence(judged(spikes=copies(lambda_max=1100.0, **SPIKED)))
    # Tracy-Widom: sd 1.268 σ_J at μ, N = 200, M = 300.
    a, b = math.sqrt(299), math.sqrt(200)
    sd = 1.268 * (1 / a + 1 / b) ** (1 / 3) / (a + b)
    assert found["lambda_max"] == pytest.approx((1100, 1000, math.log(1.1) / sd))
    assert found["lambda_max_bleeding"] == pytest.approx((1100, 1050, math.log(1100 / 1050) / sd))


def test_the_smallest_margin_decides_whether_anything_can_be_said():
    sure = judged()
    assert sure.decided
    assert sure.margin == min(
        abs(min(m for name, (_, _, m) in evidence(sure).items() if name.startswith("bulk"))),
        abs(evidence(sure)["lambda_max"][2]),
        abs(evidence(sure)["rank_loss_share"][2]),
    )
    near = judged(spikes=copies(lambda_max=1002.0, **SPIKED))
    assert (near.label, near.decided) == ("bleeding-out", False)
    assert near.margin < 1
    assert "null standard deviations only" in near.because
    assert not judged(mp=bulk(1e-9, 30.0), fit=tail(n_tail=52)).decided


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"mp": bulk(1e-9, 30.0), "fit": tail(), "spikes": copies(fits={})}, "copies with random signs"),
        (
            {"mp": bulk(1e-9, 30.0), "fit": SimpleNamespace(n_tail=120, ratios={}, ambiguous=False)},
            "likelihood ratios",
        ),
        ({"mp": bulk(1e-9, 30.0), "fit": tail(ambiguous=True)}, "start elsewhere"),
        (
            {"spikes": copies(lambda_max=1300.0, n_spikes=1, verdict="cannot say", reason="only the null shuffle")},
            "only the null shuffle",
        ),
    ],
)
def test_missing_evidence_points_but_does_not_decide(given, why):
    found = judged(**given)
    assert found.label is not None
    assert not found.decided
    assert why in found.because


def test_a_tail_with_no_one_start_stays_a_heavy_tail_that_is_not_decided():
    found = judged(mp=bulk(1e-9, 30.0), fit=tail(ambiguous=True))
    assert (found.label, found.decided) == ("heavy-tailed", False)
    assert judged(mp=bulk(1e-9, 30.0), fit=tail(n_tail=20, ambiguous=True)).label == "bulk-decay"


def test_without_a_bulk_there_is_no_phase_but_collapse():
    found = phase(N=N, rank_loss=0, mp=None, spikes=None, fit=None)
    assert (found.label, found.decided, found.margin) == (None, False, None)
    assert phase(N=N, rank_loss=150, mp=None, spikes=None, fit=None).label == "rank-collapse"
    assert judged(rank_loss=None).label == "random-like"


def test_folklore_exponents_decide_nothing():
    exponents = [replace_alpha(alpha) for alpha in (1.5, 3.0, 5.0, 8.0)]
    found = {judged(mp=bulk(1e-9, 30.0), fit=fit) for fit in exponents}
    assert len(found) == 1


def replace_alpha(alpha: float) -> SimpleNamespace:
    made = tail()
    made.alpha = alpha
    return made


def measured(W: np.ndarray | torch.Tensor) -> Phase:
    W = torch.as_tensor(W)
    spectrum = esd(W)
    evals = spectrum.evals
    lost = int(np.sum(evals <= np.finfo(np.float32).eps * evals[-1] * max(W.shape)))
    fit = fit_powerlaw(evals, alternatives=("exponential", "lognormal"))
    if lost > 0.1 * len(evals):
        return phase(N=len(evals), rank_loss=lost, mp=None, spikes=None, fit=fit)
    mp = fit_mp(evals, spectrum.shape)
    return phase(N=len(evals), rank_loss=lost, mp=mp, spikes=spike_test(W, evals, fit=mp), fit=fit)


def rotated(evals: np.ndarray, h: int, d: int, seed: int = 0) -> np.ndarray:
    """A matrix with these squared singular values and directions without any structure."""
    rng = stream(seed, "rotated", h, d)
    left, right = (np.linalg.qr(rng.standard_normal((side, min(h, d))))[0] for side in (h, d))
    return ((left * np.sqrt(evals)) @ right.T).astype(np.float32)


@pytest.mark.parametrize(
    ("W", "label"),
    [
        (gaussian(300, 200), "random-like"),
        (spiked(300, 200, strengths=(2.5,)), "bulk+spikes"),
        (low_rank(120, 90, rank=30), "rank-collapse"),
        (rotated(stream(0, "e").exponential(1, 200) + 0.05, 300, 200), "bulk-decay"),
        (rotated(stream(0, "p").pareto(1.5, 600) + 1, 800, 600), "heavy-tailed"),
    ],
)
def test_a_matrix_of_each_phase(W, label):
    found = measured(W)
    assert (found.label, found.decided) == (label, True), found


@pytest.mark.parametrize(("rows", "K"), [(10, 3), (12, 12), (7, 2)])
def test_each_row_is_left_out_once(rows, K):
    W = torch.arange(rows * 2.0).reshape(rows, 2)
    parts = list(row_block_deletions(W, K))
    left_out = [sorted(set(W[:, 0].tolist()) - set(part[:, 0].tolist())) for part in parts]
    assert sorted(row for rows_out in left_out for row in rows_out) == W[:, 0].tolist()
    assert max(map(len, left_out)) - min(map(len, left_out)) <= 1
    stacked = list(row_block_deletions(torch.stack([W, W]), K))
    assert all(torch.equal(one[1], two) for one, two in zip(stacked, parts, strict=True))


@pytest.mark.parametrize("K", [0, 1, 11])
def test_too_few_or_too_many_blocks_are_refused(K):
    with pytest.raises(BadOption):
        list(row_block_deletions(torch.ones(10, 4), K))


def test_stability_is_the_share_of_deletions_with_the_same_phase():
    W = torch.from_numpy(gaussian(120, 80))
    W[:30] *= 0
    found = phase_stability(W, 4, "some", lambda part: "none" if not part[:30].any() else "some")
    # Only the deletion of the zero block leaves a first block with entries.
    assert found.labels == ("some", "none", "none", "none")
    assert found.share == 0.25
    steady = phase_stability(
        torch.from_numpy(spiked(300, 200, strengths=(4.0,))), 3, "bulk+spikes", lambda part: measured(part).label
    )
    assert steady.share == 1.0
