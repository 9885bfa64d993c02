"""Published-size behaviour of the laboratory: means over seeds against measurements by an independent implementation.

Each reference is a mean over ten seeds of its own. A cell's tolerance is half of the range over the reference's seeds where
that is given, else 3.9 standard errors of a difference of two such means (1 % over all sixty cells, the deviation being
that of our ten seeds); counts, which were given rounded, at least one half.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from querist.weights import craft

EDGE = (np.sqrt(300) + np.sqrt(200)) ** 2
# optimizer, eta, step -> column -> mean, or (mean, low, high)
REFERENCE = {
    ("gd", 400.0, 0): {
        "lambda1": (962, 933, 990),
        "spikes": 0,
        "sim": 0.055,
        "alpha_hill": (2.469, 2.444, 2.514),
        "refit_test_formula": 1.561,
        "refit_test_repo": 0.960,
    },
    ("gd", 400.0, 1): {
        "lambda1": (1481, 1128, 1905),
        "spikes": 1,
        "sim": (0.449, 0.403, 0.539),
        "alpha_hill": 2.448,
        "refit_test_formula": 1.552,
        "refit_test_repo": 0.930,
    },
    ("gd", 400.0, 10): {
        "lambda1": 2918,
        "spikes": (28, 9, 40),
        "sim": 0.157,
        "alpha_hill": (2.223, 2.113, 2.404),
        "refit_test_formula": 1.683,
        "refit_test_repo": 0.952,
    },
    ("gd", 1000.0, 10): {
        "lambda1": 2.60e4,
        "spikes": (76, 58, 87),
        "sim": 0.281,
        "alpha_hill": (1.800, 1.754, 1.914),
        "refit_test_formula": 2.006,
        "refit_test_repo": 1.014,
    },
    ("adam", 0.022, 10): {
        "lambda1": (1074, 1016, 1197),
        "spikes": 1,
        "sim": 0.376,
        "alpha_hill": 2.469,
        "refit_test_formula": 1.560,
        "refit_test_repo": 0.934,
    },
    ("adam", 0.1, 10): {
        "lambda1": 1244,
        "spikes": (5, 4, 7),
        "sim": 0.317,
        "alpha_hill": 2.435,
        "refit_test_formula": 1.585,
        "refit_test_repo": 0.942,
    },
    ("adam", 0.22, 1): {
        "lambda1": (2040, 1950, 2228),
        "spikes": 1,
        "sim": 0.393,
        "alpha_hill": 2.451,
        "refit_test_formula": 1.576,
        "refit_test_repo": 0.939,
    },
    ("adam", 1.0, 1): {
        "lambda1": 3.88e4,
        "spikes": 17,
        "sim": 0.369,
        "alpha_hill": (2.294, 2.271, 2.323),
        "refit_test_formula": 1.728,
        "refit_test_repo": 0.961,
    },
    ("adam", 1.0, 10): {
        "lambda1": 2.99e4,
        "spikes": (124, 123, 125),
        "sim": 0.075,
        "alpha_hill": (1.839, 1.813, 1.854),
        "refit_test_formula": 2.430,
        "refit_test_repo": 1.109,
    },
    ("adam", 10.0, 10): {
        "lambda1": 9.3e6,
        "spikes": 200,
        "sim": 0.353,
        "alpha_hill": 1.780,
        "refit_test_formula": 2.545,
        "refit_test_repo": 2.159,
    },
}
FULL = {
    ("gd", 1000.0, 0): {
        "lambda1": 4905,
        "alpha_hill": 2.453,
        "refit_test_formula": 1.607,
        "refit_test_repo": 1.019,
    },
    ("gd", 1000.0, 10): {"lambda1": 4948, "spikes": 0, "alpha_hill": 2.449},
    ("gd", 2000.0, 10): {
        "lambda1": 2.02e4,
        "spikes": 154,
        "alpha_hill": 2.183,
        "refit_test_formula": 1.716,
        "refit_test_repo": 0.982,
    },
    ("gd", 10000.0, 10): {
        "lambda1": 8.9e5,
        "spikes": 524,
        "alpha_hill": 1.648,
        "refit_test_formula": 2.258,
        "refit_test_repo": 1.033,
    },
    ("adam", 0.01, 10): {"lambda1": 5541, "spikes": 1, "sim": 0.406},
    ("adam", 0.1, 10): {
        "lambda1": 6600,
        "spikes": 7,
        "sim": 0.421,
        "alpha_hill": 2.438,
        "refit_test_formula": 1.651,
        "refit_test_repo": 0.996,
    },
}


def runs(gd, adam, **options):
    """Rows of both optimisers at step 0, 1 and 10, with `spikes` (eigenvalues beyond 1.02 of the law's edge) beside them."""
    edge = (np.sqrt(options["h"]) + np.sqrt(options["d"])) ** 2
    frames = []
    for optimizer, eta in (("gd", gd), ("adam", adam)):
        result = craft(optimizer=optimizer, eta=eta, steps=10, probe_every=10, nulls=(), **options)
        key = ["repeat", "step", "optimizer", "eta"]
        beyond = result.spectra.group_by(key).agg((pl.col("eigenvalue") > 1.02 * edge).sum().alias("spikes"))
        frames.append(result.steps.join(beyond, on=key))
    return pl.concat(frames)


def cell(rows, setting, column):
    optimizer, eta, step = setting
    here = (pl.col("optimizer") == optimizer) & (pl.col("eta") == eta) & (pl.col("step") == step)
    return rows.filter(here)[column].to_numpy().astype(float)


@pytest.fixture(scope="module")
def small():
    return runs((400, 1000), (0.022, 0.1, 0.22, 1, 10), d=200, h=300, n=400, repeats=10)


@pytest.mark.parametrize("setting", REFERENCE, ids=str)
def test_means_at_small_size(small, setting):
    wrong = {}
    for column, reference in REFERENCE[setting].items():
        values = cell(small, setting, column)
        mean, *ends = reference if isinstance(reference, tuple) else (reference,)
        within = np.ptp(ends) / 2 if ends else 3.9 * values.std(ddof=1) * np.sqrt(2 / 10)
        within = max(within, 0.5 if column == "spikes" else 0.0)
        if not abs(values.mean() - mean) <= within:
            wrong[column] = f"{values.mean():.4g}, not {mean:.4g} ± {within:.3g}"
    assert wrong == {}


def test_refit_loss_rises_on_one_scale_and_dips_on_the_other(small):
    """Why both feature scales are kept: with heavier tails the network's own features generalise worse, the other ones do
    slightly better at first. Means over ten seeds."""
    settings = [("adam", 1.0, 0), ("adam", 0.22, 1), ("adam", 1.0, 1), ("adam", 1.0, 10)]
    formula = [cell(small, setting, "refit_test_formula").mean() for setting in settings]
    assert formula == sorted(formula)
    repo = [
        cell(small, setting, "refit_test_repo").mean() for setting in (("gd", 400.0, 0), ("gd", 400.0, 1), settings[-1])
    ]
    assert repo[1] < repo[0] < repo[2]


def test_the_csn_exponent_is_not_monotone_and_its_short_tails_say_so(small):
    """Along rising Adam rates Hill's exponent falls, the csn one goes up and down on tails of a dozen eigenvalues."""
    settings = [("adam", eta, 10) for eta in (0.022, 0.1, 0.22, 1.0)]
    hill = [cell(small, setting, "alpha_hill").mean() for setting in settings]
    assert hill == sorted(hill, reverse=True)
    fits = small.filter(pl.col("optimizer") == "adam").sort("repeat", "eta", "step")
    changes = []
    for _, run in fits.group_by("repeat"):
        by_rate = run.filter(pl.col("step") == 10).sort("eta")["alpha"].to_numpy()
        changes.append(np.unique(np.sign(np.diff(by_rate))).size > 1)
    assert np.mean(changes) == 1, "no run with a csn exponent that goes both ways"
    short = small.filter(pl.col("n_tail") < 50)
    assert short.height > small.height / 2
    assert set(short["status"]) == {"short-tail"}
    assert set(small.filter(pl.col("n_tail") >= 50)["status"]) == {"ok"}
    assert short["reason"].str.contains("eigenvalues, fewer than 50").all()
    one_spike = cell(small, ("adam", 0.022, 10), "n_tail")
    assert np.median(one_spike) < 30


@pytest.mark.slow
def test_means_at_full_size():
    """Three seeds on either side: within 1.65 times our own range, which is 3.4 standard errors of the difference."""
    rows = runs((1000, 2000, 10000), (0.01, 0.1), d=1000, h=1500, n=2000, repeats=3)
    wrong = {}
    for setting, cells in FULL.items():
        for column, mean in cells.items():
            values = cell(rows, setting, column)
            within = max(1.65 * np.ptp(values), 0.5 if column == "spikes" else 0.0)
            if not abs(values.mean() - mean) <= within:
                wrong[setting, column] = f"{values.mean():.4g}, not {mean:.4g} ± {within:.3g}"
    assert wrong == {}
