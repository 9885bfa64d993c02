"""Verdicts of a ranking: the best start, and whether a score orders starts better than depth does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.features.configs import RankConfig
from querist.features.questions import BEST_START, SCORE_USEFUL
from querist.features.studies.findings import capture_health, overlapping
from querist.features.studies.rank_measure import chosen
from querist.results.finding import Finding, Verdict
from querist.statistics import paired_t, verdict

__all__ = ["rank_findings"]

LEAST_CELLS = 6
"""Fewer cells lie on one side of 0 by chance in more than .05 of cases (2·2⁻ⁿ), and their bootstrap then leaves 0 out."""
Rows = list[dict[str, Any]]


def rank_findings(
    config: RankConfig, tables: Mapping[str, pl.DataFrame], agreed: Rows, shared: int | None
) -> list[Finding]:
    """The best start, each score, captures, shared images (`shared` is None without source data)."""
    found = [_best_start(config, tables["baselines"])]
    of = {row["score"]: row for row in agreed}
    scored = set(tables["scores"]["score"])
    found += [_useful(config, name, of.get(name), of.get("depth")) for name in chosen(config) if name in scored]
    for name in config.models:
        captures = tables["captures"].filter(pl.col("model") == name)
        lost = tables["passed_over"].filter(pl.col("model") == name)
        reasons = [f"{row['what']}: {row['reason']}" for row in lost.to_dicts()]
        found.append(capture_health(name, int(captures["captured"].sum()), int(captures["found"].sum()), reasons))
    if shared is not None:
        found.append(overlapping("source, target", shared, int(tables["captures"]["n"].min())))  # type: ignore[arg-type]
    return found


def _best_start(config: RankConfig, baselines: pl.DataFrame) -> Finding:
    probes = baselines.filter(pl.col("score") == "probe").sort("value", descending=True, maintain_order=True).to_dicts()
    if len(probes) < 2:
        because = f"{len(probes)} network and layer was probed: there is no second."
        return Finding("probe", BEST_START.id, None, BEST_START.unit, None, None, 0.0, None, "cannot say", because)
    first, second = probes[:2]
    lead = paired_t(first["folds"], second["folds"], level=1 - config.level)
    low, high = (100 * end if end is not None else None for end in (lead.low, lead.high))
    estimate = 100 * (first["value"] - second["value"])
    answer = "yes" if low is not None and low > 0 else "cannot say"
    because = (
        f"A linear probe reaches {first['value']:.1%} at {_named(config, first)} and {second['value']:.1%} at "
        f"{_named(config, second)}, a lead of {estimate:.2g} points"
    )
    because += f" [{low:.2g}, {high:.2g}]" if low is not None and high is not None else ""
    because += (
        f" over {len(first['folds'])} folds; both were picked as the best of {len(probes)}, which flatters the first."
    )
    return Finding(
        _named(config, first), BEST_START.id, estimate, BEST_START.unit, low, high, 0.0, lead.p, answer, because
    )


def _named(config: RankConfig, row: Mapping[str, Any]) -> str:
    return row["layer"] if len(config.models) == 1 else f"{row['model']} {row['layer']}"


def _useful(config: RankConfig, name: str, row: Mapping[str, Any] | None, depth: Mapping[str, Any] | None) -> Finding:
    if row is None or depth is None:
        reason = "its agreement could not be computed" if config.truth else "there is no truth (--truth)"
        because = f"Whether {name} orders starting points as training does cannot be told: {reason}."
        return Finding(name, SCORE_USEFUL.id, None, SCORE_USEFUL.unit, None, None, None, None, "cannot say", because)
    low, high = row["diff_low"], row["diff_high"]
    because = (
        f"Weighted τ with the truth is {row['tau_w']:+.2f} for {name} and {depth['tau_w']:+.2f} for depth over "
        f"{row['candidates']} networks and layers, {row['cells']} cell{'s' if row['cells'] > 1 else ''}: "
        f"{row['difference_to_depth']:+.2f}"
    )
    because += f" [{low:+.2f}, {high:+.2f}]." if low is not None else "; one cell has no interval."
    lead, own = (verdict(row[a], row[b], yes_above=0.0) for a, b in (("diff_low", "diff_high"), ("low", "high")))
    answer: Verdict = "yes" if lead == own == "yes" else "no" if "no" in (lead, own) else "cannot say"
    if row["cells"] < LEAST_CELLS and answer != "cannot say":
        because += f" Of {row['cells']} cells a bootstrap is too sure: {LEAST_CELLS} are needed."
        answer = "cannot say"
    return Finding(
        name,
        SCORE_USEFUL.id,
        row["difference_to_depth"],
        SCORE_USEFUL.unit,
        low,
        high,
        0.0,
        None,
        answer,
        because,
    )
