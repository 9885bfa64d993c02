"""The folder of a watched training: a run folder whose every file is whole at every moment."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.errors import BadOption, CorruptFile, RunBusy
from querist.files import write_frame, write_json, write_text
from querist.reports.page import prepare, render
from querist.reports.result import Result
from querist.results.figure import Figure
from querist.results.finding import FINDING_FIELDS
from querist.results.summary import envelope, plain
from querist.runs.provenance import versions
from querist.runs.run import Run, read_header
from querist.weights.configs import MonitorConfig
from querist.weights.studies.watching import Watched, answer
from querist.weights.tables import MONITOR_TABLES

__all__ = ["LAST", "MonitorFolder", "read_watched", "refuse_file", "reload_seconds", "watched_result", "write_answer"]

SOONEST, LATEST = 5, 300
"""Seconds between two reloads of a page: nobody reads faster, and nobody waits longer."""


LAST = "events"
"""The table that is written last at each look."""


class MonitorFolder:
    """A locked run folder: its tables are written at every look, what is drawn from them now and then.

    Each file replaces the one before by a rename, so that a process killed at any moment leaves a folder that opens: at
    worst some of its files are older than others, and `read_watched` makes the answer from the tables.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        refuse_file(self.folder)
        prepare()
        versions()
        self._run: Run | None = None
        self._written: dict[str, Any] = {}

    def begin(self, header: Mapping[str, Any], *, resume: bool) -> None:
        """Lock the folder and begin, or go on with, the run in it. Raises RunBusy, BadOption as `Run` does."""
        if not resume and (self.folder / "run.json").is_file():
            raise RunBusy(
                f"The folder holds a run already ({read_header(self.folder)['status']})",
                value=str(self.folder),
                mend="Load the monitor's state from the training's checkpoint to go on with it, or use another folder",
            )
        run = Run(self.folder, resume=True)
        run.__enter__()
        try:
            run.begin(header)
        except BaseException as error:
            run.__exit__(type(error), error, None)
            raise
        # A training that was finished once may go on for more epochs: its folder is then written again.
        run.header |= {name: header[name] for name in ("status", "finished", "failed", "host", "argv", "goes_on")}
        write_json(self.folder / "run.json", run.header)
        self._run = run

    @property
    def open(self) -> bool:
        """Whether this process holds the folder."""
        return self._run is not None

    def write_tables(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Write the tables that have changed, `events` last: its date says that a look is there."""
        (self.folder / "tables").mkdir(exist_ok=True)
        for name in sorted(tables, key=lambda name: name == LAST):
            known = self._written.get(name)
            if known is None or not tables[name].equals(known):
                write_frame(self.folder / "tables" / f"{name}.parquet", tables[name])
                self._written[name] = tables[name]

    def draw(self, result: Result, *, reload: int | None) -> None:
        """Write all but the tables: figures and findings, what refers to them, and the page."""
        write_answer(result, self.folder, self._written)
        write_text(self.folder / "report.html", render(result.document(), reload=reload))

    def settle(self, result: Result) -> None:
        """Write what is known only once the page is there: what it took."""
        self.write_tables(result.tables)
        write_json(self.folder / "summary.json", result.summary)
        (self.folder / "report.html").touch()  # it is not older than what it shows

    def end(self, status: str, seconds: float) -> None:
        """Close the books (done, interrupted or failed) and give the folder back."""
        if self._run is None:
            return
        run, self._run = self._run, None
        run.end(status, seconds=seconds)
        run.__exit__(None, None, None)

    def release(self) -> None:
        """Give the folder back as it is."""
        if self._run is not None:
            run, self._run = self._run, None
            run.__exit__(None, None, None)


def watched_result(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], folder: Path | None) -> Result:
    """The answer of a watched training as its tables stand; `head`: its run's header, with its status and network."""
    config = MonitorConfig(**head["config"])
    told = answer(config, tables, head.get("network", "the network"), done=head["status"] == "done")
    summary = envelope(
        head,
        schema=Watched.version,
        run=None if folder is None else str(folder),
        warnings=told.warnings,
        passed_over=told.passed_over,
        tables={name: None if folder is None else f"tables/{name}.parquet" for name in tables},
        findings=told.findings,
        own=told.summary,
    )
    drawn: Sequence[Figure] = told.figures  # type: ignore[assignment] - `answer` gives a list
    figures = {figure.name: Figure(**plain(figure.as_dict())) for figure in drawn}
    return Result(head, told.layout, tuple(told.findings), tables, figures, summary, folder)


def read_watched(folder: Path, head: Mapping[str, Any]) -> Result:
    """The same from a folder's tables, which may be newer than its page and findings. Raises CorruptFile."""
    tables = {}
    for spec in MONITOR_TABLES:
        path = folder / "tables" / f"{spec.name}.parquet"
        try:
            tables[spec.name] = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise CorruptFile(f"A table cannot be read ({error})", value=str(path)) from error
    # A process that was killed while it wrote has left rows of a look whose event was not written: they say nothing yet.
    last = tables[LAST]["step"].max()
    for name, frame in tables.items():
        if "step" in frame.columns and name != "watched":
            tables[name] = frame.filter(pl.col("step") <= last)
    return watched_result(head, tables, folder)


def write_answer(result: Result, folder: Path, written: dict[str, Any] | None = None) -> None:
    """Write figures, findings, layout and summary; `written`: marks of the figures that are there already, kept up to date."""
    written = {} if written is None else written
    (folder / "figures").mkdir(exist_ok=True)
    for figure in result.figures.values():
        drawn = figure.as_dict()
        # Most figures do not change between two whole spectra, and each file waits for the disk twice.
        mark = hash(json.dumps(drawn, sort_keys=True))
        path = folder / "figures" / f"{figure.name}.json"
        if written.get(path.name) != mark or not path.is_file():
            write_json(path, drawn)
            written[path.name] = mark
    text = {"subject", "question", "unit", "verdict", "because"}
    schema = {name: pl.String() if name in text else pl.Float64() for name in FINDING_FIELDS}
    rows = pl.DataFrame([finding.as_dict() for finding in result.findings], schema=schema)
    write_frame(folder / "findings.parquet", rows)
    write_json(folder / "layout.json", plain(result.layout.as_dict()))
    write_json(folder / "summary.json", result.summary)
    for path in (folder / "figures").glob("*.json"):
        if path.stem not in result.figures:
            path.unlink()


def reload_seconds(drawn: int, begun: float) -> int:
    """How often a page should load itself again: about as often as it is drawn."""
    mean = (time.monotonic() - begun) / max(drawn, 1)
    return int(max(SOONEST, min(mean, LATEST)))


def refuse_file(folder: Path) -> None:
    """Refuse a path that is a file before training begins. Raises BadOption."""
    if folder.exists() and not folder.is_dir():
        raise BadOption("The run folder is a file", value=str(folder), mend="Name a new folder")
