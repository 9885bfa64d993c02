"""The keys of an audit's summary that the room fixes, made from its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.attacks import protocol, repeat_parts
from querist.concepts.configs import AuditConfig
from querist.concepts.questions import PROTOCOL
from querist.concepts.studies.data_summary import data_summary
from querist.concepts.studies.inversion_verdicts import inversion_block
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.stealth import stealth_summary
from querist.concepts.studies.table_verdicts import poisoning_block, under_audit
from querist.results.finding import Finding

__all__ = ["certificate_block", "model_block", "protocol_text", "repair_block", "summarise"]

Ready = Mapping[str, pl.DataFrame]


def protocol_text(config: AuditConfig, plan: Plan) -> str:
    """What was run, in one sentence."""
    modes = tuple(dict.fromkeys(one.mode for one in plan.settings))
    said = protocol(
        modes,
        space=plan.space,
        targets=plan.targets,
        repeats=plan.repeats,
        seed=config.seed,
        base=config.base,
        strength=config.strength,
        sources=config.sources or None,
    )
    return said[:1].upper() + said[1:]


def summarise(
    config: AuditConfig,
    material: Material,
    plan: Plan,
    findings: Sequence[Finding],
    ready: Ready,
    block: Mapping[str, Any] | None,
    whole: bool,
) -> dict[str, Any]:
    """The keys that the room fixes; what was not run is null."""
    data = material.data(config)
    parts = repeat_parts(data, 0, seed=config.seed)
    split = {"train": parts.train.n, "val": 0 if parts.val is None else parts.val.n, "test": parts.test.n}
    names = list(data.concept_names)
    found: dict[str, Any] = {"protocol": [*PROTOCOL, protocol_text(config, plan)]}
    found["data"] = data_summary(ready["table_facts"], ready["facts"], data.space, split) if whole else None
    found["model"] = model_block(ready["models"])
    found["exposure"] = block
    if not whole:
        return found | dict.fromkeys(
            ("poisoning", "inversion", "stealth", "reachability", "certificate", "repair", "monitor", "transfer")
        )
    found["poisoning"] = poisoning_block(
        findings, ready["tests"], ready["class_evidence"], ready["rows"], names, int(ready["class_evidence"]["n"].sum())
    )
    found["inversion"] = inversion_block(ready["inversion"], findings, names)
    found["stealth"] = stealth_summary(ready["stealth"])
    found["reachability"] = _reachability(ready["reachability"])
    found["certificate"] = certificate_block(ready["certificate"])
    found["repair"] = repair_block(ready["repair"])
    found["monitor"] = _monitor(ready["monitor"])
    rows = ready["transfer"]
    found["transfer"] = (
        rows.select("head", "mode", "input", "asr", "clean_model_asr").to_dicts() if rows.height else None
    )
    return found


def model_block(models: pl.DataFrame) -> dict[str, Any] | None:
    """The model under audit: the given one, else the clean model of the first repeat."""
    if not models.height:
        return None
    row = under_audit(models.to_dicts())
    keys = ("kind", "input", "accuracy", "balanced_accuracy", "majority_accuracy", "concept_accuracy")
    return {key: row[key] for key in (*keys, "concept_balanced_accuracy", "concept_majority_accuracy")}


def _reachability(table: pl.DataFrame) -> dict[str, Any] | None:
    """By ε; null_hit is the larger of both nulls."""
    if not table.height:
        return None
    null = table.select(pl.max_horizontal("null_hit", "clean_hit").alias("null_hit"))["null_hit"]
    kept = {name: table[name].to_list() for name in ("eps", "hit", "asr")}
    return kept | {"null_hit": null.to_list(), "collateral": table["collateral"].to_list()}


def certificate_block(table: pl.DataFrame) -> dict[str, Any] | None:
    """Of the first grouping."""
    if not table.height:
        return None
    rows = table.filter(pl.col("grouping") == table["grouping"][0]).sort("r")
    first = rows.row(0, named=True)
    return {
        "groups": first["groups"],
        "ties": first["ties"],
        "certified_accuracy": rows["certified_accuracy"].to_list(),
        "coverage": first["coverage"],
    }


def _monitor(table: pl.DataFrame) -> dict[str, Any] | None:
    rows = [row for row in table.to_dicts() if row["detection_rate"] is not None]
    if not rows:
        return None
    row = rows[0]
    return {"false_alarm_rate": row["false_alarm_rate"], "detection_rate": row["detection_rate"]}


def repair_block(table: pl.DataFrame) -> dict[str, Any] | None:
    """Every method, and the one that validation rows choose: least excess among those that keep accuracy within 2 points."""
    if not table.height:
        return None
    made, scored = [], []
    for method in table["method"].unique(maintain_order=True):
        stages = {row["stage"]: row for row in table.filter(pl.col("method") == method).to_dicts()}
        before, after = stages.get("before"), stages.get("after")
        if before is None or after is None:
            continue
        made.append(
            {
                "method": method,
                "accuracy_before": before["accuracy"],
                "accuracy_after": after["accuracy"],
                "asr_before": before["asr"],
                "asr_after": after["asr"],
                "excess_after": after["excess"],
            }
        )
        lost = _lost(before, after)
        if after["score"] is not None and lost is not None and lost <= 0.02:
            scored.append((after["score"], method))
    return {"best": min(scored)[1] if scored else None, "methods": made}


def _lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    values = [row["accuracy_validation"] for row in (before, after)]
    return None if None in values else float(np.subtract(*values))
