"""Findings of an audit about attacks: exposed, attributable, even, selectors, utility."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.attacks import over_targets, selector_difference
from querist.concepts.configs import AuditConfig
from querist.concepts.figures.attack import at_headline
from querist.concepts.questions import ATTRIBUTABLE, EVEN_OVER_TARGETS, EXPOSED, SELECTOR_MATTERS, UTILITY_KEPT
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.words import because, held_against, number, percent, times
from querist.results.finding import Finding
from querist.results.question import Question
from querist.statistics import verdict

__all__ = ["exposure_findings", "missing"]

FEW = 10
KEPT = 0.02


def missing(question: Question, subject: str, reason: str) -> Finding:
    """A finding without numbers: cannot say, and why."""
    return Finding(
        subject, question.id, None, question.unit, None, None, None, None, "cannot say", f"{reason.rstrip('.')}."
    )


def exposure_findings(
    config: AuditConfig, plan: Plan, exposure: pl.DataFrame, block: Mapping[str, Any] | None
) -> list[Finding]:
    """From the tables exposure and exposure_summary, and the summary's block."""
    own = at_headline(exposure, plan.headline).filter(pl.col("excess").is_not_null())
    if block is None or not own.height:
        reasons = exposure["reason"].drop_nulls().unique(maintain_order=True).to_list()
        reason = "No attack could be mounted at the headline: " + (
            "; ".join(reasons[:2]) or "no test rows of other classes"
        )
        return [
            missing(question, "headline", reason)
            for question in (EXPOSED, ATTRIBUTABLE, EVEN_OVER_TARGETS, UTILITY_KEPT)
        ]
    found = [_exposed(config, plan, own, block)]
    selectors = dict.fromkeys((plan.headline.selector, *plan.selectors))
    found += [_attributable(config, plan, exposure, selector) for selector in selectors]
    found.append(_even(plan, own))
    found += [
        _selector(config, plan, exposure, name)
        for name in plan.selectors
        if name != "random" and "random" in plan.selectors
    ]
    found.append(_utility(config, plan, exposure, own))
    return found


def _exposed(config: AuditConfig, plan: Plan, own: pl.DataFrame, block: Mapping[str, Any]) -> Finding:
    low, high, limit = block["low"], block["high"], config.asr_limit
    said = verdict(low, high, yes_above=limit)
    first = own.row(0, named=True)
    one = plan.headline
    poisoned = times(int(own["n_poisoned"].median()), "row")  # type: ignore[arg-type]
    what = f"Poisoning {percent(one.rate)} ({one.mode}, {poisoned}) with {one.size} {one.selector} concepts "
    what += f"moves {percent(block['mean_asr'])} of other-class rows to the target; mean excess"
    rule = {
        "yes": f"the lower end is above the limit {limit:g}",
        "no": f"the upper end is below the limit {limit:g}",
        "cannot say": f"the interval holds the limit {limit:g}"
        if low is not None
        else "one target alone gives no interval",
    }[said]
    nulls = (
        f"0 (the clean model under the same trigger {percent(block['mean_clean_model_asr'])}, no trigger "
        f"{percent(block['mean_untriggered'])}, rows that carry it by nature {percent(block['mean_natural'])})"
    )
    text = because(
        what, block["mean_excess"], low, high, "fraction", nulls, rule, targets=block["targets"], seeds=block["repeats"]
    )
    text = text[:-1] + f"; rates are of the {first['base']}."
    return Finding("headline", EXPOSED.id, block["mean_excess"], EXPOSED.unit, low, high, 0.0, None, said, text)


def _attributable(config: AuditConfig, plan: Plan, exposure: pl.DataFrame, selector: str) -> Finding:
    rows = at_headline(exposure, plan.headline, selector).to_dicts()
    spread = over_targets(rows, "excess", seed=config.seed)
    if spread is None:
        return missing(ATTRIBUTABLE, selector, f"No attack with {selector} could be mounted at the headline")
    low, high = spread.low, spread.high
    said = (
        "yes"
        if low is not None and low > 0
        else ("no" if high is not None and high < config.asr_limit else "cannot say")
    )
    kept = [row for row in rows if row["excess"] is not None]
    null = max(float(np.mean([row[name] for row in kept])) for name in ("untriggered", "clean_model_asr"))
    rule = {
        "yes": "the lower end of the excess is above 0",
        "no": f"the upper end is below {config.asr_limit:g}",
        "cannot say": "neither end decides" if low is not None else "one target alone gives no interval",
    }[said]
    success = float(np.mean([row["asr"] for row in kept]))
    text = because(
        f"Success of {selector} triggers is {percent(success)}; what poison adds",
        spread.estimate,
        low,
        high,
        "fraction",
        f"0, with a success of {percent(null)} (the larger of no trigger and the clean model)",
        rule,
        targets=len({row["target"] for row in kept}),
        seeds=len({row["repeat"] for row in kept}),
    )
    return Finding(selector, ATTRIBUTABLE.id, spread.estimate, ATTRIBUTABLE.unit, low, high, 0.0, None, said, text)


def _even(plan: Plan, own: pl.DataFrame) -> Finding:
    rates = own.group_by("target").agg(pl.col("asr").mean())
    if rates.height < FEW:
        return missing(EVEN_OVER_TARGETS, "headline", f"{times(rates.height, 'target')} of {FEW} that are needed")
    spread = over_targets(own.to_dicts(), "asr", _ratio, seed=0)
    if spread is None:
        return missing(EVEN_OVER_TARGETS, "headline", "No target has a success rate")
    said, rule = held_against(spread.low, spread.high, 0.5)
    text = because(
        f"The ratio of the 10 % to the 90 % quantile of success over targets ({number(float(rates['asr'].min()))} to "  # type: ignore[arg-type]
        f"{number(float(rates['asr'].max()))})",  # type: ignore[arg-type]
        spread.estimate,
        spread.low,
        spread.high,
        "",
        "1 (every target alike)",
        rule,
        targets=rates.height,
    ).replace(" ;", ";")
    return Finding(
        "headline",
        EVEN_OVER_TARGETS.id,
        spread.estimate,
        EVEN_OVER_TARGETS.unit,
        spread.low,
        spread.high,
        1.0,
        None,
        said,
        text,
    )


def _ratio(values: np.ndarray) -> float:
    low, high = np.quantile(values, [0.1, 0.9])
    return float(low / high) if high > 0 else 1.0


def _selector(config: AuditConfig, plan: Plan, exposure: pl.DataFrame, selector: str) -> Finding:
    one = plan.headline
    spread = selector_difference(
        exposure.to_dicts(), selector, size=one.size, rate=one.rate, mode=one.mode, seed=config.seed
    )
    if spread is None or spread.low is None:
        return missing(SELECTOR_MATTERS, selector, "Fewer than two targets have both a chosen and a random trigger")
    said = verdict(spread.low, spread.high, yes_above=0.0)
    rule = {
        "yes": "the interval is above 0",
        "no": "the interval is below 0: random triggers do better",
        "cannot say": "the interval holds 0",
    }[said]
    text = because(
        f"Mean success of {selector} less that of random triggers of the same target and repeat",
        spread.estimate,
        spread.low,
        spread.high,
        "fraction",
        "0",
        rule,
        targets=spread.n,
        seeds=plan.repeats,
    )
    return Finding(
        selector, SELECTOR_MATTERS.id, spread.estimate, "fraction", spread.low, spread.high, 0.0, None, said, text
    )


def _utility(config: AuditConfig, plan: Plan, exposure: pl.DataFrame, own: pl.DataFrame) -> Finding:
    spread = over_targets(own.to_dicts(), "accuracy_drop", seed=config.seed)
    if spread is None:
        return missing(UTILITY_KEPT, "headline", "No attacked model has an accuracy beside its clean model")
    clean = exposure.filter(pl.col("mode") == "none").group_by("repeat").agg(pl.col("accuracy").mean())
    values = clean["accuracy"].drop_nulls().to_numpy()
    seeds = (
        f"; accuracies of clean models differ by {number(float(np.ptp(values)))} over seeds" if len(values) > 1 else ""
    )
    said = verdict(spread.low, spread.high, yes_below=KEPT)
    rule = {
        "yes": f"the upper end is below {KEPT:g}: accuracy would not give the attack away",
        "no": f"the lower end is at least {KEPT:g}",
        "cannot say": f"the interval holds {KEPT:g}"
        if spread.low is not None
        else "one target alone gives no interval",
    }[said]
    text = because(
        "The loss of accuracy by the headline attack",
        spread.estimate,
        spread.low,
        spread.high,
        "fraction",
        "0",
        rule + seeds,
        targets=own["target"].n_unique(),
        seeds=own["repeat"].n_unique(),
    )
    return Finding(
        "headline", UTILITY_KEPT.id, spread.estimate, UTILITY_KEPT.unit, spread.low, spread.high, 0.0, None, said, text
    )
