"""What a scan shows: which layers, which figures, in which order, and the summary's own keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from querist.results.figure import Figure
from querist.results.layout import Layout, Section
from querist.results.lazy import Lazy
from querist.weights.configs import ScanConfig
from querist.weights.figures import scan as figures
from querist.weights.questions import SCAN_QUESTIONS
from querist.weights.studies.present_layers import (
    SHOWN_LAYERS,
    by_layer,
    by_question,
    counted,
    last_name,
    most,
    told_of,
)
from querist.weights.tables import SCAN_TABLES

if TYPE_CHECKING:
    from querist.sources.tensors import TensorSource

__all__ = ["SHOWN_LAYERS", "draw", "lay_out", "summarise", "surprising", "warn"]

Row = Mapping[str, Any]


def surprising(rows: Sequence[Row], count: int = SHOWN_LAYERS) -> list[Row]:
    """The layers farthest from their nulls, in order of the source.

    Surprise is the spectrum's distance to its shuffled copies in units of the distance between copies, or where no copy
    was drawn the largest eigenvalue over the bulk's edge; damaged and degenerate layers come first.
    """

    def surprise(row: Row) -> float:
        if row["status"] not in ("ok", "short-tail", "approximate"):
            return float("inf")
        if row["shuffle_distance"] is not None and row["null_distance"]:
            return row["shuffle_distance"] / row["null_distance"]
        return (row["xmax"] or 0.0) / (row["lambda_plus"] or float("inf"))

    return most(rows, surprise, count)


def draw(layers: pl.DataFrame, shown: Sequence[Row], tables: Mapping[str, pl.DataFrame]) -> Lazy[Figure]:
    """The overview, and every view of the layers that are shown."""
    drawn = {"overview": partial(figures.overview, layers)} if layers["xmax"].is_not_null().any() else {}
    copies = tables["spectra"].filter(pl.col("kind") != "real")["layer_id"].unique().to_list()
    entries = tables["entries"]["layer_id"].unique().to_list()
    for row in shown:
        held = {what for what, layers_ in (("copies", copies), ("entries", entries)) if row["layer_id"] in layers_}
        drawn |= figures.layer_figures(row, held, tables)
    return Lazy(drawn)


def lay_out(
    address: str, rows: Sequence[Row], shown: Sequence[Row], drawn: Iterable[str], passed: bool, advice: bool
) -> Layout:
    """Findings of the run, the overview, every layer's findings by question, what was passed over, a section per layer."""
    names = list(drawn)
    sections = [
        Section(
            "All layers",
            words=(
                "Whiskers are intervals, the grey band is the null. Exponents of 2, 4 and 6 are often quoted as limits between "
                "good and bad layers; they are folklore and decide nothing here.",
            ),
            figures=tuple(name for name in names if name == "overview"),
            tables=("layers",),
        )
    ]
    if advice:
        sections.append(Section("Advice", findings=(("*", "weights.advice"),), tables=("advice",)))
    asked = [question for question in SCAN_QUESTIONS if question.id != "weights.advice"]
    sections.append(
        Section("Findings, layer by layer", words=("One line per layer and question.",), open=False, level=2)
    )
    sections.extend(by_question(asked))
    if passed:
        sections.append(
            Section(
                "Passed over",
                words=("Tensors without a spectrum, each with its reason.",),
                tables=("passed_over",),
                open=False,
            )
        )
    sections.append(
        Section(
            "The most surprising layers",
            words=(
                f"{len(shown)} of {len(rows)} layers, those farthest from their nulls, in order of the source. The tables hold "
                "every layer.",
            ),
        )
    )
    sections.extend(by_layer(shown, names, figures.LAYER_FIGURES, _in_words))
    sections.append(
        Section("Eigenvalues and curves", tables=("spectra", "curves", "null_draws", "entries"), open=False)
    )
    lead = (
        f"{len(rows)} matrices of {address}. Every number stands beside what the same computation gives on a random matrix "
        "of the same shape, on shuffled copies, or on copies with random signs."
    )
    title = f"What did training leave in the weights of {last_name(address)}?"
    return Layout(title, lead, tuple(sections), SCAN_TABLES, SCAN_QUESTIONS)


def _in_words(row: Row) -> str:
    phase = f"{row['phase']}{'' if row['phase_decided'] else ' (not decided)'}" if row["phase"] else "not judged"
    return told_of(row, row["dtype"], f"phase {phase}")


def summarise(
    source: TensorSource, rows: Sequence[Row], passed: Sequence[Row], advice: Sequence[Row]
) -> dict[str, Any]:
    """The summary's keys that belong to the scan."""
    sizes = [row["N"] * row["M"] * (row["n_values"] // row["N"]) if row["N"] else 0 for row in rows]
    weighted = [row["alpha_weighted"] for row in rows if row["alpha_weighted"] is not None]
    alphas = [row["alpha"] for row in rows if row["alpha"] is not None]
    return {
        "source": source.address,
        "format": source.format,
        "n_tensors": len({row["name"] for row in rows} | {row["what"] for row in passed}),
        "n_analysed": sum(row["status"] != "failed" for row in rows),
        "n_passed_over": len(passed),
        "n_failed": sum(row["status"] == "failed" for row in rows),
        "parameters": sum(sizes),
        "layers": list(rows),
        "phases": dict(Counter(_phase(row) for row in rows if row["phase"] is not None)),
        "mean_alpha": sum(alphas) / len(alphas) if alphas else None,
        "mean_alpha_weighted": sum(weighted) / len(weighted) if weighted else None,
        "total_spikes": sum(row["n_spikes"] or 0 for row in rows if row["spike_verdict"] == "yes"),
        "advice": list(advice),
    }


def _phase(row: Row) -> str:
    return row["phase"] if row["phase_decided"] else "cannot say"


def warn(rows: Sequence[Row], config: ScanConfig) -> list[str]:
    """What a reader must know before the numbers."""
    told = counted(
        rows,
        {
            "nonfinite": "hold NaN or infinite entries",
            "degenerate": "have no spectrum to fit",
            "failed": "could not be computed",
            "approximate": "were approximated",
        },
    )
    short = sum(row["status"] == "short-tail" for row in rows)
    if short:
        told.append(
            f"{short} of {len(rows)} exponents rest on fewer than 50 eigenvalues: they are no evidence of a tail."
        )
    dropped = sum(row["n_dropped"] or 0 for row in rows)
    if dropped:
        told.append(f"{dropped} zero eigenvalues were dropped before fits.")
    if len(config.nulls) < 2:
        told.append("Without both resampling nulls no spike can be a yes.")
    return told
