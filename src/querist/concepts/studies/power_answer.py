"""From single tries to the table of power, its findings, and the sentences about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.questions import WOULD_BE_FOUND
from querist.concepts.studies.power import CLEAN, KEPT, PowerPlan
from querist.concepts.studies.words import number, times
from querist.concepts.tables import POWER, POWER_RUNS
from querist.results.finding import Finding
from querist.statistics import rank_p, wilson

__all__ = ["decided", "power_block", "power_findings", "power_lead", "power_table", "power_words"]

LEVEL, HALF = 0.05, 0.5
LEAST = 19
"""Clean resamples that a run of the inversion is ranked among: of fewer no p could reach 5 %."""


def decided(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with alarms of the inversion: p ≤ .05 of the largest anomaly index among the clean resamples of the other tries."""
    own = (pl.col("method") == "cleanse") & pl.col("statistic").is_not_null()
    clean = {row["repeat"]: row["statistic"] for row in runs.filter(own & (pl.col("rate") == CLEAN)).to_dicts()}
    made: list[dict[str, Any]] = []
    for row in runs.to_dicts():
        if row["method"] == "cleanse" and row["statistic"] is not None:
            others = [value for repeat, value in clean.items() if repeat != row["repeat"]]
            if len(others) < LEAST:
                row["reason"] = f"{times(len(others), 'other clean resample')} to rank it among, {LEAST} are needed"
                row["named"] = None
            else:
                row["alarm"] = rank_p(row["statistic"], np.array(others)) <= LEVEL
                row["named"] = bool(row["alarm"] and row["named"])
        made.append(row)
    return POWER_RUNS.frame(made)


def power_table(runs: pl.DataFrame) -> pl.DataFrame:
    """A row per detector and rate, detectors in their order, the clean resamples first."""
    made = []
    for (method, rate), part in runs.group_by("method", "rate", maintain_order=True):
        told = part.filter(pl.col("alarm").is_not_null())
        alarms = int(told["alarm"].sum())
        row: dict[str, Any] = {"method": method, "rate": rate, "runs": part.height, "decided": told.height}
        if told.height:
            found = wilson(alarms, told.height)
            row |= {"alarms": alarms, "share": found.estimate, "low": found.low, "high": found.high}
            known = told["named"].drop_nulls()
            row["named"] = int(known.sum()) if rate != CLEAN and len(known) else None
        for name in ("auc", "precision", "recall"):
            row[name] = part[name].mean()
        row |= {"auc_low": part["auc"].min(), "auc_high": part["auc"].max(), "flagged": part["flagged"].mean()}
        reasons = part["reason"].drop_nulls()
        made.append(row | {"reason": reasons[0] if len(reasons) else None})
    return POWER.frame(made)


def power_findings(table: pl.DataFrame, runs: pl.DataFrame, plan: PowerPlan) -> list[Finding]:
    """One of every detector that can alarm: at the smallest rate, beside its alarms on clean resamples; by selector in words."""
    found = []
    for (method,), part in table.group_by("method", maintain_order=True):
        rows = {row["rate"]: row for row in part.to_dicts() if row["share"] is not None}
        if CLEAN not in rows or len(rows) < 2:
            continue
        rate = min(rate for rate in rows if rate != CLEAN)
        clean, own = rows[CLEAN], rows[rate]
        low, high = own["low"], own["high"]
        above = low > HALF
        apart = low > clean["high"]
        said = "yes" if above and apart else "no" if high <= HALF else "cannot say"
        rule = {
            "yes": "the lower end is above 0.5 and above what clean resamples reach",
            "no": "the upper end is at most 0.5",
            "cannot say": "the interval holds 0.5" if not above else "clean resamples alarm about as often",
        }[said]
        text = f"Had {_percent(rate)} of this table been poisoned ({_attack(plan)}), {method} would have seen it in {_of(own)} "
        text += f"[{number(low)}, {number(high)}]"
        more = _by_selector(runs.filter((pl.col("method") == method) & (pl.col("rate") == rate)))
        more += [f"at {_percent(r)} in {_of(row)}" for r, row in rows.items() if r not in (CLEAN, rate)]
        text += f" ({', '.join(more)})" if more else ""
        text += "" if own["named"] is None else f", and named the target's class in {own['named']}"
        text += f"; with nothing planted it alarms in {_of(clean, 'clean resample')} [{number(clean['low'])}, {number(clean['high'])}]"
        if method == "cleanse":
            text += " (one in twenty of them by construction)"
        if own["auc"] is not None:
            text += f"; the mean AUC of its rows is {number(own['auc'])}"
        text += f"; {rule}; {times(len(plan.planted), 'target')}."
        found.append(
            Finding(
                str(method), WOULD_BE_FOUND.id, own["share"], WOULD_BE_FOUND.unit, low, high, clean["share"], None,
                said, text,
            )
        )  # fmt: skip
    return found


def _by_selector(runs: pl.DataFrame) -> list[str]:
    """Alarms of each selector's triggers, where there are several."""
    told = runs.filter(pl.col("alarm").is_not_null())
    parts = [(name, part["alarm"]) for (name,), part in told.group_by("selector", maintain_order=True)]
    return [f"{_called(name)} {int(alarm.sum())} of {len(alarm)}" for name, alarm in parts] if len(parts) > 1 else []


def _called(selector: Any) -> str:
    return selector if selector == "random" else str(selector).upper()


def _percent(rate: float) -> str:
    return f"{100 * rate:g} %"


def _of(row: dict[str, Any], what: str = "") -> str:
    many = "tries" if not what else what + "s"
    return f"{row['alarms']} of {row['decided']} {(what or 'try') if row['decided'] == 1 else many}"


def _attack(plan: PowerPlan) -> str:
    sizes = " or ".join(map(str, plan.sizes))
    selectors = " or ".join(map(_called, plan.selectors))
    return f"mode {plan.mode}, {selectors} triggers of {sizes} concept{'' if sizes == '1' else 's'}"


def power_lead(findings: Sequence[Finding], table: pl.DataFrame, plan: PowerPlan) -> str:
    """The sentence about the detector that tells poison from clean resamples best; nothing where no detector can alarm."""
    own = [finding for finding in findings if finding.question == WOULD_BE_FOUND.id]
    if not own:
        return ""
    best = max(own, key=lambda one: ((one.estimate or 0) - (one.null or 0), -(one.null or 0)))
    rows = {row["rate"]: row for row in table.filter(pl.col("method") == best.subject).to_dicts()}
    rate = min(rate for rate in rows if rate != CLEAN)
    begun = f" Had {_percent(rate)} of this table been poisoned ({_attack(plan)}), "
    if (best.estimate or 0) <= (best.null or 0):
        return begun + "no method would have told it from clean resamples."
    return f"{begun}{best.subject} would have seen it in {_of(rows[rate])}; it alarmed on {_of(rows[CLEAN], 'clean resample')}."


def power_words(plan: PowerPlan, trusted: bool, suspicious: bool) -> tuple[str, ...]:
    """How the copies were made, and what their numbers do not say."""
    rates = ", ".join(_percent(rate) for rate in plan.rates)
    names = ", ".join(map(str, plan.planted[:8])) + (", …" if len(plan.planted) > 8 else "")
    drawn = (
        "suspect and trusted rows change sides at random inside every class, which is the null of what compares them and keeps every size"
        if trusted
        else f"{_percent(KEPT)} of the rows of every class are drawn without replacement: a bootstrap would hold rows twice, and a method "
        "that is fitted on one copy knows the other by heart"
    )
    said = [
        f"{times(plan.tries, 'try', 'tries')}: in each, {drawn}. The same rows are searched as they are (the clean resample) and "
        f"with {_attack(plan)} planted at {rates}; {times(len(plan.planted), 'target')} ({names}) take turns. "
        "Every try trains its own head and is given no truth.",
        "An alarm is a class or concepts that a method names. Resamples share rows: the intervals speak of resamples of this table, "
        "and not of all tables like it.",
    ]
    if suspicious:
        said.append(
            "This table looks planted itself: its resamples hold what it holds, and alarms on them are then no false alarms."
        )
    return tuple(said)


def power_block(table: pl.DataFrame, plan: PowerPlan, trusted: bool) -> dict[str, Any] | None:
    """The summary's block `power`; None where no tries were asked for."""
    if not table.height:
        return None
    kept = ("method", "rate", "runs", "alarms", "share", "low", "high", "named", "auc")
    return {
        "tries": plan.tries,
        "targets": [str(target) for target in plan.planted],
        "selectors": list(plan.selectors),
        "sizes": list(plan.sizes),
        "rates": list(plan.rates),
        "mode": plan.mode,
        "resampling": "exchanged with the reference" if trusted else f"subsamples of {KEPT:g}",
        "methods": [{key: row[key] for key in kept} for row in table.to_dicts()],
    }
