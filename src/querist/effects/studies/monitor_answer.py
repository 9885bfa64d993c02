"""What a watch says: its findings, alerts, sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.effects.configs import MonitorConfig, named_numbers
from querist.effects.figures.monitor import draw
from querist.effects.questions import CONTROL_PRESENT, DRIFT, MONITOR_QUESTIONS, STILL_WORKS
from querist.effects.studies.people import Opened
from querist.effects.tables.serve import MONITOR_TABLES
from querist.effects.words import arm_named, between, number, p_told, signed
from querist.results.finding import Finding, Verdict
from querist.results.layout import Layout, Section
from querist.runs.study import Answer

__all__ = ["answer"]

ALARM = 0.01


def answer(config: MonitorConfig, tables: Mapping[str, pl.DataFrame], people: Opened | None) -> Answer:
    """Judge, draw, lay out."""
    whole = {spec.name: tables.get(spec.name, spec.frame([])) for spec in MONITOR_TABLES}
    findings = [_drift(whole["psi"])]
    lower = {name for name, worth in named_numbers(config.value, "--value").items() if worth < 0}
    findings += [_works(row, row["outcome"] in lower) for row in whole["realised"].to_dicts()]
    if people is not None:
        findings.append(_control(whole["segments"]))
    shares = whole["arm_shares"].to_dicts()
    alerts = [finding.because for finding in findings if _alarming(finding)]
    if shares and shares[0]["p"] is not None and shares[0]["p"] < ALARM:
        worst = max(shares, key=lambda row: abs(row["difference"]))
        alerts.append(
            f"Shares of arms have moved: {worst['arm']} from {worst['before']:.1%} to {worst['after']:.1%} (p {p_told(shares[0]['p'])})."
        )
    missing = whole["segments"].filter(pl.col("control") == 0)
    summary: dict[str, Any] = {
        "psi": dict(whole["psi"].select("column", "psi").iter_rows()),
        "arm_shares": {row["arm"]: {"before": row["before"], "after": row["after"]} for row in shares},
        "realised": whole["realised"].to_dicts(),
        "control_missing_segments": [f"{row['column']} = {row['segment']}" for row in missing.to_dicts()],
        "alerts": alerts,
    }
    passed = [] if people is not None else [{"what": "arms and realised effects", "reason": "no arm is named (--arm)"}]
    figures = draw(whole)
    drawn = {figure.name for figure in figures}
    sections = (
        Section(
            "Has anything moved?",
            words=(
                "The stability index compares shares over bins, of features as the model reads them and of its own scores. Beside it "
                "stands what two samples of the earlier table, of the same sizes, give in 99 of 100 cases.",
            ),
            findings=(("*", DRIFT.id),),
            figures=tuple(name for name in ("psi",) if name in drawn),
            tables=("psi", "arm_shares") if shares else ("psi",),
        ),
        Section(
            "Does it still deliver?",
            words=(
                "Of the people for whom a gain is predicted: the mean doubly robust effect found, beside the mean predicted.",
            ),
            findings=(("*", STILL_WORKS.id),),
            figures=tuple(name for name in ("realised",) if name in drawn),
            tables=("realised",),
        ),
        Section(
            "Can it still be measured?",
            words=("Without people under control in a segment nobody will know what treatment does there.",),
            findings=(("*", CONTROL_PRESENT.id),),
            tables=("segments",),
        ),
    )
    layout = Layout(
        "Does the model still fit?",
        "A later table beside the one that the model was fitted on.",
        sections if people is not None else sections[:1],
        MONITOR_TABLES,
        MONITOR_QUESTIONS,
    )
    return Answer(whole, findings, figures, layout, summary, alerts, passed)


def _alarming(finding: Finding) -> bool:
    return {DRIFT.id: "yes", STILL_WORKS.id: "no", CONTROL_PRESENT.id: "no"}[finding.question] == finding.verdict


def _drift(psi: pl.DataFrame) -> Finding:
    """The column that lies highest over what it must exceed; the nulls hold for all columns together."""
    rows = psi.to_dicts()
    worst = max(rows, key=lambda row: row["psi"] / max(row["null"], 1e-12))
    above = sum(row["drifted"] for row in rows)
    because = (
        f"{worst['column']} has a stability index of {number(worst['psi'])}, against at most {number(worst['null'])} from sampling alone "
        f"({worst['largest_bin']}: {worst['share_before']:.1%} before, {worst['share_after']:.1%} after); {above} of {len(rows)} columns "
        "lie above theirs."
    )
    answer: Verdict = "yes" if worst["drifted"] else "no"
    return Finding("columns", DRIFT.id, worst["psi"], DRIFT.unit, None, None, worst["null"], None, answer, because)


def _works(row: Mapping[str, Any], lower: bool) -> Finding:
    subject = f"{row['arm']}, {row['outcome']}"
    if row["difference"] is None or row["low"] is None:
        because = f"What {arm_named(row['arm'])} delivers in {row['outcome']} cannot be told: {row['reason'] or 'too few people'}."
        return Finding(subject, STILL_WORKS.id, None, STILL_WORKS.unit, None, None, 0.0, None, "cannot say", because)
    half = -row["predicted"] / 2
    answer: Verdict = "cannot say"
    if row["high"] < 0:
        answer = "no"
    elif row["low"] <= 0 <= row["high"] and row["low"] > half:
        answer = "yes"
    because = (
        f"The {row['people']} people for whom a gain is predicted {'are spared' if lower else 'gain'} {number(row['realised'])} "
        f"{row['outcome']} each from {arm_named(row['arm'])}, {signed(row['difference'])}{between(row['low'], row['high'])} beside the "
        f"{number(row['predicted'])} predicted."
    )
    return Finding(
        subject, STILL_WORKS.id, row["difference"], STILL_WORKS.unit, row["low"], row["high"], 0.0, row["p"], answer, because
    )  # fmt: skip


def _control(segments: pl.DataFrame) -> Finding:
    missing = segments.filter(pl.col("control") == 0).to_dicts()
    named = ", ".join(f"{row['column']} = {row['segment']} ({row['people']} people)" for row in missing[:3])
    because = (
        f"{len(missing)} of {segments.height} segments have nobody under control: {named}{', …' if len(missing) > 3 else ''}."
        if missing
        else f"Each of {segments.height} segments has people under control."
        if segments.height > 1
        else f"{segments['control'][0]} of {segments['people'][0]} people are under control."
    )
    answer: Verdict = "no" if missing else "yes"
    return Finding(
        "segments",
        CONTROL_PRESENT.id,
        float(len(missing)),
        CONTROL_PRESENT.unit,
        None,
        None,
        0.0,
        None,
        answer,
        because,
    )
