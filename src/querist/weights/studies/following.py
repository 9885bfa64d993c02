"""Following a watched training from outside: its folder is read, its page kept current, its end noticed."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from querist.errors import BadOption, RunBusy, SourceNotFound
from querist.files import Lock, write_text
from querist.reports.command import EXIT_GATE
from querist.reports.commands import open_page
from querist.reports.page import render
from querist.reports.result import Result
from querist.results import gates
from querist.runs.run import read_header
from querist.weights.questions import MONITOR_QUESTIONS
from querist.weights.studies.monitor_folder import LAST, read_watched, write_answer

__all__ = ["follow", "header_now", "watch_run"]

EVERY = 1.0
"""Seconds between two looks at the folder."""


def watch_run(
    folder: Path,
    *,
    once: bool = False,
    show: bool = False,
    as_json: bool = False,
    quiet: bool = False,
    fail_if: Sequence[str] = (),
) -> int:
    """What `querist weights watch` does; its exit code: 0, 1 where the training did not end well, 3 where a gate tripped.

    Raises SourceNotFound, BadOption (another run than a Monitor's; `once` before the first look), UnknownName for a gate.
    """
    wanted = gates.parse(fail_if, MONITOR_QUESTIONS, "weights")
    shown = False
    result: Result | None = None
    for result in follow(folder, once=once):
        if not quiet:
            sys.stderr.write(_line(result) + "\n")
            sys.stderr.flush()
        if show and not shown:
            open_page(folder / "report.html")
            shown = True
    assert result is not None
    outcomes = gates.evaluate(wanted, result.findings, result.summary)
    if as_json:
        summary = {**result.summary, "status": result.status}
        sys.stdout.write(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    if not quiet:
        if result.status not in ("done", "running"):
            sys.stderr.write(f"The training is {result.status}. {result.header.get('goes_on', '')}".rstrip() + "\n")
        for outcome in outcomes:
            sys.stderr.write(outcome.sentence() + "\n")
        sys.stderr.write(f"Report: {folder / 'report.html'}\n")
    if any(outcome.tripped for outcome in outcomes):
        return EXIT_GATE
    return 0 if result.status in ("done", "running") else 1


def follow(folder: Path, *, once: bool = False, sleep: Callable[[float], object] = time.sleep) -> Iterator[Result]:
    """The answer of a watched training at each of its looks, until it ends; with `once` only as it is now.

    The page is drawn where it is absent or older than the tables, which costs the training nothing; the page of a process
    that is gone no longer reloads itself. Raises as `watch_run`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SourceNotFound(
            "There is no folder here", value=str(folder), mend="Name the folder that the Monitor was given as out"
        )
    seen: object = None
    while True:
        header = header_now(folder)
        ended = header["status"] != "running"
        mark = _mark(folder)
        if mark is not None and (mark, ended) != seen:
            seen = (mark, ended)
            result = read_watched(folder, header)
            _draw(folder, result, ended)
            yield result
        if mark is None and (once or ended):
            raise BadOption(
                f"The Monitor has not looked yet, and its training is {header['status']}"
                if ended
                else "The Monitor has not looked yet",
                value=str(folder),
                mend="Wait for its first look" if not ended else "Start the training again",
            )
        if once or ended:
            return
        sleep(EVERY)


def header_now(folder: Path) -> dict[str, Any]:
    """The header of a Monitor's folder; `interrupted` where the process that wrote it is gone from this machine.

    Raises BadOption for another run than a Monitor's, CorruptFile.
    """
    header = read_header(folder)
    if (header.get("room"), header.get("command")) != ("weights", "watch"):
        raise BadOption(
            "The folder holds a run of another command",
            value=f"{header.get('room')} {header.get('command')}",
            allowed="a folder that weights.Monitor writes",
            mend=f"Draw its page by: querist report {folder}",
        )
    if header["status"] == "running" and not _alive(header.get("host") or {}):
        header["status"] = "interrupted"
    return header


def _alive(host: Mapping[str, Any]) -> bool:
    """Whether the process may still run; on another machine nobody can tell from here."""
    if host.get("name") != socket.gethostname() or not isinstance(host.get("process"), int):
        return True
    try:
        os.kill(host["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _mark(folder: Path) -> int | None:
    """When a look was last written; None before the first one."""
    return _date(folder / "tables" / f"{LAST}.parquet") or None


def _date(path: Path) -> int:
    """When a file was written; 0 where there is none."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _draw(folder: Path, result: Result, ended: bool) -> None:
    """Draw the page where it is older than the tables, and write the answer of a process that is gone in its place."""
    page, mark = folder / "report.html", _mark(folder) or 0
    current = _date(page) >= mark
    if not ended:
        if not current:
            write_text(page, render(result.document(), reload=15))
        return
    if _date(folder / "summary.json") < mark:
        with suppress(RunBusy), Lock(folder):
            write_answer(result, folder)
    reloads = current and b'http-equiv="refresh"' in page.read_bytes()[:4096]
    if not current or reloads:
        write_text(page, render(result.document()))


def _line(result: Result) -> str:
    summary = result.summary
    overhead = summary.get("overhead")
    regimes = ", ".join(f"{count} {name}" for name, count in (summary.get("regimes") or {}).items())
    parts = [f"step {summary.get('step')}", f"{len(summary.get('alarms') or ())} alarms"]
    parts += [f"updates: {regimes}"] if regimes else []
    parts += [f"overhead {100 * overhead:.3g} %"] if overhead is not None else []
    closing = summary.get("closing_seconds")
    parts += [f"{closing:.3g} s after the end"] if closing else []
    return ", ".join(parts)
