"""Every p in the tables of an evaluation keeps its level where no arm does anything, and so do models that were trained on nothing.

A thousand draws or more: 5 % within 1.5 points. With clusters of five and an intraclass correlation of .2
intervals of single rows must fail.
"""

from __future__ import annotations

import numpy as np
import pytest

from querist.effects import MTMT, ConstantEffect, DRLearner, TLearner, evaluate
from querist.effects.configs import COMPONENT_NAMES
from querist.effects.design import srm
from querist.effects.evaluation import (
    Scored,
    arms_differ_rows,
    average_rows,
    calibration_rows,
    given,
    metric_rows,
    multi_arm_rows,
    paired_rows,
    policy_rows,
)
from querist.statistics import stream

DRAWS = 1000
MANY = 2500
"""Where some thirty rates are looked at, of which one in a thousand draws would lie outside by chance."""

pytestmark = pytest.mark.slow

COLUMNS = {
    "metrics": ("component", "metric", "convention"),
    "ate": ("component",),
    "policies": ("versus",),
    "calibration": ("component",),
    "paired": ("component", "metric"),
    "arms_differ": (),
    "multi_arm": (),
}
"""Tables with a p, and what tells its kinds apart."""


def nothing(number: int, n: int, clusters: bool):
    """Features, arms at random (to whole clusters of five where there are some), an outcome that no arm changes."""
    rng = stream(number, "nothing at all", str(clusters))
    ids = np.arange(n) // 5 if clusters else np.arange(n)
    units = int(ids[-1]) + 1
    common = rng.standard_normal(units)[ids]
    X = np.column_stack([common, *rng.standard_normal((3, n))]) if clusters else rng.standard_normal((n, 4))
    noise = np.sqrt(0.4) * rng.standard_normal(units)[ids] + np.sqrt(1.6) * rng.standard_normal(n)
    return X, rng.integers(0, 3, units)[ids], 0.5 * X[:, 1] + noise, ids if clusters else None


def rates(seen: dict[tuple, list[float]]) -> dict[tuple, float]:
    return {kind: float(np.mean([p < 0.05 for p in values])) for kind, values in seen.items()}


def tables(X, arm, y, ids, total) -> dict:
    """Those of `evaluate` that have a p."""
    score = Scored("model", total, 0.5 * X[:, 1:2], np.array([0.5, 0.5]))
    rows, judged = given(arm, {"y": y}, control=0, cluster=ids, mu=score), {"model": score}
    return {
        "metrics": metric_rows(judged, rows, components=COMPONENT_NAMES, conventions=("rate",)),
        "ate": average_rows(rows, COMPONENT_NAMES),
        "policies": policy_rows(judged, rows, methods=("dr",)),
        "calibration": calibration_rows(judged, rows, components=COMPONENT_NAMES)[0],
        "paired": paired_rows(judged, rows, components=COMPONENT_NAMES),
        "arms_differ": arms_differ_rows(rows),
        "multi_arm": multi_arm_rows(judged, rows),
    }


@pytest.mark.parametrize("clusters", [False, True])
def test_without_an_effect_every_p_of_every_table_keeps_its_level(clusters):
    seen: dict[tuple, list[float]] = {}
    naive: list[float] = []
    for number in range(MANY):
        X, arm, y, ids = nothing(number, 1000, clusters)
        # A score of the right kind that knows nothing: effects of both arms along two features, natural response along a third.
        total = 0.3 * np.stack([X[:, 0] + 0.2, X[:, 2] - 0.5 * X[:, 0]], axis=1)[..., None]
        found = tables(X, arm, y, ids, total)
        for name, columns in COLUMNS.items():
            for row in found[name]:
                if row.get("p") is not None and row.get("score") != "random":
                    seen.setdefault((name, *(row[column] for column in columns)), []).append(row["p"])
        if clusters:
            naive += [row["p"] for row in average_rows(given(arm, {"y": y}, control=0), ("total",))]
    told = rates(seen)
    assert {kind for kind, *_ in told} == set(COLUMNS)
    assert {kind: rate for kind, rate in told.items() if abs(rate - 0.05) > 0.015} == {}
    if clusters:
        assert np.mean(np.array(naive) < 0.05) > 0.065


def test_counts_of_arms_that_follow_their_design_are_seldom_called_otherwise():
    shares = np.array([0.5, 0.3, 0.2])
    ps = [srm(stream(number, "counts").choice(3, 900, p=shares), 3, shares).p for number in range(DRAWS)]
    assert abs(np.mean(np.array(ps) < 0.05) - 0.05) <= 0.015


def covered(make, draws: int, n: int) -> dict[str, list[bool]]:
    """Whether the intervals of a model trained on half of the rows hold 0 on the other half."""
    held: dict[str, list[bool]] = {}
    for number in range(draws):
        X, arm, y, _ = nothing(number, n, False)
        half = np.arange(n) < n // 2
        model = make(number).fit(X[half], arm[half], {"y": y[half]})
        found = evaluate(
            model.predict_effects(X[~half]),
            arm[~half],
            {"y": y[~half]},
            control=0,
            bootstrap=0,
            conventions=("rate",),
            k=(),
        )
        for row in found.tables["metrics"]:
            if row["score"] == "model" and row["component"] == "total":
                held.setdefault(row["metric"], []).append(row["low"] <= 0 <= row["high"])
        for row in found.tables["policies"]:
            if row["versus"] in ("all control", "random, same shares") and row["difference_low"] is not None:
                held.setdefault(row["versus"], []).append(row["difference_low"] <= 0 <= row["difference_high"])
        for row in found.tables["calibration"]:
            if row["component"] == "total" and row["slope_low"] is not None:
                held.setdefault("slope", []).append(row["slope_low"] <= 0 <= row["slope_high"])
    return held


@pytest.mark.parametrize("kind", [TLearner, DRLearner, ConstantEffect])
def test_a_learner_trained_on_nothing_covers_nothing_out_of_sample(kind):
    held = covered(lambda number: kind(control=0, random_state=number), DRAWS, 800)
    wrong = {name: float(np.mean(values)) for name, values in held.items()}
    # ConstantEffect ranks nobody: its numbers are 0 exactly, and its choice of one arm for all is what is left.
    assert {
        name: share for name, share in wrong.items() if not 0.93 <= share <= (1.0 if kind is ConstantEffect else 0.97)
    } == {}


def test_the_network_trained_on_nothing_covers_nothing_out_of_sample():
    """60 draws by two arms: fewer than 9 in 10 intervals hold 0 once in a thousand times where 95 in 100 do."""
    held = covered(
        lambda number: MTMT(control=0, preset="small", epochs=3, batch_size=128, random_state=number), 60, 800
    )
    assert {name: np.mean(values) for name, values in held.items() if np.mean(values) < 0.9} == {}
