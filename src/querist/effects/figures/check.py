"""Figures of a check: arms told apart, love plot, weights, detectable effects."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from querist.results.charts import Axes, Mark, bars, scatter
from querist.results.figure import Figure
from querist.results.traces import whiskers

__all__ = ["draw"]

SHOWN = 40
"""Features of the love plot: the least balanced ones."""


def draw(tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """Every figure for which there is something to draw."""
    found = [_weights(tables["overlap"])]
    aucs = tables["arm_auc"].filter(pl.col("auc").is_not_null())
    if aucs.height:
        found.insert(0, _auc(aucs))
    if tables["balance"].height:
        found.insert(1, _balance(tables["balance"]))
    detectable = tables["detectable"].filter(pl.col("effect").is_not_null())
    if detectable.height:
        found.append(_detectable(detectable))
    return found


def _auc(rows: pl.DataFrame) -> Figure:
    arms, y = rows["arm"].to_list(), np.arange(rows.height, dtype=float)[::-1]
    value, low, high = (rows[name].to_numpy() for name in ("auc", "low", "high"))
    data, layout = scatter(
        {"AUC": (value, y, arms)},
        Axes("AUC of telling the arm's people from the others", ""),
        marks=[Mark("chance", 0.5)],
    )
    data[0]["error_x"] = whiskers(value, low, high)
    # Never narrower than .45 to .55: small distances from chance should look small.
    ends = [min(0.45, float(np.nanmin(low)) - 0.01), max(0.55, float(np.nanmax(high)) + 0.01)]
    layout["xaxis"] |= {"range": ends}
    layout["yaxis"] |= {
        "tickvals": y.tolist(),
        "ticktext": arms,
        "automargin": True,
        "range": [-0.7, rows.height - 0.3],
    }
    layout |= {"height": 150 + 34 * rows.height, "showlegend": False}
    caption = (
        "How well a classifier that sees features alone, on people that it did not learn from, tells each arm's people from the others; "
        ".5 is chance. Whiskers are 95 % intervals."
    )
    return Figure("auc", "Can arms be told by features?", caption, data, layout, "arm_auc")


def _balance(rows: pl.DataFrame) -> Figure:
    named = rows.with_columns(
        pl.when(pl.col("level").is_null())
        .then(pl.col("feature"))
        .otherwise(pl.col("feature") + " = " + pl.col("level"))
        .alias("name"),
        pl.col("smd").abs().alias("size"),
    ).filter(pl.col("smd").is_not_null())
    order = named.group_by("name").agg(pl.col("size").max()).sort("size", descending=True)
    kept = order["name"].to_list()[:SHOWN][::-1]
    groups = {}
    for arm in rows["arm"].unique(maintain_order=True):
        mine = {row["name"]: row["smd"] for row in named.filter(pl.col("arm") == arm).to_dicts()}
        x = np.array([mine.get(name, np.nan) for name in kept], dtype=float)
        groups[arm] = (x, np.arange(len(kept)), kept)
    chance = float(rows["expected"].max() or 0.0)  # pyright: ignore[reportArgumentType]
    data, layout = scatter(
        groups,
        Axes("standardised mean difference from control (sd)", ""),
        marks=[Mark("−1.96 sd of chance", -1.96 * chance), Mark("+1.96 sd of chance", 1.96 * chance)],
    )
    values = [abs(one) for x, _, _ in groups.values() for one in x[np.isfinite(x)]]
    end = 1.06 * max([1.96 * chance, *values])
    layout["xaxis"] |= {"range": [-end, end]}
    layout["yaxis"] |= {"tickvals": list(range(len(kept))), "ticktext": kept, "automargin": True}
    layout["height"] = 160 + 18 * len(kept)
    left = len(order) - len(kept)
    caption = "Difference of each feature's mean (of a category: each level's share) between an arm and control, in standard deviations."
    if left > 0:
        caption += f" The {len(kept)} least balanced are drawn, {left} are not."
    return Figure("balance", "Balance of features", caption, data, layout, "balance")


def _weights(rows: pl.DataFrame) -> Figure:
    data, layout = bars(
        {"effective people per person": rows["ess_share"].to_numpy()},
        rows["arm"].to_list(),
        Axes("arm", "effective people per person"),
        marks=[Mark("same chance for all", 1.0, "y"), Mark("enough", 0.5, "y")],
    )
    caption = (
        "How many people each person of an arm counts for under weights 1/e: 1 where everybody had the same chance."
    )
    return Figure("weights", "Effective people", caption, data, layout, "overlap")


def _detectable(rows: pl.DataFrame) -> Figure:
    labels = [f"{row['outcome']}, {row['arm']}" for row in rows.to_dicts()]
    relative = (rows["effect"] / rows["sd"]).to_numpy()
    data, layout = bars(
        {"detectable": relative}, labels, Axes("outcome, arm", "smallest detectable effect (sd of control)")
    )
    caption = (
        "The smallest average effect that this table would find, in standard deviations of the outcome under control."
    )
    return Figure("detectable", "Detectable effects", caption, data, layout, "detectable")
