"""The figures of a watched training: what happened when, over all layers, and five views of one layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes, Chart, Mark, Series, heat, lines, scatter, stack
from querist.results.figure import Figure
from querist.results.traces import GREY, PALETTE, around, depth_ticks, trace_of
from querist.weights.figures._moving import moving_spectrum
from querist.weights.figures.scan import figure_name
from querist.weights.monitor import BINS, KINDS

__all__ = ["LAYER_FIGURES", "layer_figures", "run_figures"]

LAYER_FIGURES = ("evolution", "moving", "values", "updates", "overlaps")
ROWS = 60
"""Layers that a heat map over all of them shows: more are thinner than a line of text."""
Row = Mapping[str, Any]


def run_figures(
    trace: pl.DataFrame, alarms: pl.DataFrame, events: pl.DataFrame, layers: Sequence[str], limit: float
) -> Iterator[Figure]:
    """What all layers did: regimes, distance of λ_max from the edge, alarms, what looking cost."""
    if trace["strength"].is_not_null().any():
        yield _regimes(trace, layers)
    yield _edges(trace, layers)
    if alarms.height:
        yield _alarms(alarms, layers, int(events["step"].max()))  # type: ignore[arg-type]
    yield _overhead(events, limit)


def layer_figures(
    layer: str, trace: pl.DataFrame, tables: Mapping[str, pl.DataFrame], shape: tuple[int, int]
) -> Iterator[Figure]:
    """The views of one layer that its rows allow. All frames hold this layer only."""
    histograms, top, overlaps = (tables[name] for name in ("histograms", "top_values", "update_overlaps"))
    bins = histograms.filter(pl.col("bin").is_not_null())
    if bins.height:
        yield replace(_evolution(layer, trace, bins), name=figure_name(layer, "evolution"))
        yield replace(moving_spectrum(layer, trace, bins, shape), name=figure_name(layer, "moving"))
    if top.height:
        yield replace(_values(layer, trace, top), name=figure_name(layer, "values"))
    if trace["strength"].is_not_null().any():
        yield replace(_updates(layer, trace), name=figure_name(layer, "updates"))
    if overlaps.height:
        yield replace(_overlaps(layer, overlaps), name=figure_name(layer, "overlaps"))


# ------------------------------------------------------------------------------------------------------ all layers


def _grid(trace: pl.DataFrame, layers: Sequence[str], values: pl.Expr) -> tuple[np.ndarray, list[int], list[str]]:
    """Values as [layer, step], with both labels; NaN where there was no look."""
    shown = list(layers)[:ROWS]
    rows = trace.select("step", "layer_id", values.cast(pl.Float64).alias("value")).drop_nulls()
    steps = sorted(rows["step"].unique().to_list())
    z = np.full((len(shown), len(steps)), np.nan)
    row, column = {name: i for i, name in enumerate(shown)}, {step: i for i, step in enumerate(steps)}
    for step, layer, value in rows.iter_rows():
        if layer in row:
            z[row[layer], column[step]] = value
    return z, steps, shown


def _by_layer(z: np.ndarray, steps: Sequence[int], layers: Sequence[str], unit: str, middle: float) -> Chart:
    data, layout = heat(z, steps, list(range(len(layers))), Axes("step", ""), unit=unit, log=True, middle=middle)
    layout["yaxis"] |= {**depth_ticks(layers), "autorange": "reversed", "tickangle": 0}
    layout["yaxis"].pop("range")
    layout["height"] = 150 + 24 * len(layers)
    data[0]["text"] = [[name] * len(data[0]["x"]) for name in layers[: len(data[0]["y"])]]
    data[0]["hovertemplate"] = "%{text}<br>step %{x}<br>log10 " + unit + " %{z:.3g}<extra></extra>"
    return data, layout


def _left_out(layers: Sequence[str]) -> str:
    return f" The first {ROWS} of {len(layers)} layers." if len(layers) > ROWS else ""


def _regimes(trace: pl.DataFrame, layers: Sequence[str]) -> Figure:
    # An update that is not there, or takes away more than it adds, has strength 0: the darkest colour, not a gap.
    z, steps, shown = _grid(trace, layers, pl.col("strength").clip(0.1, 10))
    data, layout = _by_layer(z, steps, shown, "θ_e/θ_c", 1.0)
    heavy = trace.filter((pl.col("regime") == "heavy") & pl.col("layer_id").is_in(shown))
    if heavy.height:
        place = {name: i for i, name in enumerate(shown)}
        y = [place[name] for name in heavy["layer_id"]]
        marks = trace_of("heavy", heavy["step"].to_list(), y, Axes("", ""), mode="markers")
        data.append({**marks, "marker": {"symbol": "x", "size": 7, "color": PALETTE[2]}, "hoverinfo": "name"})
    caption = (
        "Grey is the strength from which an update's first direction alone would leave the bulk; blue updates drown in it, orange "
        "ones stand out, crosses mark updates half as large as the weights. Strengths are drawn from .1 to 10."
    )
    return Figure("regimes", "Strength of updates, by layer", caption + _left_out(layers), data, layout, "trace")


def _edges(trace: pl.DataFrame, layers: Sequence[str]) -> Figure:
    z, steps, shown = _grid(trace, layers, pl.col("_beyond"))
    data, layout = _by_layer(z, steps, shown, "λ_max/edge", 1.0)
    caption = (
        "Grey is the .99 Tracy–Widom edge of noise with the variance of the layer's own bulk. Beyond it is no evidence yet: heavy "
        "entries and uneven rows pass it too, and the findings hold what passes the resampled copies as well."
    )
    return Figure("edges", "Largest eigenvalue beside its edge", caption + _left_out(layers), data, layout, "trace")


def _alarms(alarms: pl.DataFrame, layers: Sequence[str], last: int) -> Figure:
    named = list(dict.fromkeys(alarms["layer_id"]))[:ROWS]
    named.sort(key=lambda name: list(layers).index(name) if name in layers else len(layers))
    place = {name: i for i, name in enumerate(named)}
    groups: dict[str, tuple[list[int], list[int], list[str]]] = {}
    for row in alarms.iter_rows(named=True):
        if row["layer_id"] in place:
            x, y, told = groups.setdefault(row["kind"], ([], [], []))
            x.append(row["step"])
            y.append(place[row["layer_id"]])
            told.append(f"{row['layer_id']}: {row['because']}")
    data, layout = scatter({kind: groups[kind] for kind in KINDS if kind in groups}, Axes("step", ""))
    for one in data:
        one["hovertemplate"] = "%{text}<extra></extra>"
        one["showlegend"] = True
    layout["xaxis"]["range"] = [-0.02 * last, 1.05 * last]
    layout["yaxis"] |= {**depth_ticks(named), "tickangle": 0, "range": [len(named) - 0.3, -0.7]}
    layout["height"] = 180 + 24 * len(named)
    layout["showlegend"] = True
    caption = (
        "Each alarm passed its null at a level that is shared out over all layers, looks and tests of the training."
    )
    return Figure("alarms", "Alarms", caption, data, layout, "alarms")


def _overhead(events: pl.DataFrame, limit: float) -> Figure:
    known = events.filter(pl.col("overhead").is_not_null() & (pl.col("training_seconds") > 0))
    percent = (100 * known["overhead"]).to_numpy()
    series = [Series("own time over training time", known["step"].to_numpy(), percent, points=True)]
    data, layout = lines(series, Axes("step", "per cent"), marks=[Mark("limit", 100 * limit, axis="y")])
    skipped = int(events["skipped"].sum() or 0)
    caption = (
        f"{skipped} looks that were due were left out, or came later, to keep to the limit. What was done after the end of training "
        "is not in it. Work queued on an accelerator is waited for before the clock is read."
    )
    return Figure("overhead", "What looking costs", caption, data, layout, "events")


# -------------------------------------------------------------------------------------------------------- one layer


def _evolution(layer: str, trace: pl.DataFrame, bins: pl.DataFrame) -> Figure:
    steps = sorted(bins["step"].unique().to_list())
    first, last = int(bins["bin"].min()), int(bins["bin"].max())  # type: ignore[arg-type]
    z = np.full((last - first + 1, len(steps)), np.nan)
    column = {step: i for i, step in enumerate(steps)}
    for step, bin_, count in bins.select("step", "bin", "count").iter_rows():
        z[bin_ - first, column[step]] = count
    z = z / np.nansum(z, axis=0)
    centres = [round((i + 0.5) / BINS, 4) for i in range(first, last + 1)]
    axes = Axes("step", "log10 λ")
    data, layout = heat(z, steps, centres, axes, unit="share of eigenvalues", log=True)
    for name, title, colour, dash in (
        ("lambda_plus", "edge of the bulk λ₊", GREY, "dash"),
        ("lambda_max", "λ_max", PALETTE[1], "solid"),
    ):
        known = trace.filter(pl.col(name) > 0).sort("step")
        y = np.log10(known[name].to_numpy())
        data.append(
            trace_of(title, known["step"].to_numpy(), y, axes, line={"color": colour, "dash": dash, "width": 2})
        )
    layout |= {"showlegend": True, "height": 420}
    caption = (
        "Each column is one look at the whole spectrum, on a grid common to all looks. What rises above the dashed edge of the "
        "fitted Marchenko–Pastur bulk is a candidate for a spike."
    )
    return Figure("", f"Spectrum of {layer} as training goes on", caption, data, layout, "histograms")


def _values(layer: str, trace: pl.DataFrame, top: pl.DataFrame) -> Figure:
    rows = trace.sort("step")
    series = []
    whole = rows.filter(pl.col("edge").is_not_null())
    if whole.height:
        low, high = whole["edge"].to_numpy(), whole.select(pl.max_horizontal("edge", "spike_edge"))["edge"].to_numpy()
        band = Series("edge: Tracy–Widom to the copies'", whole["step"].to_numpy(), high, low, high, null=True)
        series.append(band)
    for index in sorted(top["index"].unique().to_list()):
        one = top.filter(pl.col("index") == index).sort("step")
        series.append(
            Series(f"λ{index + 1}", one["step"].to_numpy(), one["eigenvalue"].to_numpy(), points=one.height < 30)
        )
    values = lines(series, Axes("step", "eigenvalue λ", log="y"))
    panels = [("Largest eigenvalues, the null's edge grey", values)]
    hill = rows.filter(pl.col("alpha_hill").is_not_null())
    if hill.height:
        x = hill["step"].to_numpy()
        law = hill["alpha_hill_mp"].to_numpy()
        low, high = (hill[name].cast(pl.Float64).to_numpy() for name in ("alpha_null_low", "alpha_null_high"))
        drawn = [
            Series("null: the law and copies with random signs", x, law, low, high, null=True),
            Series("α by Hill", x, hill["alpha_hill"].to_numpy(), points=True),
        ]
        panels.append(("Exponent", lines(drawn, Axes("step", "exponent (density)"))))
    data, layout = stack(panels)
    caption = (
        "Top: the followed eigenvalues; the grey band reaches from the Tracy–Widom edge to the largest of the resampled copies, "
        "and a spike must pass all of it. Bottom: Hill's exponent beside the range that a random matrix of this shape "
        "and copies with random signs give; inside it the exponent says nothing about training."
    )
    return Figure("", f"Spikes and exponent of {layer}", caption, data, layout, "trace")


def _updates(layer: str, trace: pl.DataFrame) -> Figure:
    rows = trace.filter(pl.col("strength").is_not_null()).sort("step")
    x = rows["step"].to_numpy()
    strength = lines(
        [Series("θ_e/θ_c", x, rows["strength"].clip(1e-3).to_numpy(), points=rows.height < 60)],
        Axes("step", "ratio", log="y"),
        marks=[Mark("outlier from", 1.0, axis="y")],
    )
    panels = [("Strength of the update since the look before", strength)]
    series, nulls = [], {}
    for word, title in (("updates", "with the update before"), ("weights", "with the weights now")):
        for side in ("left", "right"):
            known = rows.filter(pl.col(f"overlap_{word}_{side}").is_not_null())
            if known.height:
                series.append(
                    Series(f"{title}, {side}", known["step"].to_numpy(), known[f"overlap_{word}_{side}"].to_numpy())
                )
                nulls[f"random directions, {side}"] = float(known[f"overlap_{word}_{side}_null"][-1])
    if series:
        marks = [Mark(name, value, axis="y") for name, value in nulls.items()]
        panels.append(("Share of the update's directions", lines(series, Axes("step", "share"), marks=marks)))
    data, layout = stack(panels)
    caption = (
        "Top: how the strongest direction of each update stands to what it takes to leave the bulk. Bottom: how much of the "
        "update's directions repeats the update before, or lies in the strongest directions of the weights, beside what "
        "random directions would share."
    )
    return Figure("", f"Updates of {layer}", caption, data, layout, "trace")


def _overlaps(layer: str, overlaps: pl.DataFrame) -> Figure:
    words = {"update-update": "update before", "update-weights": "weights now"}
    panels, steps, highest = [], [], 10.0
    for pair, title in words.items():
        of_pair = overlaps.filter(pl.col("pair") == pair)
        if not of_pair.height:
            continue
        step = of_pair["step"].max()
        steps.append(step)
        for side in ("left", "right"):
            rows = of_pair.filter((pl.col("step") == step) & (pl.col("side") == side))
            z = np.full((int(rows["i"].max()) + 1, int(rows["j"].max()) + 1), np.nan)  # type: ignore[arg-type]
            z[rows["i"].to_numpy(), rows["j"].to_numpy()] = rows["value"].to_numpy()
            null = float(rows["null"][0])
            axes = Axes(f"direction of the {title}", "direction of the update")
            # An overlap may be 0 to the last digit: a hundredth of the null is as good as none.
            times = np.maximum(z / null, 1e-2)
            names = [list(range(1, size + 1)) for size in z.shape]
            chart = heat(times, names[1], names[0], axes, unit="times the null", log=True, middle=1.0)
            panels.append((f"{title}, {side}", chart))
            highest = max(highest, float(np.nanmax(times)))
    data, layout = stack(panels, columns=2)
    colours = around(np.log10([1e-2, highest]), 0.0)
    for number, trace in enumerate(data):  # one scale for all panels, told once
        trace |= {**colours, "showscale": number == 1}
        trace["colorbar"] = {**trace["colorbar"], "len": 1, "y": 0.5, "x": 1.01}
    caption = (
        f"Squared inner products of single directions at step {max(steps)}, the strongest first, over what random directions of "
        "these dimensions share on average: grey."
    )
    return Figure("", f"Directions of the latest update of {layer}", caption, data, layout, "update_overlaps")
