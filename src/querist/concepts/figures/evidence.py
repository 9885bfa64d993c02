"""Figures of the table itself: evidence of classes, the map of associations, ROC of detectors."""

from __future__ import annotations

import numpy as np
import polars as pl

from querist.results.charts import Axes, Mark, Series, heat, lines, scatter
from querist.results.figure import Figure
from querist.results.traces import GREY, PALETTE, axes_layout, shown, six_digits, trace_of, whiskers

__all__ = ["class_evidence", "power", "roc", "z_map"]

MOST = 60
"""Classes and concepts on either side of the map; beyond it those with the largest |z|."""


def class_evidence(table: pl.DataFrame, suspects: set[str]) -> Figure:
    """Pattern excess against class size; suspects marked."""
    groups = {}
    excess = table.filter(pl.col("pattern_excess").is_not_null())
    column, what = ("pattern_excess", "pattern excess D, nats") if excess.height else ("z_max", "largest |z|")
    mine = excess if excess.height else table.filter(pl.col("z_max").is_not_null())
    for name, rows in (
        ("classes", mine.filter(~pl.col("target").is_in(list(suspects)))),
        ("suspect", mine.filter(pl.col("target").is_in(list(suspects)))),
    ):
        if rows.height:
            told = [f"class {row['target']}, rank {row['rank']}" for row in rows.to_dicts()]
            groups[name] = (rows["n"].to_list(), rows[column].to_list(), told)
    data, layout = scatter(groups, Axes("rows of the class", what))
    for trace in data:
        trace["marker"] = {**trace["marker"], "size": 10 if trace["name"] == "suspect" else 7}
    first = mine.sort("rank").row(0, named=True) if mine.height else None
    if first is not None:
        layout["annotations"] = [
            {
                "x": first["n"],
                "y": first[column],
                "text": f"rank 1: {first['target']}",
                "showarrow": True,
                "ax": 30,
                "ay": -24,
            }
        ]
    return Figure(
        "class_evidence",
        "Which class stands out",
        "A point per class: how much commoner its commonest pattern is inside than outside, against its rows. Planting makes a class "
        "larger and its pattern sharper at once; honest classes stand out too, so that no height alone is a sign.",
        data,
        layout,
        "class_evidence",
    )


def z_map(table: pl.DataFrame) -> Figure | None:
    """Association of the classes and concepts with the largest |z|."""
    mine = table.filter(pl.col("z").is_not_null())
    if not mine.height:
        return None
    largest = pl.col("z").abs().max()
    classes = mine.group_by("target", maintain_order=True).agg(largest.alias("m"))
    concepts = mine.group_by("concept", maintain_order=True).agg(largest.alias("m"))
    cut = classes.height > MOST or concepts.height > MOST
    kept = [
        frame.sort("m", descending=True, maintain_order=True).head(MOST)[frame.columns[0]].to_list()
        for frame in (classes, concepts)
    ]
    kept = [
        [name for name in frame[frame.columns[0]] if name in set(names)]
        for frame, names in zip((classes, concepts), kept, strict=True)
    ]
    place = [{name: i for i, name in enumerate(names)} for names in kept]
    z = np.full((len(kept[0]), len(kept[1])), np.nan)
    for row in mine.filter(pl.col("target").is_in(kept[0]) & pl.col("concept").is_in(kept[1])).iter_rows(named=True):
        z[place[0][row["target"]], place[1][row["concept"]]] = row["z"]
    data, layout = heat(z, kept[1], kept[0], Axes("concept", "class"), unit="z", middle=0.0)
    for name, names in (("xaxis", kept[1]), ("yaxis", kept[0])):
        layout[name] |= {"type": "category", "automargin": True, "nticks": min(len(names), 40)}
    layout["height"] = 220 + 14 * min(len(kept[0]), 40)
    which = f" Of {classes.height} classes and {concepts.height} concepts those with the largest |z|." if cut else ""
    return Figure(
        "z_map",
        "Concepts by class",
        "z of each concept in each class under permuted labels: grey is what chance gives, orange commoner in the class, blue rarer. A "
        f"planted trigger is a few cells of one row that stand out against the rest of it.{which}",
        data,
        layout,
        "association",
    )


def roc(table: pl.DataFrame, detection: pl.DataFrame) -> Figure | None:
    """ROC of every method that has scores."""
    if not table.height:
        return None
    series = []
    for row in detection.to_dicts():
        mine = table.filter(pl.col("method") == row["method"]).sort("point")
        if mine.height and row["auc"] is not None:
            series.append(Series(f"{row['method']} ({row['auc']:.3f})", mine["fpr"], mine["tpr"]))
    series.append(Series("chance", [0.0, 1.0], [0.0, 1.0], null=True))
    data, layout = lines(
        series, Axes("honest rows above the cut", "poisoned rows above the cut"), marks=[Mark("1 %", 0.01)]
    )
    base = detection["base_rate"].drop_nulls()
    told = (
        f" {100 * float(base[0]):.1f} % of the rows are poisoned, which is the precision of chance."
        if len(base)
        else ""
    )
    return Figure(
        "roc",
        "Detectors against the truth",
        f"Each method's scores, cut at every height; area under the curve in brackets. The methods were not given the truth.{told}",
        data,
        layout,
        "roc",
    )


def power(table: pl.DataFrame) -> Figure | None:
    """Share of alarms of each detector at each rate, and the line of its false alarms; detectors that never can alarm are left out."""
    mine = table.filter(pl.col("share").is_not_null())
    rates = sorted(set(mine["rate"].to_list()) - {0.0})
    if not rates:
        return None
    names = list(dict.fromkeys(mine["method"].to_list()))
    axes = Axes("detector", "share of tries with an alarm")
    wide = 0.8 / len(rates)
    data = []
    for number, rate in enumerate(rates):
        rows = {row["method"]: row for row in mine.filter(pl.col("rate") == rate).to_dicts()}
        here = [i for i, name in enumerate(names) if name in rows]
        told = [rows[names[i]] for i in here]
        x = [i - 0.4 + wide * (number + 0.5) for i in here]
        shares = [row["share"] for row in told]
        trace = {"type": "bar", "name": f"{100 * rate:g} % poisoned", "x": six_digits(x), "y": six_digits(shares)}
        pattern = ("", "/", "x", ".", "\\", "-")[number % 6]
        trace |= {
            "width": 0.9 * wide,
            "marker": {"color": PALETTE[number % len(PALETTE)], "pattern": {"shape": pattern}},
            "error_y": whiskers(shares, [row["low"] for row in told], [row["high"] for row in told]),
            "text": [f"{shown(row['method'])}: {row['alarms']} of {row['decided']}" for row in told],
            "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
        }
        data.append(trace)
    clean = {row["method"]: row for row in mine.filter(pl.col("rate") == 0.0).to_dicts()}
    kept = [(i, clean[name]) for i, name in enumerate(names) if name in clean]
    for name, column, dash in (("clean resamples: false alarms", "share", "solid"), ("their upper end", "high", "dot")):
        x = [at for i, _ in kept for at in (i - 0.45, i + 0.45, None)]
        y = [value for _, row in kept for value in (row[column], row[column], None)]
        line = {"color": GREY, "width": 3 if dash == "solid" else 2, "dash": dash}
        data.append(trace_of(name, x, y, axes, line=line, connectgaps=False))
    layout = axes_layout(axes, data)
    layout["barmode"] = "overlay"
    layout["xaxis"] |= {"tickvals": list(range(len(names))), "ticktext": [shown(name) for name in names]}
    layout["xaxis"] |= {"range": [-0.6, len(names) - 0.4], "zeroline": False}
    layout["yaxis"] |= {"range": [0, 1.06]}
    return Figure(
        "power",
        "What would have been found",
        "A bar per detector and rate: the share of copies with known poison on which it alarms, with 95 % Wilson whiskers. Grey: its "
        "alarms on clean resamples of the same rows, and the upper end of theirs. A method is of use where its "
        "bars stand clear of the grey lines.",
        data,
        layout,
        "power",
    )
