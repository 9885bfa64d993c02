"""A spectrum that moves: one frame per look, with a slider over the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes
from querist.results.figure import Figure
from querist.results.traces import GREY, PALETTE, six_digits, trace_of
from querist.weights.monitor import BINS
from querist.weights.nulls import mp_cdf

__all__ = ["FRAMES", "moving_spectrum"]

FRAMES = 24
"""Frames of one film: with 100 bins and two curves about 60 kB."""


def moving_spectrum(layer: str, trace: pl.DataFrame, bins: pl.DataFrame, shape: tuple[int, int]) -> Figure:
    """Counts per bin of log λ at each look, beside what the fitted Marchenko–Pastur law puts into the same bins.

    trace, bins: the layer's rows of the tables `trace` and `histograms`, the latter with a bin each. At most FRAMES looks,
    evenly spread, the last one shown first.
    """
    steps = sorted(bins["step"].unique().to_list())
    steps = [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, min(len(steps), FRAMES)).round().astype(int))]
    first, last = int(bins["bin"].min()), int(bins["bin"].max())  # type: ignore[arg-type]
    x = 10 ** ((np.arange(first, last + 1) + 0.5) / BINS)
    edges = 10 ** (np.arange(first, last + 2) / BINS)
    scale = {row["step"]: row["sigma_mp"] for row in trace.iter_rows(named=True)}
    drawn = []
    for step in steps:
        counts = np.zeros(last - first + 1)
        rows = bins.filter(pl.col("step") == step)
        counts[rows["bin"].to_numpy() - first] = rows["count"].to_numpy()
        drawn.append((step, counts, _expected(scale.get(step), edges, shape)))
    highest = max(float(np.nanmax(np.r_[counts, law, 1.0])) for _, counts, law in drawn)
    axes = Axes("eigenvalue λ", "eigenvalues in the bin", log="x")
    data = [
        trace_of(
            "eigenvalues",
            x,
            drawn[-1][1],
            axes,
            line={"color": PALETTE[0], "shape": "hvh", "width": 1.5},
            fill="tozeroy",
        ),
        trace_of("Marchenko–Pastur", x, drawn[-1][2], axes, line={"color": GREY, "dash": "dash", "width": 1.5}),
    ]
    frames: list[dict[str, Any]] = [
        {"name": str(step), "data": [{"y": six_digits(counts)}, {"y": six_digits(law)}]} for step, counts, law in drawn
    ]
    still = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
    slider = {
        "active": len(frames) - 1,
        "pad": {"t": 34, "b": 8, "l": 140},
        "len": 1.0,
        "currentvalue": {"prefix": "step ", "xanchor": "right"},
        "steps": [{"label": f["name"], "method": "animate", "args": [[f["name"]], still]} for f in frames],
    }
    going = {
        "mode": "immediate",
        "fromcurrent": False,
        "frame": {"duration": 250, "redraw": False},
        "transition": {"duration": 0},
    }
    menu = {
        "type": "buttons",
        "direction": "left",
        "showactive": False,
        "x": 0,
        "y": 0,
        "xanchor": "left",
        "yanchor": "top",
        "pad": {"t": 48, "r": 8},
        "buttons": [
            {"label": "Play", "method": "animate", "args": [None, going]},
            {"label": "Stop", "method": "animate", "args": [[None], still]},
        ],
    }
    layout = {
        "xaxis": {"title": {"text": axes.x}, "type": "log", "exponentformat": "power", "range": _ends(edges)},
        "yaxis": {"title": {"text": axes.y}, "range": [0, 1.05 * highest]},
        "sliders": [slider],
        "updatemenus": [menu],
        "legend": {"y": 1, "yanchor": "bottom", "yref": "paper"},
        "height": 480,
    }
    caption = (
        "The slider goes through the looks at the whole spectrum. The dashed curve is what the Marchenko–Pastur law fitted to that "
        "look puts into each bin: bins are equally wide in log λ."
    )
    return Figure("", f"Spectrum of {layer}, look by look", caption, data, layout, "histograms", frames)


def _expected(sigma: float | None, edges: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Eigenvalues that the law puts into each bin."""
    if not sigma:
        return np.full(edges.size - 1, np.nan)
    n, m = sorted(shape)
    return n * np.diff(mp_cdf(edges / (sigma**2 * m), n / m))


def _ends(edges: np.ndarray) -> list[float]:
    return [round(float(np.log10(edges[0])) - 0.03, 4), round(float(np.log10(edges[-1])) + 0.03, 4)]
