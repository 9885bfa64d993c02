"""What a comparison shows: which layers, which figures, in which order, and the summary's own keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.results.figure import Figure
from querist.results.layout import Layout, Section
from querist.weights.configs import CompareConfig
from querist.weights.figures import compare as figures
from querist.weights.questions import COMPARE_QUESTIONS
from querist.weights.studies.pairing import Opened
from querist.weights.studies.present_layers import (
    SHOWN_LAYERS,
    by_layer,
    by_question,
    counted,
    last_name,
    most,
    told_of,
)
from querist.weights.tables import COMPARE_TABLES

__all__ = ["draw", "lay_out", "summarise", "surprising", "warn"]

Row = Mapping[str, Any]


def surprising(rows: Sequence[Row], count: int = SHOWN_LAYERS) -> list[Row]:
    """The matrices that changed most, in order of the base: by size over what rounding can make, damaged ones first."""

    def surprise(row: Row) -> float:
        if row["status"] in ("nonfinite", "failed", "degenerate"):
            return float("inf")
        size = row["delta_relative"] or 0.0
        return size / row["rounding"] if row["rounding"] else size

    return most(rows, surprise, count)


def draw(layers: pl.DataFrame, shown: Sequence[Row], tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """The views of all layers, and every view of the layers that are shown."""
    drawn = list(figures.overviews(layers))
    for row in shown:
        own = [
            tables[name].filter(pl.col("layer_id") == row["layer_id"])
            for name in ("spectra", "null_draws", "overlaps", "angles")
        ]
        drawn.extend(figures.layer_figures(row, *own))
    return drawn


def lay_out(
    opened: Opened, rows: Sequence[Row], shown: Sequence[Row], drawn: Sequence[Figure], unmatched: int, passed: bool
) -> Layout:
    """Views of all layers, findings by question, what has no partner, what was passed over, a section per layer."""
    names = [figure.name for figure in drawn]
    views = tuple(name for name in names if name in ("overview", "energy", "exponents"))
    words = (
        "ΔW is the tuned matrix less the base's. Its size stands beside what storing both copies can make, its directions "
        "beside copies of it with resampled entries, and its place in W beside random directions.",
    )
    sections = [Section("All layers", words=words, figures=views, tables=("layers",))]
    sections.append(
        Section("Findings, layer by layer", words=("One line per layer and question.",), open=False, level=2)
    )
    sections.extend(by_question(COMPARE_QUESTIONS))
    if unmatched:
        told = f"{unmatched} matrices have no partner in the other source, each with its reason."
        sections.append(Section("Not compared", words=(told,), tables=("unmatched",), open=False))
    if passed:
        told = "Tensors without a spectrum, and matrices that an adapter leaves as they are."
        sections.append(Section("Passed over", words=(told,), tables=("passed_over",), open=False))
    told = f"{len(shown)} of {len(rows)} layers, those that changed most, in order of the base. The tables hold every layer."
    sections.append(Section("The most changed layers", words=(told,)))
    sections.extend(by_layer(shown, names, figures.LAYER_FIGURES, _in_words))
    tables = ("spectra", "null_draws", "overlaps", "angles")
    sections.append(Section("Eigenvalues, copies and overlaps", tables=tables, open=False))
    lead = (
        f"{len(rows)} matrices of {opened.tuned.address} beside the same matrices of {opened.base.address}. Every number stands "
        "beside what rounding, chance or random signs would give."
    )
    title = f"What changed between {last_name(opened.base.address)} and {last_name(opened.tuned.address)}?"
    return Layout(title, lead, tuple(sections), COMPARE_TABLES, COMPARE_QUESTIONS)


def _in_words(row: Row) -> str:
    more = [f"{row['dtype']} → {row['dtype_tuned']}"]
    if row["lora_rank"]:
        more.append(f"low-rank update of r = {row['lora_rank']}, scale {row['lora_scale']:.4g}")
    if row["tuned_name"] != row["name"]:
        more.append(f"{row['tuned_name']} in the tuned source")
    return told_of(row, *more)


def summarise(opened: Opened, rows: Sequence[Row], unmatched: Sequence[Row]) -> dict[str, Any]:
    """The summary's keys that belong to the comparison."""
    return {
        "base": opened.base.address,
        "tuned": opened.tuned.address,
        "format_base": opened.base.format,
        "format_tuned": opened.tuned.format,
        "n_matched": len(rows),
        "n_unmatched": len(unmatched),
        "n_failed": sum(row["status"] == "failed" for row in rows),
        "n_unchanged": sum(row["status"] == "unchanged" for row in rows),
        "layers": list(rows),
        "unmatched": list(unmatched),
    }


def warn(rows: Sequence[Row], opened: Opened, config: CompareConfig) -> list[str]:
    """What a reader should know before trusting the numbers."""
    told = counted(
        rows,
        {
            "nonfinite": "hold NaN or infinite entries",
            "degenerate": "have nothing to compare their change with",
            "failed": "could not be computed",
            "approximate": "were approximated",
        },
    )
    if opened.unscaled:
        told.append(
            f"Nothing tells the alpha of {len(opened.unscaled)} low-rank updates: they were taken with the scale 1. "
            "Give it with --lora-alpha (lora_alpha=)."
        )
    if opened.unmatched:
        told.append(
            f"{len(opened.unmatched)} matrices have no partner and were not compared; the table `unmatched` says why."
        )
    if len(config.nulls) < 2:
        told.append("Without both resampling nulls no direction of a change can be told from noise.")
    return told
