"""`effects check`: reference counts, leaks, clusters, missing outcomes, bad tables, and how often it cries wolf."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tests.effects.people import BOTH, ROLES, held_check, people
from tests.effects.tables import table
from tests.harness import Bad, check_bad_input, check_study

from querist.cli import main
from querist.effects import check, plan
from querist.effects.configs import CheckConfig
from querist.effects.errors import ClusterMixed, ControlAbsent, LengthMismatch, NoTreated
from querist.effects.studies.check import CheckStudy
from querist.errors import BadOption
from querist.statistics import auc


def finding(result, question, subject="table"):
    (found,) = [f for f in result.findings if f.question == f"effects.{question}" and f.subject == subject]
    return found


def checked(frame, *, drop=("segment", "visit", "spend", "home"), **fields):
    X = frame.drop(*[name for name in drop if name in frame.columns])
    given = {"control": "none", "Y": frame.select("visit", "spend"), "permutations": 39, **fields}
    return check(X, frame["segment"].to_numpy(), **given)


# ------------------------------------------------------------------------------------------------ published experiments


def test_hillstrom_fits_its_design():
    frame = table("hillstrom")
    X = frame.drop("segment", "visit", "conversion", "spend")
    equal = {"No E-Mail": 1 / 3, "Mens E-Mail": 1 / 3, "Womens E-Mail": 1 / 3}
    result = check(X, frame["segment"], control="No E-Mail", Y=frame.select("visit"), design=equal, rows=6000)
    srm = result.summary["srm"]
    assert srm == pytest.approx({"chi2": 0.202531, "df": 2, "p": 0.903693, "unit": "row"}, abs=5e-7)
    assert result.summary["arms"] == {"No E-Mail": 21306, "Mens E-Mail": 21307, "Womens E-Mail": 21387}
    assert result.summary["smd_max"] < 0.02
    assert result.summary["suspicious_columns"] == []
    assert finding(result, "randomised").verdict in ("yes", "cannot say")
    assert finding(result, "overlap").verdict == "yes"


@pytest.mark.slow
def test_social_pressure_was_assigned_by_household():
    frame = table("social_pressure")
    arms = {"Control": 5, "Civic Duty": 1, "Hawthorne": 1, "Self": 1, "Neighbors": 1}
    column = next(name for name in frame.columns if frame[name].dtype == pl.String and frame[name].n_unique() == 5)
    labels = {str(label).strip(): str(label) for label in frame[column].unique()}
    X = frame.select("sex", "yob", "p2000", "p2002", "p2004", "g2000", "g2002", "hh_size")
    given = {"control": labels["Control"], "design": {labels[k]: v / 9 for k, v in arms.items()}, "rows": 8000}
    result = check(X, frame[column], cluster=frame["hh_id"], permutations=399, **given)
    units = dict(result.tables["arms"].select("arm", "units").iter_rows())
    assert [units[labels[name]] for name in arms] == [99_999, 20_001, 20_002, 20_000, 20_000]
    assert result.summary["units"] == 180_002
    assert result.summary["srm"]["unit"] == "cluster"
    assert result.summary["srm"]["p"] > 0.9999  # drawn in blocks of 18 households
    assert any("looks blocked" in warning for warning in result.warnings)
    assert finding(result, "randomised").verdict in ("yes", "cannot say")


# ------------------------------------------------------------------------------------------------------- what it finds


def test_columns_measured_after_assignment_are_told():
    frame = people(2000)
    arm = frame["segment"].to_numpy()
    rng = np.random.default_rng(0)
    opened = np.where(arm == "none", 0.0, rng.integers(0, 5, 2000))
    leaky = (arm == "mail") * 4.0 + rng.standard_normal(2000)
    result = checked(frame.with_columns(opened=pl.Series(opened), leaky=pl.Series(leaky)), permutations=None)
    assert result.summary["suspicious_columns"] == ["leaky", "opened"]
    rows = {row["feature"]: row for row in result.tables["suspicious"].to_dicts()}
    assert "constant under control" in rows["opened"]["reason"]
    assert rows["leaky"]["arm"] == "mail"
    assert rows["leaky"]["auc"] == pytest.approx(auc(leaky, arm == "mail"))
    told = finding(result, "randomised")
    assert (told.verdict, told.subject) == ("no", "table")
    assert told.p < 0.01
    assert told.estimate > 0.95
    assert sum("measured after assignment" in warning for warning in result.warnings) == 2


def test_too_few_relabellings_are_told():
    assert any("39 relabellings" in warning for warning in checked(people(400)).warnings)
    assert not any("relabellings" in warning for warning in checked(people(400), permutations=None).warnings)


def test_a_wrong_design_is_no_design():
    frame = people(3000)
    result = checked(frame, design={"none": 0.5, "mail": 0.25, "call": 0.25})
    counts = np.array([result.summary["arms"][name] for name in ("none", "call", "mail")])
    expected = 3000 * np.array([0.5, 0.25, 0.25])
    assert result.summary["srm"]["chi2"] == pytest.approx(((counts - expected) ** 2 / expected).sum())
    assert finding(result, "randomised").verdict == "no"


def test_balance_and_detectable_effects_are_their_formulas():
    frame = people(1500)
    result = checked(frame)
    arm, x = frame["segment"].to_numpy(), frame["x0"].to_numpy()
    a, b = x[arm == "mail"], x[arm == "none"]
    by_hand = (a.mean() - b.mean()) / np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    row = result.tables["balance"].filter((pl.col("feature") == "x0") & (pl.col("arm") == "mail")).row(0, named=True)
    assert row["smd"] == pytest.approx(by_hand)
    assert row["expected"] == pytest.approx(np.sqrt(1 / a.size + 1 / b.size))
    levels = result.tables["balance"].filter(pl.col("feature") == "city")["level"].unique()
    assert set(levels) == {"Bath", "Cork", "Delft"}
    missing = result.tables["balance"].filter(pl.col("level") == "missing")
    assert missing["feature"].unique().to_list() == ["age"]
    sd = frame.filter(pl.col("segment") == "none")["spend"].std()
    shares = [int((arm == name).sum()) for name in ("none", "call", "mail")]
    wanted = plan(n=1500, shares=shares, sd=sd)
    found = result.tables["detectable"].filter(pl.col("outcome") == "spend")
    assert found["effect"].to_list() == pytest.approx(list(wanted))
    assert any("flat" in warning for warning in result.warnings)


def test_outcomes_missing_more_often_under_an_arm_are_told():
    frame = people(3000)
    rng = np.random.default_rng(1)
    gone = rng.random(3000) < np.where(frame["segment"] == "mail", 0.2, 0.1)
    frame = frame.with_columns(spend=pl.when(pl.Series(gone)).then(None).otherwise(pl.col("spend")))
    result = checked(frame)
    told = finding(result, "attrition", "spend")
    mail, none = (gone[frame["segment"].to_numpy() == name] for name in ("mail", "none"))
    assert told.estimate == pytest.approx(mail.mean() - none.mean())
    se = np.sqrt(sum(part.mean() * (1 - part.mean()) / part.size for part in (mail, none)))
    assert (told.high - told.low) / 2 == pytest.approx(1.96 * se, rel=0.01)
    assert told.verdict == "yes"
    assert finding(result, "attrition", "visit").verdict == "no"


def test_overlap_follows_confounded_arms():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(4000)
    arm = np.where(rng.random(4000) < 1 / (1 + np.exp(-3 * x)), "a", "none")
    result = check(pl.DataFrame({"x": x, "z": rng.standard_normal(4000)}), arm, control="none")
    assert finding(result, "overlap").verdict != "yes"
    assert finding(result, "randomised").verdict == "no"
    # One arm, and so one classifier: the other arm's is the same.
    assert result.tables["arm_auc"].height == 1


def test_clusters_are_the_units():
    frame = people(2000)
    homes = np.arange(2000) // 2
    arm = np.random.default_rng(5).integers(0, 2, 1000)[homes]
    X = frame.select("x0", "x1")
    result = check(X, arm, control=0, cluster=homes, Y=frame.select("spend"), design={0: 0.5, 1: 0.5})
    assert result.summary["units"] == 1000
    assert result.summary["srm"]["unit"] == "cluster"
    assert result.tables["detectable"]["icc"].min() >= 0
    with pytest.raises(ClusterMixed, match="such clusters"):
        check(X, np.random.default_rng(5).integers(0, 2, 2000), control=0, cluster=homes)


# --------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "people.csv"
    people(400).write_csv(path)
    return str(path)


def test_check_is_a_study(tmp_path, chromium):
    path = tmp_path / "people.parquet"
    people(600).write_parquet(path)
    config = CheckConfig.build(table=str(path), **ROLES, outcome=BOTH, drop=("home",), permutations=39, rows=500)
    result = check_study(CheckStudy, config, tmp_path, chromium=chromium)
    keys = ["rows", "units", "arms", "srm", "arm_auc", "smd_max", "overlap", "suspicious_columns", "attrition"]
    assert {*keys, "detectable"} <= set(result.summary)
    assert set(result.summary["overlap"]) == {"ess", "max_weight", "clipped_share"}
    assert set(result.summary["arm_auc"]["mail"]) == {"auc", "low", "high", "p"}
    assert list(result.figures) == ["auc", "balance", "weights", "detectable"]
    low, high = result.figures["auc"].layout["xaxis"]["range"]
    assert low <= 0.45 < 0.55 <= high


def test_a_table_in_memory_crosses_processes(tmp_path):
    config = CheckConfig.build(table="table", **ROLES, outcome=BOTH, drop=("home",), permutations=39, rows=500)
    check_study(held_check, config, tmp_path, kill=False, engines=("local:1",))


def test_the_command_prints_what_its_page_shows(path, tmp_path, capsys):
    out = tmp_path / "run"
    roles = ["--arm", "segment", "--control", "none", "--outcome", "visit", "--drop", "home", "--permutations", "39"]
    assert main(["effects", "check", path, *roles, "--json", "--quiet", "--out", str(out), "--engine", "serial"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["schema"] == "querist.effects.check/1"
    assert summary["srm"]["reason"] == "no design was stated (--design)"
    gate = ["--fail-if", "randomised.verdict == yes or attrition.verdict == no"]
    gated = ["effects", "check", path, *roles, "--quiet", "--out", str(tmp_path / "b"), "--engine", "serial"]
    assert main([*gated, "--fail-if", "attrition.verdict == no"]) == 3
    assert main([*gated, *gate]) == 2  # no such word


def test_bad_tables_are_refused_with_a_way_out(path, tmp_path):
    frame = pl.read_csv(path)
    holes = tmp_path / "holes.csv"
    segment = pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise(pl.col("segment"))
    frame.with_columns(segment=segment).write_csv(holes)
    one = tmp_path / "one.csv"
    frame.filter(pl.col("segment") == "none").write_csv(one)

    def asked(where, *words):
        return ["effects", "check", str(where), "--arm", "segment", *words, "--out", str(tmp_path / "never")]

    check_bad_input(
        [
            Bad(asked(path, "--control", "nnoe"), 2, ["nnoe", "none", "call"]),
            Bad(asked(path), 2, ["control", "none"]),
            Bad(asked(holes, "--control", "none"), 2, ["3 of 400", "--drop-missing-arm"]),
            Bad(asked(one, "--control", "none"), 2, ["none"]),
            Bad(asked(path, "--control", "none", "--cluster", "home"), 2, ["several arms"]),
            Bad(asked(path, "--control", "none", "--outcome", "visi"), 2, ["visi", "visit"]),
            Bad(asked(path, "--control", "none", "--outcome", "spend:binary"), 2, ["spend", "0 and 1"]),
            Bad(asked(path, "--control", "none", "--design", "none=.5,mail=.5"), 2, ["call", "share"]),
            Bad(asked(path, "--control", "none", "--feature", "visit", "--outcome", "visit"), 2, ["outcome"]),
        ]
    )
    assert not (tmp_path / "never").exists()
    kept = ["--control", "none", "--drop-missing-arm", "--quiet", "--permutations", "19", "--engine", "serial"]
    assert main([*asked(holes, *kept)]) == 0
    said = json.loads((tmp_path / "never" / "summary.json").read_text())["warnings"]
    assert any(line.startswith("3 rows without an arm") for line in said)


def test_bad_arrays_are_refused():
    frame = people(100)
    X, arm = frame.select("x0", "x1"), frame["segment"].to_numpy()
    check_bad_input(
        [
            Bad(lambda: check(X, arm, control="nope"), ControlAbsent, ["nope"]),
            Bad(lambda: check(X, arm[:-1], control="none"), LengthMismatch, ["99"]),
            Bad(lambda: check(X, np.full(100, "none"), control="none"), NoTreated),
            Bad(lambda: check(X, arm, control="none", design={"none": 1.0, "mail": 0.0, "call": 1.0}), BadOption),
        ]
    )


# --------------------------------------------------------------------------------------------------------- calibration


@pytest.mark.slow
def test_tables_that_were_randomised_are_seldom_called_otherwise():
    no, alarms = 0, 0
    runs = 300
    for run in range(runs):
        frame = people(500, seed=run)
        result = checked(frame, permutations=None, design=dict.fromkeys(("none", "call", "mail"), 1 / 3), seed=run)
        no += finding(result, "randomised").verdict == "no"
        alarms += any(f.verdict == "yes" for f in result.findings if f.question == "effects.attrition")
    # The level is .01; 9 of 300 lie at the upper .999 of its binomial.
    assert no <= 9, f"{no} of {runs}"
    assert alarms == 0


@pytest.mark.slow
def test_missing_outcomes_at_random_are_seldom_called_otherwise():
    alarms, runs = 0, 400
    for run in range(runs):
        frame = people(800, seed=run)
        gone = np.random.default_rng([run, 9]).random((800, 2)) < 0.15
        frame = frame.with_columns(
            visit=pl.when(pl.Series(gone[:, 0])).then(None).otherwise(pl.col("visit")),
            spend=pl.when(pl.Series(gone[:, 1])).then(None).otherwise(pl.col("spend")),
        )
        result = checked(frame, permutations=19, rows=100)
        alarms += any(f.verdict == "yes" for f in result.findings if f.question == "effects.attrition")
    assert alarms <= 12, f"{alarms} of {runs}"
