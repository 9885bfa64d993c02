"""The index lists every run once, links to its report, and says why a run cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.reports.sample import HOSTILE, document
from tests.reports.test_page import Page

from querist.reports.index import gather, index


def write(folder: Path, *, report: bool = True, summary: bool = True, **changes) -> None:
    made = document(**changes)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(made.header))
    if summary:
        (folder / "summary.json").write_text(json.dumps(made.summary))
        (folder / "layout.json").write_text(json.dumps(made.layout.as_dict()))
    if report:
        (folder / "report.html").write_text("")


@pytest.fixture
def runs(tmp_path):
    write(tmp_path / "runs/weights scan #1")
    write(tmp_path / "runs/deep/er/two", started="2026-01-01T00:00:00Z", status="failed")
    write(tmp_path / "runs/three", summary=False, report=False, status="running")
    write(tmp_path / "runs/three/units/a/inner")  # below a run nothing is a run
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/run.json").write_text("{")
    write(tmp_path / "runs/bent")
    (tmp_path / "runs/bent/summary.json").write_text(json.dumps({"findings": [{"subject": "x"}]}))
    return tmp_path / "runs"


def test_every_run_is_listed_newest_first(runs):
    rows = gather(runs, relative_to=runs)
    assert [row["folder"] for row in rows] == ["deep/er/two", "bent", "three", "weights scan #1", "broken"]
    assert {row["folder"]: row["status"] for row in rows} == {
        "deep/er/two": "failed", "three": "running", "weights scan #1": "done", "broken": "unreadable", "bent": "done",
    }  # fmt: skip


def test_counts_are_those_of_the_findings(runs):
    row = next(row for row in gather(runs, relative_to=runs) if row["folder"] == "weights scan #1")
    found = document().findings
    assert row["verdicts"] == {v: sum(f.verdict == v for f in found) for v in ("yes", "no", "cannot say")}
    assert row["news"] == {"bad": 22, "good": 40, "open": 60, "plain": 60}


def test_links_are_relative_to_the_page_and_safe(runs):
    here = {row["folder"]: row["report"] for row in gather(runs, relative_to=runs)}
    assert here["weights scan #1"] == "weights%20scan%20%231/report.html"
    assert here["three"] is None
    above = {row["folder"]: row["report"] for row in gather(runs, relative_to=runs.parent / "pages")}
    assert above["deep/er/two"] == "../runs/deep/er/two/report.html"


def test_what_cannot_be_read_says_why(runs):
    reasons = {row["folder"]: row["reason"] for row in gather(runs, relative_to=runs)}
    assert reasons["broken"].startswith("run.json: ")
    assert reasons["three"] == "not finished"
    assert "KeyError" in reasons["bent"]
    assert reasons["weights scan #1"] is None


def test_a_run_folder_itself_is_one_run(runs):
    assert [row["folder"] for row in gather(runs / "weights scan #1", relative_to=runs)] == ["weights scan #1"]


def test_the_page_is_whole(runs):
    rows = gather(runs, relative_to=runs)
    rows.append(
        {"folder": HOSTILE, "room": HOSTILE, "command": "x", "status": "done", "started": None, "seconds": None}
    )
    html = index(rows, title="All runs", lead="Each with `verdicts`.")
    page = Page(html)
    assert "22 bad news" in page.text
    assert len(page.scripts) == 2
    assert not page.all("img")
    assert [attrs["href"] for attrs in page.all("a")][1] == "deep/er/two/report.html"
    assert len(html) < 100_000
    assert page.headings == [1]


def test_no_runs_is_an_answer():
    assert "There are no runs here yet." in Page(index([])).text
