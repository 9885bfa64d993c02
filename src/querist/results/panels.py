"""Several charts as the panels of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from querist.results.traces import Chart, shown

__all__ = ["stack"]


def stack(charts: Sequence[tuple[str, Chart]], *, columns: int = 1) -> Chart:
    """Several charts as panels of one, each under its title; a name that recurs appears once in the legend."""
    rows = math.ceil(len(charts) / columns)
    gap_x, gap_y = (0.12 if columns > 1 else 0.0), min(0.4, (48 if _shared(charts, columns) else 80) / (230 * rows))
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
            first = bool(trace.get("showlegend", True)) and own.get("showlegend", True) and name not in seen
            if first:
                seen.add(name)
            moved = {**trace, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "legendgroup": name, "showlegend": first}
            if trace["type"] == "heatmap":
                bar = {**trace["colorbar"], "len": high, "y": top - high / 2, "x": left + wide + 0.01}
                moved |= {"colorbar": bar, "showlegend": False}
            data.append(moved)
        axis = {**own["xaxis"], "anchor": f"y{suffix}", "domain": [round(left, 4), round(left + wide, 4)]}
        if columns == 1 and number + 1 < len(charts) and own["xaxis"] == charts[number + 1][1][1]["xaxis"]:
            axis |= {"showticklabels": False, "title": {"text": ""}, "matches": _last(number, charts)}
        layout[f"xaxis{suffix}"] = axis
        layout[f"yaxis{suffix}"] = {
            **own["yaxis"],
            "anchor": f"x{suffix}",
            "domain": [round(top - high, 4), round(top, 4)],
        }
        place = {"xref": "paper", "yref": "paper", "x": round(left, 4), "y": round(top, 4), "font": {"size": 13}}
        anchor = {"showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        layout["annotations"].append({"text": shown(title), **place, **anchor})
    return data, layout


def _shared(charts: Sequence[tuple[str, Chart]], columns: int) -> bool:
    return columns == 1 and all(layout["xaxis"] == charts[0][1][1]["xaxis"] for _, (_, layout) in charts)


def _last(number: int, charts: Sequence[tuple[str, Chart]]) -> str:
    """The axis id of the lowest panel of those that share this panel's x axis without a break."""
    axis = charts[number][1][1]["xaxis"]
    while number + 1 < len(charts) and charts[number + 1][1][1]["xaxis"] == axis:
        number += 1
    return f"x{number + 1}"
