"""Figures of single layers and of a second network: units, classes, what moved, what was skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from querist.results.charts import Axes, Series, bars, by_depth, heat, stack, strip
from querist.results.figure import Figure

__all__ = ["against_figures", "class_figure", "skipped_figure", "spread_figures", "unit_figures"]

DEPTH = "layer, in forward order"
QUANTILES = {0.5: "median", 0.9: "90 %", 1.0: "largest"}


def spread_figures(table: pl.DataFrame, targets: Sequence[str], said: str) -> Iterator[Figure]:
    """The profile over repetitions: mean and range of distance, excess and probe accuracy, a figure per target."""
    for place, target in enumerate(targets):
        rows = table.filter(pl.col("target") == target).sort("index")
        if not rows.height:
            continue
        labels, x = rows["layer"].to_list(), np.arange(rows.height)
        null, low, high = (_floats(rows, f"null_mean{end}") for end in ("", "_min", "_max"))
        band = Series("two parts of the source, mean and range", x, null, low, high, null=True)
        panels = []
        for name, title, axis in (
            ("raw", "Distance and its null", "distance"),
            ("excess", "Excess over the null", "excess"),
            ("probe_accuracy", "Accuracy of a linear probe", "accuracy"),
        ):
            middle, low, high = (_floats(rows, f"{name}{end}") for end in ("", "_min", "_max"))
            if np.isfinite(middle).any():
                ends = {"low": low, "high": high, "null": band if name == "raw" else None}
                panels.append((title, by_depth({"mean and range": middle}, labels, Axes(DEPTH, axis), **ends)))
        data, layout = stack(panels)
        n = rows["n"].max()
        caption = (
            f"Mean over {n} repetitions with the range from the smallest to the largest; grey: the same of two parts of the source. "
            f"The range is that of other examples, directions, splits and folds, and no interval. {said}"
        )
        name = "spread" if len(targets) == 1 else f"spread-{place + 1}"
        yield Figure(name, f"Profile over repetitions: {target}", caption, data, layout, "spread")


def _floats(rows: pl.DataFrame, column: str) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in rows[column].to_list()])


def unit_figures(units: pl.DataFrame, gaps: pl.DataFrame, name: str, target: str, said: str) -> Iterator[Figure]:
    """Distances of single units: quantiles by depth, and the ten most shifted of the layer with the largest excess."""
    order = {layer: i for i, layer in enumerate(gaps.sort("index")["layer"].to_list())}
    spread = units.filter(pl.col("quantile").is_not_null())
    labels = [layer for layer in order if layer in set(spread["layer"])]
    values = {q: dict(zip(part["layer"], part["value"], strict=True)) for (q,), part in spread.group_by("quantile")}
    nulls = {q: dict(zip(part["layer"], part["null"], strict=True)) for (q,), part in spread.group_by("quantile")}
    shown = {words: [values[q][layer] for layer in labels] for q, words in QUANTILES.items()}
    low, high = (np.array([nulls[q][layer] for layer in labels]) for q in (0.5, 1.0))
    band = Series("two parts of the source, median to largest", np.arange(len(labels)), low, low, high, null=True)
    data, layout = by_depth(shown, labels, Axes(DEPTH, "distance"), null=band)
    caption = (
        f"One-dimensional Wasserstein distance of each unit between the source and {target}, from one draw of equal size. The largest "
        f"of many is large by chance too: see the grey box. {said}"
    )
    yield Figure(name, f"Single units: {target}", caption, data, layout, "units")
    inner = gaps.filter(pl.col("index") > 0)
    worst = (inner if inner.height else gaps).sort("excess", descending=True)["layer"][0]
    top = units.filter((pl.col("layer") == worst) & pl.col("unit").is_not_null()).sort("value", descending=True)
    data, layout = bars(
        {"source to target": top["value"].to_numpy(), "two parts of the source": top["null"].to_numpy()},
        [f"unit {unit} ({shift:+.2g})" for unit, shift in zip(top["unit"], top["shift"], strict=True)],
        Axes("unit, with the shift of its mean", "distance"),
    )
    caption = (
        "The layer with the largest excess. The most shifted of its units, each beside the distance between two parts of the source; "
        f"in brackets how far its mean moved. The table `units` has those of every layer. {said}"
    )
    title = f"The {top.height} most shifted units of {worst}: {target}"
    yield Figure(name.replace("units", "units-top", 1), title, caption, data, layout, "units")


def class_figure(gaps: pl.DataFrame, name: str, target: str, said: str) -> Figure:
    """Excess of each class by layer."""
    layers = gaps.sort("index")["layer"].unique(maintain_order=True).to_list()
    classes = gaps["class"].unique(maintain_order=True).to_list()
    found = {(r["class"], r["layer"]): r["excess"] for r in gaps.to_dicts()}
    z = [[found.get((one, layer), np.nan) for layer in layers] for one in classes]
    data, layout = heat(z, layers, classes, Axes(DEPTH, "class"), unit="excess")
    side = {"automargin": True}
    layout = {**layout, "xaxis": layout["xaxis"] | side, "yaxis": layout["yaxis"] | side}
    counts = sorted(set(gaps["n_c"].to_list()))
    size = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = f"Excess within each class that source and {target} share by name, {size} examples per arm. {said}"
    return Figure(name, f"Gaps of single classes: {target}", caption, data, layout, "class_gaps")


def against_figures(moves: pl.DataFrame, matrix: pl.DataFrame, said: str) -> Iterator[Figure]:
    """How far each layer moved in the second network, and its layers beside the first's."""
    panels = []
    for (name,), mine in moves.group_by("data", maintain_order=True):
        mine = mine.sort("index")
        labels = mine["layer"].to_list()
        null = Series("two halves of the examples", np.arange(len(labels)), mine["null_mean"].to_numpy(), null=True)
        panels.append(
            (str(name), by_depth({"moved": mine["value"].to_numpy()}, labels, Axes(DEPTH, "distance"), null=null))
        )
    if panels:
        data, layout = stack(panels)
        caption = (
            "Distance between the two networks' laws on the same examples, units matched by position. Grey: two halves of the examples in "
            f"the first network. A layer that was not trained, behind layers that were not trained, is at exactly 0. {said}"
        )
        yield Figure("network-gap", "What the second network moved", caption, data, layout, "network_gaps")
    other = matrix.filter(pl.col("model_b") == "against")
    if other.height:
        a, b = (other[name].unique(maintain_order=True).to_list() for name in ("layer_a", "layer_b"))
        charts = [
            (
                words,
                heat(
                    other[column].to_numpy().reshape(len(a), len(b)), b, a, Axes("second network", "network"), unit=unit
                ),
            )
            for column, words, unit in (
                ("spectrum", "Distance of spectra", "distance"),
                ("cka", "Linear CKA, unbiased", "CKA"),
                ("pooled", "W₂ of pooled values", "sd"),
            )
        ]
        data, layout = stack(charts)
        caption = f"Layers of both networks on the source's examples, without matching units. {said}"
        yield Figure("matrix-against", "Layers of the two networks", caption, data, layout, "matrix")


def skipped_figure(layers: pl.DataFrame, passed: pl.DataFrame, said: str) -> Iterator[Figure]:
    """Which layers were measured and which were not; nothing where none was skipped."""
    measured = layers.filter(pl.col("data") == "source").sort("index")["layer"].unique(maintain_order=True).to_list()
    lost = passed.filter((pl.col("model") == "model") & ~pl.col("what").str.contains(r"^(class|probe) |\s+of\s+"))
    skipped = [name for name in lost["what"].unique(maintain_order=True).to_list() if name not in measured]
    if not skipped:
        return
    labels = [*measured, *skipped]
    kinds = ["measured"] * len(measured) + ["skipped"] * len(skipped)
    data, layout = strip(labels, kinds, Axes("layer; skipped ones after the others", ""), order=("measured", "skipped"))
    caption = f"{len(skipped)} layers that were asked for have no row; the table `passed_over` says why. {said}"
    yield Figure("skipped", "Skipped layers", caption, data, layout, "passed_over")
