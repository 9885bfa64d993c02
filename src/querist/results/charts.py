"""Charts: builders of plotly's JSON form (traces, layout) as plain values; plotly itself is not imported.

Every builder returns `(data, layout)` for a `Figure`. Histograms are binned here, long lines thinned to `LIMIT` points:
a figure weighs kilobytes whatever it was drawn from. No colour of text or background is set: the page does that
for light and dark. What a chart compares differs in dash or marker as well as colour; what belongs to the null is grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import InvariantBroken
from querist.results.layered import by_depth, strip
from querist.results.panels import stack
from querist.results.traces import (
    DASHES,
    GREY,
    LIMIT,
    PALETTE,
    Axes,
    Chart,
    Mark,
    Series,
    around,
    axes_layout,
    block_means,
    draw_marks,
    draw_series,
    filled_below,
    finite_values,
    marker_of,
    see_through,
    shown,
    six_digits,
    thin,
    tick_labels,
    trace_of,
    whiskers,
)

__all__ = [
    "Axes",
    "Chart",
    "Mark",
    "Series",
    "bars",
    "by_depth",
    "ccdf",
    "heat",
    "histogram",
    "lines",
    "ridgeline",
    "scatter",
    "stack",
    "strip",
]


def histogram(
    samples: Mapping[str, ArrayLike],
    axes: Axes,
    *,
    bins: int = 60,
    density: bool = True,
    nulls: Sequence[str] = (),
    curves: Sequence[Series] = (),
    marks: Sequence[Mark] = (),
) -> Chart:
    """Histograms of samples over common bins, equally wide on the x axis as drawn, with curves and marks over them.

    Values that the axis cannot show (non-finite, or not positive where x is logarithmic) are counted in the sample's
    name. Samples named in `nulls` are grey.
    """
    kept, names = {}, {}
    for name, values in samples.items():
        flat = np.asarray(values, dtype=float).ravel()
        fits = flat[np.isfinite(flat) & ((flat > 0) | ("x" not in axes.log))]
        kept[name] = fits
        names[name] = name if fits.size == flat.size else f"{name} ({flat.size - fits.size} not drawn)"
    full = [values for values in kept.values() if values.size]
    low, high = (min(v.min() for v in full), max(v.max() for v in full)) if full else (1.0, 10.0)
    if low == high:
        low, high = (low / 1.1, high * 1.1) if "x" in axes.log else (low - 0.5, high + 0.5)
    edges = np.geomspace(low, high, bins + 1) if "x" in axes.log else np.linspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high
    data, colour = [], 0
    for position, (name, values) in enumerate(kept.items()):
        heights = np.histogram(values, edges)[0].astype(float)
        if density and values.size:
            heights = heights / (values.size * np.diff(edges))
        grey = name in nulls
        line = {"color": GREY if grey else PALETTE[colour % len(PALETTE)], "width": 1.5}
        line["dash"] = DASHES[position % len(DASHES)]
        trace = trace_of(names[name], np.repeat(edges, 2)[1:-1], np.repeat(heights, 2), axes, line=line)
        data.append(trace)
        colour += not grey
    data = [*filled_below(data, axes), *data]
    data += draw_series(curves, axes, first=colour)
    return data + draw_marks(marks, data, axes), axes_layout(axes, data)


def ccdf(
    samples: Mapping[str, ArrayLike], axes: Axes, *, fits: Sequence[Series] = (), marks: Sequence[Mark] = ()
) -> Chart:
    """Share of each sample at or above x, as steps; `fits` are drawn only where their x lie."""
    data = []
    for position, (name, values) in enumerate(samples.items()):
        flat = np.sort(np.asarray(values, dtype=float).ravel())
        flat = flat[np.isfinite(flat) & ((flat > 0) | ("x" not in axes.log))]
        x, first = np.unique(flat, return_index=True)
        share = 1.0 - first / max(flat.size, 1)
        line = {"color": PALETTE[position % len(PALETTE)], "dash": DASHES[position % len(DASHES)], "shape": "vh"}
        data.append(trace_of(name, *thin(x, share, log=axes.log), axes, line=line))
    data += draw_series(fits, axes, first=len(data))
    return data + draw_marks(marks, data, axes), axes_layout(axes, data)


def lines(series: Sequence[Series], axes: Axes, *, marks: Sequence[Mark] = ()) -> Chart:
    """Lines, each with its band where it has one, thinned to `LIMIT` points."""
    data = draw_series(series, axes)
    return data + draw_marks(marks, data, axes), axes_layout(axes, data)


def scatter(
    groups: Mapping[str, tuple[ArrayLike, ArrayLike, Sequence[str]]],
    axes: Axes,
    *,
    identity: bool = False,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Points in named groups of (x, y, hover text); `identity` draws y = x, where prediction meets observation."""
    data = []
    for position, (name, (x, y, hover)) in enumerate(groups.items()):
        trace = trace_of(name, x, y, axes, mode="markers")
        trace["marker"] = marker_of(position)
        if len(hover):
            trace |= {"text": tick_labels(hover), "hovertemplate": "%{text}<br>%{x}, %{y}<extra></extra>"}
        data.append(trace)
    if identity and (values := finite_values([trace[side] for trace in data for side in "xy"])):
        ends = [min(values), max(values)]
        data.insert(0, trace_of("equal", ends, ends, axes, line={"color": GREY, "dash": "dash", "width": 1}))
    return data + draw_marks(marks, data, axes), axes_layout(axes, data)


def ridgeline(
    x: ArrayLike,
    rows: Sequence[str],
    series: Mapping[str, Sequence[ArrayLike]],
    axes: Axes,
    *,
    nulls: Sequence[str] = (),
) -> Chart:
    """Densities over one x, a ridge for each row, the first row at the top; `series` holds a density for each row.

    Each row has a scale of its own: its highest density rises over a ridge and a half. The first series is filled, those in
    `nulls` are grey. What is 0 is drawn only next to what is not.
    """
    x = np.asarray(x, dtype=float)
    data: list[dict[str, Any]] = []
    for row in range(len(rows)):
        base = len(rows) - 1 - row
        colour = 0
        peak = max((float(np.max(ridges[row], initial=0.0)) for ridges in series.values()), default=0.0) or 1.0
        for position, (name, ridges) in enumerate(series.items()):
            y = np.asarray(ridges[row], dtype=float)
            shade = GREY if name in nulls else PALETTE[colour % len(PALETTE)]
            colour += name not in nulls
            if not y.size or not np.any(y > 0):
                continue
            there = np.flatnonzero(y > 0)
            part = slice(max(there[0] - 1, 0), there[-1] + 2)
            line = {"color": shade, "dash": DASHES[position % len(DASHES)], "width": 1.5}
            first = not any(trace["legendgroup"] == name for trace in data)
            quiet = {"legendgroup": name, "showlegend": first, "hoverinfo": "name"}
            trace = trace_of(name, x[part], base + 1.5 * y[part] / peak, axes, line=line, **quiet)
            if position == 0:
                ends = {"x": [trace["x"][0], *trace["x"], trace["x"][-1]], "y": [base, *trace["y"], base]}
                trace |= {**ends, "fill": "toself", "fillcolor": see_through(shade, 0.25)}
            data.append(trace)
    layout = axes_layout(axes, data)
    ticks = {"tickvals": list(range(len(rows)))[::-1], "ticktext": tick_labels(rows), "zeroline": False}
    layout["yaxis"] |= {**ticks, "range": [-0.3, len(rows) + 0.7], "automargin": True}
    return data, {**layout, "height": 140 + 44 * len(rows)}


def bars(
    values: Mapping[str, ArrayLike],
    labels: Sequence[Any],
    axes: Axes,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Bars of one or more named groups over `labels`; `low` and `high` are whiskers of the first group.

    More than `LIMIT` bars are drawn as a line: they would be narrower than a pixel.
    """
    if len(labels) > LIMIT:
        numbers = all(isinstance(label, int | float) for label in labels)
        x = list(labels) if numbers else list(range(len(labels)))
        return lines([Series(name, x, y) for name, y in values.items()], axes, marks=marks)
    data: list[dict[str, Any]] = []
    for position, (name, heights) in enumerate(values.items()):
        trace = {"type": "bar", "name": shown(name), "x": tick_labels(labels), "y": six_digits(heights)}
        pattern = ("", "/", "x", ".", "\\", "-")[position % 6]
        trace["marker"] = {"color": PALETTE[position % len(PALETTE)], "pattern": {"shape": pattern}}
        if position == 0 and low is not None and high is not None:
            trace["error_y"] = whiskers(heights, low, high)
        data.append(trace)
    return data + draw_marks(marks, data, axes), {**axes_layout(axes, data), "barmode": "group"}


def heat(
    z: ArrayLike,
    x: Sequence[Any],
    y: Sequence[Any],
    axes: Axes,
    *,
    unit: str = "",
    log: bool = False,
    middle: float | None = None,
) -> Chart:
    """A heat map of z [len(y), len(x)]; `log` colours by log10; `middle`, the null's value, is grey.

    More than `CELLS` rows or columns are averaged in blocks, and the axes then carry each block's first label.
    """
    cells = np.array(z, dtype=float)
    if cells.shape != (len(y), len(x)):
        raise InvariantBroken(f"heat map of shape {cells.shape} with {len(y)} rows and {len(x)} columns of labels")
    if log:
        cells = np.log10(np.where(cells > 0, cells, np.nan))
    cells, rows, columns = block_means(cells)
    bar = {
        "title": {"text": f"log10 {unit}".strip() if log else unit, "side": "right"},
        "thickness": 12,
        "outlinewidth": 0,
    }
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": [six_digits(row) for row in cells],
        "colorbar": bar,
        "hoverongaps": False,
    }
    trace |= {
        "x": tick_labels([x[i] for i in columns]),
        "y": tick_labels([y[i] for i in rows]),
        "colorscale": "Viridis",
    }
    if middle is not None:
        trace |= around(cells, math.log10(middle) if log else middle)
    return [trace], axes_layout(axes, [trace])
