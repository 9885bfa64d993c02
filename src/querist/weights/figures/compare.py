"""The figures of a comparison, each drawn from a table of the run: three views of all layers, five of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes, Mark, Series, by_depth, heat, histogram, lines, stack
from querist.results.figure import Figure
from querist.weights.delta import span_quantile
from querist.weights.figures.scan import figure_name
from querist.weights.nulls import mp_pdf

__all__ = ["LAYER_FIGURES", "figure_name", "layer_figures", "overviews"]

LAYER_FIGURES = ("update", "update-nulls", "overlaps", "angles", "before-after")
_DEPTH = "layer, in order of the base"


def overviews(layers: pl.DataFrame) -> Iterator[Figure]:
    """Size, spikes and overlaps by depth; energy by depth; exponents before and after."""
    rows = layers.filter(pl.col("delta_norm").is_not_null())
    if rows.height:
        yield _overview(rows)
    rows = layers.filter(pl.col("energy_spikes").is_not_null())
    if rows.height:
        yield _energy(rows)
    rows = layers.filter(pl.col("alpha_base").is_not_null() | pl.col("alpha_tuned").is_not_null())
    if rows.height:
        yield _exponents(rows)


def _overview(rows: pl.DataFrame) -> Figure:
    labels = rows["layer_id"].to_list()
    x = np.arange(len(labels))
    size = by_depth(
        {"‖ΔW‖/‖W‖": _floats(rows, "delta_relative")},
        labels,
        Axes(_DEPTH, "relative size", log="y"),
        null=Series("rounding", x, _floats(rows, "rounding"), null=True),
    )
    spikes = by_depth(
        {"rank of ΔW": _floats(rows, "delta_rank"), "directions beyond every null": _floats(rows, "delta_n_spikes")},
        labels,
        Axes(_DEPTH, "directions"),
    )
    panels = [("Size of the change", size), ("Its directions", spikes)]
    for side, words in (("left", "Overlap with W, left (outputs)"), ("right", "Overlap with W, right (inputs)")):
        chart = by_depth(
            {f"overlap, {side}": _floats(rows, f"overlap_{side}")},
            labels,
            Axes(_DEPTH, "overlap", log="y"),
            null=_random_overlaps(rows, side),
        )
        panels.append((words, chart))
    data, layout = stack(panels)
    return Figure(
        name="overview",
        title="The change by depth",
        caption="Top: size of ΔW relative to W; the grey line of a layer is the most that storing both copies can make. Middle: "
        "singular values of ΔW above rounding, and those that no resampled copy reaches. Below: the share of ΔW's leading "
        "directions that lies in W's; the grey band holds 99 % of random directions.",
        data=data,
        layout=layout,
        table="layers",
    )


def _random_overlaps(rows: pl.DataFrame, side: str) -> Series:
    """Mean and .005 and .995 quantiles of the overlap of random directions on one side of each layer."""
    null = _floats(rows, f"overlap_null_{side}")
    k, l = _floats(rows, "overlap_k"), _floats(rows, "overlap_l")  # noqa: E741
    ends = [
        [
            math.nan if math.isnan(mean) else span_quantile(u, int(a), int(b), round(a / mean))
            for mean, a, b in zip(null, k, l, strict=True)
        ]
        for u in (0.005, 0.995)
    ]
    return Series("random", np.arange(len(null)), null, ends[0], ends[1], null=True)


def _energy(rows: pl.DataFrame) -> Figure:
    labels = rows["layer_id"].to_list()
    x = np.arange(len(labels))
    panels = []
    for name, title in (
        ("spikes", "Inside the spikes of W, on both sides"),
        ("bulk", "Outside of them, on both sides"),
    ):
        chart = by_depth(
            {f"share in {name}": _floats(rows, f"energy_{name}")},
            labels,
            Axes(_DEPTH, "share of ‖ΔW‖²"),
            null=Series("no preferred direction", x, _floats(rows, f"energy_{name}_null"), null=True),
        )
        panels.append((title, chart))
    data, layout = stack(panels)
    return Figure(
        name="energy",
        title="Where the energy of the change lies",
        caption="Shares of ‖ΔW‖² in the plane of W's spikes (singular values above its fitted noise edge) and outside of it; what "
        "is missing to 1 joins a spike on one side to the rest on the other. Grey: an update without a preferred direction.",
        data=data,
        layout=layout,
        table="layers",
    )


def _exponents(rows: pl.DataFrame) -> Figure:
    labels = rows["layer_id"].to_list()
    x = np.arange(len(labels))
    csn = by_depth(
        {"base": _floats(rows, "alpha_base"), "tuned": _floats(rows, "alpha_tuned")},
        labels,
        Axes(_DEPTH, "exponent", log="y"),
        low=_floats(rows, "alpha_base_low"),
        high=_floats(rows, "alpha_base_high"),
        null=Series("random matrix", x, _floats(rows, "alpha_mp"), null=True),
    )
    hill = by_depth(
        {"base": _floats(rows, "alpha_hill_base"), "tuned": _floats(rows, "alpha_hill_tuned")},
        labels,
        Axes(_DEPTH, "Hill exponent"),
        null=Series("random matrix", x, _floats(rows, "alpha_hill_mp"), null=True),
    )
    data, layout = stack([("Exponent of the chosen fit", csn), ("Hill exponent", hill)])
    return Figure(
        name="exponents",
        title="Tail exponents before and after",
        caption="The whiskers are the base's interval: a tuned exponent inside them is no change of the tail. Grey: the same fit on "
        "a random matrix of this shape.",
        data=data,
        layout=layout,
        table="layers",
    )


def layer_figures(
    row: Mapping[str, Any], spectra: pl.DataFrame, draws: pl.DataFrame, overlaps: pl.DataFrame, angles: pl.DataFrame
) -> Iterator[Figure]:
    """The views of one layer that its rows allow. All frames hold this layer only."""
    layer = row["layer_id"]
    delta = _eigenvalues(spectra, "delta", "real")
    if delta.size and delta[-1] > 0:
        for view, figure in (
            ("update", _update(layer, row, delta, draws)),
            ("update-nulls", _nulls(layer, row, delta, spectra)),
            ("before-after", _values(layer, row, spectra)),
        ):
            if figure is not None:
                yield replace(figure, name=figure_name(layer, view))
    if overlaps.height:
        yield replace(_overlaps(layer, row, overlaps), name=figure_name(layer, "overlaps"))
    if angles.height:
        yield replace(_angles(layer, row, angles), name=figure_name(layer, "angles"))


def _update(layer: str, row: Mapping[str, Any], delta: np.ndarray, draws: pl.DataFrame) -> Figure:
    """The spectrum of ΔW beside the law of noise of its size and the largest eigenvalues of its copies."""
    curves: list[Series] = []
    plus, words = row["delta_lambda_plus"], "No bulk of noise was fitted."
    shown = delta[delta > 0]
    if plus and row["delta_sigma_mp"]:
        q, scale = row["q"], row["M"] * row["delta_sigma_mp"] ** 2
        low, high = (1 - math.sqrt(q)) ** 2, (1 + math.sqrt(q)) ** 2
        x = low + (high - low) * (1 - np.cos(np.linspace(0.02, np.pi - 0.02, 160))) / 2
        curves.append(Series("Marchenko–Pastur", x * scale, np.asarray(mp_pdf(x, q)) / scale, null=True))
        words = f"The grey curve is what independent entries of standard deviation {row['delta_sigma_mp']:.3g} give."
    log = "x" if shown[-1] > 100 * np.median(shown) else ""
    marks = [Mark("bulk edge λ₊", plus)] if plus else []
    for null, of in (("shuffle", "shuffled copies"), ("signflip", "copies with random signs")):
        tops = draws.filter(pl.col("null") == null)["lambda_max"].drop_nulls().to_numpy()
        if tops.size:
            marks.append(Mark(f"largest of {of}", float(tops.max())))
    data, layout = histogram(
        {"eigenvalues of ΔW": shown}, Axes("eigenvalue λ of ΔW", "density", log=log), curves=curves, marks=marks
    )
    caption = (
        f"{words} Rank {row['delta_rank']} of {row['N']}; {_g(row['delta_n_spikes'])} eigenvalues beyond every null. "
        f"{'The copies have resampled factors.' if row['delta_null'] == 'factors' else 'The copies have resampled entries.'}"
    )
    return Figure("", f"Spectrum of the change of {layer}", caption, data, layout, "spectra")


def _nulls(layer: str, row: Mapping[str, Any], delta: np.ndarray, spectra: pl.DataFrame) -> Figure | None:
    what = "factors" if row["delta_null"] == "factors" else "entries"
    series = [Series("ΔW", *_descending(delta))]
    for kind, words in (("shuffle", f"shuffled {what}"), ("signflip", f"random signs of {what}")):
        values = spectra.filter((pl.col("matrix") == "delta") & (pl.col("kind") == kind))
        if values.height:
            table = np.vstack([np.sort(part["eigenvalue"].to_numpy())[::-1] for _, part in values.group_by("replica")])
            rank = np.arange(1, table.shape[1] + 1)
            root = np.sqrt(np.maximum(table, 0.0))
            series.append(Series(words, rank, root.mean(axis=0), root.min(axis=0), root.max(axis=0)))
    if len(series) == 1:
        return None
    data, layout = lines(series, Axes("rank", "singular value of ΔW", log="xy"))
    caption = (
        "Singular values of ΔW beside those of its copies. Shuffling keeps the numbers and loses all else; random signs also "
        "keep every size where it stands. Where the lines agree, the change has no direction of its own."
    )
    return Figure("", f"The change of {layer} against its copies", caption, data, layout, "spectra")


def _descending(evals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = np.sqrt(evals[evals > 0])[::-1]
    return np.arange(1, values.size + 1), values


def _values(layer: str, row: Mapping[str, Any], spectra: pl.DataFrame) -> Figure | None:
    series = [
        Series(words, *_descending(values))
        for name, words in (("base", "base"), ("tuned", "tuned"), ("delta", "ΔW"))
        if (values := _eigenvalues(spectra, name, "real")).size
    ]
    if len(series) < 3:
        return None
    marks = []
    if row["rounding"] and row["norm"]:
        h, d = row["N"], row["M"]
        edge = row["rounding"] * row["norm"] * (1 / math.sqrt(h) + 1 / math.sqrt(d))
        marks.append(Mark("largest singular value of rounding errors", edge, axis="y"))
    data, layout = lines(series, Axes("rank", "singular value", log="xy"), marks=marks)
    caption = (
        f"Exponent {_g(row['alpha_base'])} before, {_g(row['alpha_tuned'])} after; a random matrix gives {_g(row['alpha_mp'])}. "
        f"Singular values of ΔW above the line are its rank, {row['delta_rank']}."
    )
    return Figure("", f"Singular values of {layer} before and after", caption, data, layout, "spectra")


def _overlaps(layer: str, row: Mapping[str, Any], overlaps: pl.DataFrame) -> Figure:
    panels = []
    # One title for both scales, behind the right one: between the panels it would meet the axis of the other.
    for side, words, axis, unit in (
        ("left", "Left (outputs)", "direction of W", ""),
        ("right", "Right (inputs)", "", "times random"),
    ):
        mine = overlaps.filter(pl.col("side") == side)
        i, j = (sorted(mine[name].unique().to_list()) for name in ("i", "j"))
        times = mine.sort("i", "j")["value"].to_numpy().reshape(len(i), len(j)) / mine["null"][0]
        axes = Axes("direction of ΔW", axis)
        panels.append((words, heat(times, [n + 1 for n in j], [n + 1 for n in i], axes, unit=unit, middle=1.0)))
    data, layout = stack(panels, columns=2)
    caption = (
        "Squared inner products of the leading singular directions, in units of what random directions give: 1 is grey. "
        f"Overlap {_g(row['overlap_left'])} on the left (random {_g(row['overlap_null_left'])}), {_g(row['overlap_right'])} on the "
        f"right (random {_g(row['overlap_null_right'])})."
    )
    return Figure("", f"Overlaps of the change with {layer}", caption, data, layout, "overlaps")


def _angles(layer: str, row: Mapping[str, Any], angles: pl.DataFrame) -> Figure:
    panels = []
    for side, words in (("left", "Left (outputs)"), ("right", "Right (inputs)")):
        mine = angles.filter(pl.col("side") == side).sort("index")
        x = mine["index"].to_numpy() + 1
        series = [Series("principal angle", x, mine["angle"].to_numpy(), points=True)]
        if mine["null"].is_not_null().any():
            band = (_floats(mine, name) for name in ("null", "null_low", "null_high"))
            series.append(Series("random spans, 5 to 95 %", x, *band, null=True))
        panels.append((words, lines(series, Axes("angle, ascending", "degrees"))))
    data, layout = stack(panels, columns=2)
    caption = (
        f"Principal angles between the {row['overlap_k']} leading directions of W and the {row['overlap_l']} of ΔW. Below the "
        "band: a shared direction."
    )
    return Figure("", f"Principal angles between the change and {layer}", caption, data, layout, "angles")


def _eigenvalues(spectra: pl.DataFrame, matrix: str, kind: str) -> np.ndarray:
    mine = spectra.filter((pl.col("matrix") == matrix) & (pl.col("kind") == kind))
    return np.sort(mine["eigenvalue"].to_numpy())


def _floats(rows: pl.DataFrame, column: str) -> np.ndarray:
    return rows[column].cast(pl.Float64).to_numpy().astype(float)


def _g(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
