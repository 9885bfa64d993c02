"""Figures of an allocation: worth against budget, shares of arms by budget."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from querist.results.charts import Axes, Mark, Series, lines
from querist.results.figure import Figure

__all__ = ["draw"]


def draw(tables: Mapping[str, pl.DataFrame], budget: float) -> list[Figure]:
    """Both figures."""
    rows = tables["budget_path"]
    marks = [Mark("this budget", budget)] if math.isfinite(budget) else []
    worth = [
        Series(str(line), mine["spend"].to_numpy(), mine["value"].to_numpy(), null=line != "all arms")
        for (line,), mine in rows.filter(pl.col("part").is_null()).group_by("line", maintain_order=True)
    ]
    data, layout = lines(worth, Axes("budget", "predicted worth over control"), marks=marks)
    caption = (
        "Predicted worth of the best use of each budget, and of spending it on one arm alone (grey). The slope is the price of budget: "
        "where the line is flat, more of it buys nothing."
    )
    first = Figure("worth", "Worth against budget", caption, data, layout, "budget_path")
    shares = [
        Series(str(part), mine["spend"].to_numpy(), mine["value"].to_numpy())
        for (part,), mine in rows.filter(pl.col("part").is_not_null()).group_by("part", maintain_order=True)
    ]
    data, layout = lines(shares, Axes("budget", "share of people"), marks=marks)
    second = Figure(
        "shares",
        "Who gets what at each budget",
        "Share of people on each arm along the path.",
        data,
        layout,
        "budget_path",
    )
    return [first, second]
