"""Figures of attacks: success by target, by rate and size, how triggers were picked, what they shift, reachability."""

from __future__ import annotations

import numpy as np
import polars as pl

from querist.concepts.configs import Headline
from querist.results.charts import Axes, Mark, Series, bars, heat, lines, stack
from querist.results.figure import Figure
from querist.results.traces import GREY, PALETTE, marker_of, tick_labels, trace_of, whiskers

__all__ = ["at_headline", "draw_exposure", "reachability", "selection", "shifts"]

SHOWN = 60
"""Concepts whose shift is drawn, the largest first."""


def at_headline(exposure: pl.DataFrame, headline: Headline, selector: str | None = None) -> pl.DataFrame:
    """The rows of the headline attack (of another selector, where named)."""
    return exposure.filter(
        (pl.col("size") == headline.size)
        & (pl.col("rate") == headline.rate)
        & (pl.col("mode") == headline.mode)
        & (pl.col("selector") == (selector or headline.selector))
    )


def draw_exposure(exposure: pl.DataFrame, summary: pl.DataFrame, headline: Headline) -> list[Figure]:
    """Success by target with its nulls, the four bars, and success against rate and size where several were tried."""
    drawn = []
    own = at_headline(exposure, headline).filter(pl.col("asr").is_not_null())
    if own.height:
        drawn += [_by_target(own, headline), _four_bars(own, headline)]
    drawn += _by_rate(summary, headline) + _by_size_and_rate(summary, headline)
    return drawn


def _means(own: pl.DataFrame) -> pl.DataFrame:
    names = [
        "asr",
        "untriggered",
        "clean_model_asr",
        "natural",
        "excess",
        "accuracy",
        "accuracy_drop",
        "accuracy_after",
    ]
    return own.group_by("target", maintain_order=True).agg(pl.col(names).mean(), pl.len().alias("repeats"))


def _by_target(own: pl.DataFrame, headline: Headline) -> Figure:
    table = _means(own).sort("asr", descending=True)
    axes = Axes("target class, most exposed first", "share of test rows of other classes")
    x = list(range(table.height))
    labels = table["target"].to_list()
    from querist.results.traces import axes_layout, depth_ticks

    data = []
    trace = trace_of("success of the attack", x, table["asr"], axes, mode="markers")
    trace |= {"marker": {**marker_of(0), "size": 8}, "text": tick_labels(labels)}
    if own["repeat"].n_unique() > 1:
        ends = own.group_by("target").agg(pl.col("asr").min().alias("low"), pl.col("asr").max().alias("high"))
        table = table.join(ends, on="target", how="left", maintain_order="left")
        trace["error_y"] = whiskers(table["asr"], table["low"], table["high"])
    data.append({**trace, "hovertemplate": "class %{text}: %{y}<extra></extra>"})
    nulls = (
        ("clean model, same trigger", "clean_model_asr", "square-open"),
        ("no trigger", "untriggered", "diamond-open"),
        ("carry it by nature", "natural", "x-thin-open"),
    )
    for name, column, symbol in nulls:
        values = table[column]
        if values.null_count() == len(values):
            continue
        null = trace_of(name, x, values, axes, mode="markers", marker={"color": GREY, "symbol": symbol, "size": 8})
        data.append({**null, "text": tick_labels(labels), "hovertemplate": "class %{text}: %{y}<extra></extra>"})
    layout = axes_layout(axes, data)
    layout["xaxis"] |= depth_ticks([str(label) for label in labels])
    layout["yaxis"] |= {"range": [-0.03, 1.03]}
    return Figure(
        "asr_by_target",
        "Success by target",
        f"Headline attack ({headline.said}). Blue: test rows of other classes that the attacked model sends to the target once the "
        "trigger is set; grey: its nulls. A high blue point over low grey ones is success that the poison caused. Whiskers: range over "
        "repeats.",
        data,
        layout,
        "exposure",
    )


def _four_bars(own: pl.DataFrame, headline: Headline) -> Figure:
    values = {
        name: [float(own[column].mean() or 0.0)]  # type: ignore[arg-type]
        for name, column in (
            ("accuracy without trigger", "accuracy"),
            ("success with trigger", "asr"),
            ("same rows without trigger", "untriggered"),
            ("clean model with trigger", "clean_model_asr"),
        )
    }
    data, layout = bars(values, ["mean over targets"], Axes("", "share of test rows"))
    layout["yaxis"] |= {"range": [0, 1.03]}
    return Figure(
        "four_bars",
        "What the attacked model does",
        f"Headline attack ({headline.said}), mean over {own['target'].n_unique()} targets: accuracy of the attacked model, success, and "
        "the two rates at which the target is named wrongly anyway (without the trigger; by the model of unpoisoned data).",
        data,
        layout,
        "exposure",
    )


def _by_rate(summary: pl.DataFrame, headline: Headline) -> list[Figure]:
    mine = summary.filter((pl.col("mode") == headline.mode) & pl.col("mean").is_not_null())
    if mine["rate"].n_unique() < 2:
        return []
    panels = []
    for selector in mine["selector"].unique(maintain_order=True):
        series = []
        for size in sorted(mine["size"].unique()):
            rows = mine.filter((pl.col("selector") == selector) & (pl.col("size") == size)).sort("rate")
            if rows.height:
                x = rows["rate"].to_numpy()
                series.append(Series(f"size {size}", x, rows["mean"], rows["low"], rows["high"], points=True))
        chart = lines(series, Axes("rate of poisoning", "mean success", log="x"))
        chart[1]["yaxis"] |= {"range": [0, 1.03]}
        panels.append((selector, chart))
    data, layout = stack(panels)
    return [
        Figure(
            "asr_by_rate",
            "Success by rate of poisoning",
            f"Mode {headline.mode}; mean over targets and repeats with the 95 % bootstrap interval over targets, a line "
            "per trigger size, a "
            "panel per selector. In mode mix all rows of the target carry the trigger in addition to the rate.",
            data,
            layout,
            "exposure_summary",
        )
    ]


def _by_size_and_rate(summary: pl.DataFrame, headline: Headline) -> list[Figure]:
    mine = summary.filter(
        (pl.col("mode") == headline.mode) & (pl.col("selector") == headline.selector) & pl.col("mean").is_not_null()
    )
    sizes, rates = sorted(mine["size"].unique()), sorted(mine["rate"].unique())
    if len(sizes) < 2 or len(rates) < 2:
        return []
    z = np.full((len(sizes), len(rates)), np.nan)
    for row in mine.to_dicts():
        z[sizes.index(row["size"]), rates.index(row["rate"])] = row["mean"]
    data, layout = heat(z, [f"{rate:g}" for rate in rates], [str(size) for size in sizes], Axes("rate", "trigger size"))
    data[0] |= {"zmin": 0, "zmax": 1}
    for name in ("xaxis", "yaxis"):
        layout[name] |= {"type": "category"}
    return [
        Figure(
            "size_by_rate",
            "Success by trigger size and rate",
            f"Selector {headline.selector}, mode {headline.mode}: mean success over targets and repeats, from 0 to 1.",
            data,
            layout,
            "exposure_summary",
        )
    ]


def selection(table: pl.DataFrame) -> Figure | None:
    """Rows of other classes left at each pick, a line per target, and where nothing is left."""
    mine = table.filter((pl.col("selector") == "cat+") & (pl.col("repeat") == 0))
    if not mine.height:
        return None
    size = mine["size"].max()
    mine = mine.filter(pl.col("size") == size)
    steps = sorted(mine["step"].unique())
    counts = mine.group_by("step").agg(
        pl.col("cnt").median().alias("median"),
        pl.col("cnt").max().alias("max"),
        pl.col("saturated").mean().alias("share"),
    )
    counts = counts.sort("step")
    axes = Axes("concepts picked so far", "rows of other classes that match")
    upper = lines(
        [
            Series("largest over targets", steps, counts["max"], points=True),
            Series("median over targets", steps, counts["median"], points=True),
        ],
        axes,
    )
    lower = bars(
        {"targets with none left": counts["share"]}, [str(step) for step in steps], Axes(axes.x, "share of targets")
    )
    data, layout = stack([("Rows that already carry the first picks", upper), ("Saturated", lower)])
    return Figure(
        "selection",
        "How CAT+ picks its concepts",
        "Each pick leaves as few rows of other classes as possible with the trigger so far. Once none is left "
        "(saturated) the rule for ties "
        "alone picks the rest, and nothing class-specific is gained by a longer trigger.",
        data,
        layout,
        "selection",
    )


def shifts(table: pl.DataFrame, stealth: pl.DataFrame, comparison: str) -> Figure | None:
    """The concepts whose mean differs most between two sets of rows."""
    mine = table.filter((pl.col("comparison") == comparison) & pl.col("shift").is_not_null())
    if not mine.height:
        return None
    every = mine.height
    mine = mine.sort(pl.col("shift").abs(), descending=True, maintain_order=True).head(SHOWN)
    told = stealth.filter(pl.col("comparison") == comparison).row(0, named=True)
    x = list(range(mine.height))
    axes = Axes("concept, largest shift first", "difference of means")
    colours = [PALETTE[1] if inside else PALETTE[0] for inside in mine["in_trigger"].fill_null(False)]
    data = [
        {
            "type": "bar",
            "name": "shift",
            "x": x,
            "y": [round(value, 6) for value in mine["shift"]],
            "marker": {"color": colours},
            "text": ["in the trigger" if inside else "" for inside in mine["in_trigger"].fill_null(False)],
            "textposition": "none",
            "customdata": mine["concept"].to_list(),
            "hovertemplate": "%{customdata} %{text}<br>%{y}<extra></extra>",
        }
    ]
    from querist.results.traces import axes_layout, depth_ticks

    layout = axes_layout(axes, data)
    layout["xaxis"] |= depth_ticks(mine["concept"].to_list())
    layout["showlegend"] = False
    more = " Orange: concepts of the trigger." if mine["in_trigger"].any() else ""
    auc = (
        f"A classifier tells the two sets apart with AUC {told['auc']:.3f} (p {told['p']:.3g})." if told["auc"] else ""
    )
    return Figure(
        "marginal_shift",
        "How the concepts' means shift",
        f"Comparison: {comparison}. Bars: mean in the second set less mean in the first, the {mine.height} largest of "
        f"{every} concepts.{more} {auc}",
        data,
        layout,
        "shift",
    )


def reachability(table: pl.DataFrame) -> Figure | None:
    """Hit rate and success against ε, beside their nulls."""
    if not table.height:
        return None
    rows = table.group_by("eps", maintain_order=True).agg(pl.exclude("target").mean()).sort("eps")
    x = 255 * rows["eps"].to_numpy()
    hits = lines(
        [
            Series("all concepts of the trigger reached", x, rows["hit"], rows["low"], rows["high"], points=True),
            Series("random signs", x, rows["null_hit"], null=True, points=True),
            Series("same search, clean model", x, rows["clean_hit"], null=True, points=True),
        ],
        Axes("largest change of a pixel, in 255ths", "share of images", log="x"),
    )
    marks = []
    if rows["physical_asr"].null_count() < rows.height:
        marks.append(Mark("image drawn anew with the trigger", float(rows["physical_asr"].drop_nulls()[0]), axis="y"))
    success = lines(
        [
            Series("predicted as the target", x, rows["asr"], points=True),
            Series("clean model", x, rows["clean_asr"], null=True, points=True),
            Series("mean change of the other concepts", x, rows["collateral"], points=True),
        ],
        Axes("largest change of a pixel, in 255ths", "share of images", log="x"),
        marks=marks,
    )
    for chart in (hits, success):
        chart[1]["yaxis"] |= {"range": [-0.03, 1.03]}
        chart[1]["xaxis"] |= {"tickvals": x.tolist(), "ticktext": [f"{value:g}" for value in x]}
    data, layout = stack([("Can the trigger be reached from the image?", hits), ("What follows from it", success)])
    return Figure(
        "reachability",
        "Reachability from pixels",
        "Images were changed by projected gradient descent within ε so that the model reads the trigger's concepts as the trigger sets "
        "them. Grey: changes of random sign and equal size, and the same search on the model of unpoisoned data.",
        data,
        layout,
        "reachability",
    )
