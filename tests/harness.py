"""The checks that every study and every test statistic passes, whatever its room."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import json
import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from querist.errors import BadInput
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.results.finding import FINDING_FIELDS
from querist.results.summary import ENVELOPE
from querist.runs.journal import Journal
from querist.runs.study import Study, StudyConfig

PATIENCE = 600.0
"""Seconds after which what has to happen is given up: no measure of speed, for the machine may be at work elsewhere."""
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray gives its workers way to every other process: on a machine at work elsewhere they took minutes to import torch.
IGNORED = ("seconds", "bytes_peak")
"""What is measured of the work itself, and so differs from one sitting to the next."""


# ------------------------------------------------------------------------------------------------------------ studies


def check_study(
    study_factory: Callable[[], Study[Any]],
    config: StudyConfig,
    tmp_path: Path,
    *,
    engines: Sequence[str] = ("local:2", "ray"),
    kill: bool = True,
    chromium: str | None = None,
    seed: int = 0,
) -> Result:
    """What every study must do; returns its result from memory.

    It gives the same tables in memory and in a folder, from every engine (Ray where it is installed), and after a SIGKILL at a
    random unit followed by `resume`; its tables match their specifications, its findings' questions are declared, its layout names exist,
    its summary opens with the envelope, and its report opens in a browser without a network. `study_factory` is a
    function or class that another process can import.
    """
    study = study_factory()
    memory = ask(study, config, progress=False)
    check_answer(study, memory)

    folder = tmp_path / "whole"
    whole = ask(study_factory(), config, out=folder, progress=False)
    assert_same_answer(whole, memory)
    check_folder(folder, whole)
    again = ask(study_factory(), config, out=folder, resume=True, progress=False)
    assert_same_answer(again, memory)
    for engine in engines:
        if engine == "ray" and not ray_is_here():
            continue
        out = tmp_path / engine.replace(":", "-")
        assert_same_answer(ask(study_factory(), config, out=out, engine=engine, progress=False), memory)
    if kill:
        units = len(Journal(folder / "units.jsonl").entries())
        after = random.Random(f"{seed} {study.command}").randint(1, max(1, units - 1))
        killed = tmp_path / "killed"
        ask_and_die(study_factory, config, killed, after)
        lines = (killed / "units.jsonl").read_bytes()
        resumed = ask(study_factory(), config, out=killed, resume=True, progress=False)
        assert (killed / "units.jsonl").read_bytes().startswith(lines), "finished units were done again"
        assert_same_answer(resumed, memory)
    if chromium is not None:
        check_page(folder / "report.html", chromium)
    return memory


@cache
def ray_is_here() -> bool:
    """Whether the extra is installed; its cluster then stays for all tests of this process, workers and their imports too."""
    if importlib.util.find_spec("ray") is None:
        return False
    from querist.runs.engines.ray import Ray

    cluster = Ray("ray")
    cluster._connected()
    atexit.register(cluster.close)
    return True


def check_answer(study: Study[Any], result: Result) -> None:
    """Tables as specified, questions declared, layout names that exist, the envelope."""
    specs = {spec.name: spec for spec in study.tables}
    for name, frame in result.tables.items():
        assert dict(frame.schema) == specs[name].schema(), f"table {name} is not as specified"
        for column in frame.select(pl.col(pl.Float64)).iter_columns():
            assert column.drop_nulls().is_finite().all(), f"{name}.{column.name} holds a number that is not finite"
    questions = {question.id for question in study.questions}
    for question in questions:
        assert question.startswith(f"{study.room}."), question
    for finding in result.findings:
        assert finding.question in questions, f"question {finding.question} is not declared"
        assert finding.because.strip().endswith("."), f"no sentence: {finding.because!r}"
    layout = result.layout
    described = {spec.name for spec in layout.tables}
    for section in layout.sections:
        assert set(section.figures) <= set(result.figures), f"section {section.title} names a figure that is not there"
        assert set(section.tables) <= set(result.tables), f"section {section.title} names a table that is not there"
        assert set(section.tables) <= described, f"section {section.title} shows a table without a specification"
    for figure in result.figures.values():
        assert figure.table is None or figure.table in result.tables, f"figure {figure.name} was drawn from no table"
        assert result.figure(figure.name).to_dict()["data"] is not None
    check_summary(study, result)


def check_summary(study: Study[Any], result: Result) -> None:
    """The envelope: its keys first and in order, plain JSON, the same findings and tables."""
    summary = result.summary
    assert tuple(summary)[: len(ENVELOPE)] == ENVELOPE
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["schema"] == f"querist.{study.room}.{study.command}/{study.version}"
    assert summary["status"] == "done"
    assert list(summary["tables"]) == list(result.tables)
    assert summary["findings"] == [finding.as_dict() for finding in result.findings]
    assert all(tuple(row) == FINDING_FIELDS for row in summary["findings"])
    assert all({"what", "reason"} <= set(row) for row in summary["passed_over"])


def check_folder(folder: Path, result: Result) -> None:
    """A finished run folder: all its files, nothing left over, and the same answer when it is read again."""
    names = {path.name for path in folder.iterdir()}
    whole = {"run.json", "tables", "findings.parquet", "figures", "layout.json", "summary.json", "report.html"}
    kept = set(json.loads((folder / "run.json").read_text()).get("kept", ()))
    assert names - {"units", "units.jsonl"} == whole | kept, f"left over: {names - whole - kept}"
    assert not list(folder.rglob(".*")), "temporary files were left"
    assert json.loads((folder / "run.json").read_text())["status"] == "done"
    assert json.loads((folder / "summary.json").read_text()) == result.summary
    assert_same_answer(Result.open(folder), result)


def assert_same_answer(one: Result, other: Result) -> None:
    """Equal bit for bit in tables, findings, figures, layout and summary; time and place apart."""
    assert_same_tables(one.tables, other.tables)
    assert one.findings == other.findings
    assert one.layout == other.layout
    assert {name: figure.as_dict() for name, figure in one.figures.items()} == {
        name: figure.as_dict() for name, figure in other.figures.items()
    }
    apart = {"run", "seconds", "tables"}
    assert _timeless({k: v for k, v in one.summary.items() if k not in apart}) == _timeless(
        {k: v for k, v in other.summary.items() if k not in apart}
    )


def _timeless(value: Any) -> Any:
    """A summary's rows repeat table columns: `seconds` goes there as well."""
    if isinstance(value, Mapping):
        return {key: _timeless(item) for key, item in value.items() if key not in IGNORED}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def assert_same_tables(one: Mapping[str, pl.DataFrame], other: Mapping[str, pl.DataFrame]) -> None:
    """The same tables, rows in the same order, every column but `seconds` equal bit for bit."""
    assert list(one) == list(other)
    for name in one:
        left, right = one[name], other[name]
        assert left.schema == right.schema, name
        assert left.height == right.height, name
        for column in left.columns:
            if column not in IGNORED:
                assert _bits(left[column]) == _bits(right[column]), f"{name}.{column} differs"


def _bits(column: pl.Series) -> object:
    """A column as something whose equality is equality of bits: -0.0 is not 0.0 here."""
    if isinstance(column.dtype, pl.List):
        return column.list.len().to_list(), _bits(column.drop_nulls().explode().rename(""))
    if column.dtype.is_float():
        return column.is_null().to_list(), column.fill_null(0.0).to_numpy().tobytes()
    return column.to_list()


class KillAfter:
    """A progress callable that ends its own process by SIGKILL once it was called so often: some unit is done by then."""

    def __init__(self, units: int):
        self.left = units

    def __call__(self, done: int, total: int, key: str) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def ask_and_die(
    study_factory: Callable[[], Study[Any]], config: StudyConfig, out: Path, after: int, engine: str = "serial"
) -> None:
    """Ask in another process that is killed for good after `after` units."""
    process = get_context("spawn").Process(target=_ask_and_die, args=(study_factory, config, out, after, engine))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, f"the process ended with {process.exitcode}"
    process.close()


def _ask_and_die(factory: Callable[[], Study[Any]], config: StudyConfig, out: Path, after: int, engine: str) -> None:
    ask(factory(), config, out=out, engine=engine, resume=True, progress=KillAfter(after))


BROWSER = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def started(playwright: Any, chromium: str) -> Any:
    """A browser that asks nothing of the network of its own accord."""
    return playwright.chromium.launch(executable_path=chromium, args=list(BROWSER), timeout=1000 * PATIENCE)


def patient(context: Any) -> Any:
    """The context, whose pages may take as long as anything else."""
    context.set_default_timeout(1000 * PATIENCE)
    return context


def check_page(path: Path, chromium: str) -> None:
    """A page opens without a network, asks for nothing outside itself and says nothing to the console."""
    from playwright.sync_api import sync_playwright

    outside: list[str] = []
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = started(playwright, chromium)
        context = patient(browser.new_context(offline=True))
        page = context.new_page()
        page.on("request", lambda request: outside.append(request.url))
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.goto(path.resolve().as_uri(), wait_until="load")
        title = page.title()
        browser.close()
    assert [url for url in outside if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [url for url in outside if url.startswith("file:")] == [path.resolve().as_uri()], "the page is not one file"
    assert [line for line in said if line.startswith(("error", "warning"))] == []
    assert title.strip(), "the page has no title"


# -------------------------------------------------------------------------------------------------------- calibration


def check_level(
    test: Callable[[Any], float],
    draw: Callable[[np.random.Generator], Any],
    runs: int = 400,
    level: float = 0.05,
    within: float = 0.02,
    *,
    seed: int = 0,
    conservative: bool = False,
) -> float:
    """The share of true nulls that a test rejects is its level; with `conservative` it is no more. Returns the share.

    `draw(rng)` gives data for which the null holds, `test(data)` a p value.
    """
    share = float(np.mean([test(draw(np.random.default_rng([seed, run]))) <= level for run in range(runs)]))
    assert share <= level + within, f"{share:.3f} of {runs} true nulls are rejected at level {level}"
    assert conservative or share >= level - within, (
        f"only {share:.3f} of {runs} true nulls are rejected at level {level}"
    )
    return share


def check_coverage(
    interval: Callable[[Any], tuple[float, float]],
    draw: Callable[[np.random.Generator], Any],
    truth: float,
    runs: int = 400,
    within: float = 0.02,
    *,
    level: float = 0.95,
    seed: int = 0,
    conservative: bool = False,
) -> float:
    """The share of intervals that hold the truth is their level, or with `conservative` no less. Returns the share."""
    held = 0
    for run in range(runs):
        low, high = interval(draw(np.random.default_rng([seed, run])))
        held += low <= truth <= high
    share = held / runs
    assert share >= level - within, f"only {share:.3f} of {runs} intervals at level {level} hold the truth"
    assert conservative or share <= level + within, f"{share:.3f} of {runs} intervals at level {level} hold the truth"
    return share


# ---------------------------------------------------------------------------------------------------------- bad input


@dataclass(frozen=True)
class Bad:
    """One bad input: a call or a command line, the error class or exit code, and what the message must hold.

    `valueless` for the few faults that have no offending value, such as a missing option.
    """

    call: Callable[[], object] | Sequence[str]
    expected: type[BadInput] | int
    fragments: Sequence[str] = ()
    valueless: bool = False


def check_bad_input(rows: Iterable[Bad | tuple[Any, ...]]) -> None:
    """Each row ends in one message that says what is wrong, the value, what is allowed or how to mend it."""
    for row in rows:
        bad = row if isinstance(row, Bad) else Bad(*row)
        message = _said_by_call(bad) if callable(bad.call) else _said_by_command(bad)
        for fragment in bad.fragments:
            assert fragment in message, f"{fragment!r} is not in {message!r}"


def _said_by_call(bad: Bad) -> str:
    assert isinstance(bad.expected, type)
    assert callable(bad.call)
    with pytest.raises(bad.expected) as caught:
        bad.call()
    error = caught.value
    assert type(error).exit_code == 2
    assert error.what.strip(), "the message does not say what is wrong"
    assert bad.valueless or error.value is not None, f"the message does not show the value: {error}"
    assert error.allowed or error.mend, f"the message says neither what is allowed nor how to mend it: {error}"
    return str(error)


def _said_by_command(bad: Bad) -> str:
    from querist.cli import main

    assert isinstance(bad.expected, int)
    assert not callable(bad.call)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(bad.call))
    said = err.getvalue()
    assert code == bad.expected, f"exit code {code}, not {bad.expected}: {said}"
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith("querist: ")]
    assert len(lines) == 1, f"not one message: {said!r}"
    assert out.getvalue() == "", "a refused command wrote to standard output"
    return lines[0]
