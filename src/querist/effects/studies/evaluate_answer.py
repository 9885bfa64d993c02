"""What an evaluation says: adjusted tables, findings, summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.effects.configs import EvaluateConfig
from querist.effects.evaluation import with_holm
from querist.effects.figures.evaluate import draw
from querist.effects.studies.evaluate_present import lay_out, warn
from querist.effects.studies.evaluate_verdicts import findings_of
from querist.effects.studies.people import Opened
from querist.effects.tables import ATE, METRICS
from querist.runs.study import Answer

__all__ = ["answer"]

LISTED = ("metrics", "ate", "policies", "calibration", "paired", "multi_arm")
"""Tables that the summary repeats as lists of rows."""


def answer(config: EvaluateConfig, people: Opened, tables: Mapping[str, pl.DataFrame]) -> Answer:
    """Adjust over all arms and outcomes, judge, lay out.

    Units measured an outcome each and adjusted inside it; the family of a question is all arms and outcomes.
    """
    family = ("score", "component", "metric", "convention")
    whole = dict(tables)
    whole["metrics"] = METRICS.frame(with_holm(tables["metrics"].to_dicts(), family))
    whole["ate"] = ATE.frame(with_holm(tables["ate"].to_dicts(), ("component",)))
    findings = findings_of(config, people, whole)
    figures = draw(whole)
    seen = [row for row in whole["seen"].to_dicts() if row["seen"] is not None]
    summary: dict[str, Any] = {
        "rows": len(people),
        "rows_seen_in_fit": {row["score"]: row["seen"] for row in seen} or None,
        **{name: whole[name].to_dicts() for name in LISTED},
    }
    passed = [
        {
            "what": f"{row['score']}: {row['component']} of {row['arm'] or 'any arm'} on {row['outcome']}",
            "reason": row["reason"],
        }
        for row in whole["metrics"].to_dicts()
        if row["reason"]
        and row["convention"] == "rate"
        and row["metric"] == "qini"
        and row["score"] in config_scores(whole)
    ]
    return Answer(
        whole, findings, figures, lay_out(config, people, whole, figures), summary, warn(people, whole), passed
    )


def config_scores(tables: Mapping[str, pl.DataFrame]) -> set[str]:
    """Names of what was judged, references left out."""
    return set(tables["sources"]["score"])
