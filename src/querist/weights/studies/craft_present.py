"""What a laboratory run shows: which runs are drawn, in which order, its warnings, and the summary's own keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.results.figure import Figure
from querist.results.layout import Layout, Section
from querist.weights.configs import CraftConfig
from querist.weights.figures import laboratory as figures
from querist.weights.figures.scan import figure_name
from querist.weights.questions import CRAFT_QUESTIONS
from querist.weights.studies.craft_verdicts import setting
from querist.weights.tables import CRAFT_TABLES

__all__ = ["draw", "lay_out", "shown_settings", "summarise", "warn"]

REGIMES = ("random", "spike", "heavy")
Row = Mapping[str, Any]


def shown_settings(predicted: Sequence[Row]) -> list[Row]:
    """Of each optimiser the largest rate of each regime: up to six runs with views of their own."""
    chosen = {}
    for row in sorted(predicted, key=lambda row: row["eta"]):
        chosen[row["optimizer"], row["regime"]] = row
    order = list(dict.fromkeys(row["optimizer"] for row in predicted))
    return sorted(chosen.values(), key=lambda row: (order.index(row["optimizer"]), REGIMES.index(row["regime"])))


def draw(config: CraftConfig, predicted: Sequence[Row], tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """Everything against the rate, theory beside observation, and the first repeat of each regime."""
    steps = tables["steps"]
    drawn = [
        figure for name in config.optimizer for figure in figures.against_rate(name, steps, predicted, config.steps)
    ]
    drawn.append(figures.prediction(predicted, steps))
    drawn.append(figures.profile(tables["profile"]))
    for row in shown_settings(predicted):
        here = (pl.col("optimizer") == row["optimizer"]) & (pl.col("eta") == row["eta"]) & (pl.col("repeat") == 0)
        own = {name: tables[name].filter(here) for name in ("spectra", "weights_hist", "overlaps")}
        drawn.extend(figures.run_figures(setting(row["optimizer"], row["eta"]), steps.filter(here), own))
    return drawn


def lay_out(config: CraftConfig, predicted: Sequence[Row], drawn: Sequence[Figure]) -> Layout:
    """Findings, everything against the rate, theory, a section per shown run, tables."""
    names = {figure.name for figure in drawn}
    sections = [
        Section(
            "Against the learning rate",
            words=(
                "Losses are those of a last layer refitted on fresh examples, on two scales of features: the network's own, and "
                "the one that the published code probes. What holds on one scale only is no finding about generalisation.",
            ),
            figures=tuple(f"{view}.{name}" for name in config.optimizer for view in ("rates", "losses")),
            tables=("steps",),
        ),
        Section(
            "One step by theory",
            words=(
                "Closed forms for a network before training, beside exact first steps of the same rate. They know one step "
                "only: over many steps the bulk can move far below the rate at which one step is as large as the weights.",
            ),
            findings=(("*", "weights.regime"),),
            figures=("prediction", "profile"),
            tables=("predicted", "profile"),
        ),
        Section(
            "Spikes, bulk and tail of the last weights",
            words=(
                "Each run's last weights are scanned like those of any checkpoint, beside shuffled and sign-flipped copies, and "
                "judged by the same rules (p adjusted over all runs). A setting's answer is the one that more than half of "
                "its runs give; low and high are the least and largest of their estimates.",
                "These copies keep the sizes of trained entries, so they ask for more than the edge of the untrained weights "
                "that n_spikes of the table steps counts from: large updates grow the copies' edge as well.",
            ),
            findings=tuple(("*", f"weights.{name}") for name in ("spikes", "bulk", "heavy-tail")),
            tables=("layers", "null_draws"),
            open=False,
        ),
        Section("Runs", words=("The first repeat at the largest rate of each regime.",)),
    ]
    for position, row in enumerate(shown_settings(predicted)):
        name = setting(row["optimizer"], row["eta"])
        own = [figure_name(name, view) for view in figures.RUN_FIGURES]
        sections.append(
            Section(
                name,
                words=(f"By theory one step of this rate is {row['regime']}.",),
                findings=((name, "*"),),
                figures=tuple(view for view in own if view in names),
                open=position == 0,
                level=3,
            )
        )
    sections.append(Section("Spectra, entries, overlaps", tables=("spectra", "weights_hist", "overlaps"), open=False))
    lead = (
        f"{config.h} hidden units, {config.d} inputs, {config.n} examples, label noise {config.rho:g}; {config.steps} full-batch "
        f"steps, {config.repeats} repeats. The teacher's direction and the law of the untrained weights are known, so every "
        "number stands beside what it is without training."
    )
    title = "Which optimiser and rate make spikes and tails?"
    return Layout(title, lead, tuple(sections), CRAFT_TABLES, CRAFT_QUESTIONS)


def summarise(steps: pl.DataFrame, predicted: Sequence[Row]) -> dict[str, Any]:
    """The summary's own keys."""
    return {"runs": steps.to_dicts(), "predicted": list(predicted)}


def warn(config: CraftConfig, steps: pl.DataFrame, predicted: Sequence[Row]) -> list[str]:
    """What a reader must know before the numbers."""
    told = []
    diverged = steps.filter(pl.col("status") == "diverged")
    if diverged.height:
        first = diverged.row(0, named=True)
        told.append(
            f"{diverged.height} runs diverged, the first {setting(first['optimizer'], first['eta'])} repeat "
            f"{first['repeat']}: {first['reason']}."
        )
    short = steps.filter((pl.col("status") == "short-tail") & (pl.col("step") == config.steps)).height
    if short:
        told.append(
            f"{short} exponents of last weights rest on fewer than 50 eigenvalues (status short-tail): no evidence of a tail."
        )
    if len(config.nulls) < 2:
        told.append("Without both resampling nulls no spike of the last weights can be a yes.")
    if config.gamma < 1 and any(row["regime"] == "heavy" for row in predicted):
        told.append("Regimes are those of the first step; the rate falls after it.")
    return told
