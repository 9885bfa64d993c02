"""`effects monitor`: nothing moved is not called drift, what moved is; realised effects; segments without control."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.harness import Bad, check_bad_input, check_level, check_study

from querist.effects import TLearner, load, monitor, simulate
from querist.effects.configs import MonitorConfig
from querist.effects.serving.drift import bin_edges, binned, moved, nulls, stability_index
from querist.effects.studies.monitor import MonitorStudy
from querist.errors import BadOption, UnknownName
from querist.reports.ask import ask

ARMS = np.array(["none", "a", "b"])


def table(n, seed, shift=0.0, lose=0.0):
    drawn = simulate(n, arms=2, base_scale=0.6, increment_scale=0.2, seed=seed)
    effect = drawn.truth.total[np.arange(n), np.maximum(drawn.arm, 1) - 1, 0] * (drawn.arm > 0)
    return pl.DataFrame({f"x{j}": drawn.X[:, j] + (shift if j == 3 else 0.0) for j in range(12)}).with_columns(
        pl.Series("town", np.array(["north", "south"])[(drawn.X[:, 1] > 0.5).astype(int)]),
        pl.Series("arm", ARMS[drawn.arm]),
        pl.Series("y", drawn.Y[:, 0] - lose * effect),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitor")
    before = table(3000, 1)
    before.write_parquet(folder / "before.parquet")
    model = TLearner(control="none").fit_rows(
        before, arm="arm", outcomes=["y"], feature=[*(f"x{j}" for j in range(12)), "town"]
    )
    model.save(folder / "model")
    table(2000, 2).write_parquet(folder / "after.parquet")
    return folder


def config(place, **fields):
    paths = {name: str(place / f"{name}.parquet") for name in ("before", "after")}
    return MonitorConfig.build(**{"model": str(place / "model"), "arm": "arm", **paths} | fields)


def verdicts(result, question):
    return {
        finding.subject: finding.verdict for finding in result.findings if finding.question == f"effects.{question}"
    }


def study():
    return MonitorStudy()


def test_the_watch_is_a_study_and_is_quiet_where_nothing_moved(place, tmp_path, chromium):
    result = check_study(study, config(place), tmp_path, chromium=chromium, kill=False)
    assert verdicts(result, "drift") == {"columns": "no"}
    assert verdicts(result, "control-present") == {"segments": "yes"}
    assert set(verdicts(result, "still-works").values()) <= {"yes", "cannot say"}
    assert result.summary["alerts"] == []


def test_a_feature_that_moved_is_named(place, tmp_path):
    table(2000, 2, shift=0.3).write_parquet(tmp_path / "after.parquet")
    result = ask(study(), config(place, after=str(tmp_path / "after.parquet")), progress=False)
    assert verdicts(result, "drift") == {"columns": "yes"}
    drifted = result.tables["psi"].filter(pl.col("drifted"))["column"].to_list()
    assert "x3" in drifted
    assert "x5" not in drifted
    assert any("x3" in alert or "y" in alert for alert in result.summary["alerts"])


def test_effects_that_are_lost_are_told(place, tmp_path):
    table(6000, 4, lose=1.0).write_parquet(tmp_path / "after.parquet")
    result = ask(study(), config(place, after=str(tmp_path / "after.parquet")), progress=False)
    assert set(verdicts(result, "still-works").values()) == {"no"}


def test_segments_without_control_and_shares_that_moved_are_told(place, tmp_path):
    after = table(2000, 2)
    after = after.filter(~((pl.col("town") == "south") & (pl.col("arm") == "none")))
    after.write_parquet(tmp_path / "after.parquet")
    result = ask(study(), config(place, after=str(tmp_path / "after.parquet")), progress=False)
    assert verdicts(result, "control-present") == {"segments": "no"}
    assert result.summary["control_missing_segments"] == ["town = south"]
    assert any("Shares of arms have moved: none" in alert for alert in result.summary["alerts"])


def test_without_arms_only_columns_are_compared(place):
    result = ask(study(), config(place, arm=None), progress=False)
    assert [finding.question for finding in result.findings] == ["effects.drift"]
    assert result.summary["passed_over"][0]["reason"].startswith("no arm")


def test_the_verb_takes_what_lies_in_memory(place, tmp_path):
    told = ask(study(), config(place), progress=False)
    tables = (pl.read_parquet(place / f"{name}.parquet") for name in ("before", "after"))
    found = monitor(load(place / "model"), *tables, arm="arm")
    assert found.findings == told.findings
    with pytest.raises(BadOption, match="Save it first"):
        monitor(load(place / "model"), "a", "b", out=tmp_path / "run")


def test_the_index_is_that_of_its_formula_and_bins_hold_what_is_missing():
    before, after = np.array([50.0, 30, 20]), np.array([40.0, 40, 20])
    b, a = before / 100, after / 100
    assert stability_index(before, after) == pytest.approx(float(((a - b) * np.log(a / b)).sum()))
    values = np.array([1.0, 2, 2, 2, 3, np.nan])
    edges = bin_edges(values, 4)
    assert edges.tolist() == sorted(set(edges.tolist()))
    assert binned(values, edges)[-1] == edges.size + 1
    assert binned(np.array([np.nan]), bin_edges(np.array([np.nan]), 4)).tolist() == [1]


def test_columns_that_did_not_move_are_called_drift_once_in_a_hundred():
    def draw(rng):
        return [(rng.integers(0, 10, 400), rng.integers(0, 10, 300)) for _ in range(12)]

    def p(columns):
        found = [moved(a, b, name=str(j), resamples=500, seed=0) for j, (a, b) in enumerate(columns)]
        return 0.0 if (np.array([one.psi for one in found]) > nulls(found)).any() else 1.0

    check_level(p, draw, runs=300, level=0.01, within=0.015, conservative=True)


def test_bad_watches_are_told(place, tmp_path):
    pl.read_parquet(place / "after.parquet").drop("x2").write_parquet(tmp_path / "less.parquet")
    base = ["effects", "monitor", str(place / "model"), str(place / "before.parquet")]
    after, less = str(place / "after.parquet"), str(tmp_path / "less.parquet")
    rows = [
        (["effects", "monitor", str(tmp_path), str(place / "before.parquet"), after], ["no model"]),
        ([*base, str(tmp_path / "no.parquet")], ["no.parquet"]),
        ([*base, less], ["x2"]),
        ([*base, after, "--segment", "city"], ["city", "town"]),
        ([*base, after, "--arm", "treatment"], ["treatment", "arm"]),
        ([*base, after, "--arm", "arm", "--outcome", "z"], ["z", "y"]),
        ([*base, after, "--resamples", "5"], ["resamples"]),
    ]
    check_bad_input([Bad([*argv, "--out", str(tmp_path / "r")], 2, fragments) for argv, fragments in rows])


def test_where_less_is_better_people_who_are_spared_are_selected(place):
    plain = ask(study(), config(place), progress=False).tables["realised"].row(0, named=True)
    result = ask(study(), config(place, value=("y=-1",)), progress=False)
    row = result.tables["realised"].row(0, named=True)
    assert row["people"] + plain["people"] == 2000
    assert row["predicted"] > 0
    assert row["realised"] > 0
    [first, *_] = [finding for finding in result.findings if finding.question == "effects.still-works"]
    assert "are spared" in first.because
    check_bad_input([Bad(lambda: MonitorStudy().check(config(place, value=("z=-1",))), UnknownName, ["z", "y"])])


def test_without_categories_the_table_is_the_segment(place):
    """A segment of everybody, rather than a yes about none."""
    before, after = (pl.read_parquet(place / f"{name}.parquet") for name in ("before", "after"))
    model = TLearner(control="none").fit_rows(before, arm="arm", outcomes=["y"], feature=["x0", "x1"])
    found = monitor(model, before, after, arm="arm")
    assert verdicts(found, "control-present") == {"segments": "yes"}
    [row] = found.tables["segments"].to_dicts()
    assert (row["segment"], row["people"]) == ("all people", 2000)
    assert any("of 2000 people are under control" in finding.because for finding in found.findings)
