"""The figures of a scan, each drawn from a table of the run: an overview of all layers, and eight views of one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import polars as pl

from querist.results.charts import Axes, Mark, Series, by_depth, ccdf, histogram, lines, stack, strip
from querist.results.figure import Figure
from querist.results.lazy import Lazy
from querist.weights.nulls import PHASES, mp_pdf

__all__ = ["LAYER_FIGURES", "figure_name", "layer_figures", "overview"]

Row = Mapping[str, Any]
Tables = Mapping[str, pl.DataFrame]


def figure_name(layer: str, view: str) -> str:
    """File name of a layer's figure: letters, digits, dot and dash only, different for different layers."""
    return f"{view}.{_safe(layer)}"


@lru_cache(maxsize=1 << 14)
def _safe(layer: str) -> str:
    safe = "".join(c if c.isalnum() or c in ".-" else "-" for c in layer)
    if safe != layer:
        import hashlib

        safe += "-" + hashlib.sha256(layer.encode()).hexdigest()[:6]
    return safe


def overview(layers: pl.DataFrame) -> Figure:
    """α by depth with its interval and null band, spikes, and the phase of every layer."""
    rows = layers.filter(pl.col("alpha_hill").is_not_null() | pl.col("alpha").is_not_null())
    labels = rows["layer_id"].to_list()
    alpha = by_depth(
        {"α": _floats(rows, "alpha"), "α by Hill": _floats(rows, "alpha_hill")},
        labels,
        Axes("layer, in order of the source", "exponent", log="y"),
        low=_floats(rows, "alpha_low"),
        high=_floats(rows, "alpha_high"),
        null=_null_band(rows),
    )
    spikes = by_depth(
        {
            "spikes beyond all nulls": _floats(rows, "n_spikes"),
            "beyond Tracy–Widom alone": _floats(rows, "n_spikes_tw"),
        },
        labels,
        Axes("layer, in order of the source", "eigenvalues"),
    )
    sure = [bool(decided) for decided in rows["phase_decided"]]
    axes = Axes("layer, in order of the source", "")
    phases = strip(labels, rows["phase"].to_list(), axes, order=PHASES, sure=sure)
    data, layout = stack([("Tail exponent", alpha), ("Spikes", spikes), ("Phase", phases)])
    return Figure(
        name="overview",
        title="All layers by depth",
        caption="Top: the exponent of each layer with its interval; the grey band is what the same fit gives on the matching "
        "Marchenko–Pastur law and on shuffled copies, so a point inside it says nothing about training. Middle: "
        "eigenvalues beyond every null, beside those beyond the Tracy–Widom edge alone. "
        "Bottom: the phase, hollow where the evidence points there and does not decide.",
        data=data,
        layout=layout,
        table="layers",
    )


def _null_band(rows: pl.DataFrame) -> Series:
    mp, shuffle = _floats(rows, "alpha_mp"), _floats(rows, "alpha_shuffle")
    both = np.vstack([np.where(np.isnan(mp), shuffle, mp), np.where(np.isnan(shuffle), mp, shuffle)])
    return Series("null", np.arange(len(mp)), both.mean(axis=0), both.min(axis=0), both.max(axis=0), null=True)


def layer_figures(row: Row, held: Set[str], tables: Tables) -> dict[str, Callable[[], Figure]]:
    """The views of one layer by name, each drawn from `tables` when it is called.

    `held` says what the tables hold of this layer beside its own spectrum: "copies", "entries".
    """
    views = [view for view, (_, allowed) in LAYER_FIGURES.items() if allowed(row, held)]
    return {figure_name(row["layer_id"], view): partial(_drawn, row, tables, view) for view in views}


def _drawn(row: Row, tables: Tables, view: str) -> Figure:
    layer = row["layer_id"]
    own = Lazy({name: partial(_of_layer, tables, name, layer) for name in tables})
    return replace(LAYER_FIGURES[view][0](layer, row, own), name=figure_name(layer, view))


def _of_layer(tables: Tables, name: str, layer: str) -> pl.DataFrame:
    return tables[name].filter(pl.col("layer_id") == layer)


def _esd(layer: str, row: Row, tables: Tables) -> Figure:
    real = _eigenvalues(tables, "real")
    curves, words = [], "No power law was fitted."
    if row["alpha"] is not None and row["xmin"]:
        x = np.geomspace(row["xmin"], real[-1], 100)
        share = row["n_tail"] / np.count_nonzero(real > 0)
        curves.append(
            Series(
                f"power law, α {row['alpha']:.2f}",
                x,
                share * (row["alpha"] - 1) / row["xmin"] * (x / row["xmin"]) ** -row["alpha"],
            )
        )
        words = f"α {row['alpha']:.3g} from xmin {row['xmin']:.4g} on, {row['n_tail']} eigenvalues, D {_g(row['D'])}."
    data, layout = histogram(
        {"eigenvalues": real},
        Axes("eigenvalue λ", "density", log="xy"),
        curves=curves,
        marks=[Mark("xmin", row["xmin"])],
    )
    return Figure("", f"Spectral density of {layer}", f"Both axes logarithmic. {words}", data, layout, "spectra")


def _ccdf(layer: str, row: Row, tables: Tables) -> Figure:
    real = _eigenvalues(tables, "real")
    fits = []
    if row["alpha"] is not None and row["xmin"]:
        x = np.geomspace(row["xmin"], real[-1], 100)
        share = row["n_tail"] / np.count_nonzero(real > 0)
        fits.append(Series("power law, on its tail only", x, share * (x / row["xmin"]) ** (1 - row["alpha"])))
    samples = {"eigenvalues": real}
    shuffled = _eigenvalues(tables, "shuffle")
    if shuffled.size:
        samples["shuffled copies"] = shuffled
    data, layout = ccdf(samples, Axes("eigenvalue λ", "share of eigenvalues at or above", log="xy"), fits=fits)
    caption = "A straight line on these axes is a power law; the fit is drawn only where it was made."
    return Figure("", f"Survival function of {layer}", caption, data, layout, "spectra")


def _bulk(layer: str, row: Row, tables: Tables) -> Figure:
    real = _eigenvalues(tables, "real")
    q, scale = row["q"], row["M"] * row["sigma_mp"] ** 2
    low, high = (1 - math.sqrt(q)) ** 2, (1 + math.sqrt(q)) ** 2
    x = low + (high - low) * (1 - np.cos(np.linspace(0.02, np.pi - 0.02, 160))) / 2
    bulk = Series("Marchenko–Pastur", x * scale, np.asarray(mp_pdf(x, q)) / scale, null=True)
    shown = real[real <= 3 * row["lambda_plus"]]
    beyond = real.size - shown.size
    marks = [Mark("bulk edge λ₊", row["lambda_plus"])]
    edges = tables["null_draws"].filter(pl.col("replica").is_null())["edge"].drop_nulls().to_list()
    if edges:
        marks.append(Mark(".99 Tracy–Widom edge", edges[0]))
    data, layout = histogram({"eigenvalues": shown}, Axes("eigenvalue λ", "density"), curves=[bulk], marks=marks)
    told = f" {beyond} eigenvalues beyond 3 λ₊ are not drawn, the largest at {real[-1]:.4g}." if beyond else ""
    caption = (
        f"The grey curve is what independent entries of standard deviation {row['sigma_mp']:.3g} give. "
        f"N·KS {_g(row['bulk_ks'])}, p {_g(row['bulk_p'])}; {row['n_spikes'] or 0} eigenvalues beyond every null.{told}"
    )
    return Figure("", f"Bulk and spikes of {layer}", caption, data, layout, "spectra")


def _nulls(layer: str, row: Row, tables: Tables) -> Figure:
    real = _eigenvalues(tables, "real")
    samples = {"real": real}
    for kind, words in (("shuffle", "shuffled entries"), ("signflip", "random signs")):
        values = _eigenvalues(tables, kind)
        if values.size:
            samples[words] = values
    data, layout = histogram(samples, Axes("eigenvalue λ", "density", log="xy"))
    caption = (
        "Shuffling keeps the entries and loses all else; random signs also keep the scale of every row and column. Where "
        f"the three agree, nothing was learned that shows here. Distance to shuffled copies {_g(row['shuffle_distance'])}, "
        f"between two copies at most {_g(row['null_distance'])}."
    )
    return Figure("", f"Real against resampled spectra of {layer}", caption, data, layout, "spectra")


def _values(layer: str, row: Row, tables: Tables) -> Figure:
    real = _eigenvalues(tables, "real")
    descending = np.sqrt(real[::-1])
    series = [Series("singular values", np.arange(1, descending.size + 1), descending)]
    marks = []
    if row["lambda_plus"]:
        marks.append(Mark("√λ₊ of the fitted bulk", math.sqrt(row["lambda_plus"]), axis="y"))
    data, layout = lines(series, Axes("rank", "singular value", log="y"), marks=marks)
    caption = (
        f"Rank {row['rank']} of {real.size}; {row['denoised_rank']} singular values above the optimal hard threshold."
    )
    return Figure("", f"Singular values of {layer}", caption, data, layout, "spectra")


def _hill(layer: str, row: Row, tables: Tables) -> Figure:
    ordered = tables["curves"].sort("n_tail")
    series = [Series("Hill", ordered["n_tail"].to_numpy(), ordered["hill"].to_numpy())]
    marks = [Mark("tail of the csn fit", row["n_tail"])] if row["n_tail"] else []
    if row["alpha_hill_mp"] is not None:
        marks.append(Mark("Hill at N/2 of Marchenko–Pastur", row["alpha_hill_mp"], axis="y"))
    data, layout = lines(series, Axes("tail eigenvalues k", "exponent (density)", log="x"), marks=marks)
    caption = (
        "A power law shows as a level stretch. A spectrum without one slopes all the way, as a random matrix does."
    )
    return Figure("", f"Hill plot of {layer}", caption, data, layout, "curves")


def _xmin(layer: str, row: Row, tables: Tables) -> Figure:
    ordered = tables["curves"].sort("xmin")
    marks = [Mark("chosen xmin", row["xmin"])] if row["xmin"] else []
    by_xmin = lines(
        [Series("D", ordered["xmin"].to_numpy(), ordered["D"].to_numpy())], Axes("xmin", "D", log="x"), marks=marks
    )
    by_alpha = lines(
        [Series("D against α", ordered["alpha"].to_numpy(), ordered["D"].to_numpy(), points=True)],
        Axes("exponent", "D"),
    )
    data, layout = stack([("D against xmin", by_xmin), ("D against α", by_alpha)], columns=2)
    caption = "Several deep minima mean that the choice of xmin, hence of α, is not forced by the data."
    return Figure("", f"Choice of xmin in {layer}", caption, data, layout, "curves")


def _entries(layer: str, row: Row, tables: Tables) -> Figure:
    entries = tables["entries"]
    middle = ((entries["left"] + entries["right"]) / 2).to_numpy()
    series = [
        Series("entries", middle, entries["share"].to_numpy()),
        Series("normal", middle, entries["normal"].to_numpy(), null=True),
    ]
    data, layout = lines(series, Axes("entry, in root mean squares", "share of entries", log="y"))
    caption = "Both outermost bins hold everything beyond. Heavy entries alone can push the largest eigenvalue out."
    return Figure("", f"Entries of {layer}", caption, data, layout, "entries")


def _eigenvalues(tables: Tables, kind: str) -> np.ndarray:
    return np.sort(tables["spectra"].filter(pl.col("kind") == kind)["eigenvalue"].to_numpy())


def _floats(rows: pl.DataFrame, column: str) -> np.ndarray:
    return rows[column].cast(pl.Float64).to_numpy().astype(float)


def _g(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _has_spectrum(row: Row, held: Set[str]) -> bool:
    return bool(row["xmax"])


def _has_curves(row: Row, held: Set[str]) -> bool:
    return row["alpha"] is not None


LAYER_FIGURES: dict[str, tuple[Callable[[str, Row, Tables], Figure], Callable[[Row, Set[str]], bool]]] = {
    "esd": (_esd, _has_spectrum),
    "ccdf": (_ccdf, _has_spectrum),
    "bulk": (_bulk, lambda row, held: bool(row["sigma_mp"] and row["lambda_plus"])),
    "nulls": (_nulls, lambda row, held: "copies" in held),
    "values": (_values, _has_spectrum),
    "hill": (_hill, _has_curves),
    "xmin": (_xmin, _has_curves),
    "entries": (_entries, lambda row, held: "entries" in held),
}
"""The views of a layer, in their order: how each is drawn, and which rows allow it."""
