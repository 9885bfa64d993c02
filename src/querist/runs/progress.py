"""Progress on standard error: a bar on a terminal, a line every ten seconds elsewhere; or a callable."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["EVERY", "Progress", "Report"]

EVERY = 10.0
"""Seconds between two lines where standard error is no terminal."""

Report = Callable[[int, int, str], None]
"""`report(done, total, key)`: called once for each part of a unit when it has ended, in the order in which units end."""


class Progress:
    """Counts the parts of a stage's units. `report`: a callable; None for the bar or the lines; False for silence."""

    def __init__(self, title: str, total: int, done: int = 0, report: Report | bool | None = None):
        self.title, self.total, self.done = title, total, done
        self._call = report if callable(report) else None
        self._shown = None if report is False or self._call is not None or total == done else _shown(sys.stderr)

    def __enter__(self) -> Progress:
        if self._shown is not None:
            self._shown.start(self)
        return self

    def advance(self, key: str) -> None:
        """One more part has ended."""
        self.done += 1
        if self._call is not None:
            self._call(self.done, self.total, key)
        elif self._shown is not None:
            self._shown.advance(self)

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()


def _shown(stream: TextIO | None) -> _Bar | _Lines | None:
    if stream is None:
        return None
    return _Bar() if stream.isatty() else _Lines(stream)


class _Bar:
    """rich's bar, on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._rich = Rich(*columns, console=Console(stderr=True), transient=True)
        self._task: Any = None

    def start(self, progress: Progress) -> None:
        self._task = self._rich.add_task(progress.title, total=progress.total, completed=progress.done)
        self._rich.start()

    def advance(self, progress: Progress) -> None:
        self._rich.update(self._task, completed=progress.done)

    def stop(self) -> None:
        self._rich.stop()


class _Lines:
    """A line every ten seconds, also while one unit takes long; a stage shorter than that says nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, progress: Progress) -> None:
        self._thread = threading.Thread(target=self._speak, args=(progress, progress.done), daemon=True)
        self._thread.start()

    def advance(self, progress: Progress) -> None:
        pass

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _speak(self, progress: Progress, first: int) -> None:
        begun = time.monotonic()
        while not self._end.wait(EVERY):
            spent, ended = time.monotonic() - begun, progress.done - first
            left = f", about {spent / ended * (progress.total - progress.done):.0f} s left" if ended else ""
            try:
                self._stream.write(f"{progress.title}: {progress.done} of {progress.total}, {spent:.0f} s{left}\n")
                self._stream.flush()
            except (OSError, ValueError):  # the reader went away; the work goes on
                return
