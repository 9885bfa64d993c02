"""Traces: the pieces that charts are made of, their palette, and how they are kept light.

Numbers carry six significant digits, long lines `LIMIT` points, heat maps `CELLS` by `CELLS` cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import InvariantBroken

__all__ = [
    "CELLS",
    "DASHES",
    "GREY",
    "LIMIT",
    "PALETTE",
    "SYMBOLS",
    "Axes",
    "Chart",
    "Mark",
    "Series",
    "around",
    "axes_layout",
    "block_means",
    "depth_ticks",
    "draw_marks",
    "draw_series",
    "filled_below",
    "finite_values",
    "marker_of",
    "see_through",
    "shown",
    "six_digits",
    "thin",
    "tick_labels",
    "trace_of",
    "whiskers",
]

Chart: TypeAlias = tuple[list[dict[str, Any]], dict[str, Any]]
"""Traces and layout, as a `Figure` takes them."""
PALETTE = ("#2e73b8", "#da730b", "#9d1fe0", "#8b6035", "#c23061", "#14908a", "#8577e0", "#9a7d1c")
"""Contrast of at least 3 with white and with a dark page; the first stay apart under the common colour deficiencies."""
GREY = "#7b858f"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
LIMIT = 400
CELLS = 160
"""Most rows and columns of a heat map; a larger one is averaged in blocks."""
_ENDS = ("#2e73b8", "#b9bec4", "#da730b")
"""Below the null, at it, above it."""


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


def thin(x: ArrayLike, y: ArrayLike, *, limit: int = LIMIT, log: str = "") -> tuple[np.ndarray, np.ndarray]:
    """At most `limit` points of a line that keep its look: of each stretch the point that makes the largest triangle.

    `log` names the axes drawn logarithmically, on which triangles are then measured. Ends are kept. Points that cannot
    be drawn stay as gaps where the line needs no thinning, and are left out where it does.

    Source: largest triangle, three buckets (Steinarsson 2013); buckets are equally wide in x as drawn, not in count, so
    that a logarithmic axis is covered evenly.
    """
    x, y = np.asarray(x, dtype=float).ravel(), np.asarray(y, dtype=float).ravel()
    if x.size != y.size:
        raise InvariantBroken(f"a line of {x.size} x and {y.size} y")
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
        chosen.append(int(start) + int(np.argmax(area)))
    chosen.append(x.size - 1)
    return x[chosen], y[chosen]


def draw_series(series: Sequence[Series], axes: Axes, first: int = 0) -> list[dict[str, Any]]:
    """Lines with their bands; a null is grey, and colours and dashes start at `first`."""
    data, colour = [], first
    for position, one in enumerate(series, first):
        line = {"color": GREY if one.null else PALETTE[colour % len(PALETTE)], "dash": DASHES[position % len(DASHES)]}
        colour += not one.null
        if one.low is not None and one.high is not None:
            x, y = _outline(one, axes)
            filled = {"line": {"width": 0}, "fill": "toself", "fillcolor": see_through(line["color"], 0.2)}
            quiet = {"hoverinfo": "skip", "showlegend": False, "legendgroup": one.name}
            data.append(trace_of(one.name, x, y, axes, **filled, **quiet))
        trace = trace_of(one.name, *thin(one.x, one.y, log=axes.log), axes, line=line, legendgroup=one.name)
        if one.points:
            trace |= {"mode": "lines+markers", "marker": {**marker_of(position), "color": line["color"], "size": 6}}
        data.append(trace)
    return data


def _outline(one: Series, axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Around the band, run by run: where one of its ends is unknown there is no band, and none is drawn."""
    x, low, high = (np.asarray(v, dtype=float).ravel() for v in (one.x, one.low, one.high))
    ok = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    for side, values in (("x", x), ("y", low), ("y", high)):
        ok &= (values > 0) | (side not in axes.log)
    pieces = []
    for run in np.split(np.arange(x.size), np.flatnonzero(np.diff(ok)) + 1):
        if run.size and ok[run[0]]:
            under = run if np.ptp(low[run]) else np.unique(run[[0, -1]])
            up, down = thin(x[run], high[run], log=axes.log), thin(x[under], low[under], log=axes.log)
            pieces.append(np.hstack([up, np.array(down)[:, ::-1], [[up[0][0], np.nan], [up[1][0], np.nan]]]))
    return tuple(np.hstack(pieces)) if pieces else (np.empty(0), np.empty(0))


def trace_of(name: str, x: Any, y: Any, axes: Axes, **more: Any) -> dict[str, Any]:
    """One scatter trace; what its axes cannot show becomes a gap."""
    kept = {side: six_digits(values, positive=side in axes.log) for side, values in (("x", x), ("y", y))}
    return {"type": "scatter", "mode": "lines", "name": shown(name), **kept, **more}


def draw_marks(marks: Sequence[Mark], data: Sequence[dict[str, Any]], axes: Axes) -> list[dict[str, Any]]:
    """Straight lines over the range of what is drawn already, named with their value; a mark at None is left out.

    Along an axis of words a line goes from the first to the last of them: a number there would be a word of its own.
    """
    drawn = []
    for position, mark in enumerate(mark for mark in marks if mark.at is not None and math.isfinite(mark.at)):
        other = "y" if mark.axis == "x" else "x"
        values = finite_values([trace[other] for trace in data if trace["type"] != "heatmap"])
        ends = [min(values), max(values)] if values else [1.0, 1.0]
        if other == "y" and "y" not in axes.log:
            ends = [min(ends[0], 0.0), ends[1]]
        x, y = ([mark.at] * 2, ends) if mark.axis == "x" else (ends, [mark.at] * 2)
        line = {"color": GREY, "width": 1.5, "dash": DASHES[1:][position % (len(DASHES) - 1)]}
        trace = trace_of(f"{mark.name}: {mark.at:.4g}", x, y, axes, line=line, hoverinfo="name")
        words = [one for given in data for one in given.get(other, ()) if isinstance(one, str)]
        if not values and words:
            trace[other] = [words[0], words[-1]]
        drawn.append(trace)
    return drawn


def filled_below(data: Sequence[dict[str, Any]], axes: Axes) -> list[dict[str, Any]]:
    """The area under the first of these lines, down to zero or, where y is logarithmic, to half of the least value."""
    if not data:
        return []
    first = data[0]
    floor = min((y for y in finite_values([trace["y"] for trace in data]) if y > 0), default=1.0) / 2
    low = np.full(len(first["x"]), floor if "y" in axes.log else 0.0)
    x, y = _outline(Series("", first["x"], np.zeros(0), low, np.array(first["y"], dtype=float)), axes)
    look = {"fill": "toself", "fillcolor": see_through(first["line"]["color"], 0.22), "line": {"width": 0}}
    quiet = {"hoverinfo": "skip", "showlegend": False, "legendgroup": first["name"]}
    first["legendgroup"] = first["name"]
    return [{**trace_of("", x, y, axes, **look, **quiet), "name": first["name"]}]


def around(cells: np.ndarray, middle: float) -> dict[str, Any]:
    """Colours of a heat map that is grey at `middle` and as far from grey, on either side, as the cell is from it."""
    values = cells[np.isfinite(cells)]
    low, high = (min(values.min(), middle), max(values.max(), middle)) if values.size else (middle - 1, middle + 1)
    span = max(middle - low, high - middle) or 1.0
    if high <= low:
        low, high = middle - span, middle + span
    place = (middle - low) / (high - low)
    stops = [[0.0, _blend(_ENDS[1], _ENDS[0], (middle - low) / span)], [place, _ENDS[1]]]
    stops.append([1.0, _blend(_ENDS[1], _ENDS[2], (high - middle) / span)])
    stops = [stop for i, stop in enumerate(stops) if i != 1 or 0 < place < 1]
    return {"colorscale": stops, "zmin": float(low), "zmax": float(high)}


def _blend(start: str, end: str, share: float) -> str:
    pairs = [(int(start[i : i + 2], 16), int(end[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def axes_layout(axes: Axes, data: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Axis titles and scales; a logarithmic axis of more than a decade and a half is ticked at powers of ten only."""
    layout: dict[str, Any] = {"xaxis": {"title": {"text": axes.x}}, "yaxis": {"title": {"text": axes.y}}}
    for side in axes.log:
        layout[f"{side}axis"] |= {"type": "log", "exponentformat": "power"}
        values = [value for value in finite_values([trace[side] for trace in data]) if value > 0]
        if values and max(values) / min(values) > 30:
            layout[f"{side}axis"] |= {"dtick": 1 if max(values) / min(values) < 1e9 else 2}
    if axes.square:
        layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
    return layout


def depth_ticks(labels: Sequence[str]) -> dict[str, Any]:
    """The axis of layers by depth; up to 20 are named, long names cut in the middle (the hover has all)."""
    axis: dict[str, Any] = {"range": [-0.7, len(labels) - 0.3], "zeroline": False}
    if len(labels) > 20:
        return axis
    short = [label if len(label) <= 26 else f"{label[:10]}…{label[-15:]}" for label in labels]
    return {**axis, "tickvals": list(range(len(labels))), "ticktext": tick_labels(short), "tickangle": -35}


def marker_of(position: int) -> dict[str, Any]:
    """Colour and shape of the group at this position."""
    return {"color": PALETTE[position % len(PALETTE)], "symbol": SYMBOLS[position % len(SYMBOLS)], "size": 7}


def whiskers(middle: ArrayLike, low: ArrayLike, high: ArrayLike) -> dict[str, Any]:
    """Error bars from ends that may be unknown."""
    y, down, up = (np.asarray(values, dtype=float) for values in (middle, low, high))
    sides = {"array": six_digits(np.maximum(up - y, 0)), "arrayminus": six_digits(np.maximum(y - down, 0))}
    return {"type": "data", "symmetric": False, **sides, "thickness": 1, "width": 2}


def block_means(cells: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    """Cells averaged to at most CELLS rows and columns, with the first row and column of each block."""
    ok = np.isfinite(cells)
    total, count, starts = np.where(ok, cells, 0.0), ok.astype(float), []
    for axis, size in enumerate(cells.shape):
        edges = np.unique(np.linspace(0, size, min(size, CELLS), endpoint=False).astype(int))
        if edges.size < size:
            total, count = np.add.reduceat(total, edges, axis=axis), np.add.reduceat(count, edges, axis=axis)
        starts.append([int(edge) for edge in edges])
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0), starts[0], starts[1]


def _unit(values: np.ndarray) -> np.ndarray:
    span = np.ptp(values)
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def six_digits(values: ArrayLike, positive: bool = False) -> list[Any]:
    """Six significant digits: finer than a pixel on any screen, and a third of the bytes."""
    flat = np.asarray(values, dtype=float).ravel()
    ok = np.isfinite(flat) & ((flat > 0) | (not positive))
    return [float(f"{value:.6g}") if fine else None for value, fine in zip(flat.tolist(), ok.tolist(), strict=True)]


def tick_labels(values: Sequence[Any]) -> list[Any]:
    """Labels as plain JSON values, text as plotly shows it unread."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [shown(value) if isinstance(value, str) else value for value in plain]


def finite_values(columns: Sequence[Sequence[Any]]) -> list[float]:
    """All numbers in these columns."""
    return [value for column in columns for value in column if isinstance(value, int | float)]


def see_through(colour: str, share: float) -> str:
    """A hex colour as rgba with this opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share})"


def shown(text: str) -> str:
    """Text that plotly, which reads a few tags, shows letter by letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
