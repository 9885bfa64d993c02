"""Figures of a watch: stability indices beside their nulls, realised beside predicted effects."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from querist.results.charts import Axes, bars, scatter
from querist.results.figure import Figure

__all__ = ["draw"]

SHOWN = 40


def draw(tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """What there is to draw."""
    found = [_psi(tables["psi"])]
    known = tables["realised"].filter(pl.col("difference").is_not_null())
    if known.height:
        found.append(_realised(known))
    return found


def _psi(rows: pl.DataFrame) -> Figure:
    kept = rows.with_columns((pl.col("psi") / pl.col("null")).alias("times")).sort("times", descending=True).head(SHOWN)
    names = kept["column"].to_list()[::-1]
    y = np.arange(len(names))
    data, layout = scatter(
        {
            "between the tables": (kept["psi"].to_numpy()[::-1], y, names),
            "sampling alone, .99": (kept["null"].to_numpy()[::-1], y, names),
        },
        Axes("population stability index", "", log="x"),
    )
    layout["yaxis"] |= {"tickvals": list(range(len(names))), "ticktext": names, "automargin": True}
    layout["height"] = 160 + 18 * len(names)
    caption = "How far each column has moved, beside what two samples of one table give; those that moved most for that are on top."
    return Figure("psi", "What has moved", caption, data, layout, "psi")


def _realised(rows: pl.DataFrame) -> Figure:
    labels = [f"{row['arm']}, {row['outcome']}" for row in rows.to_dicts()]
    low, high = (rows["realised"] + (rows[end] - rows["difference"]) for end in ("low", "high"))
    data, layout = bars(
        {"realised": rows["realised"].to_numpy(), "predicted": rows["predicted"].to_numpy()},
        labels,
        Axes("", "effect per person"),
        low=low.to_numpy(),
        high=high.to_numpy(),
    )
    caption = "Mean effect found and predicted, of the people for whom a gain is predicted; whiskers are the interval of their difference."
    return Figure("realised", "Realised and predicted effects", caption, data, layout, "realised")
