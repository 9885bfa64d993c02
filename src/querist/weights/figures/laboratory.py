"""Figures of the laboratory: everything against the rate, theory beside observation, and views of single runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes, Chart, Mark, Series, bars, heat, histogram, lines, scatter, stack
from querist.results.figure import Figure
from querist.weights.figures.scan import figure_name

__all__ = ["RUN_FIGURES", "against_rate", "one_step", "prediction", "profile", "run_figures"]

RUN_FIGURES = ("initial", "tail", "values", "weights", "evolution", "overlaps")
LOG_BINS = 60
Row = Mapping[str, Any]


def against_rate(optimizer: str, steps: pl.DataFrame, predicted: Sequence[Row], last: int) -> Iterator[Figure]:
    """Two figures of one optimiser after the last step: spectrum, alignment, kernel and tail against the rate; losses."""
    mine = steps.filter(pl.col("optimizer") == optimizer)
    start, end = mine.filter(pl.col("step") == 0), mine.filter(pl.col("step") == last)
    rows = [row for row in predicted if row["optimizer"] == optimizer]
    rate = np.array([row["eta"] for row in rows])
    marks = [Mark("η_c", rows[0]["eta_critical"]), Mark("update as large as W", rows[0]["eta_second_scale"])]

    def panel(title: str, axis: str, columns: Mapping[str, str], *more: Series, log: str = "x") -> tuple[str, Chart]:
        drawn = [_banded(words, end, column, rate) for column, words in columns.items()]
        for column, words in columns.items():
            drawn.append(_untrained(words, start, column, rate))
        shown = [one for one in (*drawn, *more) if np.isfinite(np.asarray(one.y, dtype=float)).any()]
        return title, lines(shown, Axes("learning rate η", axis, log=log), marks=marks)

    first = Series("λ₁ predicted after one step", rate, _numbers(rows, "lambda_predicted"), points=True)
    told = Series("sim predicted after one step", rate, _numbers(rows, "sim_predicted"), points=True)
    chance = Series(".99 of a random direction", rate, _level(start, "sim_null", rate), null=True)
    long = Series("csn α where 50 eigenvalues carry it", *_long_tails(end), points=True)
    law = Series("Hill α of Marchenko–Pastur", rate, _level(start, "alpha_hill_mp", rate), null=True)
    kernels = {"kta_formula": "KTA, x/√d", "kta_repo": "KTA, x/d"}
    spectra = [
        panel("Largest eigenvalue", "λ₁", {"lambda1": "λ₁"}, first, log="xy"),
        panel("Alignment with the teacher", "|v₁ᵀβ*|", {"sim": "sim"}, told, chance),
        panel("Kernel-target alignment", "KTA", kernels),
        panel("Tail exponent", "α", {"alpha_hill": "Hill α"}, long, law),
    ]
    losses = [
        panel("Training loss", "loss", {"train_loss": "training loss"}, log="xy"),
        panel("Refitted last layer, test loss", "loss", _TEST, log="xy"),
        panel("Refitted last layer, loss where it was fitted", "loss", _FITTED, log="xy"),
    ]
    caption = (
        f"After step {last}; mean and range over repeats, before training in grey. Vertical lines: the rate at which one step "
        "should make a spike, and the rate at which it is as large as the weights."
    )
    scales = (
        " Features of scale x/√d follow the formula of the network, those of x/d what the published code probes; what holds on "
        "one of them only is no finding about generalisation."
    )
    title = f"Spectrum and alignment against the learning rate: {optimizer}"
    yield Figure(f"rates.{optimizer}", title, caption, *stack(spectra), "steps")
    title = f"Losses against the learning rate: {optimizer}"
    yield Figure(f"losses.{optimizer}", title, caption + scales, *stack(losses), "steps")


def _level(start: pl.DataFrame, column: str, rate: np.ndarray) -> np.ndarray:
    values = start[column].drop_nulls().to_numpy()
    return np.full(rate.size, values.mean() if values.size else np.nan)


_TEST = {"refit_test_formula": "test loss, x/√d", "refit_test_repo": "test loss, x/d"}
_FITTED = {"refit_train_formula": "fitted loss, x/√d", "refit_train_repo": "fitted loss, x/d"}


def _banded(name: str, frame: pl.DataFrame, column: str, rate: np.ndarray) -> Series:
    """Mean and range over repeats at each rate."""
    mean, low, high = (np.full(rate.size, np.nan) for _ in range(3))
    for i, eta in enumerate(rate):
        values = frame.filter(pl.col("eta") == eta)[column].drop_nulls().to_numpy()
        if values.size:
            mean[i], low[i], high[i] = values.mean(), values.min(), values.max()
    return Series(name, rate, mean, low, high, points=True)


def _untrained(name: str, start: pl.DataFrame, column: str, rate: np.ndarray) -> Series:
    return Series(f"{name} before training", rate, _level(start, column, rate), null=True)


def _long_tails(end: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean csn exponent per rate over runs with status ok: a tail of 13 points is no exponent."""
    kept = end.filter((pl.col("status") == "ok") & pl.col("alpha").is_not_null())
    found = kept.group_by("eta").agg(pl.col("alpha").mean()).sort("eta")
    return (found["eta"].to_numpy(), found["alpha"].to_numpy()) if found.height else (np.empty(0), np.empty(0))


def prediction(predicted: Sequence[Row], steps: pl.DataFrame) -> Figure:
    """λ₁ after one exact step against its prediction, a point per run."""
    first = steps.filter((pl.col("step") == 1) & pl.col("lambda1").is_not_null())
    groups: dict[str, tuple[list[float], list[float], list[str]]] = {}
    for row in predicted:
        x, y, hover = groups.setdefault(row["optimizer"], ([], [], []))
        mine = first.filter((pl.col("optimizer") == row["optimizer"]) & (pl.col("eta") == row["eta"]))
        x.extend([row["lambda_predicted"]] * mine.height)
        y.extend(mine["lambda1"].to_list())
        hover.extend(f"η {row['eta']:g}, repeat {repeat}" for repeat in mine["repeat"].to_list())
    axes = Axes("λ₁ predicted", "λ₁ after one exact step", log="xy")
    marks = [Mark("bulk edge", predicted[0]["lambda_edge"], axis="y")]
    data, layout = scatter(groups, axes, identity=True, marks=marks)
    caption = (
        "One point per run. Left of the threshold theory says the edge of the bulk; beyond it the outlier's place."
    )
    return Figure("prediction", "One step: predicted and observed", caption, data, layout, "predicted")


def profile(frame: pl.DataFrame) -> Figure:
    """|vᵢᵀβ*| of the untrained weights by rank: mean and range over repeats, beside chance."""
    found = (
        frame.group_by("index")
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("value").min().alias("low"),
            pl.col("value").max().alias("high"),
            pl.col("null").first(),
        )
        .sort("index")
    )
    x, mean, low, high, null = (found[name].to_numpy() for name in ("index", "mean", "low", "high", "null"))
    series = [
        Series("|vᵢᵀβ*| before training", x, mean, low, high),
        Series("random direction, mean", x, null, null=True),
    ]
    data, layout = lines(series, Axes("rank i of the singular vector", "|vᵢᵀβ*|"))
    caption = "Mean and range over repeats. Before training no singular vector knows the teacher: the line is level at chance."
    return Figure("profile", "Alignment with the teacher before training", caption, data, layout, "profile")


def run_figures(name: str, rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> Iterator[Figure]:
    """Views of one run, named `name`. rows: its steps; tables: spectra, weights_hist and overlaps of this run only."""
    spectra = tables["spectra"]
    measured = sorted(spectra["step"].unique().to_list())
    if not measured:
        return
    start, end = (_spectrum(spectra, step) for step in (measured[0], measured[-1]))
    last = rows.filter(pl.col("step") == measured[-1]).to_dicts()[0]
    yield _initial(name, start, end, last)
    yield _tail(name, end, last)
    yield _values(name, start, end, measured[-1])
    yield _entries(name, tables["weights_hist"], measured)
    yield _evolution(name, spectra, measured)
    if tables["overlaps"].height:
        yield _overlaps(name, tables["overlaps"])


def _initial(name: str, start: np.ndarray, end: np.ndarray, last: Row) -> Figure:
    samples = {"before training": start, f"after step {last['step']}": end}
    marks = [Mark(".99 edge of untrained weights", last["lambda_edge"])]
    axes = Axes("eigenvalue λ", "density", log="xy")
    data, layout = histogram(samples, axes, nulls=("before training",), marks=marks)
    caption = (
        f"{last['n_spikes']} eigenvalues beyond the edge that untrained weights stay below, the largest {end[-1]:.4g}."
    )
    return Figure(figure_name(name, "initial"), f"Spectrum before and after: {name}", caption, data, layout, "spectra")


def _tail(name: str, end: np.ndarray, last: Row) -> Figure:
    curves, words = [], "No power law was fitted."
    if last["alpha"] is not None:
        x = np.geomspace(last["xmin"], end[-1], 100)
        share = last["n_tail"] / np.count_nonzero(end > 0)
        density = share * (last["alpha"] - 1) / last["xmin"] * (x / last["xmin"]) ** -last["alpha"]
        curves.append(Series(f"power law, α {last['alpha']:.2f}", x, density))
        words = (
            f"α {last['alpha']:.3g} from xmin {last['xmin']:.4g} on, {last['n_tail']} eigenvalues, D {last['D']:.3g}."
        )
        if last["status"] == "short-tail":
            words += " So few do not tell a power law from other tails."
    marks = [Mark("xmin", last["xmin"])]
    data, layout = histogram(
        {"eigenvalues": end}, Axes("eigenvalue λ", "density", log="xy"), curves=curves, marks=marks
    )
    title = f"Tail after step {last['step']}: {name}"
    return Figure(figure_name(name, "tail"), title, f"Both axes logarithmic. {words}", data, layout, "spectra")


def _values(name: str, start: np.ndarray, end: np.ndarray, step: int) -> Figure:
    descending = {f"after step {step}": np.sqrt(end[::-1]), "before training": np.sqrt(start[::-1])}
    axes = Axes("rank", "singular value", log="y")
    data, layout = bars(descending, list(range(1, end.size + 1)), axes)
    caption = "What training added stands above the bars of the untrained weights."
    return Figure(figure_name(name, "values"), f"Singular values: {name}", caption, data, layout, "spectra")


def _entries(name: str, frame: pl.DataFrame, measured: Sequence[int]) -> Figure:
    series = []
    for step in dict.fromkeys((measured[-1], measured[0])):
        mine = frame.filter(pl.col("step") == step)
        left, right = mine["left"].to_numpy(), mine["right"].to_numpy()
        density = mine["share"].to_numpy() / (right - left)
        words = "before training" if step == 0 else f"after step {step}"
        series.append(Series(words, (left + right) / 2, density))
    reach = float(frame["right"].max())  # type: ignore[arg-type]
    x = np.linspace(-min(reach, 5.0), min(reach, 5.0), 101)
    series.append(Series("standard normal", x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), null=True))
    data, layout = lines(series, Axes("entry of W", "density", log="y"))
    caption = "Raw entries. They are standard normal before training; heavy entries alone could push λ₁ out."
    return Figure(figure_name(name, "weights"), f"Entries: {name}", caption, data, layout, "weights_hist")


def _evolution(name: str, spectra: pl.DataFrame, measured: Sequence[int]) -> Figure:
    values = spectra["eigenvalue"].to_numpy()
    positive = values[values > 0]
    floor = max(positive.min(), positive.max() * 1e-12)
    edges = np.linspace(math.log10(floor), math.log10(positive.max()) + 1e-9, LOG_BINS + 1)
    cells = np.full((LOG_BINS, len(measured)), np.nan)
    for column, step in enumerate(measured):
        mine = _spectrum(spectra, step)
        counts = np.histogram(np.log10(np.maximum(mine, floor)), edges)[0]
        cells[:, column] = np.where(counts > 0, counts, np.nan)
    middle = [float(f"{value:.4g}") for value in (edges[:-1] + edges[1:]) / 2]
    axes = Axes("step", "log10 λ")
    data, layout = heat(cells, [str(step) for step in measured], middle, axes, unit="eigenvalues", log=True)
    layout["xaxis"] |= {"type": "category"}
    caption = "Each column is the spectrum after that step; empty cells hold no eigenvalue. A spike leaves upwards."
    return Figure(figure_name(name, "evolution"), f"Spectrum step by step: {name}", caption, data, layout, "spectra")


def _overlaps(name: str, frame: pl.DataFrame) -> Figure:
    step = frame["step"].max()
    last = frame.filter(pl.col("step") == step)
    panels = []
    for side in ("left", "right"):
        for pair in ("before", "after"):
            mine = last.filter((pl.col("side") == side) & (pl.col("pair") == pair)).sort("i", "j")
            rows, columns = mine["i"].n_unique(), mine["j"].n_unique()
            cells = mine["value"].to_numpy().reshape(rows, columns)
            axes = Axes("block of the update, leading first", "block of W")
            chart = heat(
                cells,
                list(range(1, columns + 1)),
                list(range(1, rows + 1)),
                axes,
                log=True,
                middle=float(mine["null"][0]),
            )
            panels.append((f"{side} vectors, W {pair} the update", chart))
    data, layout = stack(panels, columns=2)
    caption = (
        f"Update of step {step}. Squared overlaps, colours by log10; grey is what random directions have, 1/dimension. Mass in the first "
        "column but not in the first row: the update enters through the bulk of W."
    )
    return Figure(figure_name(name, "overlaps"), f"Update and weights: {name}", caption, data, layout, "overlaps")


def _spectrum(spectra: pl.DataFrame, step: int) -> np.ndarray:
    return np.sort(spectra.filter(pl.col("step") == step)["eigenvalue"].to_numpy())


def _numbers(rows: Sequence[Row], column: str) -> np.ndarray:
    return np.array([math.nan if row[column] is None else row[column] for row in rows], dtype=float)


def one_step(row: Row, curve: Sequence[Row], steps: Sequence[Row]) -> Figure:
    """λ₁ and alignment after one step against the rate by theory, the rate that was asked for, and exact steps at it."""
    rate = _numbers(curve, "eta")
    marks = [
        Mark("η_c", row["eta_critical"]),
        Mark("update as large as W", row["eta_second_scale"]),
        Mark("the rate asked for", row["eta"]),
    ]
    panels = []
    for title, axis, told, seen, log in (
        ("Largest eigenvalue", "λ₁", "lambda_predicted", "lambda1", "xy"),
        ("Alignment with the teacher", "|v₁ᵀβ*|", "sim_predicted", "sim", "x"),
    ):
        series = [Series("predicted", rate, _numbers(curve, told))]
        if steps:
            at = np.full(len(steps), row["eta"])
            series.append(Series("exact steps", at, _numbers(steps, seen), points=True))
        panels.append((title, lines(series, Axes("learning rate η", axis, log=log), marks=marks)))
    data, layout = stack(panels)
    caption = (
        "Theory against the rate; below η_c the largest eigenvalue is the edge of the bulk and aligned with nothing."
    )
    return Figure("one-step", f"One step of {row['optimizer']}", caption, data, layout, "predicted")
