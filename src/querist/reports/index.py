"""The index: one page over many runs, and how runs are gathered from a folder. A run that cannot be read is listed too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from querist.reports.page import asset, draw
from querist.reports.present import NEWS, questions_of, tally
from querist.results.finding import FINDING_FIELDS, VERDICTS, Finding
from querist.results.question import Question

__all__ = ["gather", "index"]

_FIELDS = ("folder", "title", "room", "command", "status", "started", "seconds", "verdicts", "news", "report", "reason")


def index(rows: Sequence[Mapping[str, Any]], *, title: str = "Runs", lead: str = "") -> str:
    """One HTML page over runs, sortable by every column.

    A row holds `folder, room, command, status, started, seconds`, and where they are known `title`, `verdicts` (verdict
    to count), `news` (a key of `NEWS` to count), `report` (link relative to the page) and `reason` (why there is none).
    """
    full = [{name: row.get(name) for name in _FIELDS} for row in rows]
    return draw("index.html", [asset("theme.js"), asset("sort.js")], rows=full, title=title, lead=lead)


def gather(folder: Path, relative_to: Path) -> list[dict[str, Any]]:
    """Rows of `index` for every run folder at or below `folder`, newest first; links are relative to `relative_to`."""
    rows = [_row(found, folder, relative_to) for found in _runs(folder)]
    rows.sort(key=lambda row: row["folder"])
    return sorted(rows, key=lambda row: row["started"] or "", reverse=True)


def _runs(folder: Path) -> Iterator[Path]:
    """Folders that hold a run.json. Nothing below a run is another run, and its units may be many thousands."""
    for place, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if "run.json" in files:
            below.clear()
            yield Path(place)


def _row(run: Path, folder: Path, relative_to: Path) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(_FIELDS)
    row["folder"] = run.relative_to(folder).as_posix() if run != folder else run.resolve().name
    try:
        header = json.loads((run / "run.json").read_text(encoding="utf-8"))
        row |= {name: header.get(name) for name in ("room", "command", "status", "started", "seconds")}
    except (OSError, ValueError, AttributeError) as error:
        return row | {"status": "unreadable", "reason": f"run.json: {error}"}
    if (run / "report.html").is_file():
        row["report"] = quote(Path(os.path.relpath(run / "report.html", relative_to)).as_posix())
    try:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        layout = json.loads((run / "layout.json").read_text(encoding="utf-8"))
        findings = [Finding(**{name: one[name] for name in FINDING_FIELDS}) for one in summary["findings"]]
        row |= {"title": layout["title"], **_counts(findings, [Question(**one) for one in layout["questions"]])}
    except FileNotFoundError:
        row["reason"] = "not finished" if row["status"] != "done" else "its summary or layout is missing"
    except Exception as error:
        row["reason"] = f"summary.json or layout.json: {type(error).__name__}: {error}"
    return row


def _counts(findings: Sequence[Finding], declared: Sequence[Question]) -> dict[str, dict[str, int]]:
    verdicts, news = dict.fromkeys(VERDICTS, 0), dict.fromkeys(NEWS, 0)
    for row in tally(findings, questions_of(findings, declared)):
        for part in row["parts"]:
            verdicts[part["verdict"]] += part["count"]
            news[part["news"]] += part["count"]
    return {"verdicts": verdicts, "news": news}
