"""A layer's row, phase and findings say one thing: adjusted p values, ties of xmin, fingers, extrapolated tables, traps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from querist.sources.datasets.matrices import gaussian, spiked
from querist.statistics import stream
from querist.weights import scan
from querist.weights.nulls import fit_mp, shuffle_distance, spike_test
from querist.weights.studies.settle import settled
from querist.weights.studies.verdicts import Draws, layer_findings, spike_verdict
from querist.weights.tables import LAYERS

NULLS = ("shuffle", "signflip")


def rotated(evals: np.ndarray, h: int, d: int) -> np.ndarray:
    """A matrix with these squared singular values and directions without any structure."""
    rng = stream(0, "rotated", h, d)
    left, right = (np.linalg.qr(rng.standard_normal((side, min(h, d))))[0] for side in (h, d))
    return ((left * np.sqrt(evals)) @ right.T).astype(np.float32)


def verdicts(row, draws: Draws | None = None, nulls=NULLS) -> dict[str, tuple[str, str]]:
    found = layer_findings(row, draws or Draws({}, {}, {}), nulls)
    return {finding.question.removeprefix("weights."): (finding.verdict, finding.because) for finding in found}


@pytest.fixture(scope="module")
def spike() -> dict:
    row = scan({"w": spiked(120, 100, strengths=(1.5,))}).table.to_dicts()[0]
    assert (row["phase"], row["phase_decided"], row["spike_verdict"]) == ("bulk+spikes", True, "yes")
    return row


@pytest.fixture(scope="module")
def heavy() -> dict:
    evals = np.sort(stream(0, "p").pareto(1.5, 300) + 1)
    row = scan({"w": rotated(evals, 400, 300)}).table.to_dicts()[0]
    assert (row["phase"], row["phase_decided"], row["xmin_ambiguous"]) == ("heavy-tailed", True, False)
    return row


def test_a_spike_that_the_family_takes_away_is_gone_from_row_phase_and_finding(spike):
    quiet = spike | dict.fromkeys(("spike_p", "spike_p_rank")) | {"n_spikes": 0, "n_spikes_tw": 0}
    quiet |= {"phase": "random-like", "phase_reason": "nothing lies beyond its nulls"}
    others = [quiet | {"layer_id": f"other{i}"} for i in range(int(0.06 / spike["spike_p"]))]
    for family, verdict in ((others[:3], "yes"), (others, "no")):
        rows = settled(LAYERS.frame([spike, *family]), NULLS).to_dicts()
        row = rows[0]
        assert row["spike_p_adj"] == pytest.approx(spike["spike_p"] * len(rows))
        assert row["spike_verdict"] == verdict == verdicts(row)["spikes"][0]
        assert row["phase_decided"] == (verdict == "yes")
        assert row["phase"] == "bulk+spikes"  # where the evidence points
        assert ("not beyond chance among all layers" in row["phase_reason"]) == (verdict == "no")
        assert all(other["phase_decided"] and other["spike_verdict"] == "no" for other in rows[1:])
    assert "adjusted p" in verdicts(row)["spikes"][1]


@pytest.mark.parametrize(
    ("change", "nulls", "verdict"),
    [
        ({}, NULLS, "yes"),
        ({"spike_p_adj": 0.2}, NULLS, "no"),
        ({"spike_p_rank": 0.1}, NULLS, "no"),
        ({"n_spikes": 0}, NULLS, "no"),
        ({}, ("shuffle",), "cannot say"),
        ({"spike_p_rank": 0.1}, ("shuffle",), "no"),
        ({"n_spikes": None}, (), "cannot say"),
        ({"n_spikes": None}, NULLS, "cannot say"),
        ({"spike_p_rank": None, "spike_p_adj": None}, NULLS, "cannot say"),
        ({"spike_p_rank": None, "n_spikes": 0, "n_spikes_tw": 0}, NULLS, "no"),
    ],
)
def test_the_verdict_of_the_row_is_that_of_the_finding(spike, change, nulls, verdict):
    row = spike | change
    assert spike_verdict(row, nulls) == verdict == verdicts(row, nulls=nulls)["spikes"][0]
    frame = LAYERS.frame([row])
    told = settled(frame, nulls).to_dicts()[0]
    assert not (told["phase_decided"] and told["spike_verdict"] != "yes")


def test_a_run_counts_only_spikes_that_are_a_yes():
    result = scan({"w": spiked(120, 100, strengths=(1.5,)), "v": gaussian(60, 40)})
    assert result.summary["total_spikes"] == 1
    alone = scan({"w": spiked(120, 100, strengths=(1.5,))}, nulls=("shuffle",))
    assert alone.table["n_spikes"][0] == 1
    assert (alone.summary["total_spikes"], alone.table["spike_verdict"][0]) == (0, "cannot say")
    assert not alone.table["phase_decided"][0]


def test_tails_that_start_elsewhere_and_fit_as_well_leave_it_open(heavy):
    assert verdicts(heavy)["heavy-tail"][0] == "yes"
    verdict, because = verdicts(heavy | {"xmin_ambiguous": True, "alpha_low": 1.9, "alpha_high": 4.1})["heavy-tail"]
    assert verdict == "cannot say"
    assert "exponents from 1.9 to 4.1" in because


def test_a_finger_is_told_where_a_power_law_is_claimed_and_nowhere_else(heavy, spike):
    assert heavy["finger"] == 0
    evals = np.sort(stream(0, "p").pareto(1.5, 300) + 1)
    evals[-4:] = 1.5 * evals[-5] * np.array([1, 1.001, 1.002, 1.003])
    row = scan({"w": rotated(evals, 400, 300)}).table.to_dicts()[0]
    assert row["finger"] == 4
    assert row["fit_warnings"] == []
    verdict, because = verdicts(row)["heavy-tail"]
    assert verdict == "yes"
    assert "The 4 largest values crowd together" in because
    assert spike["finger"] is None
    assert not any("finger" in words for words in spike["fit_warnings"])


def test_what_belongs_beside_the_exponent_is_told_with_it(heavy):
    words = "The tail ends at 12, where the law would go on."
    assert words in verdicts(heavy | {"fit_warnings": [words]})["heavy-tail"][1]
    zeros = scan({"w": np.pad(gaussian(60, 40), ((0, 0), (0, 20)))}, nulls=()).table.to_dicts()[0]
    assert "20 zeros were dropped." in zeros["fit_warnings"]


def test_a_table_that_is_extrapolated_says_so():
    evals = np.sort(np.random.default_rng(0).uniform(1, 4, 1100))
    assert fit_mp(evals, (1100, 1100)).bulk_extrapolated
    row = scan({"w": gaussian(1030, 1030)}, nulls=(), ratios="none").table.to_dicts()[0]
    assert row["bulk_extrapolated"]
    assert "extrapolated to 1030 eigenvalues" in verdicts(row, nulls=())["bulk"][1]
    assert not scan({"w": gaussian(40, 40)}, nulls=()).table["bulk_extrapolated"][0]


@pytest.mark.parametrize("replicas", [1, 3, 4])
def test_traps_are_the_mean_and_the_middle_of_the_copies(replicas):
    W = np.random.default_rng(0).standard_t(2, (90, 60))
    result = scan({"w": W}, replicas=replicas)
    row = result.table.to_dicts()[0]
    drawn = result.tables["null_draws"].filter((pl.col("null") == "shuffle") & pl.col("edge").is_not_null())
    ratios = drawn["lambda_max"] / drawn["edge"]
    test = spike_test(torch.from_numpy(W), replicas=replicas, layer="w")
    assert row["null_max_ratio"] == pytest.approx(ratios.mean()) == test.null_max_ratio
    counts = sorted(fit.n_spikes_tw99 for fit in test.fits["shuffle"])
    assert row["rand_num_spikes"] == counts[(replicas - 1) // 2]
    finding = next(f for f in result.findings if f.question == "weights.traps")
    assert (finding.low, finding.estimate, finding.high) == (ratios.min(), row["null_max_ratio"], ratios.max())


def test_the_bulk_must_be_more_than_one_more_of_its_copies(spike):
    copies = (5.0, 5.2, 5.4)
    row = spike | {"bulk_ks": 9.0, "bulk_p": 1e-9, "bulk_p_copies": 0.001}
    draws = Draws({}, {}, {"signflip": copies})
    assert verdicts(row, draws)["bulk"][0] == "yes"
    verdict, because = verdicts(row | {"bulk_ks": 5.6, "bulk_p_copies": 0.2}, draws)["bulk"]
    assert (verdict, "one more of the copies" in because) == ("cannot say", True)
    assert verdicts(row | {"bulk_ks": 5.3}, draws)["bulk"][0] == "cannot say"
    unknown = row | {"bulk_p_copies": None}
    assert verdicts(unknown, draws)["bulk"][0] == "yes"
    assert verdicts(unknown | {"bulk_ks": 5.6}, draws)["bulk"][0] == "cannot say"
    assert verdicts(unknown, Draws({}, {}, {"signflip": (5.0,)}))["bulk"][0] == "cannot say"


def test_a_distance_needs_three_copies_and_the_larger_spread(spike):
    found = shuffle_distance(np.arange(1.0, 40), [np.arange(1.0, 40) ** k for k in (1.1, 1.2, 1.4)])
    assert found.null_sd == pytest.approx(np.std(found.null, ddof=1))
    assert shuffle_distance(np.arange(1.0, 9), [np.arange(2.0, 10)] * 2).null_sd is None
    far = spike | {"shuffle_distance": 0.5, "shuffle_distance_sd": 0.01, "null_distance": 0.3, "null_distance_sd": 0.01}
    far |= {"spike_p_adj": 0.9, "bulk_p": 0.5}
    assert verdicts(far)["trained"][0] == "yes"
    assert verdicts(far | {"null_distance_sd": 0.2})["trained"][0] == "cannot say"
    assert verdicts(far | {"null_distance_sd": None})["trained"][0] == "cannot say"


def test_an_operator_says_what_its_edge_is():
    kernel = torch.from_numpy(gaussian(24, 16 * 9)).reshape(24, 16, 3, 3)
    row = scan({"c.weight": kernel}, conv="operator", grid=(8, 8)).table.to_dicts()[0]
    assert "9 independent real matrices" in row["null_note"]
    assert "64 frequencies" in row["null_note"]
    assert scan({"c.weight": kernel}).table["null_note"][0] is None
