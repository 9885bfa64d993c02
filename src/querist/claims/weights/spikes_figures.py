"""Figures of the claims about one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Size
from querist.results.charts import Axes, Mark, Series, lines, scatter
from querist.results.figure import Figure

__all__ = ["spike_aligned", "spike_predicted", "threshold_scaling"]

Tables = Mapping[str, pl.DataFrame]


def threshold_scaling(tables: Tables, size: Size) -> Iterator[Figure]:
    """Critical rate against d, observed and predicted."""
    rows = tables["thresholds"].drop_nulls("eta_critical")
    series = []
    for optimizer in size["optimizers"]:
        mine = (
            rows.filter(pl.col("optimizer") == optimizer)
            .group_by("d")
            .agg(pl.col("eta_critical", "eta_predicted"))
            .sort("d")
        )
        if not mine.height:
            continue
        d, parts = mine["d"].to_numpy(), [np.array(one) for one in mine["eta_critical"].to_list()]
        middle = [float(np.exp(np.log(part).mean())) for part in parts]
        series.append(Series(optimizer, d, middle, [p.min() for p in parts], [p.max() for p in parts], points=True))
        series.append(
            Series(f"{optimizer}, predicted", d, [one[0] for one in mine["eta_predicted"].to_list()], null=True)
        )
    if series:
        data, layout = lines(series, Axes("inputs d", "critical rate η_c", log="xy"))
        yield Figure(
            "threshold-scaling.rates",
            "The rate from which one step leaves a spike",
            "Mean over seeds with the range between them, found by bisection; grey is the closed form, which the bisection does "
            "not use. Both axes logarithmic: the slope is the exponent.",
            data,
            layout,
            "thresholds",
        )


def spike_aligned(tables: Tables, size: Size) -> Iterator[Figure]:
    """|v₁ᵀβ*| against the rate, observed and predicted."""
    rows, series = tables["one_step"], []
    for optimizer in size["optimizers"]:
        mine = (
            rows.filter(pl.col("optimizer") == optimizer)
            .group_by("multiple")
            .agg(pl.col("sim", "sim_predicted"))
            .sort("multiple")
        )
        parts = [np.array(one) for one in mine["sim"].to_list()]
        x = mine["multiple"].to_numpy()
        middle, low, high = ([float(f(p)) for p in parts] for f in (np.mean, np.min, np.max))
        series.append(Series(optimizer, x, middle, low, high, points=True))
        predicted = [one[0] for one in mine["sim_predicted"].to_list()]
        series.append(Series(f"{optimizer}, predicted", x, predicted, null=True))
    marks = [Mark(".99 quantile of a random direction", float(rows["sim_null"][0]), "y")] if rows.height else []
    data, layout = lines(series, Axes("rate over the critical rate", "|v₁ᵀβ*|"), marks=marks)
    yield Figure(
        "spike-aligned.sim",
        "Alignment of the leading direction with the teacher",
        "Mean over seeds with the range between them; grey is the closed form, which is 0 below the threshold.",
        data,
        layout,
        "one_step",
    )


def spike_predicted(tables: Tables, size: Size) -> Iterator[Figure]:
    """Observed against predicted λ₁."""
    rows = tables["one_step"].filter(pl.col("multiple").is_in(list(size["multiples"])))
    groups = {}
    for optimizer in size["optimizers"]:
        mine = rows.filter(pl.col("optimizer") == optimizer)
        hover = [f"{row['multiple']:g} η_c, seed {row['repeat']}" for row in mine.iter_rows(named=True)]
        groups[optimizer] = (mine["lambda_predicted"].to_numpy(), mine["lambda1"].to_numpy(), hover)
    data, layout = scatter(groups, Axes("predicted λ₁", "observed λ₁", log="xy"), identity=True)
    yield Figure(
        "spike-predicted.lambda",
        "Observed and predicted largest eigenvalue",
        "One point per rate and seed; on the line the closed form is right.",
        data,
        layout,
        "one_step",
    )
