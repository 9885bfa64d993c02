"""The rules of the claims about weights on constructed tables: each can hold, fail, and not tell."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from querist.claims.claim import Size
from querist.claims.weights import CLAIMS, advice, farms, spikes_rules, tails_rules
from querist.claims.weights.farms import SHAPES
from querist.claims.weights.rules import spearman
from querist.claims.weights.spikes import ONE_STEP, THRESHOLDS
from querist.claims.weights.tails import HILL_NULL, TRAJECTORIES

RATES = {"adam": (0.1, 1.0), "gd": (100.0, 1000.0)}
SIZE = Size(10, {"rates": RATES})


def test_every_claim_draws_judges_and_says_its_numbers():
    assert [claim.name for claim in CLAIMS] == [
        "tail-without-noise",
        "threshold-scaling",
        "spike-aligned",
        "tail-from-spike",
        "tail-generalises",
        "spike-predicted",
        "farms-unbiased",
        "advice-helps",
    ]
    for claim in CLAIMS:
        for size in claim.sizes.values():
            keys = [piece.key for piece in claim.pieces(size)]
            assert len(keys) == len(set(keys)) > 0
        assert claim.protocol.endswith(".")
        assert claim.rule.endswith(".")
        assert "Holds" in claim.rule


# ------------------------------------------------------------------------------------------------ tail-without-noise


def last(optimizer, eta, repeat, **more):
    row = {"piece": f"{optimizer}/{eta}/{repeat}", "optimizer": optimizer, "eta": eta, "scan": "", "repeat": repeat}
    row |= {"step": 10, "last": True, "finite": True, "alpha_hill": 2.5, "bulk": "no", "power_law": False, "n_tail": 60}
    return row | more


def untrained():
    rng = np.random.default_rng(0)
    rows = [{"piece": "null", "draw": i, "alpha_hill": x} for i, x in enumerate(rng.normal(2.47, 0.02, 400))]
    return HILL_NULL.frame(rows)


def without_noise(moved, law):
    """Seeds at the top rate whose bulk moves, and of those with a power law, by optimiser."""
    rows = []
    for optimizer, rates in RATES.items():
        for repeat in range(10):
            rows.append(last(optimizer, rates[0], repeat))
            more = {"bulk": "yes", "alpha_hill": 1.8} if repeat < moved[optimizer] else {}
            rows.append(last(optimizer, rates[1], repeat, **more, power_law=repeat < law[optimizer]))
    tables = {"trajectories": TRAJECTORIES.frame(rows), "hill_null": untrained()}
    return tails_rules.tail_without_noise(tables, SIZE)


@pytest.mark.parametrize(
    ("moved", "law", "verdict", "words"),
    [
        ((8, 10), (8, 8), "holds", "Power-law tails"),
        ((10, 10), (10, 7), "cannot say", "tail not proven a power law"),
        ((10, 10), (0, 0), "cannot say", "tail not proven a power law"),
        ((10, 7), (10, 7), "cannot say", "Adam only"),
        ((7, 2), (10, 10), "fails", "stays random"),
    ],
)
def test_tail_without_noise(moved, law, verdict, words):
    found = without_noise(dict(zip(RATES, moved, strict=True)), dict(zip(RATES, law, strict=True)))
    assert found.verdict == verdict
    assert words in found.because
    assert found.estimate == min(min(m, x) for m, x in zip(moved, law, strict=True)) / 10
    names = [n.what for n in found.numbers]
    assert len(names) == len(set(names))


def test_a_moved_bulk_with_a_random_hill_does_not_count():
    rows = [last(o, r, i, bulk="yes", power_law=True) for o, rates in RATES.items() for r in rates for i in range(10)]
    tables = {"trajectories": TRAJECTORIES.frame(rows), "hill_null": untrained()}
    assert tails_rules.tail_without_noise(tables, SIZE).verdict == "fails"


def test_a_run_that_diverges_counts_against():
    broken = {"bulk": "", "alpha_hill": None, "finite": False}
    rows = [last(o, r, i, **broken) for o, rates in RATES.items() for r in rates for i in range(10)]
    found = tails_rules.tail_without_noise({"trajectories": TRAJECTORIES.frame(rows), "hill_null": untrained()}, SIZE)
    assert (found.verdict, found.estimate) == ("fails", 0.0)


# --------------------------------------------------------------------------------------------------- tail-from-spike


def run(repeat, spike, departure, *, start=0.1, slope=0.01, ends="yes", eta=100.0):
    """Ten steps with the first spike and the departure at these steps, and a share of energy that changes by `slope`."""
    rows = []
    for step in range(11):
        row = last("gd", eta, repeat, step=step, last=step == 10)
        row["spikes"] = "" if step == 0 else "yes" if spike is not None and step >= spike else "no"
        row["bulk"] = "" if step == 0 else "yes" if step >= departure else "no"
        if step < 10:
            excess = start + slope * step + 0.001 * repeat
            row |= {
                "mass_left": 0.5 + excess,
                "mass_right": 0.9 + excess,
                "mass_left_null": 0.5,
                "mass_right_null": 0.9,
            }
        rows.append(row)
    rows[-1]["bulk"] = ends
    return rows


def from_spike(runs):
    rows = [row for one in runs for row in one]
    return tails_rules.tail_from_spike({"trajectories": TRAJECTORIES.frame(rows)}, SIZE)


def test_tail_from_spike_holds():
    found = from_spike([run(i, 2, 6) for i in range(10)])
    assert (found.verdict, found.estimate) == ("holds", 1.0)
    slope = next(n for n in found.numbers if n.what == "its change per step")
    assert slope.value == pytest.approx(0.01)
    excess = next(n for n in found.numbers if "beyond its null" in n.what)
    assert excess.value == pytest.approx(0.1 + 0.04 + 0.0045)


@pytest.mark.parametrize(
    ("runs", "verdict", "share"),
    [
        ([run(i, 1, 1) for i in range(10)], "fails", 0.0),
        ([run(i, None, 4) for i in range(10)], "fails", 0.0),
        ([run(i, 2, 6, slope=-0.01, start=0.3) for i in range(10)], "fails", 1.0),
        ([run(i, 2, 6, start=-0.3) for i in range(10)], "fails", 1.0),
        ([run(i, 2, 6) for i in range(7)] + [run(i, 3, 3) for i in range(7, 10)], "cannot say", 0.7),
        ([run(i, 2, 6, slope=0.02 * (-1) ** i, start=0.4) for i in range(10)], "cannot say", 1.0),
        ([run(0, 2, 6)], "cannot say", 1.0),
        ([run(i, 2, 6, ends="no") for i in range(10)], "cannot say", None),
    ],
)
def test_tail_from_spike_fails_or_cannot_say(runs, verdict, share):
    found = from_spike(runs)
    assert found.verdict == verdict
    assert found.estimate == (None if share is None else pytest.approx(share))


def test_the_departure_is_for_good():
    rows = run(0, 2, 6)
    rows[3]["bulk"] = "yes"
    assert tails_rules.Run(rows).departure == 6
    rows[8]["bulk"] = "cannot say"
    assert tails_rules.Run(rows).departure == 9
    late = tails_rules.Run(run(1, 9, 10))
    assert late.spike_first
    assert late.slope is None
    assert late.excess.size == 1


# -------------------------------------------------------------------------------------------------- tail-generalises


def generalises(formula, repo):
    """Losses that rise (1) or fall (−1) with Hill's exponent, or either by the seed (0), on each scale."""
    rows = []
    for optimizer in RATES:
        for repeat in range(10):
            for i, eta in enumerate((1.0, 2.0, 3.0, 4.0)):
                signs = [sign or (-1) ** repeat for sign in (formula, repo)]
                losses = {
                    f"refit_test_{s}": 2 + 0.1 * sign * i for s, sign in zip(tails_rules.SCALES, signs, strict=True)
                }
                rows.append(last(optimizer, eta, repeat, alpha_hill=2 + 0.1 * i, **losses))
            rows.append(last(optimizer, 5.0, repeat, finite=False, alpha_hill=None))
    return tails_rules.tail_generalises({"trajectories": TRAJECTORIES.frame(rows)}, SIZE)


@pytest.mark.parametrize(
    ("formula", "repo", "verdict", "words"),
    [
        (1, 1, "holds", "lower loss on both"),
        (-1, -1, "fails", "higher loss on both"),
        (-1, 1, "cannot say", "On features formula heavier tails go with higher loss; on features repo"),
        (0, 1, "cannot say", "On features formula heavier tails go with neither"),
    ],
)
def test_tail_generalises(formula, repo, verdict, words):
    found = generalises(formula, repo)
    assert found.verdict == verdict
    assert words in found.because
    if formula:
        assert found.estimate == pytest.approx(formula)


def test_scans_are_told_apart_and_do_not_decide():
    rows = []
    for scan, sign in (("", 1), ("n=500", -1)):
        for repeat in range(3):
            for i in range(4):
                row = last("gd", i + 1.0, repeat, scan=scan, alpha_hill=2 + 0.1 * i)
                row |= {"piece": f"{scan}/{i}/{repeat}"}
                rows.append(row | {f"refit_test_{s}": 2 + 0.1 * sign * i for s in tails_rules.SCALES})
    found = tails_rules.tail_generalises({"trajectories": TRAJECTORIES.frame(rows)}, SIZE)
    assert found.verdict == "holds"
    scanned = next(n for n in found.numbers if n.what == "n=500: ρ, features formula")
    assert scanned.value == pytest.approx(-1)


def test_spearman_against_scipy():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    for _ in range(50):
        x, y = rng.integers(0, 6, 12).astype(float), rng.normal(size=12)
        assert spearman(x, y) == pytest.approx(float(spearmanr(x, y)[0]), abs=1e-12)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 2, 3, np.nan], [2, 4, 6, 8]) == pytest.approx(1.0)


# ----------------------------------------------------------------------------------------------------------- one step


def scaling(gd, adam, noise=0.01, repeats=5):
    rng = np.random.default_rng(1)
    rows = []
    for optimizer, exponent in (("gd", gd), ("adam", adam)):
        for repeat in range(repeats):
            for d in (100, 200, 400, 800):
                value = d**exponent * np.exp(noise * rng.normal())
                row = {"piece": f"{optimizer}/{d}/{repeat}", "optimizer": optimizer, "repeat": repeat, "d": d}
                rows.append(row | {"h": 150, "n": 200, "eta_critical": value, "eta_predicted": value, "tests": 9})
    return spikes_rules.threshold_scaling(
        {"thresholds": THRESHOLDS.frame(rows)}, Size(repeats, {"optimizers": ("gd", "adam")})
    )


@pytest.mark.parametrize(
    ("gd", "adam", "noise", "repeats", "verdict"),
    [
        (1.0, -0.5, 0.01, 5, "holds"),
        (1.1, -0.4, 0.01, 5, "holds"),
        (0.5, -0.5, 0.01, 5, "fails"),
        (1.0, 0.0, 0.01, 5, "fails"),
        (1.0, -0.5, 1.0, 5, "cannot say"),
        (1.0, -0.5, 0.01, 1, "cannot say"),
    ],
)
def test_threshold_scaling(gd, adam, noise, repeats, verdict):
    found = scaling(gd, adam, noise, repeats)
    assert found.verdict == verdict
    if verdict == "holds":
        assert found.estimate == pytest.approx(max(abs(gd - 1), abs(adam + 0.5)), abs=0.03)


def test_a_seed_without_a_threshold_is_left_out():
    frame = THRESHOLDS.frame(
        [
            {
                "piece": f"{d}/{r}",
                "optimizer": "gd",
                "repeat": r,
                "d": d,
                "eta_critical": None if (d, r) == (200, 1) else float(d),
            }
            for d in (100, 200)
            for r in (0, 1)
        ]
    )
    assert spikes_rules.slopes(frame, "gd") == pytest.approx([1.0])


def steps(sim_beyond=0.5, sim_below=0.05, ratio=1.0, spread=0.02, wrong="gd"):
    """One-step rows; only `wrong`'s numbers are those given, the other optimiser is as predicted."""
    rng = np.random.default_rng(2)
    rows = []
    for optimizer in ("gd", "adam"):
        own = optimizer == wrong
        for repeat in range(10):
            for multiple in (0.5, 1.2, 2.0):
                sim = (sim_below if multiple < 1 else sim_beyond) if own else (0.05 if multiple < 1 else 0.5)
                row = {"piece": f"{optimizer}/{repeat}", "optimizer": optimizer, "repeat": repeat, "multiple": multiple}
                row |= {"eta": multiple, "lambda1": 1000 * (ratio if own else 1.0) + spread * 1000 * rng.normal()}
                row |= {"lambda_predicted": 1000.0, "sim": sim * (1 + 0.02 * rng.normal())}
                rows.append(row | {"sim_predicted": 0.5 if multiple > 1 else 0.0, "sim_null": 0.18})
    return {"one_step": ONE_STEP.frame(rows)}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, "holds"),
        ({"sim_beyond": 0.45}, "holds"),
        ({"sim_beyond": 0.1}, "fails"),
        ({"sim_below": 0.4}, "fails"),
        ({"sim_beyond": 0.3}, "fails"),
        ({"sim_beyond": 0.4, "wrong": "adam"}, "cannot say"),
    ],
)
def test_spike_aligned(given, verdict):
    size = Size(10, {"optimizers": ("gd", "adam"), "multiples": (0.5, 2.0)})
    tables = steps(**given)
    if given.get("sim_beyond") == 0.4:  # at the bound: half of the seeds well below it, half above
        shifted = pl.when(pl.col("repeat") % 2 == 0).then(pl.col("sim") * 0.9).otherwise(pl.col("sim") * 1.08)
        frame = tables["one_step"]
        tables = {
            "one_step": frame.with_columns(sim=pl.when(pl.col("optimizer") == "adam").then(shifted).otherwise("sim"))
        }
    assert spikes_rules.spike_aligned(tables, size).verdict == verdict


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [
        (1.0, 0.02, "holds"),
        (1.05, 0.02, "holds"),
        (1.3, 0.02, "fails"),
        (0.8, 0.02, "fails"),
        (1.02, 0.1, "holds"),
        (1.08, 0.1, "cannot say"),
    ],
)
def test_spike_predicted(ratio, spread, verdict):
    size = Size(10, {"optimizers": ("gd", "adam"), "multiples": (1.2, 2.0)})
    found = spikes_rules.spike_predicted(steps(ratio=ratio, spread=spread), size)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(ratio, abs=0.05)


# -------------------------------------------------------------------------------------------------------------- FARMS


def shapes(windows, noise=0.001, seeds=5):
    rng = np.random.default_rng(3)
    rows = []
    for repeat in range(seeds):
        for q in (0.1, 0.5, 1.0):
            row = {"piece": str(repeat), "repeat": repeat, "q": q, "alpha_hill": 3 - q + noise * rng.normal()}
            rows.append(row | {"alpha_farms": 2 + windows * q + noise * rng.normal()})
    return farms.judge({"shapes": SHAPES.frame(rows)}, Size(seeds, {"ratios": (0.1, 0.5, 1.0)}))


@pytest.mark.parametrize(
    ("windows", "noise", "seeds", "verdict"),
    [(0.1, 0.001, 5, "holds"), (0.5, 0.001, 5, "fails"), (0.25, 0.03, 5, "cannot say"), (0.1, 0.001, 1, "cannot say")],
)
def test_farms_unbiased(windows, noise, seeds, verdict):
    found = shapes(windows, noise, seeds)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(windows, abs=0.05)


# ------------------------------------------------------------------------------------------------------------- advice


def advised(balance, pruning, seeds=5):
    """Gains over uniform of the advised and of the permuted arm, by method, with a spread of .002 between seeds."""
    rng = np.random.default_rng(4)
    rows = []
    for method, (gain, permuted) in zip(advice.METHODS, (balance, pruning), strict=True):
        for repeat in range(seeds):
            base = 0.8 + 0.05 * rng.normal()
            for arm, more in (
                ("uniform", 0.0),
                ("advised", gain),
                ("permuted", permuted),
                (f"advised{advice.OWN}", 0.0),
            ):
                value = base + more + 0.002 * rng.normal() * (more != 0)
                rows.append({"piece": str(repeat), "repeat": repeat, "method": method, "arm": arm, "accuracy": value})
    return advice.judge({"advised": advice.ARMS.frame(rows)}, Size(seeds))


@pytest.mark.parametrize(
    ("balance", "pruning", "verdict"),
    [
        ((0.02, 0.01), (0.03, 0.0), "holds"),
        ((0.02, 0.03), (0.03, 0.0), "fails"),
        ((-0.02, -0.03), (0.03, 0.0), "fails"),
        ((0.02, 0.0201), (0.03, 0.0), "cannot say"),
        ((0.0, 0.0), (0.03, 0.0), "cannot say"),
    ],
)
def test_advice_helps(balance, pruning, verdict):
    found = advised(balance, pruning)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(min(balance[0], pruning[0]), abs=0.003)
    assert advised(balance, pruning, seeds=1).verdict == "cannot say"
