"""What fits on a page: rows of tables and figures up to a number of bytes; what is left out is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from querist.results.figure import Figure
from querist.results.summary import plain
from querist.results.table import TableSpec

if TYPE_CHECKING:
    import polars as pl

__all__ = ["PAGE_BYTES", "TABLE_BYTES", "TABLE_ROWS", "embed", "fair_limit", "fit_figures", "table_json"]

PAGE_BYTES = 10_000_000
"""No page is heavier: browsers open it at once and mail carries it. plotly.js takes 4.8 million of them."""
TABLE_BYTES = 1_600_000
"""All tables of a page together; the whole tables lie beside the page."""
TABLE_ROWS = 5000
"""Rows of one table that a page holds: sorting them takes a browser a tenth of a second."""

_SAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_EXACT = 2**53


def embed(value: Any) -> str:
    """JSON that no HTML parser can leave: for a script element of type application/json."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _SAFE.items():
        text = text.replace(letter, code)
    return text


def table_json(spec: TableSpec, frame: pl.DataFrame, limit: float, path: str | None) -> str:
    """A table's columns and first rows as JSON of about `limit` bytes at most; the total count of rows is in it."""
    rows = min(frame.height, TABLE_ROWS)
    text = _table(spec, frame.head(rows), frame.height, path)
    while len(text) > limit and rows > 10:
        rows = max(10, min(int(rows * limit / len(text)), int(rows * 0.95)))
        text = _table(spec, frame.head(rows), frame.height, path)
    return text


def _table(spec: TableSpec, frame: pl.DataFrame, total: int, path: str | None) -> str:
    columns = [column for column in spec.columns if column.name in frame.columns]
    return embed(
        {
            "name": spec.name,
            "key": list(spec.key),
            "shown": list(spec.shown),
            "columns": [[c.name, c.kind, c.unit, c.meaning] for c in columns],
            "values": [[_cell(value) for value in frame[c.name].to_list()] for c in columns],
            "total": total,
            "path": path,
        }
    )


def _cell(value: Any) -> Any:
    """Whole numbers that JavaScript would round are sent as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT else value


def fair_limit(sizes: Iterable[int], total: int) -> float:
    """The largest limit such that sizes cut to it add up to at most `total`: small tables stay whole, large ones share.

    >>> fair_limit([10, 100, 1000], 300)
    190.0
    """
    left, waiting = float(total), sorted(sizes)
    for number, size in enumerate(waiting):
        share = left / (len(waiting) - number)
        if size > share:
            return share
        left -= size
    return float("inf")


def fit_figures(
    names: Sequence[str], figures: Mapping[str, Figure], room: int
) -> tuple[dict[str, str], dict[str, int]]:
    """Figures as JSON, in order while they fit into `room` bytes; and the sizes of those left out."""
    kept: dict[str, str] = {}
    heavy: dict[str, int] = {}
    for name in names:
        drawn = {"data": figures[name].data, "layout": figures[name].layout}
        text = embed(drawn | {"frames": figures[name].frames} if figures[name].frames else drawn)
        size = len(text.encode("utf-8", "replace"))
        if size <= room:
            kept[name] = text
            room -= size
        else:
            heavy[name] = size
    return kept, heavy
