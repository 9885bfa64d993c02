"""Figures of a fit: the ladder, predicted parts, what predictions rest on, where arms look, training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes, Chart, Mark, Series, bars, heat, lines, scatter, stack
from querist.results.figure import Figure
from querist.results.traces import around, whiskers

__all__ = ["draw"]

SHOWN = 25
"""Columns that a heat map shows: those with the largest cells."""

NEAR = 0.5
"""How far from an equal share attention must be for the full colour, at least."""


def draw(tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """Every figure for which there is something to draw."""
    found = [_ladder(tables["ladder"])]
    if tables["predicted"].height:
        found.append(_parts(tables["predicted"]))
    moved = tables["importance"].filter(pl.col("moved") > 0)
    if moved.height:
        found.append(_importance(tables["importance"]))
    if tables["attention"].height:
        found.append(_attention(tables["attention"]))
    losses = tables["history"].filter(pl.col("part").is_in(["train_total", "valid_total"]))
    if losses.height:
        found.append(_training(losses))
    watched = tables["history"].filter(pl.col("part").is_in(list(WATCHED)))
    if watched.height:
        found.append(_watched(watched))
    return found


def _ladder(rows: pl.DataFrame) -> Figure:
    panels: list[tuple[str, Chart]] = []
    for outcome in rows["outcome"].unique(maintain_order=True):
        mine = rows.filter(pl.col("outcome") == outcome)
        natural = mine.filter(pl.col("part") == "natural").to_dicts()
        base = mine.filter(pl.col("part") == "base").to_dicts()
        steps = [("base effect", row) for row in base]
        for part, word in (("incremental", "adds"), ("total", "in all")):
            steps += [(f"{row['arm']}: {word}", row) for row in mine.filter(pl.col("part") == part).to_dicts()]
        title = str(outcome)
        if natural and natural[0]["estimate"] is not None:
            one = natural[0]
            title += f": natural response {one['estimate']:.4g} [{one['low']:.4g}, {one['high']:.4g}]"
        panels.append((title, _points(steps, str(outcome))))
    data, layout = stack(panels)
    layout["height"] = 120 + sum(80 + 26 * len(chart[0][0]["y"]) for _, chart in panels)
    caption = "Base effect, increments and total effects per person: measured with interval, and the mean that the model predicts."
    return Figure("ladder", "Natural response, base effect, increments", caption, data, layout, "ladder")


def _points(steps: list[tuple[str, dict[str, Any]]], outcome: str) -> Chart:
    labels, rows = [label for label, _ in steps], [row for _, row in steps]
    y = np.arange(len(rows), dtype=float)[::-1]

    def of(name: str) -> np.ndarray:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)

    data, layout = scatter(
        {"measured": (of("estimate"), y, labels), "predicted by the model": (of("predicted"), y - 0.25, labels)},
        Axes(f"{outcome} per person", ""),  # a scale of its own for each outcome
        marks=[Mark("no effect", 0.0)],
    )
    data[0]["error_x"] = whiskers(of("estimate"), of("low"), of("high"))
    layout["yaxis"] |= {
        "tickvals": y.tolist(),
        "ticktext": labels,
        "automargin": True,
        "range": [-0.7, len(rows) - 0.3],
        "zeroline": False,
    }
    return data, layout


def _parts(rows: pl.DataFrame) -> Figure:
    panels: list[tuple[str, Chart]] = []
    for outcome, arm in rows.select("outcome", "arm").unique(maintain_order=True).iter_rows():
        mine = rows.filter((pl.col("outcome") == outcome) & (pl.col("arm") == arm)).sort("tenth")
        values = {"base effect": mine["base"].to_numpy(), "increment": mine["incremental"].to_numpy()}
        data, layout = bars(
            values, mine["tenth"].to_list(), Axes("tenth of the predicted total effect", "outcome per person")
        )
        layout["barmode"] = "relative"
        panels.append((f"{outcome}, {arm}", (data, layout)))
    data, layout = stack(panels, columns=2 if len(panels) > 1 else 1)
    layout["barmode"] = "relative"
    caption = (
        "Mean predicted base effect and increment of people by tenths of their predicted total effect, smallest first."
    )
    return Figure("parts", "Predicted parts", caption, data, layout, "predicted")


def _importance(rows: pl.DataFrame) -> Figure:
    several = rows["arm"].n_unique() > 1
    part = "incremental" if several else "total"
    mine = rows.filter((pl.col("part") == part) & pl.col("moved").is_not_null())
    names = mine.select("outcome", "arm").unique(maintain_order=True).rows()
    # Each outcome has its own unit: a cell is its share of the largest of its column.
    table = mine.with_columns(
        (pl.col("moved") / pl.col("moved").max().over("outcome", "arm")).fill_nan(0.0).alias("size")
    )
    what = "increments" if several else "effects"
    data, layout, left = _by_column(table, names, "share of the largest")
    caption = f"How far predicted {what} move when one column is shuffled between people, as a share of the column that moves them most."
    return Figure("importance", f"What predicted {what} rest on", caption + left, data, layout, "importance")


def _attention(rows: pl.DataFrame) -> Figure:
    """Where the queries of arms look."""
    columns = rows["feature"].n_unique()
    names = rows.select("outcome", "arm").unique(maintain_order=True).rows()
    table = rows.with_columns((pl.col("share") * columns).alias("size"))
    data, layout, left = _by_column(table, names, "times an equal share", middle=1.0)
    # Small departures from equal shares stay grey.
    far = max(NEAR, float((table["size"] - 1).abs().max()))  # pyright: ignore[reportArgumentType]
    data[0] |= around(np.array([1 - far, 1 + far]), 1.0)
    caption = (
        "Attention of each arm's query over the columns' tokens, mean over people, heads and networks, times the number of columns: 1 "
        "where every column is looked at alike. Tokens have read each other before, so an arm may know a column by way of another "
        "token: what predictions rest on is told by shuffling columns, in the figure before."
    )
    return Figure("attention", "Where the arms look", caption + left, data, layout, "attention")


def _by_column(
    table: pl.DataFrame, names: list[Any], unit: str, middle: float | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """A heat map of `size`, the columns with the largest ones first, and what is said of those that are not drawn."""
    order = table.group_by("feature", maintain_order=True).agg(pl.col("size").max()).sort("size", descending=True)
    kept = order["feature"].to_list()[:SHOWN]
    cells = {(r["feature"], r["outcome"], r["arm"]): r["size"] for r in table.to_dicts()}
    z = np.array([[cells.get((name, *pair), np.nan) for pair in names] for name in kept], dtype=float)
    data, layout = heat(
        z, [f"{outcome}, {arm}" for outcome, arm in names], kept, Axes("outcome, arm", ""), unit=unit, middle=middle
    )
    layout["yaxis"] |= {"autorange": "reversed", "automargin": True}
    layout["xaxis"] |= {"automargin": True}
    layout["height"] = 180 + 20 * len(kept)
    left = order.height - len(kept)
    return data, layout, f" The {len(kept)} largest columns are drawn, {left} are not." if left else ""


def _training(rows: pl.DataFrame) -> Figure:
    said = {"train_total": "trained on", "valid_total": "set aside"}
    series = []
    for network, part in rows.select("network", "part").unique(maintain_order=True).iter_rows():
        mine = rows.filter((pl.col("network") == network) & (pl.col("part") == part)).sort("epoch")
        series.append(Series(f"network {network}, {said[part]}", mine["epoch"].to_numpy(), mine["value"].to_numpy()))
    data, layout = lines(series, Axes("pass over the rows", "loss"))
    caption = "Loss of each network on the people it was trained on and on those set aside, which stop the training."
    return Figure("training", "Training", caption, data, layout, "history")


WATCHED = {
    "gradient_norm": "norm of the gradient",
    "gate_entropy": "entropy of the gates (nats)",
    "increment_over_base": "sd of increments ÷ sd of base",
}


def _watched(rows: pl.DataFrame) -> Figure:
    panels: list[tuple[str, Chart]] = []
    for part, title in WATCHED.items():
        mine = rows.filter(pl.col("part") == part)
        if not mine.height:
            continue
        series = [
            Series(
                f"network {network}",
                mine.filter(pl.col("network") == network)["epoch"].to_numpy(),
                mine.filter(pl.col("network") == network)["value"].to_numpy(),
            )
            for network in mine["network"].unique(maintain_order=True)
        ]
        panels.append((title, lines(series, Axes("pass over the rows", ""))))
    data, layout = stack(panels)
    caption = "Watched on up to 512 people after each pass. Gates that use all experts alike have the entropy of their number's logarithm."
    return Figure("watched", "Gradients, gates, increments", caption, data, layout, "history")
