"""Charts: builders of plotly's JSON form (traces, layout) as plain values; plotly itself is not imported.

Every builder returns `(data, layout)` for a `Figure`. Histograms are binned here and long lines thinned to `LIMIT` points, so
that a figure weighs kilobytes whatever it was drawn from. No colour of text or background is set: the page does that for
light and dark. What a chart compares differs in dash or marker as well as in colour; what belongs to the null is grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "DASHES",
    "GREY",
    "LIMIT",
    "PALETTE",
    "SYMBOLS",
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
    "scatter",
    "stack",
    "strip",
    "thin",
]

PALETTE = ("#2e73b8", "#da730b", "#9d1fe0", "#8b6035", "#c23061", "#14908a", "#8577e0", "#9a7d1c")
"""Contrast of at least 3 with white and with a dark page; neighbours stay apart under the common colour deficiencies."""
GREY = "#7b858f"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
LIMIT = 400
CELLS = 160
"""Most rows and columns of a heat map; a larger one is averaged in blocks."""
_DIVERGING = [[0.0, "#2e73b8"], [0.5, "#b9bec4"], [1.0, "#da730b"]]

Chart: TypeAlias = tuple[list[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Axes:
    """Axis titles, which axes are logarithmic ("", "x", "y" or "xy"), and whether both have one scale."""

    x: str
    y: str
    log: str = ""
    square: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """A named line; `low` and `high` draw a band around it; `null` makes it grey, `points` shows its points."""

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    null: bool = False
    points: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A straight line across the chart at one value of x (or of y), named in the legend."""

    name: str
    at: float | None
    axis: str = "x"


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
    """Histograms of several samples over common bins, equally wide on the x axis as drawn, with curves and marks over them.

    Values that the axis cannot show (non-finite, or not positive where x is logarithmic) are counted in the sample's name.
    Samples named in `nulls` are grey.
    """
    kept, names = {}, {}
    for name, values in samples.items():
        flat = np.asarray(values, dtype=float).ravel()
        shown = flat[np.isfinite(flat) & ((flat > 0) | ("x" not in axes.log))]
        kept[name] = shown
        names[name] = name if shown.size == flat.size else f"{name} ({flat.size - shown.size} not drawn)"
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
        trace = _trace(names[name], np.repeat(edges, 2)[1:-1], np.repeat(heights, 2), axes, line=line)
        if position == 0:
            trace |= {"fill": "tozeroy", "fillcolor": _see_through(line["color"], 0.22)}
        data.append(trace)
        colour += not grey
    data += _drawn(curves, axes, first=colour)
    return data + _marks(marks, data, axes), _layout(axes)


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
        data.append(_trace(name, *thin(x, share, log=axes.log), axes, line=line))
    data += _drawn(fits, axes, first=len(data))
    return data + _marks(marks, data, axes), _layout(axes)


def lines(series: Sequence[Series], axes: Axes, *, marks: Sequence[Mark] = ()) -> Chart:
    """Lines, each with its band where it has one, thinned to `LIMIT` points."""
    data = _drawn(series, axes)
    return data + _marks(marks, data, axes), _layout(axes)


def scatter(
    groups: Mapping[str, tuple[ArrayLike, ArrayLike, Sequence[str]]],
    axes: Axes,
    *,
    identity: bool = False,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Points in named groups of (x, y, hover text); `identity` draws the line y = x, where prediction meets observation."""
    data = []
    for position, (name, (x, y, hover)) in enumerate(groups.items()):
        trace = _trace(name, x, y, axes, mode="markers")
        trace["marker"] = _marker(position)
        trace |= {"text": list(hover), "hovertemplate": "%{text}<br>%{x}, %{y}<extra></extra>"} if len(hover) else {}
        data.append(trace)
    if identity and (values := _finite([trace[side] for trace in data for side in "xy"])):
        ends = [min(values), max(values)]
        data.insert(0, _trace("equal", ends, ends, axes, line={"color": GREY, "dash": "dash", "width": 1}))
    return data + _marks(marks, data, axes), _layout(axes)


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
        trace = {"type": "bar", "name": name, "x": _labels(labels), "y": _plain(heights)}
        pattern = ("", "/", "x", ".", "\\", "-")[position % 6]
        trace["marker"] = {"color": PALETTE[position % len(PALETTE)], "pattern": {"shape": pattern}}
        if position == 0 and low is not None and high is not None:
            trace["error_y"] = _whiskers(heights, low, high)
        data.append(trace)
    return data + _marks(marks, data, axes), {**_layout(axes), "barmode": "group"}


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
    """A heat map of z [len(y), len(x)]; `log` colours by log10 of positive cells; `middle` is the null's value, drawn grey.

    More than `CELLS` rows or columns are averaged in blocks, and the axes then carry each block's first label.
    """
    cells = np.array(z, dtype=float)
    if cells.shape != (len(y), len(x)):
        raise ValueError(f"heat map of shape {cells.shape} with {len(y)} rows and {len(x)} columns of labels")
    if log:
        cells = np.log10(np.where(cells > 0, cells, np.nan))
    cells, rows, columns = _blocks(cells)
    bar = {
        "title": {"text": f"log10 {unit}".strip() if log else unit, "side": "right"},
        "thickness": 12,
        "outlinewidth": 0,
    }
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": [_plain(row) for row in cells],
        "colorbar": bar,
        "hoverongaps": False,
    }
    trace |= {"x": _labels([x[i] for i in columns]), "y": _labels([y[i] for i in rows]), "colorscale": "Viridis"}
    if middle is not None:
        trace |= {"colorscale": _DIVERGING, "zmid": math.log10(middle) if log else middle}
    return [trace], _layout(axes)


def by_depth(
    values: Mapping[str, ArrayLike],
    labels: Sequence[str],
    axes: Axes,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    null: Series | None = None,
    marks: Sequence[Mark] = (),
) -> Chart:
    """One point per layer in order of depth, whiskers on the first group, the null's band (y, low, high) behind all of them."""
    x = np.arange(len(labels))
    data = _drawn([replace(null, x=x, null=True)], axes) if null is not None else []
    for position, (name, y) in enumerate(values.items()):
        trace = _trace(name, x, y, axes, mode="markers", marker=_marker(position), text=list(labels))
        trace["hovertemplate"] = "%{text}<br>%{y}<extra></extra>"
        if position == 0 and low is not None and high is not None:
            trace["error_y"] = _whiskers(y, low, high)
        data.append(trace)
    layout = _layout(axes)
    layout["xaxis"] |= _depth_ticks(labels)
    return data + _marks(marks, data, axes), layout


def strip(labels: Sequence[str], kinds: Sequence[str | None], axes: Axes, *, order: Sequence[str] = ()) -> Chart:
    """Which of several kinds each layer is, by depth: a row per kind, so that position tells it as well as colour."""
    present = {kind for kind in kinds if kind is not None}
    rows = [*[kind for kind in order if kind in present], *sorted(present - set(order))]
    data = []
    for position, kind in enumerate(rows):
        where = [i for i, other in enumerate(kinds) if other == kind]
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": f"{kind} ({len(where)})",
            "x": where,
            "y": [kind] * len(where),
        }
        trace |= {"marker": {**_marker(position), "size": 9}, "text": [labels[i] for i in where]}
        data.append({**trace, "hovertemplate": "%{text}<br>%{y}<extra></extra>"})
    layout = _layout(axes)
    layout["xaxis"] |= {**_depth_ticks(labels), "range": [-0.7, len(labels) - 0.3]}
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": rows[::-1]}
    return data, {**layout, "showlegend": False}


def stack(charts: Sequence[tuple[str, Chart]], *, columns: int = 1) -> Chart:
    """Several charts as panels of one, each under its title; a name that recurs appears once in the legend."""
    rows = math.ceil(len(charts) / columns)
    gap_x, gap_y = (0.12 if columns > 1 else 0.0), min(0.5, 70 / (230 * rows))
    wide, high = (1 - gap_x * (columns - 1)) / columns, (1 - gap_y * (rows - 1)) / rows
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": [], "height": 110 + 230 * rows}
    seen: set[str] = set()
    for number, (title, (traces, own)) in enumerate(charts):
        suffix = "" if number == 0 else str(number + 1)
        left = (number % columns) * (wide + gap_x)
        top = 1 - (number // columns) * (high + gap_y)
        for trace in traces:
            name = str(trace.get("name", ""))
            shown = bool(trace.get("showlegend", True)) and own.get("showlegend", True) and name not in seen
            if shown:
                seen.add(name)
            moved = {**trace, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "legendgroup": name, "showlegend": shown}
            if trace["type"] == "heatmap":
                bar = {**trace["colorbar"], "len": high, "y": top - high / 2, "x": left + wide + 0.01}
                moved |= {"colorbar": bar, "showlegend": False}
            data.append(moved)
        layout[f"xaxis{suffix}"] = {
            **own["xaxis"],
            "anchor": f"y{suffix}",
            "domain": [round(left, 4), round(left + wide, 4)],
        }
        layout[f"yaxis{suffix}"] = {
            **own["yaxis"],
            "anchor": f"x{suffix}",
            "domain": [round(top - high, 4), round(top, 4)],
        }
        place = {"xref": "paper", "yref": "paper", "x": round(left, 4), "y": round(top, 4)}
        layout["annotations"].append(
            {**place, "text": title, "showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"size": 13}}
        )
    return data, layout


def thin(x: ArrayLike, y: ArrayLike, *, limit: int = LIMIT, log: str = "") -> tuple[np.ndarray, np.ndarray]:
    """At most `limit` points of a line that keep its look: of each stretch the point that makes the largest triangle.

    `log` names the axes drawn logarithmically, on which triangles are then measured. Ends are kept. Points that cannot be
    drawn stay as gaps where the line needs no thinning, and are left out where it does.

    Source: largest triangle, three buckets (Steinarsson 2013); buckets are equally wide in x as drawn, not in count, so
    that a logarithmic axis is covered evenly.
    """
    x, y = np.asarray(x, dtype=float).ravel(), np.asarray(y, dtype=float).ravel()
    if x.size != y.size:
        raise ValueError(f"a line of {x.size} x and {y.size} y")
    if x.size <= limit:
        return x, y
    ok = np.isfinite(x) & np.isfinite(y) & ((x > 0) | ("x" not in log)) & ((y > 0) | ("y" not in log))
    x, y = x[ok], y[ok]
    if x.size <= limit:
        return x, y
    u, v = _unit(np.log(x) if "x" in log else x), _unit(np.log(y) if "y" in log else y)
    if np.any(np.diff(u) < 0):  # a path, not a function of x: the position along it is all there is
        bucket = np.linspace(0, limit - 2, x.size - 2, endpoint=False).astype(int)
    else:
        bucket = np.minimum((u[1:-1] * (limit - 2)).astype(int), limit - 3)
    starts = np.flatnonzero(np.r_[True, np.diff(bucket) != 0]) + 1
    stops = np.r_[starts[1:], x.size - 1]
    chosen = [0]
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        last = chosen[-1]
        after = slice(stops[i], stops[i + 1]) if i + 1 < len(starts) else slice(x.size - 1, x.size)
        next_u, next_v = u[after].mean(), v[after].mean()
        area = np.abs((u[last] - next_u) * (v[start:stop] - v[last]) - (u[last] - u[start:stop]) * (next_v - v[last]))
        chosen.append(start + int(np.argmax(area)))
    chosen.append(x.size - 1)
    return x[chosen], y[chosen]


def _drawn(series: Sequence[Series], axes: Axes, first: int = 0) -> list[dict[str, Any]]:
    data, colour = [], first
    for position, one in enumerate(series, first):
        line = {"color": GREY if one.null else PALETTE[colour % len(PALETTE)], "dash": DASHES[position % len(DASHES)]}
        colour += not one.null
        if one.low is not None and one.high is not None:
            edge = {
                "mode": "lines",
                "line": {"width": 0, "color": line["color"]},
                "hoverinfo": "skip",
                "showlegend": False,
            }
            x = np.asarray(one.x, dtype=float)
            data.append(_trace(one.name, *thin(x, one.low, log=axes.log), axes) | {**edge, "legendgroup": one.name})
            filled = {**edge, "fill": "tonexty", "fillcolor": _see_through(line["color"], 0.2), "legendgroup": one.name}
            data.append(_trace(one.name, *thin(x, one.high, log=axes.log), axes) | filled)
        trace = _trace(one.name, *thin(one.x, one.y, log=axes.log), axes, line=line, legendgroup=one.name)
        if one.points:
            trace |= {"mode": "lines+markers", "marker": {**_marker(position), "color": line["color"], "size": 6}}
        data.append(trace)
    return data


def _trace(name: str, x: ArrayLike, y: ArrayLike, axes: Axes, **more: Any) -> dict[str, Any]:
    kept = {side: _plain(values, positive=side in axes.log) for side, values in (("x", x), ("y", y))}
    return {"type": "scatter", "mode": "lines", "name": name, **kept, **more}


def _marks(marks: Sequence[Mark], data: Sequence[dict[str, Any]], axes: Axes) -> list[dict[str, Any]]:
    drawn = []
    for position, mark in enumerate(mark for mark in marks if mark.at is not None and math.isfinite(mark.at)):
        other = "y" if mark.axis == "x" else "x"
        values = _finite([trace[other] for trace in data if trace["type"] != "heatmap"])
        ends = [min(values), max(values)] if values else [1.0, 1.0]
        if other == "y" and "y" not in axes.log:
            ends = [min(ends[0], 0.0), ends[1]]
        x, y = ([mark.at] * 2, ends) if mark.axis == "x" else (ends, [mark.at] * 2)
        line = {"color": GREY, "width": 1.5, "dash": DASHES[1:][position % (len(DASHES) - 1)]}
        drawn.append(_trace(f"{mark.name}: {mark.at:.4g}", x, y, axes, line=line, hoverinfo="name"))
    return drawn


def _layout(axes: Axes) -> dict[str, Any]:
    layout: dict[str, Any] = {"xaxis": {"title": {"text": axes.x}}, "yaxis": {"title": {"text": axes.y}}}
    for side in axes.log:
        layout[f"{side}axis"] |= {"type": "log", "exponentformat": "power", "dtick": None}
    if axes.square:
        layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
    return layout


def _depth_ticks(labels: Sequence[str]) -> dict[str, Any]:
    if len(labels) > 20 or max((len(label) for label in labels), default=0) > 40:
        return {"title": {"text": "layer, by depth"}}
    return {"tickvals": list(range(len(labels))), "ticktext": list(labels), "tickangle": -35}


def _marker(position: int) -> dict[str, Any]:
    return {"color": PALETTE[position % len(PALETTE)], "symbol": SYMBOLS[position % len(SYMBOLS)], "size": 7}


def _whiskers(middle: ArrayLike, low: ArrayLike, high: ArrayLike) -> dict[str, Any]:
    y, down, up = (np.asarray(values, dtype=float) for values in (middle, low, high))
    sides = {"array": _plain(np.maximum(up - y, 0)), "arrayminus": _plain(np.maximum(y - down, 0))}
    return {"type": "data", "symmetric": False, **sides, "thickness": 1, "width": 2}


def _blocks(cells: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    starts = []
    for axis in (0, 1):
        size = cells.shape[axis]
        edges = np.unique(np.linspace(0, size, min(size, CELLS), endpoint=False).astype(int))
        if edges.size < size:
            ok = np.isfinite(cells)
            total = np.add.reduceat(np.where(ok, cells, 0.0), edges, axis=axis)
            count = np.add.reduceat(ok.astype(float), edges, axis=axis)
            cells = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        starts.append([int(edge) for edge in edges])
    return cells, starts[0], starts[1]


def _unit(values: np.ndarray) -> np.ndarray:
    span = np.ptp(values)
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _plain(values: ArrayLike, positive: bool = False) -> list[Any]:
    """Six significant digits: finer than a pixel on any screen, and a third of the bytes."""
    flat = np.asarray(values, dtype=float).ravel()
    ok = np.isfinite(flat) & ((flat > 0) | (not positive))
    return [float(f"{value:.6g}") if fine else None for value, fine in zip(flat.tolist(), ok.tolist(), strict=True)]


def _labels(values: Sequence[Any]) -> list[Any]:
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _finite(columns: Sequence[Sequence[Any]]) -> list[float]:
    return [value for column in columns for value in column if isinstance(value, int | float)]


def _see_through(colour: str, share: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share})"
