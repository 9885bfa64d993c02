"""Runs logged to an MLflow store: on its SQLite database, once each, with what a reader of the store looks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.harness import check_bad_input
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.errors import BadOption, MissingExtra
from querist.files import encode_key
from querist.reports.ask import ask
from querist.runs.carry import UnitsFailed
from querist.runs.mlflow import Tracking, numbers

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
# The store's own libraries warn of each other.
pytestmark = pytest.mark.filterwarnings("default")
CONFIG = SmallConfig(blocks=3, side=8)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One for all tests: building a database takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'store.db'}"


def logged(store, below):
    """Runs whose folders lie below this one."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("querist spine small")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    return client, [run for run in runs if run.data.tags["querist.folder"].startswith(str(below.resolve()))]


def test_a_run_is_logged_with_its_numbers_verdicts_and_files(tmp_path, store):
    result = ask(SmallStudy(), CONFIG, out=tmp_path / "run", mlflow=store, progress=False)
    client, runs = logged(store, tmp_path)
    [run] = runs
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["blocks"] == "3"
    assert run.data.params["source"] == "None"
    expected = numbers(result.summary)
    assert run.data.metrics == pytest.approx(expected)
    first = result.findings[0]
    assert run.data.metrics[f"{first.question}/{first.subject}/estimate"] == first.estimate
    assert any(name in run.data.metrics for name in ("seconds",))
    assert set(run.data.tags) >= {"querist.version", "querist.folder", first.question}
    assert {item.path for item in client.list_artifacts(run.info.run_id)} >= {"report.html", "tables", "summary.json"}
    tables = {item.path for item in client.list_artifacts(run.info.run_id, "tables")}
    assert tables == {f"tables/{name}.parquet" for name in result.tables}
    assert Path(store.removeprefix("sqlite:///") + ".artifacts").is_dir()


def test_the_same_run_is_logged_once_and_one_that_was_cut_short_again(tmp_path, store):
    ask(SmallStudy(), CONFIG, out=tmp_path / "run", mlflow=store, progress=False)
    client, [first] = logged(store, tmp_path)
    for _ in range(2):
        ask(SmallStudy(), CONFIG, out=tmp_path / "run", mlflow=store, resume=True, progress=False)
    assert [run.info.run_id for run in logged(store, tmp_path)[1]] == [first.info.run_id]
    client.set_terminated(first.info.run_id, "KILLED")
    ask(SmallStudy(), CONFIG, out=tmp_path / "run", mlflow=store, resume=True, progress=False)
    [again] = logged(store, tmp_path)[1]
    assert again.info.run_id != first.info.run_id
    assert again.info.status == "FINISHED"
    ask(SmallStudy(), CONFIG, out=tmp_path / "other", mlflow=store, progress=False)
    assert len(logged(store, tmp_path)[1]) == 2


def test_a_failed_run_is_not_logged(tmp_path, store):
    hold = tmp_path / "trouble"
    hold.mkdir()
    (hold / f"raise-{encode_key('block 1/3')}").touch()
    config = SmallConfig(blocks=3, side=8, trouble=str(hold))
    with pytest.raises(UnitsFailed):
        ask(SmallStudy(), config, out=tmp_path / "run", mlflow=store, progress=False)
    assert logged(store, tmp_path)[1] == []


def test_bad_stores_are_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "text.db").write_text("not a database" * 100)
    folder = tmp_path / "run"
    rows = [
        (
            lambda uri=uri: ask(SmallStudy(), CONFIG, out=folder, mlflow=uri, progress=False),
            BadOption,
            [uri, "sqlite:///FILE.db"],
        )
        for uri in (f"sqlite:///{tmp_path / 'text.db'}", "nosuch://place")
    ]
    check_bad_input(rows)
    with pytest.raises(BadOption, match="without a run folder"):
        ask(SmallStudy(), CONFIG, mlflow="sqlite:///x.db")
    assert not folder.exists()
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    check_bad_input([(lambda: Tracking("sqlite:///x.db", "spine", "small"), MissingExtra, ["querist[mlflow]"])])


def test_names_and_numbers_fit_any_store():
    finding = {
        "question": "a.b",
        "subject": "láyer [0]:x=1",
        "estimate": 1.0,
        "low": None,
        "high": 2,
        "null": 0,
        "p": None,
    }
    summary = {
        "findings": [finding], "config": {"k": 1}, "seconds": 2.5, "warnings": [], "ok": True,
        "part": {"deep": {"n": 3}, "none": None, "rows": [1, 2]},
    }  # fmt: skip
    assert numbers(summary) == {
        "a.b/l_yer _0__x_1/estimate": 1.0,
        "a.b/l_yer _0__x_1/high": 2.0,
        "a.b/l_yer _0__x_1/null": 0.0,
        "seconds": 2.5,
        "part.deep.n": 3.0,
    }
