"""One unit carried out: its folder, its threads, its time, its tables checked against their specifications."""

from __future__ import annotations

import os
import secrets
import shutil
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadInput, InvariantBroken, QueristError
from querist.files import encode_key
from querist.runs.study import Study, StudyConfig, Unit
from querist.runs.threads import limited

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FILES", "LASTING", "Outcome", "Work", "mark_files", "present_files"]

FILES = "run:"
"""What a path inside a run folder begins with in a table, so that tables do not depend on where the run lies."""

LASTING = ".lasting"
"""Folder, beside that of scratch, of units whose folders outlive a kill."""


@dataclass(frozen=True)
class Outcome:
    """How a unit ended: `error` is None where it is done.

    `folder` is where its files lie, if it left any; `frames` its tables, unless they were written there; `cause` the
    exception itself where it did not have to cross processes; `bad_input` says whether it was a person's mistake.
    """

    key: str
    seconds: float
    tables: tuple[str, ...] = ()
    frames: Mapping[str, pl.DataFrame] | None = None
    folder: Path | None = None
    error: str | None = None
    trace: str | None = None
    cause: BaseException | None = None
    bad_input: bool = False


@dataclass(frozen=True)
class Work:
    """What is done to each unit of a stage. `scratch` is the folder below which a unit's folder is made.

    With `keep` the tables are written into the unit's folder as well; without it a folder left empty is removed.
    """

    study: Study[Any]
    config: StudyConfig
    stage: str
    scratch: Path
    keep: bool

    def __call__(self, unit: Unit) -> Outcome:
        """Carry out one unit. An exception becomes part of the outcome; an interruption goes on up."""
        if unit.lasting:
            folder = self.scratch.parent / LASTING / self.stage / encode_key(unit.key)[:200]
        else:
            folder = self.scratch / f"{encode_key(unit.key)[:80]}-{secrets.token_hex(8)}"
        folder.mkdir(parents=True, exist_ok=unit.lasting)
        begun = time.perf_counter()
        try:
            with limited(unit.threads):
                rows = self.study.work(self.config, unit, folder)
            seconds = time.perf_counter() - begun
            frames = self._checked(unit, rows, folder)
            if self.keep:
                for name, frame in frames.items():
                    frame.write_parquet(folder / f"{name}.parquet", compression="zstd")
        except BaseException as error:
            if not isinstance(error, Exception):
                if not unit.lasting:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            shutil.rmtree(folder, ignore_errors=True)
            trace = None if isinstance(error, QueristError) else traceback.format_exc()
            spent = time.perf_counter() - begun
            bad = isinstance(error, BadInput)
            return Outcome(unit.key, spent, error=_told(error), trace=trace, cause=error, bad_input=bad)
        names = tuple(frames)
        if self.keep:
            return Outcome(unit.key, seconds, names, folder=folder)
        if any(folder.iterdir()):
            return Outcome(unit.key, seconds, names, frames, folder)
        folder.rmdir()
        return Outcome(unit.key, seconds, names, frames)

    def _checked(self, unit: Unit, rows: Mapping[str, Any], folder: Path) -> dict[str, pl.DataFrame]:
        specs = {spec.name: spec for spec in self.study.tables}
        unknown = sorted(set(rows) - set(specs))
        if unknown:
            raise InvariantBroken(f"unit {unit.key} of {self.study.command} returned an undeclared table {unknown[0]}")
        frames = {name: specs[name].frame(value) for name, value in rows.items()}
        if not any(folder.iterdir()):
            return frames
        mark = f"{FILES}units/{self.stage}/{encode_key(unit.key)}/"
        return {name: mark_files(frame, folder, mark) for name, frame in frames.items()}


def mark_files(frame: pl.DataFrame, folder: Path, mark: str) -> pl.DataFrame:
    """Replace the folder at the start of paths in text columns by `mark`."""
    return _swapped(frame, f"{folder}{os.sep}", mark)


def present_files(frame: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Undo `mark_files`: paths that can be opened, below the run folder (or what stands for it in memory)."""
    return _swapped(frame, FILES, f"{folder}{os.sep}")


def _swapped(frame: pl.DataFrame, old: str, new: str) -> pl.DataFrame:
    import polars as pl

    for name, kind in frame.schema.items():
        if kind == pl.String() and frame[name].str.starts_with(old).any():
            text = pl.col(name)
            moved = pl.concat_str(pl.lit(new), text.str.slice(len(old)))
            frame = frame.with_columns(pl.when(text.str.starts_with(old)).then(moved).otherwise(text).alias(name))
    return frame


def _told(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, QueristError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
