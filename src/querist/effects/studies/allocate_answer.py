"""What an allocation says: its finding, sections, figures and summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.effects.configs import AllocateConfig
from querist.effects.figures.allocate import draw
from querist.effects.questions import ALLOCATE_QUESTIONS, BUDGET
from querist.effects.studies.allocate_inputs import Wanted
from querist.effects.tables.serve import ALLOCATE_TABLES
from querist.effects.words import arm_named, between, number, signed
from querist.results.finding import Finding, Verdict
from querist.results.layout import Layout, Section
from querist.runs.study import Answer
from querist.statistics import verdict

__all__ = ["answer"]


def answer(config: AllocateConfig, wanted: Wanted, tables: Mapping[str, pl.DataFrame]) -> Answer:
    """Judge, draw, lay out."""
    solved = tables["solved"].row(0, named=True)
    arms = tables["allocation_arms"]
    summary: dict[str, Any] = {
        **{name: solved[name] for name in ("budget", "spent", "value", "lp_bound", "gap", "shadow_price")},
        "counts": dict(arms.select("arm", "people").iter_rows()),
        "fractional": None
        if solved["fractional_row"] is None
        else {"row": solved["fractional_row"], "arm": solved["fractional_arm"], "share": solved["fractional_share"]},
        "feasible": solved["feasible"],
        "method": solved["method"],
        "path": tables["budget_path"].filter(pl.col("part").is_null()).drop("part").to_dicts(),
    }
    figures = draw(tables, wanted.budget)
    n = wanted.reward.shape[0]
    unit = " + ".join(name if weight == 1 else f"{weight:g}·{name}" for name, weight in wanted.worth.items())
    net = ", less costs" if config.net else ""
    sections = (
        Section(
            "The answer",
            words=(
                f"{n} people, arms {', '.join(wanted.arms)}; worth is {unit}{net}. Of the budget {number(solved['budget'])} it spends "
                f"{number(solved['spent'])} and is predicted to be worth {number(solved['value'])} over control; no allocation is worth "
                f"more than {number(solved['lp_bound'])} (gap {number(solved['gap'])}, method {solved['method']}). One more unit of "
                f"budget would be worth {number(solved['shadow_price'])}.",
                "Who gets what is the table `allocation` of this run; predicted worth flatters the people who were picked for it, which is "
                "why it is held against outcomes where the table has them (--arm).",
            ),
            findings=(("*", BUDGET.id),),
            tables=("allocation_arms", "gains", "solved"),
        ),
        Section(
            "Every other budget",
            words=(
                "One sort gives the best use of every budget: the steps of all people in the order of their worth per cost.",
            ),
            figures=tuple(figure.name for figure in figures),
            tables=("budget_path",),
        ),
    )
    layout = Layout(
        "Whom to treat under this budget?",
        "The allocation of the largest predicted worth, beside what one arm alone would do at the same spend.",
        sections,
        ALLOCATE_TABLES,
        ALLOCATE_QUESTIONS,
    )
    passed = (
        []
        if wanted.known
        else [{"what": "worth by outcomes", "reason": "no arms and outcomes of these people (--arm)"}]
    )
    return Answer(tables, [_finding(wanted, tables["gains"])], figures, layout, summary, (), passed)


def _finding(wanted: Wanted, gains: pl.DataFrame) -> Finding:
    if wanted.known is None:
        because = "What the allocation is worth beside the best single arm cannot be told: the table holds no arms and outcomes."
        return Finding("budget", BUDGET.id, None, BUDGET.unit, None, None, 0.0, None, "cannot say", because)
    by = {row["policy"]: row for row in gains.to_dicts()}
    own, single, more = by["allocation"], by["best single arm"], by["difference"]
    answer: Verdict = "cannot say" if more["low"] is None else verdict(more["low"], more["high"], yes_above=0.0)
    because = (
        f"By outcomes the allocation is worth {number(own['value'])}{between(own['low'], own['high'])} per person over control "
        f"(predicted {number(own['predicted'])}), {signed(more['value'])}{between(more['low'], more['high'])} beside "
        f"{arm_named(single['arm'])} alone at the same spend."
    )
    return Finding(
        "budget", BUDGET.id, more["value"], BUDGET.unit, more["low"], more["high"], 0.0, more["p"], answer, because
    )
