"""Asking: check, carry out, finish, write, render. Commands and verbs of every room go through here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, InvariantBroken
from querist.files import write_text
from querist.reports.document import Document
from querist.reports.result import Result
from querist.results.figure import Figure
from querist.results.lazy import Lazy
from querist.results.summary import envelope, plain
from querist.runs.carry import carry
from querist.runs.engines import Engine, choose
from querist.runs.memory import Memory
from querist.runs.progress import Report
from querist.runs.provenance import header, now
from querist.runs.run import Run
from querist.runs.study import Answer, Study, StudyConfig, Unit
from querist.runs.work import FILES, mark_files

if TYPE_CHECKING:
    import os

    import polars as pl

    from querist.runs.mlflow import Tracking

__all__ = ["ask"]


def ask(
    study: Study[Any],
    config: StudyConfig,
    *,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Report | bool | None = None,
    mlflow: str | None = None,
    argv: Sequence[str] | None = None,
) -> Result:
    """Carry out a study, in memory or in the run folder `out`, and return its answer.

    In memory nothing is written and inputs are not fingerprinted. `progress`: a callable (done, total, key), None for a
    bar on standard error, False for silence. `argv`: the command line, where one was typed. Raises what `study.check` and
    `Run` raise, UnitsFailed where units raised, KeyboardInterrupt where the run was interrupted (by Ctrl-C or SIGTERM); a
    run folder is kept and can be resumed. `mlflow`: a tracking address to which the finished run folder is logged as well.
    """
    for what, asked in (("resume", resume), ("log to MLflow", mlflow is not None)):
        if asked and out is None:
            raise BadOption(f"There is nothing to {what} without a run folder", mend="Name it: --out DIR (out=DIR)")
    engine_for = choose(engine)
    study.check(config)
    tracking = None if mlflow is None else _tracking(mlflow, study)
    report = None if progress is True else progress
    if out is None:
        return _in_memory(study, config, engine, engine_for, report)
    with Run(Path(out), resume=resume) as run, _terminable():
        run.begin(header(study, config, engine, study.inputs(config), argv))
        if run.header["status"] == "done":
            return _logged(Result.open(run.folder), tracking)
        tables = carry(study, config, run, engine_for, report)
        answer = study.finish(config, tables)
        seconds = run.seconds
        head = run.header | {"status": "done", "finished": now(), "seconds": seconds}
        result = _result(study, head, answer, tables, run, [*run.warnings, *answer.warnings])
        run.keep_folders(answer.kept)
        run.write_answer(result.tables, result.findings, result.figures.values(), result.layout, result.summary)
        write_text(run.folder / "report.html", _page(result.document()))
        run.end("done", seconds=seconds)
    return _logged(Result.open(run.folder), tracking)


def _tracking(uri: str, study: Study[Any]) -> Tracking:
    from querist.runs.mlflow import Tracking

    return Tracking(uri, study.room, study.command)


def _logged(result: Result, tracking: Tracking | None) -> Result:
    """The result of a finished run folder, told to MLflow where that is wished."""
    if tracking is not None and result.folder is not None:
        tracking.log(result.folder, result.header, result.summary)
    return result


def _in_memory(
    study: Study[Any],
    config: StudyConfig,
    engine: str,
    engine_for: Callable[[Sequence[Unit]], Engine],
    report: Report | bool | None,
) -> Result:
    memory = Memory()
    head = header(study, config, engine, {})
    tables = carry(study, config, memory, engine_for, report)
    answer = study.finish(config, tables)
    memory.drop_empty()
    head |= {"status": "done", "finished": now(), "seconds": memory.seconds}
    return _result(study, head, answer, tables, memory, answer.warnings)


def _result(
    study: Study[Any],
    head: Mapping[str, Any],
    answer: Answer,
    carried: Mapping[str, pl.DataFrame],
    store: Run | Memory,
    warnings: Sequence[str],
) -> Result:
    tables = _declared(study, answer.tables, carried, store)
    folder = store.folder if isinstance(store, Run) else None
    summary = envelope(
        head,
        schema=study.version,
        run=None if folder is None else str(folder),
        warnings=warnings,
        passed_over=answer.passed_over,
        tables={name: None if folder is None else f"tables/{name}.parquet" for name in tables},
        findings=answer.findings,
        own=answer.summary,
    )
    drawn = (
        answer.figures if isinstance(answer.figures, Mapping) else {figure.name: figure for figure in answer.figures}
    )
    figures = Lazy({name: partial(drawn.__getitem__, name) for name in drawn}).then(_plain)
    return Result(head, answer.layout, tuple(answer.findings), tables, figures, summary, folder, store)


def _plain(name: str, figure: Figure) -> Figure:
    """A figure of plain JSON values, as a run folder would give it back."""
    return Figure(**plain(figure.as_dict()))


def _declared(
    study: Study[Any], tables: Mapping[str, pl.DataFrame], carried: Mapping[str, pl.DataFrame], store: Run | Memory
) -> Mapping[str, pl.DataFrame]:
    """The answer's tables, each as its specification has it; those handed on from the units as they are."""
    specs = {spec.name: spec for spec in study.tables}
    unknown = sorted(set(tables) - set(specs))
    if unknown:
        raise InvariantBroken(f"{study.room} {study.command} ends with an undeclared table {unknown[0]}")
    marks = not isinstance(store, Memory) or store.has_files

    def declare(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        if frame is not carried.get(name):
            frame = specs[name].frame(frame)
        return mark_files(frame, store.folder, FILES) if marks else frame

    if isinstance(tables, Lazy):
        return tables.then(declare)
    return {name: declare(name, frame) for name, frame in tables.items()}


def _page(document: Document) -> str:
    from querist.reports.page import render

    return render(document)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that the run's books are closed. Only the main thread may do this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt("terminated")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
