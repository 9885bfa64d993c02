"""Asking the small study in another process, to be killed there; and letting faults in between two steps of a write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

from tests.harness import PATIENCE
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.reports import ask as asking
from querist.reports.ask import ask
from querist.runs.journal import Journal


def plain_page(set_attribute=setattr):
    set_attribute(asking, "_page", lambda document: f"<title>{document.layout.title}</title>")


def asked(out, config=None, **options):
    return ask(SmallStudy(), config or SmallConfig(), out=out, progress=False, **options)


class Asking:
    """The small study asked in another process."""

    def __init__(self, out: Path, config: SmallConfig, *, engine="serial"):
        arguments = (out, config, engine)
        self.out = Path(out)
        self.process = get_context("spawn").Process(target=_ask_here, args=arguments)
        self.process.start()

    def until_done(self, units: int, seconds: float = PATIENCE) -> None:
        """Wait until the journal holds so many units."""
        journal = Journal(self.out / "units.jsonl")
        end = time.monotonic() + seconds
        while len(journal.entries()) < units:
            assert self.process.is_alive(), f"ended early with {self.process.exitcode}"
            assert time.monotonic() < end, "the units took too long"
            time.sleep(0.005)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal; with `group` to its workers as well, as a terminal does on Ctrl-C."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, seconds: float = PATIENCE) -> int | None:
        """The exit code: negative for a signal."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        return code


def _ask_here(out, config, engine):
    os.setpgrp()
    plain_page()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        asked(out, config, engine=engine, resume=True)
    except KeyboardInterrupt:
        sys.exit(130)


def fall_at_write(number: int, when: str) -> None:
    """SIGKILL this process at its `number`-th rename, `before` or `after` it happens."""
    rename, count = os.replace, 0

    def replace(source, target):
        nonlocal count
        count += 1
        if count == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if count == number and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace


def processes_below(pid: int) -> list[int]:
    """Process ids of all descendants."""
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def gone(pids: list[int], seconds: float = PATIENCE) -> bool:
    """Whether all of these processes end within so many seconds."""
    end = time.monotonic() + seconds
    while any(map(_runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run_script(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
        check=False,
    )
