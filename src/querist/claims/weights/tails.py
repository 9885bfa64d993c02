"""Claims about heavy tails: whether they need noise, whether they grow out of the spike, whether they go with generalising."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.weights import tails_figures as figures
from querist.claims.weights import tails_rules as rules
from querist.results.table import Column

__all__ = ["FAMILY", "HILL_NULL", "PAPER", "TAILS", "TRAJECTORIES"]

PAPER = "arXiv 2406.04657 (TMLR 2025)."

TRAJECTORIES = family_table(
    "trajectories",
    "One row per step of a full-batch training: its spectrum, its tests, its refitted losses.",
    (
        Column("optimizer", "str", "gd or adam."),
        Column("eta", "float", "Learning rate."),
        Column("scan", "str", "What differs from the base setting, as name=value; empty for the base."),
        Column("repeat", "int", "Which draw of data and weights."),
        Column("step", "int", "Steps done."),
        Column("last", "bool", "Whether it is the last step of the run."),
        Column("finite", "bool", "Whether loss and weights are finite."),
        Column("train_loss", "float", "Loss on the training set."),
        Column("lambda1", "float", "Largest eigenvalue of WᵀW."),
        Column("alpha_hill", "float", "Hill's exponent of the density on the upper half of the eigenvalues."),
        Column("alpha", "float", "Exponent of the power law with the least distance."),
        Column("n_tail", "int", "Eigenvalues that it covers."),
        Column("power_law", "bool", "At least 50 of them, better than an exponential, not worse than a lognormal."),
        Column("spikes", "str", "Verdict of weights.spikes; empty where it was not asked."),
        Column("n_spikes", "int", "Eigenvalues beyond every null."),
        Column("bulk", "str", "Verdict of weights.bulk; empty where it was not asked."),
        Column("bulk_p", "float", "Its p value."),
        Column("mass_left", "float", "Share of the next update's energy in the left singular vectors of the bulk."),
        Column("mass_right", "float", "Share of it in the right ones."),
        Column("mass_left_null", "float", "What a random update would have there: their share of all directions."),
        Column("mass_right_null", "float", "The same on the right."),
        Column("refit_test_formula", "float", "Test loss of a refitted last layer on tanh(Wx/√d)."),
        Column("refit_test_repo", "float", "The same on tanh(Wx/d), as the published code probes it."),
    ),
    ("step",),
)
HILL_NULL = family_table(
    "hill_null",
    "Hill's exponent of untrained matrices.",
    (Column("draw", "int", "Which draw."), Column("alpha_hill", "float", "Hill's exponent.")),
    ("draw",),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.weights.tails_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("trajectories", (TRAJECTORIES, HILL_NULL), _work)

_SMALL = {"d": 200, "h": 300, "n": 400, "n_test": 200, "rho": 0.3, "ridge": 0.01, "steps": 10}
_FULL = {"d": 1000, "h": 1500, "n": 2000, "n_test": 200, "rho": 0.3, "ridge": 0.01, "steps": 10}
_NINE = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
_NINE_EACH = {"adam": _NINE, "gd": _NINE}
_GRID = {"adam": (0.022, 0.05, 0.1, 0.22, 0.5, 1.0), "gd": (20.0, 50.0, 100.0, 200.0, 400.0, 1000.0)}
_SCANS = {
    "n": (500, 1000, 4000, 8000),
    "rho": (0.1, 0.5, 0.7),
    "ridge": (0.1, 0.001, 0.0001),
    "gamma": (0.2, 0.4, 0.6, 0.8),
}


def _trajectories(
    size: Size, rates: Mapping[str, tuple[float, ...]], scan: str = "", **changed: Any
) -> Iterator[Piece]:
    base = {name: size[name] for name in _SMALL} | {"gamma": 1.0} | changed
    # Seconds of a core: the products of training and probing, and the tests of the spectrum.
    flops = base["steps"] * 6.0 * base["n"] * base["h"] * base["d"] + 600.0 * base["d"] ** 2 * base["h"]
    cost = flops / 2e10 + 0.1
    for optimizer, etas in rates.items():
        for eta in etas:
            for repeat in range(size.seeds):
                key = f"trajectory/{optimizer}/{eta:g}/{scan or 'base'}/{repeat}"
                payload = {"kind": "trajectory", "optimizer": optimizer, "eta": eta, "scan": scan, "repeat": repeat}
                yield Piece(key, payload | base | {"test": not scan}, cost)


def _noise_pieces(size: Size) -> Iterator[Piece]:
    yield from _trajectories(size, size["rates"])
    draws, group = size["null_draws"], size["null_group"]
    for first in range(0, draws, group):
        count = min(group, draws - first)
        payload = {"kind": "hill-null", "h": size["h"], "d": size["d"], "first": first, "count": count}
        yield Piece(f"hill-null/{size['h']}x{size['d']}/{first}", payload, count * size["d"] ** 2 * size["h"] * 5e-10)


def _grid_pieces(size: Size) -> Iterator[Piece]:
    yield from _trajectories(size, size["rates"])


def _general_pieces(size: Size) -> Iterator[Piece]:
    yield from _trajectories(size, size["rates"])
    for name, values in size["scans"].items():
        for value in values:
            changed = {name: value} | ({"n": size["gamma_n"]} if name == "gamma" else {})
            yield from _trajectories(size, size["rates"], f"{name}={value:g}", **changed)


WITHOUT_NOISE = Claim(
    id="weights.tail-without-noise",
    ask="Do heavy-tailed spectra arise without gradient noise?",
    statement="Training by the full batch, which has no gradient noise, can end in a heavy-tailed spectrum.",
    source="paper",
    reference=PAPER,
    protocol="Train the first layer of a two-layer tanh network on a noisy single-index teacher by full-batch gradient descent and by "
    "Adam. After ten steps test the bulk of WᵀW, compare Hill's exponent with that of untrained matrices of the same shape, and "
    "compare the power law on its tail with an exponential and a lognormal.",
    rule="Of the runs at each optimiser's largest rate: the bulk moves where weights.bulk says yes and Hill's exponent lies below the "
    ".01 quantile of untrained matrices; the tail is a power law where it covers at least 50 eigenvalues, beats the exponential "
    "(p < .1) and is not beaten by the lognormal. Holds where both are so in at least 8 of 10 seeds with both optimisers. Cannot "
    "say where the bulk moves that often but the tail is not that often a power law (bulk deformed, tail not proven a power "
    "law), or where the bulk moves with one optimiser only. Fails where it moves with neither.",
    unit="share of seeds",
    null="0.8, the share that the rule asks for",
    sizes={
        "small": Size(
            10,
            {**_SMALL, "rates": {"adam": (0.022, 0.22, 1.0), "gd": (20.0, 400.0, 1000.0)}}
            | {"null_draws": 400, "null_group": 100},
        ),
        "full": Size(5, {**_FULL, "rates": _NINE_EACH, "null_draws": 400, "null_group": 20}),
    },
    family=FAMILY,
    pieces=_noise_pieces,
    judge=rules.tail_without_noise,
    draw=figures.tail_without_noise,
)

FROM_SPIKE = Claim(
    id="weights.tail-from-spike",
    ask="Does the tail grow out of a spike that meets the bulk?",
    statement="The tail grows out of the first spike: a spike leaves the bulk first, and the updates then work on the directions "
    "of the bulk until it departs.",
    source="paper",
    reference=PAPER,
    protocol="Every run of the grid whose bulk departs (weights.bulk) at its last step is followed step by step: weights.spikes and "
    "weights.bulk of W_t, and how much of the energy of the update M_t lies in the singular directions of W_t that are no "
    "spikes, left and right, beside their share of all directions. A run departs at the first step from which on its bulk stays "
    "departed.",
    rule="Three parts. First: the first spike comes at an earlier step than the departure in at least 80 % of the runs; a run that has "
    "both in one step, or no spike, counts against. Second: between the first spike and the departure the mean share of the update's "
    "energy in the bulk's directions, left and right averaged, lies above its null. Third: there it increases from step to step "
    "(slope above 0). Holds where the share is at least 80 % and the intervals of the others, over seeds, lie above 0. Fails "
    "where any part's interval lies wholly on the other side. Else, and with fewer than two seeds, it cannot be told.",
    unit="share of runs",
    null="0.8, the share that the rule asks for",
    sizes={
        "small": Size(10, {**_SMALL, "rates": _GRID}),
        "full": Size(5, {**_FULL, "rates": _NINE_EACH}),
    },
    family=FAMILY,
    pieces=_grid_pieces,
    judge=rules.tail_from_spike,
    draw=figures.tail_from_spike,
)

GENERALISES = Claim(
    id="weights.tail-generalises",
    ask="Do heavier tails go with lower test loss?",
    statement="The heavier the tail of the trained weights' spectrum, the better their features generalise.",
    source="paper",
    reference=f"{PAPER} Its public code probes features that have been divided by √d twice; both scales are tested.",
    protocol="Ten full-batch steps at each rate of the grid. Within each seed and optimiser, Spearman's correlation over the rates "
    "between Hill's exponent and the test loss of a last layer refitted by ridge regression on fresh data; the mean over both "
    "optimisers is the seed's value. Features tanh(Wx/√d), as the formula says, and tanh(Wx/d), as the public code has it. Runs that "
    "diverge are left out.",
    rule="Holds where the correlation is positive (lower exponent, lower loss) on both feature scales and both intervals over seeds "
    "exclude 0; fails where both are negative and exclude 0; where the scales differ, or an interval holds 0, it cannot be told, "
    "and the scale is named.",
    unit="Spearman's ρ",
    null="0",
    sizes={
        "small": Size(10, {**_SMALL, "rates": _GRID, "scans": {}, "gamma_n": 8000}),
        "full": Size(5, {**_FULL, "rates": _NINE_EACH, "scans": _SCANS, "gamma_n": 8000}),
    },
    family=FAMILY,
    pieces=_general_pieces,
    judge=rules.tail_generalises,
    draw=figures.tail_generalises,
)

TAILS = (WITHOUT_NOISE, FROM_SPIKE, GENERALISES)
