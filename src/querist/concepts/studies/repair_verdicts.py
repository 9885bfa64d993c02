"""Findings about repairs: undone, and at what cost."""

from __future__ import annotations

import polars as pl

from querist.concepts.questions import REPAIRED
from querist.concepts.studies.words import because, number, percent
from querist.results.finding import Finding

__all__ = ["repair_findings"]

KEPT = 0.02


def repair_findings(table: pl.DataFrame, limit: float, tested: int) -> list[Finding]:
    """One per repair: excess after, beside the same repair of the clean model; yes asks that accuracy is kept as well."""
    found = []
    for method in table["method"].unique(maintain_order=True):
        stages = {row["stage"]: row for row in table.filter(pl.col("method") == method).to_dicts()}
        before, after, null = stages.get("before"), stages.get("after"), stages.get("clean-after")
        if before is None or after is None or after["excess"] is None:
            said = after["detail"] if after is not None and after["detail"] else "it gave no success rate"
            found.append(
                Finding(
                    method,
                    REPAIRED.id,
                    None,
                    REPAIRED.unit,
                    None,
                    None,
                    None,
                    None,
                    "cannot say",
                    f"{said.rstrip('.')}.",
                )
            )
            continue
        low, high = after["low"], after["high"]
        drop = before["accuracy"] - after["accuracy"]
        kept = drop < KEPT
        undone = high is not None and high < limit
        verdict = "yes" if undone and kept else ("no" if low is not None and low > limit else "cannot say")
        if verdict == "yes" and not (before["low"] is not None and before["low"] > limit):
            verdict = "cannot say"
        moved = f"{percent(before['accuracy'])} to {percent(after['accuracy'])}"
        rule = {
            "yes": f"the upper end is below the limit {limit:g}, and accuracy is kept ({moved})",
            "no": f"the lower end is above the limit {limit:g}",
            "cannot say": f"the attack is undone, but accuracy falls from {percent(before['accuracy'])} to {percent(after['accuracy'])}"
            if undone
            else f"the interval holds the limit {limit:g}",
            "nothing": f"before it the excess was not above the limit {limit:g} either, so that there was nothing to repair",
        }["nothing" if undone and kept and verdict != "yes" else verdict]
        value = None if null is None else null["asr"]
        text = because(
            f"Excess success after {method} (before: {number(before['excess'])})",
            after["excess"],
            low,
            high,
            "fraction",
            f"0 (success of the same repair of the clean model: {percent(value)})" if value is not None else "0",
            rule,
            rows=tested,
        )
        found.append(Finding(method, REPAIRED.id, after["excess"], REPAIRED.unit, low, high, 0.0, None, verdict, text))
    return found
