"""The figures of a comparison, each drawn from a table of the run; every caption says n, normalisation, distance and seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from querist.features.figures.layers import against_figures, class_figure, skipped_figure, spread_figures, unit_figures
from querist.results.charts import Axes, Chart, Mark, Series, by_depth, heat, lines, ridgeline, scatter, stack
from querist.results.figure import Figure

__all__ = ["Setting", "compare_figures", "contraction_figure", "evolution_figures", "figure_name"]

DEPTH = "layer, in forward order"
RIDGES = 16
"""Most layers of a ridgeline; of more, evenly spaced ones are drawn."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every caption says: sizes, normalisation, distance, seed, and the names of the targets."""

    targets: tuple[str, ...]
    said: str
    level: float


def figure_name(view: str, target: str, targets: Sequence[str]) -> str:
    """File name of a target's view: numbered where there are several targets."""
    return view if len(targets) == 1 else f"{view}-{targets.index(target) + 1}"


def compare_figures(tables: Mapping[str, pl.DataFrame], setting: Setting) -> Iterator[Figure]:
    """Every figure that the tables allow."""
    for target in setting.targets:
        gaps = tables["gaps"].filter(pl.col("target") == target).sort("index")
        if not gaps.height:
            continue
        yield _profile(gaps, target, tables["probes"], setting)
    yield from spread_figures(tables["spread"], setting.targets, setting.said)
    yield from _ridgelines(tables["pooled"], tables["gaps"], setting)
    yield from evolution_figures(tables["evolution"], setting)
    if tables["net_profiles"].height:
        yield contraction_figure(tables["net_profiles"], setting)
    yield from _matrices(tables["matrix"], setting)
    yield from _association(tables["gaps"], tables["association"], setting)
    for target in setting.targets:
        units = tables["units"].filter(pl.col("target") == target)
        if units.height:
            name = figure_name("units", target, setting.targets)
            yield from unit_figures(
                units, tables["gaps"].filter(pl.col("target") == target), name, target, setting.said
            )
    if tables["class_gaps"].height:
        for target in setting.targets:
            mine = tables["class_gaps"].filter(pl.col("target") == target)
            if mine.height:
                yield class_figure(mine, figure_name("classes", target, setting.targets), target, setting.said)
    yield from against_figures(tables["network_gaps"], tables["matrix"], setting.said)
    yield from skipped_figure(tables["layers"], tables["passed_over"], setting.said)


def _profile(gaps: pl.DataFrame, target: str, probes: pl.DataFrame, setting: Setting) -> Figure:
    """The gap by depth with the null's band, beside probe accuracy and what depth alone predicts."""
    labels = gaps["layer"].to_list()
    x = np.arange(len(labels))
    null = Series("two halves of the source, mean to 95 %", x, floats(gaps, "null_mean"), null=True)
    band = Series(null.name, x, null.y, floats(gaps, "null_mean"), floats(gaps, "null_q95"), null=True)
    distance = by_depth({"source to target": floats(gaps, "raw")}, labels, Axes(DEPTH, "distance"), null=band)
    excess = by_depth(
        {"excess": floats(gaps, "excess")},
        labels,
        Axes(DEPTH, "excess"),
        low=floats(gaps, "low"),
        high=floats(gaps, "high"),
    )
    panels = [("Distance and its null", distance), ("Excess over the null", excess)]
    told = ""
    accuracy = floats(gaps, "probe_accuracy")
    if np.isfinite(accuracy).any():
        panels.append(("Accuracy of a linear probe, and depth's own line", _probes(gaps, probes, target, labels)))
        told = " Below: accuracy of a linear probe; the line is what depth alone predicts of it, the constant the largest class."
    data, layout = stack(panels)
    caption = (
        f"Top: distance between the source and {target}; the grey box is what two parts of the source give. Middle: what is left "
        f"above it, with its interval.{told} {setting.said}"
    )
    return Figure(
        figure_name("profile", target, setting.targets), f"Profile over layers: {target}", caption, data, layout, "gaps"
    )


def _probes(gaps: pl.DataFrame, probes: pl.DataFrame, target: str, labels: list[str]) -> Chart:
    accuracy = floats(gaps, "probe_accuracy")
    x = np.arange(len(labels), dtype=float)
    majority = probes.filter(pl.col("target") == target)["majority"].max()
    marks = [Mark("largest class", float(majority), axis="y")] if isinstance(majority, float) else []
    data, layout = by_depth(
        {"probe": accuracy},
        labels,
        Axes(DEPTH, "accuracy"),
        low=floats(gaps, "probe_low"),
        high=floats(gaps, "probe_high"),
        marks=marks,
    )
    known = np.isfinite(accuracy) & (gaps["index"].to_numpy() > 0)
    if np.count_nonzero(known) > 1:
        slope, start = np.polyfit(x[known], accuracy[known], 1)
        ends = x[known][[0, -1]]
        data = [
            *lines([Series("depth alone (least squares)", ends, start + slope * ends, null=True)], Axes("", ""))[0],
            *data,
        ]
    return data, layout


def _ridgelines(pooled: pl.DataFrame, gaps: pl.DataFrame, setting: Setting) -> Iterator[Figure]:
    """Densities of all standardised values of a layer: source, target, a random network, a second one."""
    if not pooled.height:
        return
    by_key = {(r["model"], r["data"], r["layer"]): r["density"] for r in pooled.to_dicts()}
    for target in setting.targets:
        names = gaps.filter(pl.col("target") == target).sort("index")["layer"].to_list()
        shown = (
            [names[i] for i in np.unique(np.linspace(0, len(names) - 1, RIDGES).round().astype(int))] if names else []
        )
        parts = {
            "source": ("model", "source"),
            target: ("model", target),
            "random network, source": ("random-001", "source"),
            f"second network, {target}": ("against", target),
        }
        series = {name: [by_key.get((*key, layer), []) for layer in shown] for name, key in parts.items()}
        series = {name: ridges for name, ridges in series.items() if any(len(r) for r in ridges)}
        if not shown or len(series) < 2:
            continue
        count = len(next(r for r in series["source"] if len(r)))
        edges = np.linspace(-6, 6, count + 1)
        data, layout = ridgeline(
            (edges[1:] + edges[:-1]) / 2,
            shown,
            series,
            Axes("standardised value", ""),
            nulls=("random network, source",),
        )
        some = f" {len(shown)} of {len(names)} layers are drawn." if len(shown) < len(names) else ""
        caption = (
            "All values of a layer, over units and examples, each unit less its mean over the source and all over one sd. Equal "
            f"densities do not mean equal laws: only the pooled values are seen here. Each ridge has its own scale.{some} {setting.said}"
        )
        yield Figure(
            figure_name("ridgeline", target, setting.targets),
            f"Values of the layers: source and {target}",
            caption,
            data,
            layout,
            "pooled",
        )


def evolution_figures(evolution: pl.DataFrame, setting: Setting) -> Iterator[Figure]:
    """Steps from layer to layer of source and target, in both frames, with the fan of the random networks."""
    own = evolution.filter(pl.col("model") == "model")
    fans = evolution.filter(pl.col("model") != "model")
    for target in setting.targets:
        panels = []
        for frame, words in (("source", "Frame of the source: shift and shape"), ("own", "Own frame: shape only")):
            S, T = (own.filter((pl.col("data") == d) & (pl.col("frame") == frame)) for d in ("source", target))
            if not T.height:
                continue
            steps = T["layer_to"].to_list()
            fan = fans.filter((pl.col("data") == target) & (pl.col("frame") == frame))
            null = None
            if fan.height:
                table = np.vstack([part["value"].to_numpy() for _, part in fan.group_by("model", maintain_order=True)])
                low, middle, high = np.quantile(table, (0.05, 0.5, 0.95), axis=0)
                null = Series(
                    f"{len(table)} random networks, {target}, 5 to 95 %",
                    np.arange(len(steps)),
                    middle,
                    low,
                    high,
                    null=True,
                )
            values = {"source": S["value"].to_numpy(), target: T["value"].to_numpy()}
            panels.append(
                (words, by_depth(values, steps, Axes("step to layer", "distance to the layer before"), null=null))
            )
        if panels:
            data, layout = stack(panels)
            caption = (
                "How far the law of a layer's pooled values lies from that of the layer before. In the source's frame a shift of the "
                "target counts; in its own frame, each set standardised by its own moments, only the shape does. Consistent layers "
                f"would move both alike. {setting.said}"
            )
            name = figure_name("evolution", target, setting.targets)
            yield Figure(name, f"Evolution over layers: {target}", caption, data, layout, "evolution")


def contraction_figure(profiles: pl.DataFrame, setting: Setting) -> Figure:
    """Excess by depth on a logarithmic axis, a panel per target, with the fan of the random networks."""
    panels = []
    for target in setting.targets:
        mine = profiles.filter(pl.col("target") == target)
        own = mine.filter(pl.col("model") == "model")
        fans = mine.filter(pl.col("model") != "model")
        labels = own["layer"].to_list()
        null = None
        if fans.height:
            table = np.vstack([part["excess"].to_numpy() for _, part in fans.group_by("model", maintain_order=True)])
            low, middle, high = np.quantile(table, (0.05, 0.5, 0.95), axis=0)
            null = Series(
                f"{len(table)} random networks, 5 to 95 %", np.arange(len(labels)), middle, low, high, null=True
            )
        chart = by_depth({"excess": own["excess"].to_numpy()}, labels, Axes(DEPTH, "excess", log="y"), null=null)
        panels.append((target, chart))
    data, layout = stack(panels)
    caption = (
        "Excess of each layer on a logarithmic axis (sliced, after iso), beside networks of the same architecture with random weights, "
        f"their norms set on the source. A contraction falls from left to right, and more so than theirs. {setting.said}"
    )
    return Figure("contraction", "Does the gap contract?", caption, data, layout, "net_profiles")


def _matrices(matrix: pl.DataFrame, setting: Setting) -> Iterator[Figure]:
    for data in ("source", *setting.targets):
        mine = matrix.filter((pl.col("model_b") == "model") & (pl.col("data_b") == data))
        if not mine.height:
            continue
        a, b = (mine[name].unique(maintain_order=True).to_list() for name in ("layer_a", "layer_b"))
        z = mine["spectrum"].to_numpy().reshape(len(a), len(b))
        chart = heat(z, b, a, Axes(f"layer, {data}", "layer, source"), unit="distance")
        words = "with itself" if data == "source" else f"with {data}"
        caption = (
            "Distance between the covariance spectra of every two layers, each scaled to a total variance of 1: 0 where both spread "
            f"their variance over equally many directions, √2 at most. No units are matched, so widths may differ. {setting.said}"
        )
        name = "matrix-source" if data == "source" else figure_name("matrix", data, setting.targets)
        yield Figure(
            name, f"Spectra of the source's layers {words}", caption, chart[0], _tall(chart[1], len(a)), "matrix"
        )


def _tall(layout: dict[str, Any], rows: int) -> dict[str, Any]:
    side = {"automargin": True}
    return {
        **layout,
        "height": max(320, 150 + 20 * rows),
        "xaxis": layout["xaxis"] | side,
        "yaxis": layout["yaxis"] | side,
    }


def _association(gaps: pl.DataFrame, association: pl.DataFrame, setting: Setting) -> Iterator[Figure]:
    groups, told = {}, []
    for row in association.filter(pl.col("target") != "").to_dicts():
        mine = gaps.filter((pl.col("target") == row["target"]) & (pl.col("index") > 0)).sort("index")
        groups[row["target"]] = (floats(mine, "excess"), floats(mine, "probe_accuracy"), mine["layer"].to_list())
        told.append(f"{row['target']}: τ {row['tau_w_probe']:.2f}, of depth {row['tau_depth_probe']:.2f}")
    if not groups:
        return
    data, layout = scatter(groups, Axes("excess", "probe accuracy"))
    caption = (
        f"A point for each layer. Kendall τ of excess and accuracy, and of depth and accuracy ({'; '.join(told)}). Layers are no "
        f"replicates: no p is drawn from them. {setting.said}"
    )
    yield Figure("association", "Does a small distance go with a good probe?", caption, data, layout, "gaps")


def floats(rows: pl.DataFrame, column: str) -> np.ndarray:
    """A column as floats, NaN where it has no value."""
    values = rows[column].to_list()
    return np.array([math.nan if value is None else float(value) for value in values])
