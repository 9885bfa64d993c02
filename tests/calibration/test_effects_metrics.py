"""Type-I error and coverage of the uplift intervals: 3,000 draws each, 5 % within 1.5 and 95 % within 2 points.

With clusters of five and an intraclass correlation of .2 the standard error of single rows must fail where theirs holds.
"""

from __future__ import annotations

import numpy as np
import pytest

from querist.effects.budget import multi_arm_qini
from querist.effects.design import ate, effect_scores, gamma
from querist.effects.metrics import calibration, policy_difference, rate
from querist.effects.simulation import SETTINGS, simulate
from querist.statistics import stream

DRAWS = 3000

pytestmark = pytest.mark.slow


def share(values) -> float:
    return float(np.mean(values))


def no_effect(number: int, clusters: bool, counts: bool):
    """Rows without any effect: arm, outcome, a score, ids. Arms go to whole clusters of five, outcomes correlate in them.

    Arms are given in fixed numbers, or by a coin for each unit.
    """
    rng = stream(number, "no effect", str(clusters), str(counts))
    n = 2000
    ids = np.arange(n) // 5 if clusters else np.arange(n)
    units = ids[-1] + 1
    arm = (rng.permutation(np.arange(units) % 2) if counts else rng.integers(0, 2, units))[ids]
    natural = rng.standard_normal(n)
    common = rng.standard_normal(units)[ids] if clusters else np.zeros(n)
    y = natural + (
        np.sqrt(0.4) * common + np.sqrt(1.6) * rng.standard_normal(n) if clusters else rng.standard_normal(n)
    )
    score = 0.8 * common + rng.standard_normal(n) if clusters else natural + rng.standard_normal(n)
    return arm, y, score, ids


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("clusters", [False, True])
def test_without_an_effect_every_p_keeps_its_level(clusters, counts):
    low = {name: [] for name in ("ate", "qini", "autoc", "slope", "policy", "multi-armed")}
    naive = []
    for number in range(DRAWS):
        arm, y, score, ids = no_effect(number, clusters, counts)
        how = {"cluster": ids if clusters else None, "block": arm if counts else None}
        e = np.full((arm.size, 2), 0.5)
        psi = effect_scores(gamma(arm, y, e))[:, 0]
        low["ate"].append(ate(psi, **how).p < 0.05)
        naive.append(ate(psi).p < 0.05)
        low["qini"].append(rate(psi, score, **how).p < 0.05)
        low["autoc"].append(rate(psi, score, weighting="autoc", **how).p < 0.05)
        low["slope"].append(calibration(psi, score, **how).slope.p < 0.05)
        chosen = (score > 0).astype(int)
        found = policy_difference(chosen, 1 - chosen, arm, y, propensity=e, method="dr", **how)
        low["policy"].append(found.p < 0.05)
        reward = np.exp(score)[:, None] * [1.0, 0.5]
        two = np.column_stack([psi, 0.5 * psi])
        low["multi-armed"].append(multi_arm_qini(reward, two, [1.0, 0.4], max_spend=0.5, **how).p < 0.05)
    rates = {name: share(values) for name, values in low.items()}
    assert {name: rate_ for name, rate_ in rates.items() if abs(rate_ - 0.05) > 0.015} == {}
    if clusters:
        assert share(naive) > 0.065


def test_intervals_cover_the_truth():
    """Setting 3, outcome 1, arm 1, a score that is not the truth; the targets from 400,000 people's true effects."""
    many = simulate(400_000, seed=1, noise_sd=0.0, **SETTINGS[3])
    tau, score = many.truth.total[:, 0, 0], np.tanh(many.X[:, 7]) + 0.3 * many.X[:, 0]
    response = many.truth.response[:, :, 0]
    chosen = (score > 0).astype(int)
    rows = np.arange(tau.size)
    targets = {
        "ate": tau.mean(),
        "qini": rate(tau, score).estimate,
        "autoc": rate(tau, score, weighting="autoc").estimate,
        "slope": calibration(tau, score).slope.estimate,
        "policy": (response[rows, chosen] - response[rows, 0]).mean(),
    }
    held = {name: [] for name in targets}
    for number in range(DRAWS):
        drawn = simulate(2000, seed=1000 + number, **SETTINGS[3])
        y, x = drawn.Y[:, 0], drawn.X
        mu = np.column_stack([0.7 * x[:, 0]] * 4)  # wrong, and without a look at the rows
        scores = gamma(drawn.arm, y, drawn.propensity, mu)
        psi, s = effect_scores(scores)[:, 0], np.tanh(x[:, 7]) + 0.3 * x[:, 0]
        found = {
            "ate": ate(psi),
            "qini": rate(psi, s),
            "autoc": rate(psi, s, weighting="autoc"),
            "slope": calibration(psi, s).slope,
            "policy": policy_difference(
                (s > 0).astype(int), np.zeros(y.size, int), drawn.arm, y, propensity=drawn.propensity, mu=mu
            ),
        }
        for name, estimate in found.items():
            held[name].append(estimate.low <= targets[name] <= estimate.high)
    rates = {name: share(values) for name, values in held.items()}
    assert {name: rate_ for name, rate_ in rates.items() if abs(rate_ - 0.95) > 0.02} == {}
