"""Figures of an evaluation: the ladder of effects, gain curves, policies, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.effects.evaluation import BEST
from querist.results.charts import Axes, Mark, Series, bars, lines, scatter, stack
from querist.results.figure import Figure

__all__ = ["draw"]

NATURAL = "natural response"
PANELS = 12
"""Panels of one figure; what is beyond is in its table."""


def draw(tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """Every figure for which there is something to draw."""
    found = [_ladder(tables["ate"])]
    found += _gains(tables["curves"])
    found += _policies(tables["policies"])
    found += _calibration(tables["calibration_bins"], tables["calibration"])
    return [figure for figure in found if figure is not None]


def _ladder(rows: pl.DataFrame) -> Figure | None:
    """Total, base and increment of each arm, an outcome a panel."""
    panels = []
    for (outcome,), mine in rows.filter(pl.col("estimate").is_not_null()).group_by("outcome", maintain_order=True):
        listed = sorted(mine.to_dicts(), key=lambda row: ("total", "base", "incremental").index(row["component"]))
        labels = [row["component"] if row["arm"] is None else f"{row['component']}: {row['arm']}" for row in listed]
        value = np.array([row["estimate"] for row in listed])
        low, high = (np.array([_or(row[end], row["estimate"]) for row in listed]) for end in ("low", "high"))
        chart = bars(
            {"effect": value},
            labels,
            Axes("", f"{outcome} per person"),
            low=low,
            high=high,
            marks=[Mark("no effect", 0.0, "y")],
        )
        panels.append((str(outcome), chart))
    if not panels:
        return None
    data, layout = stack(panels[:PANELS])
    parts = rows["component"].n_unique() > 1
    caption = "Average effects against control with their intervals" + (
        ": of each arm in total, of being treated at all (base), and of what each arm adds to that (incremental); base and increment sum "
        "to the total."
        if parts
        else "."
    )
    return Figure(
        "ladder",
        f"Effects on average{', in three parts' if parts else ''}",
        caption + _beyond(len(panels)),
        data,
        layout,
        "ate",
    )


def _gains(curves: pl.DataFrame) -> list[Figure]:
    """A figure for each outcome, an arm a panel."""
    found = []
    for (outcome,), mine in curves.group_by("outcome", maintain_order=True):
        panels = []
        for (arm,), rows in mine.group_by("arm", maintain_order=True):
            series = []
            for (score,), one in rows.group_by("score", maintain_order=True):
                null = score == NATURAL
                low, high = (None if null else one[end].to_numpy() for end in ("low", "high"))
                series.append(Series(str(score), one["share"].to_numpy(), one["gain"].to_numpy(), low, high, null=null))
            first = rows.filter(pl.col("score") == rows["score"][0])
            series.append(Series("random order", first["share"].to_numpy(), first["line"].to_numpy(), null=True))
            panels.append((str(arm), lines(series, Axes("share of people treated", f"{outcome} gained per person"))))
        data, layout = stack(panels[:PANELS])
        caption = (
            f"What treating the best-ranked share gains in {outcome}, per person of all people (convention rate: doubly robust effect "
            "scores, ties averaged). A useful score runs above the straight line of a random order, and above the ranking by natural "
            "response. Bands are pointwise and hold the average effect's own uncertainty; differences are judged in the table `paired`."
        )
        found.append(
            Figure(f"gain-{len(found)}", f"Gain in {outcome}", caption + _beyond(len(panels)), data, layout, "curves")
        )
    return found


def _policies(rows: pl.DataFrame) -> list[Figure]:
    found = []
    alone = rows.filter((pl.col("method") == "dr") & pl.col("versus").is_null() & pl.col("value").is_not_null())
    panels, best = [], []
    for (outcome,), mine in alone.group_by("outcome", maintain_order=True):
        listed = mine.to_dicts()
        best += [
            f"{row['policy'].removeprefix(BEST)[2:-1]} for {outcome}"
            for row in listed
            if row["policy"].startswith(BEST)
        ]
        chart = bars(
            {"value": np.array([row["value"] for row in listed])},
            [BEST if row["policy"].startswith(BEST) else row["policy"] for row in listed],
            Axes("", f"{outcome} per person"),
            low=np.array([_or(row["low"], row["value"]) for row in listed]),
            high=np.array([_or(row["high"], row["value"]) for row in listed]),
        )
        panels.append((str(outcome), chart))
    if panels:
        data, layout = stack(panels[:PANELS])
        caption = (
            "Doubly robust value of everybody under control, of each single arm, of the best of them (chosen and valued on different "
            f"halves: {'; '.join(best)}), and of following each model. Intervals of values overlap far more than paired differences do: "
            "those are in the table."
        )
        found.append(
            Figure("policies", "What policies are worth", caption + _beyond(len(panels)), data, layout, "policies")
        )
    return found


def _calibration(bins: pl.DataFrame, slopes: pl.DataFrame) -> list[Figure]:
    rows = bins.filter(pl.col("component") == "total")
    panels = []
    for (outcome, arm), mine in rows.group_by("outcome", "arm", maintain_order=True):
        groups: dict[str, Any] = {}
        for (score,), one in mine.group_by("score", maintain_order=True):
            hover = [
                f"{n} people, {low:.3g} to {high:.3g}" if low is not None else f"{n} people"
                for n, low, high in one.select("n", "low", "high").rows()
            ]
            groups[str(score)] = (one["predicted"].to_numpy(), one["effect"].to_numpy(), hover)
        panels.append((f"{arm}, {outcome}", scatter(groups, Axes("predicted effect", "effect found"), identity=True)))
    if not panels:
        return []
    data, layout = stack(panels[:PANELS], columns=2 if len(panels) > 1 else 1)
    caption = (
        "Mean predicted and mean found effect in bins of equal count; on the dashed line predictions are true in size. Intervals on "
        "hover."
    )
    return [
        Figure(
            "calibration",
            "Predicted and found effects",
            caption + _beyond(len(panels)),
            data,
            layout,
            "calibration_bins",
        )
    ]


def _beyond(panels: int) -> str:
    return "" if panels <= PANELS else f" The first {PANELS} of {panels} are drawn; the table holds all."


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
