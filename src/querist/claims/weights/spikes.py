"""Claims about what one step does: where the threshold lies, whether the spike points at the teacher, where it comes to lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.weights import spikes_figures as figures
from querist.claims.weights import spikes_rules as rules
from querist.claims.weights.tails import PAPER
from querist.results.table import Column

__all__ = ["FAMILY", "ONE_STEP", "SPIKES", "THRESHOLDS"]

ONE_STEP = family_table(
    "one_step",
    "The largest eigenvalue after one step, beside its prediction.",
    (
        Column("optimizer", "str", "gd or adam."),
        Column("repeat", "int", "Which draw of data and weights."),
        Column("multiple", "float", "Learning rate over the predicted critical one."),
        Column("eta", "float", "Learning rate."),
        Column("lambda1", "float", "Largest eigenvalue of WᵀW."),
        Column("lambda_predicted", "float", "What the closed form says."),
        Column("sim", "float", "|v₁ᵀβ*| of the leading right singular vector."),
        Column("sim_predicted", "float", "What the closed form says; 0 below the threshold."),
        Column("sim_null", "float", "The .99 quantile of |vᵀβ*| of a random direction."),
    ),
    ("multiple",),
)
THRESHOLDS = family_table(
    "thresholds",
    "The rate at which one step makes a spike, by bisection.",
    (
        Column("optimizer", "str", "gd or adam."),
        Column("repeat", "int", "Which draw of data and weights."),
        Column("d", "int", "Inputs."),
        Column("h", "int", "Hidden units."),
        Column("n", "int", "Examples."),
        Column("eta_critical", "float", "Geometric mean of the last two rates."),
        Column("eta_without", "float", "Largest rate found without a spike."),
        Column("eta_with", "float", "Smallest rate found with one."),
        Column("eta_predicted", "float", "What the closed form says; the bisection does not use it."),
        Column("tests", "int", "Rates tested."),
    ),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.weights.spikes_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("one step", (ONE_STEP, THRESHOLDS), _work)

_SMALL = {"d": 200, "h": 300, "n": 400, "rho": 0.3, "optimizers": ("gd", "adam")}
_FULL = {"d": 1000, "h": 1500, "n": 2000, "rho": 0.3, "optimizers": ("gd", "adam")}
_MULTIPLES = (0.5, 1.2, 1.5, 2.0, 2.5, 3.0)
"""Rates over the critical one: what both claims need, so that one piece serves them."""
BRACKETS = {"gd": (1.0, 1e5), "adam": (1e-3, 10.0)}
"""Where a bisection begins: wide and of round ends, so that no prediction goes into it."""


def _one_step_pieces(size: Size) -> Iterator[Piece]:
    base = {name: size[name] for name in ("d", "h", "n", "rho")}
    cost = (12.0 * base["n"] * base["h"] * base["d"] + 60.0 * base["d"] ** 2 * base["h"]) / 1e10 + 0.02
    for optimizer in size["optimizers"]:
        for repeat in range(size.seeds):
            payload = {"kind": "one-step", "optimizer": optimizer, "repeat": repeat, "multiples": list(_MULTIPLES)}
            yield Piece(f"one-step/{optimizer}/{repeat}", payload | base, cost)


def _threshold_pieces(size: Size) -> Iterator[Piece]:
    for optimizer in size["optimizers"]:
        for d in size["sides"]:
            sizes = {"d": d, "h": round(1.5 * d), "n": 2 * d, "rho": size["rho"], "precision": size["precision"]}
            for repeat in range(size.seeds):
                low, high = BRACKETS[optimizer]
                payload = {"kind": "threshold", "optimizer": optimizer, "repeat": repeat, "low": low, "high": high}
                yield Piece(f"threshold/{optimizer}/{d}/{repeat}", payload | sizes, 0.5 + 1.5e-8 * d**3)


SCALING = Claim(
    id="weights.threshold-scaling",
    ask="Does the rate at which a spike appears scale as d for gradient descent and as d^(−1/2) for Adam?",
    statement="The learning rate from which one step leaves a spike depends on the optimiser: it grows like d with gradient descent and "
    "falls like d^(−1/2) with Adam.",
    source="paper",
    reference=f"{PAPER} That the scale depends on the optimiser is the paper's; the exponents are ours.",
    protocol="For each d, h = 1.5d and n = 2d, one full-batch step; the smallest rate at which weights.spikes says yes is found by "
    "bisection on a logarithmic scale, from the same wide bracket for every d. Within each seed the slope of log η_c on log d.",
    rule="Holds where with both optimisers the interval of the slope over seeds lies within ±.15 of the prediction (1, −1/2) and excludes "
    "the other's. Fails where with either the interval lies wholly outside ±.15. Else it cannot be told.",
    unit="slope less prediction",
    null="0; the estimate is that of the optimiser that is farther off",
    sizes={
        "small": Size(5, {**_SMALL, "sides": (100, 200, 400, 800), "precision": 1.03}),
        "full": Size(5, {**_SMALL, "sides": (100, 141, 200, 283, 400, 566, 800), "precision": 1.01}),
    },
    family=FAMILY,
    pieces=_threshold_pieces,
    judge=rules.threshold_scaling,
    draw=figures.threshold_scaling,
)

ALIGNED = Claim(
    id="weights.spike-aligned",
    ask="Does the first spike point at the teacher?",
    statement="The first spike is feature learning: its right singular vector is aligned with the teacher's direction.",
    source="paper",
    reference=f"{PAPER} The predicted alignment is ours.",
    protocol="One full-batch step at twice and at half the predicted critical rate, with each optimiser; |v₁ᵀβ*| of the leading right "
    "singular vector beside the .99 quantile of a random direction and beside the closed form.",
    rule="Holds where with both optimisers |v₁ᵀβ*| passes the quantile in at least 80 % of the seeds at 2η_c and in at most 20 % at ½η_c, "
    "and its mean at 2η_c is within 20 % of the prediction. Fails where with either it passes in fewer than half of the seeds at "
    "2η_c, or in more than half at ½η_c, or the interval of its mean over the prediction lies wholly outside 1 ± .2. Else it cannot be "
    "told.",
    unit="ratio to prediction",
    null="1; the estimate is that of the optimiser that is farther off",
    sizes={
        "small": Size(10, {**_SMALL, "multiples": (0.5, 2.0)}),
        "full": Size(5, {**_FULL, "multiples": (0.5, 2.0)}),
    },
    family=FAMILY,
    pieces=_one_step_pieces,
    judge=rules.spike_aligned,
    draw=figures.spike_aligned,
)

PREDICTED = Claim(
    id="weights.spike-predicted",
    ask="Does the closed form say where the spike comes to lie?",
    statement="The largest eigenvalue after one step is what the closed form of `querist weights predict-spike` says.",
    source="ours",
    reference="the theory of one step in the documentation of the weights room.",
    protocol="One full-batch step at five multiples of the predicted critical rate with each optimiser; observed over predicted λ₁.",
    rule="Holds where each optimiser's mean ratio, over rates and seeds, lies within 1 ± .1; fails where either's interval over "
    "seeds lies wholly outside; else it cannot be told.",
    unit="ratio to prediction",
    null="1; the estimate is that of the optimiser that is farther off",
    sizes={
        "small": Size(10, {**_SMALL, "multiples": _MULTIPLES[1:]}),
        "full": Size(5, {**_FULL, "multiples": _MULTIPLES[1:]}),
    },
    family=FAMILY,
    pieces=_one_step_pieces,
    judge=rules.spike_predicted,
    draw=figures.spike_predicted,
)

SPIKES = (SCALING, ALIGNED, PREDICTED)
