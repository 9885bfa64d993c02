"""The evaluation: its tables against the pure functions, what stands beside each score, and what it refuses to say."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.harness import check_bad_input, check_level

from querist.effects import Effects, policy_difference, policy_value, qini, rate, retier, simulate
from querist.effects.design import aipw_scores
from querist.effects.errors import ControlAbsent, CostRange
from querist.effects.evaluation import arms_differ, compare, evaluate
from querist.effects.evaluation._given import given
from querist.errors import BadOption, NonFinite, ShapeMismatch, UnknownName

KEYS = ("score", "component", "arm", "outcome", "metric", "convention")


@pytest.fixture(scope="module")
def data():
    drawn = simulate(3000, arms=2, base_scale=0.4, increment_scale=0.3, seed=1)
    return drawn, {"one": drawn.Y[:, 0], "two": drawn.Y[:, 1]}


@pytest.fixture(scope="module")
def judged(data):
    drawn, Y = data
    noise = np.random.default_rng(0).normal(size=(3000, 2, 2))
    return evaluate(
        {"truth": drawn.truth, "noise": noise},
        drawn.arm,
        Y,
        control=0,
        bootstrap=30,
        cost={1: 0.1, 2: 0.2},
        value={"one": 1.0},
    )


def pick(frame: pl.DataFrame, **where) -> dict:
    [row] = [row for row in frame.to_dicts() if all(row[name] == value for name, value in where.items())]
    return row


def test_numbers_are_those_of_the_pure_functions(data, judged):
    drawn, Y = data
    mu = np.stack([drawn.truth.response[:, :, k] for k in range(2)], axis=2)
    scores = aipw_scores(drawn.arm, Y["one"], mu=mu[:, :, 0], control=0)
    psi = scores[:, 1:] - scores[:, :1]
    row = pick(
        judged.metrics, score="truth", component="total", arm="2", outcome="one", metric="qini", convention="rate"
    )
    expected = rate(psi[:, 1], drawn.truth.total[:, 1, 0], block=drawn.arm)
    assert (row["estimate"], row["low"], row["high"]) == (expected.estimate, expected.low, expected.high)
    mine = drawn.arm != 2
    row = pick(
        judged.metrics, score="truth", component="total", arm="1", outcome="two", metric="qini", convention="causalml"
    )
    assert row["estimate"] == qini(
        Y["two"][mine], drawn.arm[mine] > 0, drawn.truth.total[mine, 0, 1], convention="causalml"
    )
    assert row["low"] < row["estimate"] < row["high"]
    base = pick(
        judged.metrics, score="truth", component="base", arm=None, outcome="one", metric="qini raw", convention="sklift"
    )
    assert base["estimate"] == qini(
        Y["one"], drawn.arm > 0, drawn.truth.base[:, 0], convention="sklift", normalise=False
    )


def test_random_order_and_natural_response_stand_beside_every_score(judged):
    metrics = judged.metrics
    for component in ("total", "base", "incremental"):
        names = set(metrics.filter(pl.col("component") == component)["score"])
        assert names == {"truth", "noise", "natural response", "random"}
    chance = metrics.filter((pl.col("score") == "random") & (pl.col("convention") == "rate"))
    assert chance["estimate"].abs().max() == 0
    rates = metrics.filter(
        (pl.col("convention") == "rate") & (pl.col("metric") == "autoc") & (pl.col("outcome") == "one")
    )
    truth = rates.filter((pl.col("score") == "truth") & (pl.col("component") != "natural"))
    assert (truth["p_adj"] < 0.01).all()
    noise = rates.filter(pl.col("score") == "noise")
    assert (noise["p_adj"] > 0.01).all()
    pairs = judged.paired
    assert {*pairs["a"], *pairs["b"]} == {"truth", "noise", "natural response"}
    assert pick(pairs, a="truth", b="noise", component="total", arm="1", outcome="one", metric="qini")["low"] > 0
    one = compare(judged, "noise", "truth")
    mirrored = pick(one, component="total", arm="1", outcome="one", metric="qini")
    row = pick(pairs, a="truth", b="noise", component="total", arm="1", outcome="one", metric="qini")
    assert mirrored["difference"] == pytest.approx(-row["difference"], abs=1e-15)


def test_increments_have_no_number_in_conventions_of_two_groups(judged):
    rows = judged.metrics.filter((pl.col("component") == "incremental") & (pl.col("convention") == "sklift"))
    assert rows["estimate"].is_null().all()
    assert rows["reason"].str.contains("increment").all()


def test_policies_are_paired_with_every_reference(data, judged):
    drawn, Y = data
    policies = judged.policies
    mine = policies.filter((pl.col("policy") == "truth") & (pl.col("outcome") == "one"))
    versus = {name for name in mine["versus"] if name}
    assert versus == {
        "all control", "all 1", "all 2", "best single arm", "random, same shares", "natural response, same counts",
    }  # fmt: skip
    assigned = np.where(drawn.truth.total[:, :, 0].max(axis=1) > 0, drawn.truth.total[:, :, 0].argmax(axis=1) + 1, 0)
    for method in ("ips", "snips"):
        expected = policy_value(
            assigned, drawn.arm, Y["one"], propensity="share", method=method, control=0, block=drawn.arm
        )
        row = pick(mine, method=method, versus=None)
        assert (row["value"], row["low"]) == pytest.approx((expected.estimate, expected.low), abs=1e-12)
    mu = drawn.truth.response[:, :, 0]
    expected = policy_difference(
        assigned, np.full(3000, 1), drawn.arm, Y["one"], propensity="share", mu=mu, control=0, block=drawn.arm
    )
    row = pick(mine, versus="all 1")
    assert row["difference"] == pytest.approx(expected.estimate, abs=1e-12)
    assert row["difference_low"] == pytest.approx(expected.low, abs=1e-12)
    net = pick(policies, policy="all 1", outcome="value", method="dr")
    gross = pick(policies, policy="all 1", outcome="one", method="dr")
    assert net["value"] == pytest.approx(gross["value"] - 0.1, abs=1e-12)
    assert {row["outcome"] for row in judged.tables["multi_arm"]} == {"one", "two", "value"}


def test_calibration_and_curves_of_the_truth(judged):
    rows = judged.calibration.filter((pl.col("score") == "truth") & (pl.col("component") == "total"))
    assert ((rows["slope_low"] < 1) & (rows["slope_high"] > 1)).all()
    bins = judged.table("calibration_bins")
    assert bins.group_by("score", "component", "arm", "outcome").agg(pl.col("n").sum())["n"].unique().to_list() == [
        3000
    ]
    curve = judged.table("curves").filter(
        (pl.col("score") == "truth") & (pl.col("arm") == "1") & (pl.col("outcome") == "one")
    )
    ate = pick(judged.ate, component="total", arm="1", outcome="one")["estimate"]
    assert curve["gain"][-1] == pytest.approx(ate)
    assert curve["gain"][0] == 0
    assert (curve["gain"][1:-1] > curve["line"][1:-1]).all()
    natural = judged.table("curves").filter(pl.col("score") == "natural response")
    assert natural.height == 51 * 4


def test_parts_follow_the_tier_weights_of_the_model(data):
    drawn, Y = data
    reference = retier(drawn.truth, tier="reference", reference_arm=1)
    found = evaluate(reference, drawn.arm, Y, control=0, bootstrap=0, conventions=("rate",), k=())
    increments = found.ate.filter(pl.col("component") == "incremental")
    assert increments.filter(pl.col("arm") == "2")["estimate"].abs().max() < 1e-12


def test_missing_outcomes_and_thin_arms_are_said_not_guessed(data):
    drawn, Y = data
    one = Y["one"].copy()
    one[:100] = np.nan
    rare = np.where(drawn.arm == 2, 0.0, (Y["two"] > 0).astype(float))
    found = evaluate(drawn.truth, drawn.arm, {"one": one, "rare": rare}, control=0, bootstrap=10)
    rows = found.metrics.filter(pl.col("convention") == "rate")
    assert rows.filter(pl.col("outcome") == "one")["n"].unique().to_list() == [2900]
    thin = rows.filter((pl.col("outcome") == "rare") & (pl.col("arm") == "2"))
    assert thin["estimate"].is_null().all()
    assert thin["reason"].str.contains("0 events of 2, fewer than 5").all()
    assert rows.filter((pl.col("outcome") == "rare") & (pl.col("component") == "base"))["estimate"].is_null().all()
    assert (
        rows.filter((pl.col("outcome") == "rare") & (pl.col("arm") == "1") & (pl.col("component") == "total"))[
            "estimate"
        ]
        .is_not_null()
        .all()
    )
    assert "rare" not in set(found.policies["outcome"])


def test_an_absent_arm_leaves_the_others(data):
    drawn, Y = data
    found = evaluate(
        np.zeros((3000, 3, 1)), drawn.arm, {"one": Y["one"]}, control=0, arms=[1, 2, 3], bootstrap=0,
        propensity={0: 0.3, 1: 0.3, 2: 0.3, 3: 0.1},
    )  # fmt: skip
    ate = {row["arm"]: row for row in found.tables["ate"] if row["component"] == "total"}
    assert ate["1"]["estimate"] is not None
    assert ate["3"]["estimate"] is None
    assert "0 rows of 3" in ate["3"]["method"]


def test_normalised_numbers_are_withheld_where_the_average_effect_may_be_none():
    rng = np.random.default_rng(4)
    arm, y = rng.integers(0, 2, 800), rng.normal(size=800)
    found = evaluate(rng.normal(size=800), arm, {"y": y}, control=0, components=("total",), bootstrap=5, k=())
    rows = {(row["metric"], row["convention"]): row for row in found.tables["metrics"] if row["score"] == "model"}
    [ate] = found.tables["ate"]
    assert ate["low"] < 0 < ate["high"]
    assert rows["auuc", "causalml"]["estimate"] is None
    assert "covers 0" in rows["auuc", "causalml"]["reason"]
    assert rows["auuc raw", "causalml"]["estimate"] is not None
    assert rows["qini", "sklift"]["estimate"] is None  # no perfect curve for such an outcome
    assert found.tables["calibration"] == []  # a column only ranks
    assert {row["policy"] for row in found.tables["policies"]} == {"all control", "all 1"} | {
        row["policy"] for row in found.tables["policies"] if row["policy"].startswith("best single arm")
    }


def test_no_answer_depends_on_the_order_of_rows(data):
    drawn, Y = data
    perm = np.random.default_rng(3).permutation(3000)
    options = {"control": 0, "bootstrap": 0, "components": ("total",), "k": (0.25,)}
    one = evaluate(drawn.truth.total, drawn.arm, Y, **options)
    shuffled = {name: column[perm] for name, column in Y.items()}
    other = evaluate(drawn.truth.total[perm], drawn.arm[perm], shuffled, **options)
    for row, same in zip(one.tables["metrics"], other.tables["metrics"], strict=True):
        assert [row[key] for key in KEYS] == [same[key] for key in KEYS]
        assert row["estimate"] == pytest.approx(same["estimate"], abs=1e-9)


def test_bad_scores_are_told(data):
    drawn, Y = data

    def run(scores=drawn.truth, **options):
        return lambda: evaluate(scores, drawn.arm, Y, **({"control": 0, "bootstrap": 0} | options))

    wrong = drawn.truth.total.copy()
    wrong[7, 0, 0] = np.nan
    check_bad_input(
        [
            (run(control=9), ControlAbsent, ["9", "0 ("]),
            (run(np.zeros((3000, 3, 2))), ShapeMismatch, ["(3000, 3, 2)", "(3000, 2, 2)"]),
            (run(np.zeros(2999)), ShapeMismatch, ["2999"]),
            (run(wrong), NonFinite, ["model"]),
            (run({"random": drawn.truth}), BadOption, ["random"]),
            (run({}), BadOption, ["no scores"]),
            (run(components=("whole",)), BadOption, ["whole", "incremental"]),
            (run(conventions=("pylift",)), BadOption, ["pylift", "causalml"]),
            (run(value={"three": 1}), UnknownName, ["three", "two"]),
            (run(cost={7: 1.0}), UnknownName, ["7"]),
            (run(cost={1: -1.0}), CostRange, ["-1", "0 or more"]),
            (run(bootstrap=-1), BadOption, ["-1"]),
        ]
    )
    found = run()()
    check_bad_input(
        [
            (lambda: compare(found, "model", "other"), UnknownName, ["other"]),
            (lambda: found.table("nothing"), UnknownName, ["nothing", "metrics"]),
        ]
    )


@pytest.mark.slow
def test_equal_arms_are_told_apart_no_more_often_than_said():
    def draw(rng):
        return rng.integers(0, 4, 400), rng.normal(size=400)

    def p(drawn):
        arm, y = drawn
        whole = arms_differ(given(arm, {"y": y}, control=0).cells[0])
        assert whole is not None
        return whole[2]

    check_level(p, draw, runs=1000, within=0.015)


def test_a_wald_statistic_is_that_of_its_contrasts(data):
    drawn, Y = data
    cell = given(drawn.arm, {"one": Y["one"]}, control=0).cells[0]
    whole = arms_differ(cell)
    assert whole is not None
    statistic, degrees, _, (high, low, widest) = whole
    assert degrees == 1
    assert statistic == pytest.approx((widest.estimate / widest.se) ** 2, rel=1e-9)
    assert {high, low} == {0, 1}


def test_effects_is_what_predicts():
    """A small exact case: two rows an arm, everything by hand."""
    arm, y = np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 5.0, 9.0])
    total = np.array([[[1.0]], [[2.0]], [[3.0]], [[4.0]]])
    effects = Effects(np.zeros((4, 1)), total[:, 0], np.zeros((4, 1, 1)), np.ones(1))
    found = evaluate(effects, arm, {"y": y}, control=0, mu=np.zeros((4, 2, 1)), min_rows=1, bootstrap=0)
    ate = pick(found.ate, component="total")
    assert ate["estimate"] == pytest.approx((5 + 9) / 2 - (1 + 3) / 2)
    assert pick(found.policies, policy="model", method="ips", versus=None)["value"] == pytest.approx(7)


def test_a_model_that_carries_no_effect_on_an_outcome_is_judged_on_the_others(data):
    drawn, Y = data
    natural, total = drawn.truth.natural.copy(), drawn.truth.total.copy()
    natural[:, 1] = total[:, :, 1] = np.nan
    base = np.einsum("nmk,m->nk", total, drawn.truth.tier_weights)
    half = Effects(natural, base, total - base[:, None], drawn.truth.tier_weights)
    found = evaluate(half, drawn.arm, Y, control=0, bootstrap=0)
    whole = evaluate(drawn.truth, drawn.arm, Y, control=0, bootstrap=0)
    where = {"component": "total", "arm": "1", "metric": "qini", "convention": "rate", "outcome": "one"}
    one, other = (pick(each.metrics, score="model", **where) for each in (found, whole))
    assert one["estimate"] == pytest.approx(other["estimate"])
    assert pick(found.metrics, score="model", **{**where, "outcome": "two"})["reason"]
    # The outcome without a model is averaged with the arms' means.
    ate = pick(found.ate, component="total", arm="1", outcome="two")["estimate"]
    assert ate == pytest.approx(Y["two"][drawn.arm == 1].mean() - Y["two"][drawn.arm == 0].mean())


def test_the_choice_of_the_best_arm_widens_the_interval_where_it_is_not_settled(data):
    """Halves that choose for each other are not independent; where one arm is far the best there is no choice."""
    drawn, _ = data
    rng = np.random.default_rng(0)
    noise = rng.normal(size=3000)

    def against(y):
        found = evaluate(drawn.truth.total[..., :1], drawn.arm, {"y": y}, control=0, bootstrap=0)
        best = pick(found.policies, policy="model", versus="best single arm")
        single = [pick(found.policies, policy="model", versus=f"all {arm}") for arm in (1, 2)]
        return best, single

    def width(row):
        return row["difference_high"] - row["difference_low"]

    settled, (_, second) = against(noise + 5.0 * (drawn.arm == 2))
    assert settled["difference"] == second["difference"]
    assert width(settled) == width(second)
    tied, singles = against(noise)
    assert width(tied) > 1.1 * max(map(width, singles))
    assert width(tied) < 1.5 * max(map(width, singles))
    again, _ = against(noise)
    assert again == tied
