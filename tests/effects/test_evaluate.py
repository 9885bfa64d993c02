"""`effects evaluate`: the study, what it refuses, and what it says of a score that saw the arm."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tests.harness import Bad, check_bad_input, check_study

from querist.cli import main
from querist.effects import TLearner, simulate
from querist.effects.configs import EvaluateConfig
from querist.effects.studies.evaluate import EvaluateStudy
from querist.reports.ask import ask

ARMS = np.array(["none", "small", "large"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model fitted on the first half of a table, and the table of the second half, with a score that saw the arm."""
    folder = tmp_path_factory.mktemp("evaluate")
    drawn = simulate(2400, arms=2, base_scale=0.4, increment_scale=0.4, seed=3)
    frame = pl.DataFrame({f"x{j}": drawn.X[:, j] for j in range(12)}).with_columns(
        pl.Series("arm", ARMS[drawn.arm]),
        pl.Series("bought", (drawn.Y[:, 0] > 0.3).astype(int)),
        pl.Series("spent", drawn.Y[:, 1]),
        pl.Series("good", drawn.truth.total[:, 0, 1]),
        pl.Series("leaky", drawn.truth.natural[:, 1] * np.where(drawn.arm > 0, 1, -1)),
    )
    features = [f"x{j}" for j in range(12)]
    frame[:1200].write_parquet(folder / "fit.parquet")
    frame[1200:].write_parquet(folder / "new.parquet")
    model = TLearner(control="none").fit_rows(
        folder / "fit.parquet", arm="arm", outcomes=["bought:binary", "spent"], feature=features
    )
    model.save(folder / "model")
    return folder


def study():
    return EvaluateStudy()


def config(place, **fields):
    return EvaluateConfig.build(
        **{"source": str(place / "model"), "table": str(place / "new.parquet"), "arm": "arm", "bootstrap": 20} | fields
    )


def test_the_evaluation_is_a_study(place, tmp_path, chromium):
    settings = config(place, also=("column:good",), value=("spent=1",), cost=("small=0.1", "large=0.3"))
    result = check_study(study, settings, tmp_path, chromium=chromium)
    assert set(result.summary["rows_seen_in_fit"]) == {"model"}
    assert {row["outcome"] for row in result.summary["policies"]} == {"bought", "spent", "value"}
    questions = [finding.question for finding in result.findings]
    assert list(dict.fromkeys(questions))[:4] == [
        "effects.fresh-rows", "effects.arm-hidden", "effects.any-effect", "effects.arms-differ",
    ]  # fmt: skip
    families = result.tables["metrics"].filter((pl.col("metric") == "autoc") & (pl.col("score") == "model"))
    for (component,), mine in families.group_by("component"):
        known = mine.filter(pl.col("p").is_not_null())
        assert known["p_adj"].min() >= known["p"].min(), component
        assert known.sort("p")["p_adj"][0] == pytest.approx(min(1.0, known.height * known["p"].min()))


def test_a_model_in_memory_gives_what_its_folder_gives(place, tmp_path):
    from querist.effects import load

    model = load(place / "model")
    table = pl.read_parquet(place / "new.parquet")
    one = ask(EvaluateStudy(table, {"model": model}), config(place, source="model", table="table"), progress=False)
    other = ask(study(), config(place), progress=False)
    assert one.tables["metrics"].equals(other.tables["metrics"])
    crossed = ask(
        EvaluateStudy(table, {"model": model}), config(place, source="model", table="table"), engine="local:1",
        out=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert crossed.tables["metrics"].equals(other.tables["metrics"])


def test_a_table_that_is_read_from_its_start_gives_what_parquet_gives(place, tmp_path):
    pl.read_parquet(place / "new.parquet").write_csv(tmp_path / "new.csv")
    one, other = (
        ask(study(), config(place, bootstrap=0, **table), progress=False)
        for table in ({}, {"table": str(tmp_path / "new.csv")})
    )
    assert one.tables["metrics"].equals(other.tables["metrics"])
    assert one.tables["sources"]["changed"].to_list() == other.tables["sources"]["changed"].to_list() == [0.0]


def test_people_without_an_arm_are_left_out_of_every_pass(place, tmp_path):
    """Features are read from the table when they are asked for: rows must be left out there as they were of arms and outcomes."""
    frame = pl.read_parquet(place / "new.parquet")
    holes = frame.with_columns(
        pl.when(pl.int_range(pl.len()) % 7 == 3).then(None).otherwise(pl.col("arm")).alias("arm"),
        pl.when(pl.int_range(pl.len()) % 2 == 1).then(None).otherwise(pl.col("x1")).alias("x1"),
    )
    holes.write_parquet(tmp_path / "holes.parquet", row_group_size=100)
    holes.filter(pl.col("arm").is_not_null()).write_parquet(tmp_path / "whole.parquet")
    asked = {"bootstrap": 0, "drop_missing_arm": True, "also": ("column:good",)}
    one, other = (
        ask(study(), config(place, table=str(tmp_path / name), **asked), progress=False)
        for name in ("holes.parquet", "whole.parquet")
    )
    for name in ("metrics", "policies", "calibration", "seen"):
        assert one.tables[name].equals(other.tables[name]), name
    told = one.summary["warnings"]
    assert any("without an arm are left out" in warning for warning in told)
    assert [w for w in told if "x1" in w] == [w for w in other.summary["warnings"] if "x1" in w] != []


def test_rows_of_the_fit_are_told(place):
    result = ask(study(), config(place, table=str(place / "fit.parquet"), bootstrap=0), progress=False)
    [fresh] = [finding for finding in result.findings if finding.question == "effects.fresh-rows"]
    assert fresh.verdict == "no"
    assert fresh.estimate == 1
    assert any("was fitted on 1200 of these people" in warning for warning in result.summary["warnings"])


def rate_qini(result, score):
    mine = (pl.col("score") == score) & (pl.col("convention") == "rate") & (pl.col("metric") == "qini")
    return result.tables["metrics"].filter(mine & (pl.col("component") == "base")).row(0, named=True)


def test_a_score_that_saw_the_arm_looks_superb_and_is_told(place):
    """Natural response signed by the arm knows nothing of effects. Without a model's nuisance every number is taken in by it, with
    one the doubly robust number is taken in far less; the warning does not depend on either."""
    settings = config(place, source="column:leaky", outcome=("spent",), bootstrap=0, control="none")
    alone = ask(study(), settings, progress=False)
    beside = ask(
        study(), config(place, also=("column:leaky",), bootstrap=0, outcome=("spent:continuous",)), progress=False
    )
    for result in (alone, beside):
        assert any("leaky tells treated people from control" in warning for warning in result.summary["warnings"])
    fooled, less = rate_qini(alone, "leaky"), rate_qini(beside, "leaky")
    assert fooled["low"] > 0
    assert less["estimate"] < fooled["estimate"] / 2
    [hidden] = [finding for finding in alone.findings if finding.question == "effects.arm-hidden"]
    assert hidden.verdict == "cannot say"
    assert hidden.p is not None
    assert hidden.p < 0.01


def test_the_command_takes_control_arms_and_outcomes_from_the_model(place, tmp_path, capfd):
    argv = ["effects", "evaluate", str(place / "model"), str(place / "new.parquet"), "--arm", "arm", "--bootstrap", "0"]
    assert main([*argv, "--out", str(tmp_path / "r"), "--json", "--fail-if", "arm-hidden.verdict == no"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["schema"] == "querist.effects.evaluate/1"
    assert {row["arm"] for row in summary["ate"]} == {"small", "large", None}
    assert main([*argv, "--out", str(tmp_path / "g"), "--quiet", "--fail-if", "arm-hidden.verdict == yes"]) == 3


def test_bad_evaluations_are_told(place, tmp_path):
    table, model = str(place / "new.parquet"), str(place / "model")
    other = pl.read_parquet(table).with_columns(pl.lit("huge").alias("arm"))
    pl.concat([pl.read_parquet(table), other]).write_parquet(tmp_path / "more.parquet")
    pl.read_parquet(table).drop("x3").write_parquet(tmp_path / "less.parquet")
    base = ["effects", "evaluate", model, table, "--arm", "arm", "--out", str(tmp_path / "r")]
    rows = [
        (["effects", "evaluate", str(tmp_path / "no"), table, "--arm", "arm"], ["no model", "no"]),
        (["effects", "evaluate", model, str(tmp_path / "no.parquet"), "--arm", "arm"], ["no.parquet"]),
        (
            ["effects", "evaluate", "column:nothing", table, "--arm", "arm", "--outcome", "spent"],
            ["nothing", "no such column"],
        ),
        (["effects", "evaluate", "column:good", table, "--arm", "arm", "--control", "none"], ["No outcome is named"]),
        ([*base, "--also", model], ["twice"]),
        ([*base, "--outcome", "x1"], ["no such outcome", "x1"]),
        ([*base, "--control", "nine"], ["nine", "none"]),
        ([*base, "--value", "spent"], ["spent", "NAME=NUMBER"]),
        ([*base, "--value", "sold=1"], ["sold", "spent"]),
        ([*base, "--cost", "tiny=1"], ["tiny", "small"]),
        ([*base, "--cost", "small=-1"], ["-1", "0 or more"]),
        ([*base, "--design", "none=1,small=1"], ["large", "share"]),
        ([*base, "--convention", "pylift"], ["pylift"]),
        (["effects", "evaluate", model, str(tmp_path / "more.parquet"), "--arm", "arm"], ["huge", "does not know"]),
        (["effects", "evaluate", model, str(tmp_path / "less.parquet"), "--arm", "arm"], ["x3"]),
    ]
    check_bad_input([Bad(argv, 2, fragments) for argv, fragments in rows])


def test_of_one_arm_the_total_alone_is_judged(place, tmp_path):
    """Its base effect is the total, and nothing is left for increments."""
    frame = pl.read_parquet(place / "new.parquet").filter(pl.col("arm") != "large")
    frame.write_parquet(tmp_path / "pair.parquet")
    settings = config(
        place, source="column:good", table=str(tmp_path / "pair.parquet"), control="none", outcome=("spent",)
    )
    result = ask(study(), settings, progress=False)
    assert result.tables["metrics"]["component"].unique().to_list() == ["total"]
    assert [finding.subject for finding in result.findings if finding.question == "effects.effect-varies"] == [
        "small, spent"
    ]
    shown = {name for section in result.layout.sections for name in section.tables}
    assert "arms_differ" not in shown  # there is none to show
    assert "ate" in shown


def test_where_less_is_better_a_policy_that_raises_it_is_not_valued(place):
    result = ask(study(), config(place, value=("spent=-1",), bootstrap=0), progress=False)
    policies = result.tables["policies"]
    assert set(policies["outcome"]) == {"bought", "value"}
    by = {(row["policy"], row["outcome"]): row["value"] for row in policies.to_dicts() if row["method"] == "dr"}
    plain = ask(study(), config(place, bootstrap=0), progress=False).tables["policies"]
    told = {(row["policy"], row["outcome"]): row["value"] for row in plain.to_dicts() if row["method"] == "dr"}
    assert by["all small", "value"] == pytest.approx(-told["all small", "spent"])
    assert by["model", "value"] > by["all small", "value"]
    words = " ".join(word for section in result.layout.sections for word in section.words)
    assert "Less of spent is better" in words
    [finding] = [f for f in result.findings if f.question == "effects.beats-single-arm" and f.subject == "value"]
    assert "the best single arm (none) for all" in finding.because


def test_an_outcome_of_which_the_model_says_nothing_is_averaged_with_the_means_of_arms(place, tmp_path):
    """Not with a nuisance of 0, which is plain inverse weighting."""
    fitted = pl.read_parquet(place / "fit.parquet").with_columns(
        spent=pl.when(pl.col("arm") == "none").then(1.0).otherwise(pl.col("spent"))
    )
    features = [f"x{j}" for j in range(12)]
    model = TLearner(control="none").fit_rows(fitted, arm="arm", outcomes=["bought:binary", "spent"], feature=features)
    assert {one.outcome for one in model.not_estimable_} == {"spent"}
    new = pl.read_parquet(place / "new.parquet")
    result = ask(
        EvaluateStudy(new, {"half": model}), config(place, source="half", table="table", bootstrap=0), progress=False
    )
    mean = {arm: new.filter(pl.col("arm") == arm)["spent"].mean() for arm in ARMS}
    rows = result.tables["ate"].filter((pl.col("component") == "total") & (pl.col("outcome") == "spent"))
    assert dict(rows.select("arm", "estimate").iter_rows()) == pytest.approx(
        {arm: mean[arm] - mean["none"] for arm in ("small", "large")}
    )
