"""What a fit says: its findings, sections, figures and summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import FitConfig
from querist.effects.figures.fit import draw
from querist.effects.questions import ANY_EFFECT, ARM_HIDDEN, FIT_QUESTIONS
from querist.effects.studies.evaluate_verdicts import any_effect
from querist.effects.studies.fit_models import model_kind
from querist.effects.tables import FIT_TABLES
from querist.results.finding import Finding
from querist.results.layout import Layout, Section
from querist.runs.study import Answer

__all__ = ["answer"]


def answer(config: FitConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
    """Judge, lay out, and keep the model's folder."""
    one = tables["model"].row(0, named=True)
    folder = Path(one["path"])
    told = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    whole = {name: frame for name, frame in tables.items() if name != "checkpoints"}
    findings = [_hidden(tables["hidden"]), *_effects(config, tables["ate"], tables["ladder"])]
    figures = draw(whole)
    networks = tables["networks"]
    summary: dict[str, Any] = {
        "model": one["model"],
        "rows": one["rows"],
        "rows_fit": one["rows_fit"],
        "rows_validation": one["rows_validation"],
        "columns": tables["columns"].filter("used")["feature"].to_list(),
        "control": str(told["control"]),
        "arms": dict(tables["arms"].select("arm", "rows").iter_rows()),
        "outcomes": told["outcomes"],
        "tier": config.tier,
        "tier_weights": dict(tables["arms"].filter(~pl.col("control")).select("arm", "tier_weight").iter_rows()),
        "parameters": one["parameters"],
        "epochs": networks["epochs"].to_list(),
        "best_epoch": networks["best_epoch"].to_list(),
        "stopped": networks["stopped"].to_list(),
        "validation": networks["validation"].to_list(),
        "ate": tables["ate"].to_dicts(),
        "shrinkage": tables["shrinkage"].to_dicts(),
        "not_estimable": tables["not_estimable"].to_dicts(),
    }
    passed = [
        {"what": f"{row['arm']}, {row['outcome']}", "reason": row["reason"]}
        for row in tables["not_estimable"].to_dicts()
    ]
    passed += [
        {"what": f"column {row['feature']}", "reason": row["reason"]}
        for row in tables["columns"].filter(~pl.col("used")).to_dicts()
    ]
    return Answer(
        whole,
        findings,
        figures,
        _layout(config, whole, {figure.name for figure in figures}),
        summary,
        one["warnings"],
        passed,
        kept={"model": folder},
    )


def _hidden(rows: pl.DataFrame) -> Finding:
    row = rows.row(0, named=True)
    changed = row["changed"]
    if changed is None:  # a prediction was there under one arm and not under another
        because = f"Of {row['rows']} people some have a prediction under one arm's label and none under another."
        return Finding("model", ARM_HIDDEN.id, None, ARM_HIDDEN.unit, None, None, 0.0, None, "no", because)
    because = (
        f"With every arm of {row['rows']} people exchanged for another one, predictions change by {changed:g} at most."
    )
    return Finding(
        "model",
        ARM_HIDDEN.id,
        changed,
        ARM_HIDDEN.unit,
        None,
        None,
        0.0,
        None,
        "yes" if changed == 0 else "no",
        because,
    )


def _effects(config: FitConfig, ate: pl.DataFrame, ladder: pl.DataFrame) -> list[Finding]:
    spread = dict(ladder.filter(pl.col("part") == "natural").select("outcome", "sd").iter_rows())
    margins = {outcome: config.margin * (sd or 0.0) for outcome, sd in spread.items()}
    rows = ate.filter(pl.col("component") == "total").to_dicts()
    return [any_effect(row, margins, config.level) for row in rows]


def _layout(config: FitConfig, tables: Mapping[str, pl.DataFrame], names: set[str]) -> Layout:
    kind = model_kind(config.model)
    one = tables["model"].row(0, named=True)

    def shown(*wanted: str) -> tuple[str, ...]:
        return tuple(name for name in wanted if name in names)

    def filled(*wanted: str) -> tuple[str, ...]:
        return tuple(name for name in wanted if tables[name].height)

    sections = [
        Section(
            "What do the arms change?",
            words=(
                "The ladder: what people do without treatment (natural response), what being treated at all adds (base effect), "
                "what each arm adds to that (increment). "
                + (
                    "The base is the mean of the arms' effects, each by its tier weight."
                    if config.tier == "mean"
                    else "The base is the effect of the arm of reference."
                ),
                "Measured are means of doubly robust scores of these people; below each lies the mean that the model predicts for the "
                "same people. Whether the model tells people apart is a matter for rows that it has not seen: "
                "`querist effects evaluate`.",
            ),
            findings=(("*", ANY_EFFECT.id),),
            figures=shown("ladder"),
            tables=filled("ladder", "ate", "arms", "not_estimable"),
        ),
        Section(
            "What does the model predict?",
            words=(
                "People by tenths of their predicted total effect, on the rows of the fit: how far predictions reach, not whether they "
                "are right.",
                f"A prediction must not know the arm that a person was given. Columns are shuffled between {min(2000, one['rows'])} "
                "people, one at a time, to see what predictions rest on.",
            ),
            findings=(("*", ARM_HIDDEN.id),),
            figures=shown("parts", "importance", "attention"),
            tables=filled("predicted", "importance", "attention", "columns"),
        ),
    ]
    if kind.trained:
        sections.append(
            Section(
                "Which rows trained, which stopped the training",
                words=(_rows_told(config, tables["networks"]),),
                figures=shown("training", "watched"),
                tables=("networks", "history"),
            )
        )
    if tables["shrinkage"].height:
        sections.append(
            Section(
                "What the refit believed",
                words=(
                    "What networks say of people that they were not trained on is refitted to doubly robust scores, base and "
                    "increments each by its own evidence. Factors near 0 mean that the table does not carry what the networks said; "
                    "τ is the believed spread of coefficients, in standardised columns.",
                ),
                tables=("shrinkage",),
            )
        )
    return Layout(
        "What do the arms change, for whom?",
        f"A model ({config.model}) fitted to {one['rows_fit']} people; it lies in the folder `model` of this run. Nothing on this page "
        "judges how well it ranks people: rows of the fit cannot.",
        tuple(sections),
        tuple(spec for spec in FIT_TABLES if spec.name != "checkpoints"),
        FIT_QUESTIONS,
    )


def _rows_told(config: FitConfig, networks: pl.DataFrame) -> str:
    fit, held = networks["rows_fit"], networks["rows_validation"]
    early = int((networks["stopped"] == "early-stopping").sum())
    each = (
        "Each network is trained without one fold of the people and asked about that fold; predictions are the mean of the networks. "
        if networks["fold"].null_count() == 0
        else ""
    )
    return (
        f"{each}{_several(networks.height, 'network')}, each trained on {_span(fit)} people and stopped by {_span(held)} others, which "
        f"it learnt nothing from: training ends when their loss has not fallen for a while, and the best pass is kept. {early} of "
        f"{networks.height} ended before pass {config.epochs}. No row of any later evaluation took part."
    )


def _several(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _span(values: pl.Series) -> str:
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low} to {high}"
