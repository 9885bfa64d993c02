"""`effects allocate`: the answers of the pure functions, worth by outcomes, what it refuses, and its report."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tests.harness import Bad, check_bad_input, check_study

from querist.cli import main
from querist.effects import allocate, simulate
from querist.effects.configs import AllocateConfig
from querist.effects.studies.allocate import AllocateStudy
from querist.reports.ask import ask

REWARD = np.array([[5, 6], [4, 7], [2, 2.5], [-1, 3], [1, 0.5], [3, 3]], dtype=float)
COST = np.array([[1, 2], [2, 3], [1, 3], [1, 4], [1, 2], [2, 1]], dtype=float)
"""The specification's example: values of the divisible optimum at budgets 1, 2, 3, 5, 6, 8, 20 are 5, 8, 10.33, 15, 17, 19, 22.5."""


@pytest.fixture
def small(tmp_path):
    frame = pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(6)],
            "total:a:y": REWARD[:, 0],
            "total:b:y": REWARD[:, 1],
            "ca": COST[:, 0],
            "cb": COST[:, 1],
        }
    )
    frame.write_parquet(tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Scores of a model that is right, with the arms and outcomes of the same people."""
    drawn = simulate(3000, arms=2, base_scale=0.5, increment_scale=0.5, seed=5)
    frame = pl.DataFrame(
        {"arm": np.array(["none", "a", "b"])[drawn.arm], "y": drawn.Y[:, 0], "natural:y": drawn.truth.natural[:, 0]}
        | {f"total:{arm}:y": drawn.truth.total[:, m, 0] for m, arm in enumerate("ab")}
        | {"place": (np.arange(3000) // 3).astype(str)}
    )
    path = tmp_path_factory.mktemp("allocate") / "scores.parquet"
    frame.write_parquet(path)
    return path


def config(path, **fields):
    return AllocateConfig.build(**{"scores": str(path), "cost_column": ("a=ca", "b=cb")} | fields)


def test_answers_are_those_of_the_pure_function(small):
    for budget, bound in zip((1, 2, 3, 5, 6, 8, 20), (5, 8, 31 / 3, 15, 17, 19, 22.5), strict=True):
        result = ask(AllocateStudy(), config(small, budget=budget, id="id"), progress=False)
        solved = result.summary
        expected = allocate(REWARD, COST, budget)
        assert solved["lp_bound"] == pytest.approx(bound)
        assert (solved["value"], solved["spent"]) == (expected.value, expected.spent)
        assert result.tables["allocation"]["arm"].to_list() == [("control", "a", "b")[code] for code in expected.arm]
        assert result.tables["allocation"]["id"].to_list() == [f"p{i}" for i in range(6)]
        assert solved["counts"] == {"control": expected.counts[0], "a": expected.counts[1], "b": expected.counts[2]}
    exact = ask(AllocateStudy(), config(small, budget=4, method="milp"), progress=False).summary
    assert (exact["value"], exact["method"]) == (12, "milp")
    free = ask(AllocateStudy(), config(small, budget=float("inf"), cost_column=(), cost=("a=0", "b=0")), progress=False)
    assert free.summary["value"] == REWARD.max(axis=1).clip(0).sum()
    assert free.summary["budget"] is None


def test_limits_are_kept(small):
    result = ask(AllocateStudy(), config(small, budget=20, capacity=("a=1", "b=2")), progress=False)
    assert result.summary["counts"]["a"] <= 1
    assert result.summary["counts"]["b"] <= 2
    net = ask(AllocateStudy(), config(small, budget=20, net=True), progress=False)
    expected = allocate(REWARD, COST, 20, net=True)
    assert net.summary["value"] == expected.value


def study():
    return AllocateStudy()


def test_the_allocation_is_a_study(known, tmp_path, chromium):
    settings = AllocateConfig.build(
        scores=str(known), budget=1500.0, cost=("a=1", "b=1"), arm="arm", control="none", cluster="place"
    )
    result = check_study(study, settings, tmp_path, chromium=chromium, kill=False)
    gains = {row["policy"]: row for row in result.tables["gains"].to_dicts()}
    assert gains["difference"]["low"] > 0
    assert gains["allocation"]["low"] < gains["allocation"]["predicted"] < gains["allocation"]["high"]
    assert gains["difference"]["value"] == pytest.approx(
        gains["allocation"]["value"] - gains["best single arm"]["value"]
    )
    [finding] = result.findings
    assert finding.verdict == "yes"
    curve = result.tables["budget_path"].filter((pl.col("line") == "all arms") & pl.col("part").is_null())
    slopes = np.diff(curve["value"]) / np.diff(curve["spend"])
    assert (np.diff(slopes) < 1e-9).all()
    shares = (
        result.tables["budget_path"].filter(pl.col("part").is_not_null()).group_by("spend").agg(pl.col("value").sum())
    )
    assert shares["value"].to_numpy() == pytest.approx(1.0)


def test_without_outcomes_the_worth_cannot_be_told(small, capfd, tmp_path):
    argv = [
        "effects",
        "allocate",
        str(small),
        "--budget",
        "5",
        "--cost-column",
        "a=ca,b=cb",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main([*argv, "--json", "--quiet"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["findings"][0]["verdict"] == "cannot say"
    assert summary["passed_over"][0]["what"] == "worth by outcomes"
    assert [point["value"] for point in summary["path"] if point["line"] == "all arms"][-1] == 22.5


def test_bad_allocations_are_told(small, known, tmp_path):
    base = ["effects", "allocate", str(small), "--out", str(tmp_path / "r")]
    full = [*base, "--budget", "5", "--cost-column", "a=ca,b=cb"]
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "no.parquet")
    pl.read_parquet(small).with_columns(pl.lit(1.0).alias("total:a:z"), pl.lit(1.0).alias("total:b:z")).write_parquet(
        tmp_path / "two.parquet"
    )
    pl.read_parquet(small).with_columns(pl.lit(-1.0).alias("ca")).write_parquet(tmp_path / "minus.parquet")
    rows = [
        (["effects", "allocate", str(tmp_path / "no.parquet"), "--budget", "1"], ["no scores", "total:ARM:OUTCOME"]),
        ([*base, "--cost", "a=1,b=1"], ["budget is not named"]),
        ([*base, "--cost", "a=1,b=1", "--budget", "-1"], ["-1", "budget"]),
        ([*base, "--cost", "a=1,b=1", "--budget", "nan"], ["nan", "budget"]),
        ([*base, "--budget", "1", "--cost", "a=1"], ["no cost", "b"]),
        ([*base, "--budget", "1", "--cost", "c=1"], ["c", "a"]),
        ([*base, "--budget", "1", "--cost", "a=-2,b=1"], ["-2", "0 or more"]),
        ([*full, "--cost", "a=1"], ["two costs"]),
        ([*base, "--budget", "1", "--cost-column", "a=ca,b=nothing"], ["nothing"]),
        (
            ["effects", "allocate", str(tmp_path / "minus.parquet"), "--budget", "1", "--cost-column", "a=ca,b=cb"],
            ["-1", "row 0"],
        ),
        ([*full, "--value", "z=1"], ["z", "y"]),
        ([*full, "--value", "y=0"], ["worth anything"]),
        (
            ["effects", "allocate", str(tmp_path / "two.parquet"), "--budget", "1", "--cost", "a=1,b=1"],
            ["Several outcomes", "y, z"],
        ),
        ([*full, "--capacity", "c=1"], ["c"]),
        ([*full, "--group", "id"], ["least share"]),
        ([*full, "--group", "id", "--group-min", "1", "--capacity", "a=0,b=0"], ["least share", "at most 0"]),
        ([*full, "--method", "greedy"], ["greedy"]),
        ([*full, "--arm", "nothing"], ["nothing"]),
        (
            [
                "effects",
                "allocate",
                str(known),
                "--budget",
                "1",
                "--cost",
                "a=1,b=1",
                "--arm",
                "arm",
                "--control",
                "nine",
            ],
            ["nine"],
        ),
    ]
    check_bad_input([Bad(argv, 2, fragments) for argv, fragments in rows])
