"""The folder of a watched training: a run folder whose every file is whole at every moment."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from querist.errors import BadOption, RunBusy
from querist.files import write_frame, write_json, write_text
from querist.reports.page import prepare, render
from querist.reports.result import Result
from querist.results.finding import FINDING_FIELDS
from querist.results.summary import plain
from querist.runs.run import Run, read_header

__all__ = ["MonitorFolder", "refuse_file", "reload_seconds"]

SOONEST, LATEST = 5, 300
"""Seconds between two reloads of a page: nobody reads faster, and nobody waits longer."""


class MonitorFolder:
    """A locked run folder that is written as a whole at every look: tables and figures first, then what refers to them.

    The files of a look replace those of the one before, each by a rename, so that a process killed at any moment leaves a
    folder that opens: at worst some of its files are one look older than others.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        refuse_file(self.folder)
        prepare()
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

    def write(self, result: Result, *, reload: int | None) -> None:
        """Write an answer; `reload`: seconds after which its page loads itself again."""
        for name in ("tables", "figures"):
            (self.folder / name).mkdir(exist_ok=True)
        for name, frame in result.tables.items():
            known = self._written.get(name)
            if known is None or not frame.equals(known):
                write_frame(self.folder / "tables" / f"{name}.parquet", frame)
                self._written[name] = frame
        for figure in result.figures.values():
            drawn = figure.as_dict()
            # Most figures do not change between two whole spectra, and each file waits for the disk twice.
            mark = hash(json.dumps(drawn, sort_keys=True))
            path = self.folder / "figures" / f"{figure.name}.json"
            if self._written.get(path.name) != mark or not path.is_file():
                write_json(path, drawn)
                self._written[path.name] = mark
        text = {"subject", "question", "unit", "verdict", "because"}
        schema = {name: pl.String() if name in text else pl.Float64() for name in FINDING_FIELDS}
        rows = pl.DataFrame([finding.as_dict() for finding in result.findings], schema=schema)
        write_frame(self.folder / "findings.parquet", rows)
        write_json(self.folder / "layout.json", plain(result.layout.as_dict()))
        write_json(self.folder / "summary.json", result.summary)
        write_text(self.folder / "report.html", render(result.document(), reload=reload))
        for path in (self.folder / "figures").glob("*.json"):
            if path.stem not in result.figures:
                path.unlink()

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


def reload_seconds(looks: int, begun: float) -> int:
    """How often a page should load itself again: about as often as there is something new."""
    mean = (time.monotonic() - begun) / max(looks, 1)
    return int(max(SOONEST, min(mean, LATEST)))


def refuse_file(folder: Path) -> None:
    """Refuse a path that is a file before training begins. Raises BadOption."""
    if folder.exists() and not folder.is_dir():
        raise BadOption("The run folder is a file", value=str(folder), mend="Name a new folder")
