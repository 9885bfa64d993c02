"""Findings of an evaluation, in the order in which an analyst asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.effects.configs import EvaluateConfig
from querist.effects.evaluation import BEST, NATURAL
from querist.effects.questions import (
    ANY_EFFECT,
    ARM_HIDDEN,
    ARMS_DIFFER,
    BEATS_NATURAL,
    BEATS_SINGLE_ARM,
    CALIBRATED,
    EFFECT_VARIES,
    FRESH_ROWS,
)
from querist.effects.studies.people import Opened
from querist.effects.words import arm_named, between, number, p_told, signed
from querist.results.finding import Finding, Verdict
from querist.statistics import holm, verdict

__all__ = ["any_effect", "findings_of"]

Row = Mapping[str, Any]
ALARM = 0.01


def findings_of(config: EvaluateConfig, people: Opened, tables: Mapping[str, pl.DataFrame]) -> list[Finding]:
    """Rows, arms, effects on average, then what each score adds."""
    scores = tables["sources"]["score"].to_list()
    many = len(scores) > 1
    margins = _margins(config, people)
    found = [_fresh(row) for row in tables["seen"].to_dicts()]
    found += [_hidden(row) for row in tables["sources"].to_dicts()]
    found += [any_effect(row, margins, config.level) for row in tables["ate"].to_dicts() if row["component"] == "total"]
    differing = tables["arms_differ"].to_dicts()
    adjusted = holm([row["p"] for row in differing])
    found += [_arms_differ(row, float(p), margins, config.level) for row, p in zip(differing, adjusted, strict=True)]
    for score in scores:
        mine = {name: tables[name].filter(pl.col("score") == score) for name in ("metrics", "calibration")}
        found += _varies(score, many, mine, tables["ate"], config.level)
        found += _beats_natural(score, many, tables["paired"])
        found += _beats_arm(score, many, tables["policies"])
        found += [_calibrated(row, many) for row in mine["calibration"].to_dicts() if row["component"] == "total"]
    return found


def _margins(config: EvaluateConfig, people: Opened) -> dict[str, float]:
    """What is too small to matter, by outcome: a share of the standard deviation under control."""
    found = {}
    for k, name in enumerate(people.outcomes.names):
        y = people.outcomes.column(k)[(people.codes == 0) & people.outcomes.observed[:, k]]
        found[name] = config.margin * float(y.std(ddof=1)) if y.size > 1 else 0.0
    return found


def _named(row: Row) -> str:
    return f"{row['arm']}, {row['outcome']}" if row["arm"] is not None else str(row["outcome"])


def _subject(score: str, many: bool, row: Row) -> str:
    part = "" if row["component"] == "total" else f"{row['component']}, "
    return (f"{score}: " if many else "") + part + _named(row)


def _fresh(row: Row) -> Finding:
    name = row["score"]
    if row["share"] is None:
        because = f"Whether {name} was fitted on these people cannot be told: {row['reason']}."
        return Finding(name, FRESH_ROWS.id, None, FRESH_ROWS.unit, None, None, None, None, "cannot say", because)
    answer: Verdict = "no" if row["p"] < ALARM and row["share"] > row["repeated"] else "yes"
    because = (
        f"{row['seen']} of {row['rows']} people ({row['share']:.2%}) have the features of someone {name} was fitted on; "
        f"{row['repeated']:.2%} of this table's own people are repeated (p {p_told(row['p'])})."
    )
    return Finding(
        name, FRESH_ROWS.id, row["share"], FRESH_ROWS.unit, None, None, row["repeated"], row["p"], answer, because
    )


def _hidden(row: Row) -> Finding:
    name = row["score"]
    if row["changed"] is None:
        told = "" if row["arm_auc"] is None else (
            f"; by the score alone treated people are told from control with an AUC of {row['arm_auc']:.3f} (p {p_told(row['arm_p'])}, "
            ".5 where it knows nothing of the arm)"
        )  # fmt: skip
        because = f"{name} is a column, which cannot be made again with other arms{told}."
        return Finding(name, ARM_HIDDEN.id, None, ARM_HIDDEN.unit, None, None, 0.0, row["arm_p"], "cannot say", because)
    answer: Verdict = "yes" if row["changed"] == 0 else "no"
    because = f"With arms and outcomes exchanged between people the predictions of {name} change by at most {row['changed']:.3g}."
    return Finding(name, ARM_HIDDEN.id, row["changed"], ARM_HIDDEN.unit, None, None, 0.0, None, answer, because)


def any_effect(row: Row, margins: Mapping[str, float], level: float) -> Finding:
    """What a row of `ate` says of a total effect; margins: what is too small to matter, by outcome."""
    subject, margin = _named(row), margins[row["outcome"]]
    if row["estimate"] is None:
        because = f"The average effect of {arm_named(row['arm'])} on {row['outcome']} is {row['method']}."
        return Finding(subject, ANY_EFFECT.id, None, ANY_EFFECT.unit, None, None, 0.0, None, "cannot say", because)
    answer: Verdict = "cannot say"
    if row["p_adj"] is not None and row["p_adj"] < level:
        answer = "yes"
    elif row["low"] is not None and verdict(row["low"], row["high"], no_within=(-margin, margin)) == "no":
        answer = "no"
    because = (
        f"{arm_named(row['arm'], first=True)} changes {row['outcome']} by {number(row['estimate'])} per person"
        f"{between(row['low'], row['high'])} on average, against 0 (adjusted p {p_told(row['p_adj'])}); within "
        f"±{number(margin)} (--margin) it would be too small to matter."
    )
    return Finding(
        subject, ANY_EFFECT.id, row["estimate"], ANY_EFFECT.unit, row["low"], row["high"], 0.0, row["p_adj"], answer, because
    )  # fmt: skip


def _arms_differ(row: Row, p: float, margins: Mapping[str, float], level: float) -> Finding:
    margin = margins[row["outcome"]]
    answer: Verdict = "cannot say"
    if p < level:
        answer = "yes"
    elif row["low"] is not None and verdict(row["low"], row["high"], no_within=(-margin, margin)) == "no":
        answer = "no"
    because = (
        f"{arm_named(row['best'], first=True)} changes {row['outcome']} by {number(row['difference'])} per person"
        f"{between(row['low'], row['high'])} more than {arm_named(row['worst'])} does; "
        f"χ² of equal arms is {row['statistic']:.1f} on {row['df']} (adjusted p {p_told(p)})."
    )
    return Finding(
        row["outcome"], ARMS_DIFFER.id, row["difference"], ARMS_DIFFER.unit, row["low"], row["high"], 0.0, p, answer, because
    )  # fmt: skip


def _varies(
    score: str, many: bool, mine: Mapping[str, pl.DataFrame], ate: pl.DataFrame, level: float
) -> Iterator[Finding]:
    """Both autoc and the calibration slope must say so: their p, adjusted over arms and outcomes of a part."""
    wanted = (pl.col("metric") == "autoc") & (pl.col("convention") == "rate")
    slopes = {(row["component"], row["arm"], row["outcome"]): row for row in mine["calibration"].to_dicts()}
    effects = {(row["component"], row["arm"], row["outcome"]): row["estimate"] for row in ate.to_dicts()}
    for (component,), rows in mine["metrics"].filter(wanted).group_by("component", maintain_order=True):
        rows_here = rows.to_dicts()
        lines = [slopes.get((component, row["arm"], row["outcome"])) for row in rows_here]
        adjusted = holm([None if line is None else line["p"] for line in lines])
        for row, line, p_slope in zip(rows_here, lines, adjusted, strict=True):
            subject = _subject(score, many, row)
            if row["estimate"] is None:
                because = f"Whether the effect varies cannot be told: {row['reason']}."
                yield Finding(
                    subject, EFFECT_VARIES.id, None, EFFECT_VARIES.unit, None, None, 0.0, None, "cannot say", because
                )
                continue
            slope = None if line is None or line["slope"] is None else line
            ps = [row["p_adj"], *([] if slope is None else [float(p_slope)])]
            known = [p for p in ps if p is not None]
            p = max(known) if known else None
            size = abs(effects.get((component, row["arm"], row["outcome"])) or 0.0)
            answer: Verdict = "cannot say"
            if p is not None and p < level and row["estimate"] > 0:
                answer = "yes"
            elif (
                row["high"] is not None
                and row["high"] < size / 10
                and (slope is None or (slope["slope_high"] or np.inf) < 0.5)
            ):
                answer = "no"
            told = "" if slope is None else (
                f"; effects rise by {slope['slope']:.2f}{between(slope['slope_low'], slope['slope_high'], '.2f')} per unit predicted"
            )  # fmt: skip
            because = (
                f"Ranked by {score}, the best people gain {number(row['estimate'])} per person more than all do"
                f"{between(row['low'], row['high'])} (autoc), against 0 in a random order{told} (larger adjusted p "
                f"{p_told(p)})."
            )
            yield Finding(
                subject, EFFECT_VARIES.id, row["estimate"], EFFECT_VARIES.unit, row["low"], row["high"], 0.0, p, answer, because
            )  # fmt: skip


def _beats_natural(score: str, many: bool, paired: pl.DataFrame) -> Iterator[Finding]:
    rows = paired.filter(
        (pl.col("a") == score)
        & (pl.col("b") == NATURAL)
        & (pl.col("metric") == "qini")
        & (pl.col("component") == "total")
    ).to_dicts()
    for row in rows:
        subject = _subject(score, many, row)
        if row["difference"] is None:
            because = "Neither ranking has a number here."
            yield Finding(
                subject, BEATS_NATURAL.id, None, BEATS_NATURAL.unit, None, None, 0.0, None, "cannot say", because
            )
            continue
        answer = verdict(row["low"], row["high"], yes_above=0.0) if row["low"] is not None else "cannot say"
        said = {"yes": "ranks better", "no": "ranks worse", "cannot say": "cannot be shown to rank better"}[answer]
        because = (
            f"The Qini of {score} less that of natural response is {signed(row['difference'])} {row['outcome']} per person"
            f"{between(row['low'], row['high'])} on the same people: {score} {said} than what people do untreated."
        )
        yield Finding(
            subject, BEATS_NATURAL.id, row["difference"], BEATS_NATURAL.unit, row["low"], row["high"], 0.0, row["p"], answer, because
        )  # fmt: skip


def _beats_arm(score: str, many: bool, policies: pl.DataFrame) -> Iterator[Finding]:
    alone = policies.filter(pl.col("versus").is_null() & (pl.col("method") == "dr"))
    for row in policies.filter((pl.col("policy") == score) & (pl.col("versus") == BEST)).to_dicts():
        best = alone.filter((pl.col("outcome") == row["outcome"]) & pl.col("policy").str.starts_with(BEST))["policy"]
        subject = (f"{score}: " if many else "") + row["outcome"]
        low, high = row["difference_low"], row["difference_high"]
        answer: Verdict = verdict(low, high, yes_above=0.0) if low is not None else "cannot say"
        because = (
            f"Giving each person the arm that {score} predicts best is worth {number(row['value'])} {row['outcome']} per person, "
            f"{signed(row['difference'])}{between(low, high)} beside the {best[0]} for all."
        )
        yield Finding(
            subject,
            BEATS_SINGLE_ARM.id,
            row["difference"],
            BEATS_SINGLE_ARM.unit,
            low,
            high,
            0.0,
            row["p"],
            answer,
            because,
        )


def _calibrated(row: Row, many: bool) -> Finding:
    subject = _subject(row["score"], many, row)
    if row["slope"] is None:
        because = f"There is no slope: {row['reason']}."
        return Finding(subject, CALIBRATED.id, None, CALIBRATED.unit, None, None, 1.0, None, "cannot say", because)
    low, high = row["slope_low"], row["slope_high"]
    answer: Verdict = "cannot say"
    if low is not None and not low <= 1 <= high:
        answer = "no"
    elif low is not None and (high - low) / 2 < 0.5:
        answer = "yes"
    because = (
        f"Effects on {row['outcome']} rise by {row['slope']:.2f}{between(low, high, '.2f')} per unit that {row['score']} predicts, "
        "against 1 where predictions are true in size."
    )
    return Finding(subject, CALIBRATED.id, row["slope"], CALIBRATED.unit, low, high, 1.0, None, answer, because)
