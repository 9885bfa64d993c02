"""Asking and its result: in memory and in a folder, tables and figures by name, what is refused."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
from tests.harness import Bad, assert_same_answer, check_bad_input
from tests.runs.asking import plain_page
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.errors import BadOption, CorruptFile, InvariantBroken, MissingExtra, UnknownName
from querist.reports import ask as asking
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.results.layout import Layout
from querist.runs.provenance import versions
from querist.runs.study import Answer

CONFIG = SmallConfig(blocks=3, side=8, seed=5)


@pytest.fixture(autouse=True)
def _plain_page(monkeypatch):
    plain_page(monkeypatch.setattr)


@pytest.fixture
def memory():
    return ask(SmallStudy(), CONFIG, progress=False)


@pytest.fixture
def run(tmp_path):
    return ask(SmallStudy(), CONFIG, out=tmp_path / "run", progress=False)


class Pure(SmallStudy):
    """Writes no files."""

    def inputs(self, config):
        raise AssertionError("a pass over the data")

    def units(self, config, stage, done):
        return super().units(config, stage, done) if stage == "make" else []

    def work(self, config, unit, folder):
        return {"blocks": [{"name": unit.key}]}

    def finish(self, config, tables):
        totals = pl.DataFrame({"quantity": ["blocks"], "value": [float(tables["blocks"].height)]})
        layout = Layout("Pure", "", (), self.tables, self.questions)
        return Answer({"totals": totals}, [], [], layout)


def test_in_memory_nothing_is_written_and_inputs_are_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = ask(Pure(), CONFIG, progress=False)
    assert result.totals.rows() == [("blocks", 3.0)]
    assert result.summary["run"] is None
    assert result.summary["tables"] == {"totals": None}
    assert list(tmp_path.iterdir()) == []


def test_memory_and_folder_agree_and_the_folder_is_read_again(memory, run):
    assert_same_answer(memory, run)
    assert_same_answer(Result.open(run.folder), memory)
    assert_same_answer(Result.open(str(run.folder)), memory)


def test_the_header_tells_where_the_numbers_come_from(run):
    header = json.loads((run.folder / "run.json").read_text())
    assert list(header) == [
        "schema", "room", "command", "version", "study", "status", "seed", "config", "argv", "engine", "started",
        "finished", "seconds", "versions", "host", "inputs", "failed",
    ]  # fmt: skip
    assert header["schema"] == "querist.run/1"
    assert header["config"] == CONFIG.model_dump(mode="json")
    assert header["versions"] == versions()
    assert {"python", "querist", "torch", "numpy", "polars"} <= set(header["versions"])
    assert header["started"] <= header["finished"]
    assert header["started"].endswith("Z")
    assert header["seconds"] == run.summary["seconds"] > 0


def test_what_a_result_shows(memory, run):
    for result in (memory, run):
        assert (result.room, result.command, result.seed, result.status) == ("spine", "small", 5, "done")
        assert result.config["blocks"] == 3
        assert result.seconds > 0
        assert result.warnings == ["A warning."]
        assert result.passed_over == [{"what": "block -1", "reason": "it does not exist"}]
        assert list(result.tables) == ["totals", "blocks", "products"]
        assert result.table.equals(result.totals)
        assert result.blocks.height == 3
        assert result.summary["nothing"] is None
        assert result.summary["norms"] == result.blocks["norm"].to_list()
        assert repr(result).splitlines()[0] == "spine small: Small"
        assert "spine.big" in repr(result)
        assert "warning: A warning." in repr(result)
        document = result.document()
        assert (document.header, document.summary) == (result.header, result.summary)
    assert str(run.folder) in repr(run)


def test_figures_are_plotlys(memory):
    figure = memory.figure("norms")
    assert type(figure).__module__.startswith("plotly.graph_objs")
    assert list(figure.data[0].y) == memory.blocks["norm"].to_list()
    assert figure.layout.title.text == "Norms"
    assert memory.figures["norms"].table == "blocks"


def test_pandas(memory, monkeypatch):
    frame = memory.to_pandas("blocks")
    assert frame.columns.tolist() == memory.blocks.columns
    assert frame["norm"].tolist() == memory.blocks["norm"].to_list()
    assert memory.to_pandas().shape == (2, 2)
    monkeypatch.setitem(sys.modules, "pandas", None)
    check_bad_input([Bad(memory.to_pandas, MissingExtra, ["pandas"], valueless=True)])


def test_the_report_goes_where_it_is_asked_to(memory, tmp_path, monkeypatch):
    import types

    page = types.ModuleType("querist.reports.page")
    page.render = lambda document: f"<title>{document.layout.title} {len(document.findings)}</title>"
    monkeypatch.setitem(sys.modules, "querist.reports.page", page)
    fragment = types.ModuleType("querist.reports.fragment")
    fragment.fragment = lambda document: f"<b>{document.layout.title}</b>"
    monkeypatch.setitem(sys.modules, "querist.reports.fragment", fragment)
    path = memory.report(tmp_path / "deep" / "report.html")
    assert path == tmp_path / "deep" / "report.html"
    assert path.read_text() == "<title>Small 3</title>"
    assert memory._repr_html_() == "<b>Small</b>"


def test_bad_names_and_options(memory, run, tmp_path):
    corrupt = tmp_path / "corrupt"
    corrupt.mkdir()
    (corrupt / "run.json").write_bytes((run.folder / "run.json").read_bytes())
    check_bad_input(
        [
            (lambda: memory.to_pandas("block"), UnknownName, ["block", "blocks"]),
            (lambda: memory.figure("norm"), UnknownName, ["norm", "norms"]),
            Bad(lambda: ask(SmallStudy(), CONFIG, resume=True), BadOption, ["--out"], valueless=True),
            Bad(lambda: ask(SmallStudy(), CONFIG, mlflow="http://x"), BadOption, ["MLflow", "--out"], valueless=True),
            (lambda: ask(SmallStudy(), CONFIG, engine="rat"), BadOption, ["rat", "serial"]),
            (lambda: Result.open(tmp_path / "none"), BadOption, ["holds no run", "none"]),
            (lambda: Result.open(tmp_path), BadOption, ["holds no run"]),
        ]
    )
    with pytest.raises(CorruptFile, match="corrupt"):
        Result.open(corrupt)
    with pytest.raises(AttributeError, match="spectra"):
        memory.spectra  # noqa: B018
    (run.folder / "tables" / "blocks.parquet").write_bytes(b"x")
    with pytest.raises(CorruptFile, match=r"blocks\.parquet"):
        Result.open(run.folder).blocks  # noqa: B018


@pytest.mark.parametrize("resume", [False, True])
def test_refused_options_come_before_the_folder(tmp_path, resume):
    folder = tmp_path / "run"
    for options in ({"engine": "ray://nowhere"}, {"mlflow": "nosuch://place"}):
        with pytest.raises((BadOption, MissingExtra)):  # the one where the package is here, the other where it is not
            ask(SmallStudy(), CONFIG, out=folder, resume=resume, **options)
    assert not folder.exists()


def test_undeclared_tables_and_repeated_units_are_defects():
    class Undeclared(SmallStudy):
        tables = SmallStudy.tables[1:]

    class Twice(SmallStudy):
        def units(self, config, stage, done):
            return [*super().units(config, stage, done)] * 2

    with pytest.raises(InvariantBroken, match="totals"):
        ask(Undeclared(), CONFIG, progress=False)
    with pytest.raises(InvariantBroken, match="one key"):
        ask(Twice(), CONFIG, progress=False)


def test_tables_are_joined_in_key_order_whatever_the_order_of_units():
    class Backwards(SmallStudy):
        def units(self, config, stage, done):
            return list(reversed(super().units(config, stage, done)))

    assert_same_answer(ask(Backwards(), CONFIG, progress=False), ask(SmallStudy(), CONFIG, progress=False))


def test_asking_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(ask(SmallStudy(), CONFIG, out=tmp_path / "r", progress=False))
    )
    thread.start()
    thread.join()
    assert results[0].status == "done"


def test_the_handler_of_sigterm_is_given_back(tmp_path):
    import signal

    before = signal.getsignal(signal.SIGTERM)
    ask(SmallStudy(), CONFIG, out=tmp_path / "run", progress=False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_results_can_be_specialised(run):
    class Scan(Result):
        @property
        def first(self):
            return self.blocks.row(0)

    scan = Scan.open(run.folder)
    assert type(scan) is Scan
    assert scan.first[0] == "block 0/3"
    again = Scan(
        **{name: getattr(run, name) for name in ("header", "layout", "findings", "tables", "figures", "summary")}
    )
    assert again.first == scan.first


def test_the_page_is_drawn_from_the_document(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(asking, "_page", lambda document: seen.append(document) or "<title>t</title>")
    ask(SmallStudy(), CONFIG, out=tmp_path / "run", progress=False)
    (document,) = seen
    assert document.header["status"] == "done"
    assert document.summary["status"] == "done"
    assert list(document.tables) == ["totals", "blocks", "products"]
    assert Path(tmp_path / "run" / "report.html").read_text() == "<title>t</title>"
