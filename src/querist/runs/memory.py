"""What stands for a run folder where nothing is to be kept."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from querist.files import encode_key
from querist.runs.work import Outcome, present_files

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Memory"]


class Memory:
    """Outcomes held in memory; a temporary folder, made when it is first asked for, holds the files of units.

    The folder goes when this object does.
    """

    keep = False

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._frames: dict[tuple[str, str], dict[str, pl.DataFrame]] = {}
        self._clock = time.perf_counter()

    @property
    def folder(self) -> Path:
        """Stands for the run folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="querist-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    @property
    def scratch(self) -> Path:
        """Where units write."""
        return self.folder / "scratch"

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.perf_counter() - self._clock

    def done(self, stage: str) -> set[str]:
        """Keys of the stage's units that are done."""
        return {key for where, key in self._frames if where == stage}

    def commit(self, stage: str, outcome: Outcome) -> None:
        """Take in a unit's tables and files."""
        if outcome.frames is None:
            return
        if outcome.folder is not None:
            place = self.folder / "units" / stage / encode_key(outcome.key)
            place.parent.mkdir(parents=True, exist_ok=True)
            outcome.folder.rename(place)
        self._frames[stage, outcome.key] = {
            name: present_files(frame, self.folder) if outcome.folder is not None else frame
            for name, frame in outcome.frames.items()
        }

    def tables(self, stage: str, key: str) -> dict[str, pl.DataFrame]:
        """A finished unit's tables."""
        return self._frames[stage, key]

    @property
    def has_files(self) -> bool:
        """Whether units left files."""
        return self._folder is not None and (self.folder / "units").exists()

    def drop_empty(self) -> None:
        """Remove the temporary folder unless units left files in it."""
        if self._folder is not None and not self.has_files:
            shutil.rmtree(self._folder, ignore_errors=True)
