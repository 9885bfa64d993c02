"""The fragment that a notebook shows: the findings that matter first and the head of the first table, without a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querist.reports.document import Document
from querist.reports.page import fill, specification
from querist.reports.present import NEWS, groups, number, questions_of

__all__ = ["fragment"]

FINDINGS, ROWS, COLUMNS = 15, 5, 9


def fragment(document: Document) -> str:
    """A small piece of HTML for `_repr_html_`; colours are the notebook's own."""
    questions = questions_of(document.findings, document.layout.questions)
    order = list(NEWS)
    rows = [row for group in groups(document.findings, questions) for row in group.rows]
    rows.sort(key=lambda row: order.index(row.news))
    told = "No findings."
    if rows:
        told = (
            f"{len(rows)} findings" if len(rows) <= FINDINGS else f"{FINDINGS} of {len(rows)} findings, bad news first"
        )
        told += ". Their reasons are in the tooltips; report(path) writes the whole page."
    return fill("fragment.html", layout=document.layout, findings=rows[:FINDINGS], told=told, table=_head(document))


def _head(document: Document) -> Mapping[str, Any] | None:
    named = [name for section in document.layout.sections for name in section.tables if name in document.tables]
    name = next(iter([*named, *document.tables]), None)
    if name is None:
        return None
    spec, frame = specification(document, name), document.tables[name]
    columns = [c for c in spec.columns if c.name in frame.columns and frame[c.name].null_count() < max(frame.height, 1)]
    shown = columns[:COLUMNS]
    values = [frame[c.name].head(ROWS).to_list() for c in shown]
    told = f"{min(ROWS, frame.height)} of {frame.height:,} rows, {len(shown)} of {len(spec.columns)} columns"
    rows = [[_text(cell) for cell in row] for row in zip(*values, strict=True)]
    return {"name": name, "meaning": spec.meaning, "columns": shown, "rows": rows, "told": told}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or "–"
    return value if isinstance(value, str) else number(value)
