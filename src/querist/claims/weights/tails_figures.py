"""Figures of the claims about heavy tails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Size
from querist.claims.weights.tails_rules import SCALES, runs_of
from querist.results.charts import Axes, Mark, Series, lines, scatter
from querist.results.figure import Figure

__all__ = ["tail_from_spike", "tail_generalises", "tail_without_noise"]

Tables = Mapping[str, pl.DataFrame]


def tail_without_noise(tables: Tables, size: Size) -> Iterator[Figure]:
    """Hill's exponent against the rate, beside untrained matrices."""
    last = tables["trajectories"].filter(pl.col("last") & (pl.col("scan") == ""))
    null = tables["hill_null"]["alpha_hill"].to_numpy()
    series = []
    for optimizer in size["rates"]:
        mine = last.filter(pl.col("optimizer") == optimizer).drop_nulls("alpha_hill")
        if mine.height:
            series.append(_band(optimizer, mine.group_by("eta").agg(pl.col("alpha_hill")).sort("eta"), "alpha_hill"))
    marks = [
        Mark("untrained, .01 quantile", float(np.quantile(null, 0.01)), "y"),
        Mark("untrained, mean", float(null.mean()), "y"),
    ]
    data, layout = lines(series, Axes("learning rate", "Hill's exponent", log="x"), marks=marks)
    yield Figure(
        "tail-without-noise.hill",
        "Hill's exponent after ten full-batch steps",
        "Mean over seeds with the range between them. Below the marks the upper half of the spectrum is heavier than that of an "
        "untrained matrix; whether it is a power law is another question, which the table answers.",
        data,
        layout,
        "trajectories",
    )


def _band(name: str, grouped: pl.DataFrame, column: str) -> Series:
    values = [np.asarray(one, dtype=float) for one in grouped[column].to_list()]
    middle, low, high = ([f(v) for v in values] for f in (np.mean, np.min, np.max))
    return Series(name, grouped["eta"].to_numpy(), middle, low, high, points=True)


def tail_from_spike(tables: Tables, size: Size) -> Iterator[Figure]:
    """When the first spike comes and when the bulk departs, and where the updates work in between."""
    runs = runs_of(tables["trajectories"])
    if not runs:
        return
    groups = {}
    for optimizer in dict.fromkeys(run.optimizer for run in runs):
        mine = [run for run in runs if run.optimizer == optimizer and run.spike is not None]
        hover = [f"rate {run.eta:g}, seed {run.repeat}" for run in mine]
        groups[optimizer] = ([run.spike for run in mine], [run.departure for run in mine], hover)
    data, layout = scatter(groups, Axes("step of the first spike", "step of the departure", square=True), identity=True)
    yield Figure(
        "tail-from-spike.order",
        "Which comes first",
        "One point per run that ends in a tail, many of them on top of each other. Above the line the spike comes first; on it "
        "both come in one step.",
        data,
        layout,
        "trajectories",
    )
    series = []
    for optimizer in groups:
        points: dict[float, list[float]] = {}
        for run in runs:
            if run.optimizer == optimizer:
                for step, value in zip(run.steps, run.excess, strict=True):
                    points.setdefault(step - (run.spike or 0), []).append(value)
        if points:
            x = sorted(points)
            parts = [np.array(points[step]) for step in x]
            series.append(
                Series(
                    optimizer,
                    x,
                    [p.mean() for p in parts],
                    [p.min() for p in parts],
                    [p.max() for p in parts],
                    points=True,
                )
            )
    if series:
        axes = Axes("steps since the first spike", "energy of the update in the bulk, beyond its null")
        data, layout = lines(series, axes, marks=[Mark("null", 0.0, "y")])
        yield Figure(
            "tail-from-spike.energy",
            "Where the updates work",
            "Share of ‖M‖² in singular directions of W that are no spikes, less their share of all directions, left and right "
            "averaged; mean over runs with the range between them.",
            data,
            layout,
            "trajectories",
        )


def tail_generalises(tables: Tables, size: Size) -> Iterator[Figure]:
    """Test loss of refitted features against Hill's exponent, per feature scale."""
    last = tables["trajectories"].filter(pl.col("last") & pl.col("finite") & (pl.col("scan") == ""))
    for scale in SCALES:
        groups = {}
        for optimizer in size["rates"]:
            mine = last.filter(pl.col("optimizer") == optimizer).drop_nulls(["alpha_hill", f"refit_test_{scale}"])
            hover = [f"rate {row['eta']:g}, seed {row['repeat']}" for row in mine.iter_rows(named=True)]
            groups[optimizer] = (mine["alpha_hill"].to_numpy(), mine[f"refit_test_{scale}"].to_numpy(), hover)
        data, layout = scatter(groups, Axes("Hill's exponent", "test loss of the refitted last layer", log="y"))
        told = (
            "tanh(Wx/√d), as the formula says" if scale == "formula" else "tanh(Wx/d), as the public code probes them"
        )
        yield Figure(
            f"tail-generalises.{scale}",
            f"Tail and test loss, features {scale}",
            f"Features {told}. One point per rate and seed. Heavier tails are further left; they go with lower loss where points "
            "on the left lie lower.",
            data,
            layout,
            "trajectories",
        )
