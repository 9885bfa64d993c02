"""Charts whose x axis is the depth of a network: a point or a mark for each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from querist.results.traces import (
    Axes,
    Chart,
    Mark,
    Series,
    axes_layout,
    depth_ticks,
    draw_marks,
    draw_series,
    marker_of,
    shown,
    tick_labels,
    trace_of,
    whiskers,
)

__all__ = ["by_depth", "strip"]


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
    """One point per layer by depth, whiskers on the first group, the null's band (y, low, high) behind all of them."""
    x = np.arange(len(labels))
    data = draw_series([_boxes(null, x)], axes) if null is not None else []
    for position, (name, y) in enumerate(values.items()):
        trace = trace_of(name, x, y, axes, mode="markers", marker=marker_of(position), text=tick_labels(labels))
        trace["hovertemplate"] = "%{text}<br>%{y}<extra></extra>"
        if position == 0 and low is not None and high is not None:
            trace["error_y"] = whiskers(y, low, high)
        data.append(trace)
    layout = axes_layout(axes, data)
    layout["xaxis"] |= depth_ticks(labels)
    return data + draw_marks(marks, data, axes), layout


def _boxes(null: Series, x: np.ndarray) -> Series:
    """The null as one box per layer: a line from layer to layer would claim what is not known."""
    wide = np.column_stack([x - 0.4, x + 0.4, np.full(x.size, np.nan)]).ravel()
    parts = {name: values for name in ("y", "low", "high") if (values := getattr(null, name)) is not None}
    return replace(null, x=wide, null=True, **{k: np.repeat(np.asarray(v, dtype=float), 3) for k, v in parts.items()})


def strip(
    labels: Sequence[str],
    kinds: Sequence[str | None],
    axes: Axes,
    *,
    order: Sequence[str] = (),
    sure: Sequence[bool] | None = None,
) -> Chart:
    """Which of several kinds each layer is, by depth: a row per kind, so that position tells it as well as colour.

    sure: where False the mark is hollow.
    """
    present = {kind for kind in kinds if kind is not None}
    rows = [*[kind for kind in order if kind in present], *sorted(present - set(order))]
    told = {kind: shown(kind) for kind in rows}
    data = []
    for position, kind in enumerate(rows):
        where = [i for i, other in enumerate(kinds) if other == kind]
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": f"{told[kind]} ({len(where)})",
            "x": where,
            "y": [told[kind]] * len(where),
        }
        marker = {**marker_of(position), "size": 9}
        text = tick_labels([labels[i] for i in where])
        if sure is not None and not all(sure[i] for i in where):
            marker["symbol"] = [str(marker["symbol"]) + ("" if sure[i] else "-open") for i in where]
            text = [label if sure[i] else f"{label} (cannot say)" for label, i in zip(text, where, strict=True)]
        trace |= {"marker": marker, "text": text}
        data.append({**trace, "hovertemplate": "%{text}<br>%{y}<extra></extra>"})
    layout = axes_layout(axes, data)
    layout["xaxis"] |= depth_ticks(labels)
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": list(told.values())[::-1]}
    return data, {**layout, "showlegend": False}
