"""What a check says: its findings, sections, figures and summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.effects.configs import CheckConfig
from querist.effects.design import srm
from querist.effects.figures.check import draw
from querist.effects.questions import ATTRITION, CHECK_QUESTIONS, OVERLAP, RANDOMISED
from querist.effects.studies.people import Opened
from querist.effects.tables import CHECK_TABLES
from querist.effects.words import arm_named, between, p_told
from querist.results.finding import Finding, Verdict
from querist.results.layout import Layout, Section
from querist.runs.study import Answer
from querist.statistics import holm

__all__ = ["answer"]

ALARM = 0.01
HIDDEN = 0.52
BLOCKED = 0.9999
SMALL = 0.01


def answer(config: CheckConfig, people: Opened, tables: Mapping[str, pl.DataFrame]) -> Answer:
    """Adjust, judge, lay out."""
    arms = tables["arms"]
    ratio = srm(np.repeat(np.arange(people.arms), arms["units"].to_numpy()), people.arms, people.shares)
    stated = people.shares is not None
    ps = [ratio.p if stated else None, *tables["arm_auc"]["p"].to_list()]
    adjusted = [None if p is None else float(value) for p, value in zip(ps, holm(ps), strict=True)]
    aucs = tables["arm_auc"].with_columns(pl.Series("p_adj", adjusted[1:], dtype=pl.Float64()))
    whole = dict(tables) | {"arm_auc": aucs}
    findings = [
        _randomised(people, ratio, adjusted, aucs),
        _overlap(whole["overlap"], stated),
        *_attrition(whole["attrition"]),
    ]
    figures = draw(whole)
    sd = whole["balance"]["smd"].abs()
    suspicious = whole["suspicious"].to_dicts()
    summary: dict[str, Any] = {
        "rows": len(people),
        "units": int(arms["units"].sum()),
        "arms": {row["arm"]: row["rows"] for row in arms.to_dicts()},
        "srm": {"chi2": ratio.chi2, "df": ratio.df, "p": ratio.p, "unit": config.cluster or "row"},
        "arm_auc": {row["arm"]: {key: row[key] for key in ("auc", "low", "high", "p")} for row in aucs.to_dicts()},
        "smd_max": None if sd.is_empty() else sd.max(),
        "overlap": {
            "ess": dict(whole["overlap"].select("arm", "ess").iter_rows()),
            "max_weight": whole["overlap"]["max_weight"].max(),
            "clipped_share": whole["overlap"]["clipped_share"].max(),
        },
        "suspicious_columns": [row["feature"] for row in suspicious],
        "attrition": whole["attrition"].to_dicts(),
        "detectable": whole["detectable"].to_dicts(),
    }
    if not stated:
        summary["srm"] |= {"chi2": None, "p": None, "reason": "no design was stated (--design)"}
    warnings = people.warnings
    warnings += [f"{row['feature']}: {row['reason']}" for row in suspicious]
    tests = sum(p is not None for p in ps)
    if config.permutations is not None and tests >= ALARM * (config.permutations + 1) and aucs["auc"].count():
        warnings.append(
            f"{config.permutations} relabellings cannot show an adjusted p below {ALARM:g} for {tests} "
            f"test{'' if tests == 1 else 's'}: give more (--permutations {int(2 * tests / ALARM)})"
        )
    if stated and ratio.p > BLOCKED:
        warnings.append(
            f"The counts of units fit the design almost exactly (p {ratio.p:.5f}): assignment looks blocked"
        )
    passed = [] if stated else [{"what": "sample ratio", "reason": "no design was stated (--design)"}]
    return Answer(whole, findings, figures, _layout(config, people, figures, whole), summary, warnings, passed)


def _randomised(people: Opened, ratio: Any, adjusted: list[float | None], aucs: pl.DataFrame) -> Finding:
    worst = aucs.filter(pl.col("auc").is_not_null()).sort("auc", descending=True).head(1).to_dicts()
    known = [p for p in adjusted if p is not None]
    least = min(known) if known else None
    highs = [high for high in aucs["high"].to_list() if high is not None]
    told = ""
    if people.shares is not None:
        told = (
            f"; counts of {int(ratio.counts.sum())} units fit the design with χ² {ratio.chi2:.2f} (p {p_told(ratio.p)})"
        )
    if not worst:
        because = f"There are no features to tell arms apart by{told}."
        answer: Verdict = "no" if least is not None and least < ALARM else "cannot say"
        return Finding("table", RANDOMISED.id, None, RANDOMISED.unit, None, None, 0.5, least, answer, because)
    row = worst[0]
    answer = "cannot say"
    if least is not None and least < ALARM:
        answer = "no"
    elif highs and max(highs) < HIDDEN:
        answer = "yes"
    because = (
        f"The people of {arm_named(row['arm'])} are told from the others with an AUC of {row['auc']:.3f}"
        f"{between(row['low'], row['high'], '.3f')}, against .5 where arms were given at random (smallest adjusted "
        f"p {p_told(least)}){told}."
    )
    return Finding(
        "table", RANDOMISED.id, row["auc"], RANDOMISED.unit, row["low"], row["high"], 0.5, least, answer, because
    )


def _overlap(rows: pl.DataFrame, stated: bool) -> Finding:
    worst = rows.sort("ess_share").row(0, named=True)
    outside = float(rows["clipped_share"].max() or 0.0)  # pyright: ignore[reportArgumentType]
    share = worst["ess_share"]
    answer: Verdict = "cannot say"
    if share < 0.1:
        answer = "no"
    elif share >= 0.5 and outside <= SMALL:
        answer = "yes"
    of = "the design's propensities" if stated else "propensities estimated from the features"
    because = (
        f"Under {of} the {worst['rows']} people of {arm_named(worst['arm'])} count for {worst['ess']:.0f} ({share:.2f} each; 1 where "
        f"all had the same chance), the largest weight is {rows['max_weight'].max():.3g}, and {outside:.1%} of propensities lie "
        "outside [.01, .99]."
    )
    return Finding("table", OVERLAP.id, share, OVERLAP.unit, None, None, 1.0, None, answer, because)


def _attrition(rows: pl.DataFrame) -> list[Finding]:
    found = []
    for (outcome,), mine in rows.group_by("outcome", maintain_order=True):
        worst = max(mine.to_dicts(), key=lambda row: abs(row["difference"]))
        least = min((p for p in mine["p_adj"].to_list() if p is not None), default=None)
        answer: Verdict = "cannot say"
        if least is not None and least < ALARM:
            answer = "yes"
        elif all(row["low"] is not None and row["low"] > -SMALL and row["high"] < SMALL for row in mine.to_dicts()):
            answer = "no"
        because = (
            f"{outcome} is missing for {worst['missing']:.2%} of {arm_named(worst['arm'])} and {worst['missing_control']:.2%} of "
            f"control, a difference of {100 * worst['difference']:+.2f} points (smallest adjusted p {p_told(least)})."
        )
        found.append(
            Finding(
                str(outcome), ATTRITION.id, worst["difference"], ATTRITION.unit, worst["low"], worst["high"], 0.0, least, answer, because
            )
        )  # fmt: skip
    return found


def _layout(config: CheckConfig, people: Opened, figures: list[Any], tables: Mapping[str, pl.DataFrame]) -> Layout:
    names = {figure.name for figure in figures}
    outcomes = people.people.outcomes is not None
    sections = [
        Section(
            "Were arms given at random?",
            words=(
                f"{len(people)} people in {people.arms} arms, control {people.names[0]}. A classifier that sees the features alone should "
                "tell nobody's arm. Its p relabels whole assigned units; counts of units are held against the design where one is stated. "
                "A column that was measured after assignment gives arms away and must not be a feature.",
            ),
            findings=(("*", RANDOMISED.id),),
            figures=tuple(name for name in ("auc", "balance") if name in names),
            tables=tuple(name for name in ("arms", "arm_auc", "suspicious", "balance") if tables[name].height),
        ),
        Section(
            "Can each arm speak for everybody?",
            words=(
                "Effects for all people are read off each arm's people, weighted by 1 over their chance of it. Few chances make few "
                "people count for many.",
            ),
            findings=(("*", OVERLAP.id),),
            figures=tuple(name for name in ("weights",) if name in names),
            tables=("overlap",),
        ),
    ]
    if outcomes:
        sections.append(
            Section(
                "Outcomes",
                words=(
                    "Missing outcomes count for nothing in any answer; where they miss more often under an arm, averages mislead. The "
                    f"detectable effect is found with a chance of {config.power:.0%} at level {config.level:g}: of a smaller one a null "
                    "result says nothing.",
                ),
                findings=(("*", ATTRITION.id),),
                figures=tuple(name for name in ("detectable",) if name in names),
                tables=("detectable", "attrition"),
            )
        )
    return Layout(
        "Can these arms be compared?",
        "What must hold of a table before any effect is read off it: arms given at random, people of every arm alike, outcomes seen "
        "equally often.",
        tuple(sections),
        CHECK_TABLES,
        CHECK_QUESTIONS,
    )
