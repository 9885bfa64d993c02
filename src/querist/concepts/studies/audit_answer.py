"""From the tables of all units to the answer of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.concepts.attacks import exposure_headline, exposure_summary, over_targets, repeat_parts, with_validation
from querist.concepts.configs import AuditConfig
from querist.concepts.figures import attack as attack_figures
from querist.concepts.figures import evidence as evidence_figures
from querist.concepts.figures import models as model_figures
from querist.concepts.questions import MODEL_BACKDOORED
from querist.concepts.studies.audit_inversion import LEAST, put_together
from querist.concepts.studies.audit_models import TWIN
from querist.concepts.studies.audit_present import lay_out, lead
from querist.concepts.studies.audit_summary import summarise
from querist.concepts.studies.audit_verdicts import exposure_findings, missing
from querist.concepts.studies.data_summary import data_warnings, seen_words, set_aside_words
from querist.concepts.studies.inversion_verdicts import inversion_finding
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.repair_verdicts import repair_findings
from querist.concepts.studies.stealth import stealth_finding
from querist.concepts.studies.table_verdicts import (
    certified_finding,
    informative_finding,
    monitor_finding,
    poisoned_findings,
    reachable_finding,
    suspects,
)
from querist.concepts.tables import AUDIT_TABLES, EXPOSURE_SUMMARY
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.runs.study import Answer

__all__ = ["answer"]


def answer(
    config: AuditConfig, material: Material, plan: Plan, tables: Mapping[str, pl.DataFrame], *, whole: bool
) -> Answer:
    """Summaries, verdicts, figures, the page. Without `whole`, of the sweep alone."""
    data = material.data(config)
    ready = {spec.name: tables.get(spec.name, spec.frame([])) for spec in AUDIT_TABLES}
    ready["exposure"] = _ordered(ready["exposure"], plan)
    ready["exposure_summary"] = EXPOSURE_SUMMARY.frame(_summary_rows(config, ready["exposure"]))
    ready["inversion"] = put_together(ready["inversion"])
    rows = ready["exposure"].filter(pl.col("mode") != "none").to_dicts()
    block = exposure_headline(rows, _setting(plan), seed=config.seed) if rows else None
    if block is not None and block["mean_asr"] is None:
        block = None
    findings: list[Finding] = []
    if whole:
        findings += poisoned_findings(ready["tests"], ready["class_evidence"])
    findings += exposure_findings(config, plan, ready["exposure"], block)
    passed = _passed(config, material, plan, ready, whole)
    if whole:
        findings += _of_models(config, material, plan, ready)
    drawn = _figures(config, plan, ready, whole)
    opening = lead(config, plan, findings, ready, block, whole)
    warnings = [*data_warnings(data), *plan.warnings, *_warned(config, material, plan, ready)]
    return Answer(
        tables=ready
        if whole
        else {name: ready[name] for name in ("exposure", "exposure_summary", "selection", "models")},
        findings=findings,
        figures=drawn,
        layout=lay_out(config, plan, findings, drawn, ready, opening, block, whole),
        summary=summarise(config, material, plan, findings, ready, block, whole),
        warnings=warnings,
        passed_over=passed,
    )


def _setting(plan: Plan) -> Any:
    return plan.headline


def _ordered(exposure: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    place = {str(target): i for i, target in enumerate(plan.targets)}
    if not exposure.height:
        return exposure
    return exposure.sort(pl.col("target").replace_strict(place, return_dtype=pl.Int64), "repeat", maintain_order=True)


def _summary_rows(config: AuditConfig, exposure: pl.DataFrame) -> list[dict[str, Any]]:
    rows = exposure.to_dicts()
    made = exposure_summary(rows, seed=config.seed)
    for row in made:
        same = [one for one in rows if all(one[name] == row[name] for name in ("selector", "size", "rate", "mode"))]
        spread = over_targets(same, "excess", replicates=20, seed=config.seed)
        row["mean_excess"] = None if spread is None else spread.estimate
    return made


def _of_models(config: AuditConfig, material: Material, plan: Plan, ready: Mapping[str, pl.DataFrame]) -> list[Finding]:
    found: list[Finding] = []
    if ready["stealth"].height:
        found += stealth_finding(ready["stealth"], str(plan.worked))
    who = "the given model" if material.model(config) is not None else "a model trained on the table"
    found += inversion_finding(ready["inversion"], material.reference(config) is not None, who) or [
        missing(MODEL_BACKDOORED, "model", "No trigger was inverted")
    ]
    found += certified_finding(ready["certificate"])
    found += reachable_finding(ready["reachability"])
    found += informative_finding(ready["models"])
    found += monitor_finding(ready["monitor"])
    return found + repair_findings(ready["repair"], config.asr_limit, int(_test_rows(config, material)))


def _test_rows(config: AuditConfig, material: Material) -> int:
    return repeat_parts(material.data(config), 0, seed=config.seed).test.n


def _passed(
    config: AuditConfig, material: Material, plan: Plan, ready: Mapping[str, pl.DataFrame], whole: bool
) -> list[dict[str, str]]:
    data = material.data(config)
    told = [{"what": row["what"], "reason": row["reason"]} for row in ready["passed_over"].to_dicts()]
    if not whole:
        return [{"what": "everything but the sweep", "reason": "the verb exposure runs the attacks alone"}]
    if data.images is None:
        reason = "the table has no images"
        told += [{"what": what, "reason": reason} for what in ("reachability", "concepts-informative")]
    elif not ready["reachability"].height:
        told.append({"what": "reachability", "reason": "no model reads the images"})
    model = material.model(config)
    if model is not None and model.g is not None and data.images is None:
        told.append({"what": "accuracy of the given model", "reason": "it reads images, and the table has none"})
    if material.reference(config) is None:
        told.append({"what": "reference test", "reason": "no trusted rows were given (--reference)"})
    if not plan.transfer:
        told.append({"what": "transfer", "reason": "budget fast"})
    if not plan.gradient:
        told.append({"what": "gradient inversion", "reason": "budget fast"})
    if plan.retrains < LEAST:
        told.append(
            {
                "what": "calibration of the inversion",
                "reason": f"{plan.retrains} clean retrains; {LEAST} are needed (--retrains)",
            }
        )
    if config.repair == "none":
        told.append({"what": "repair", "reason": "not asked for (--repair best)"})
    elif not ready["repair"].height:
        told.append({"what": "repair", "reason": "no attack could be mounted that would be repaired"})
    told += [
        {"what": f"stealth: {row['comparison']}", "reason": row["reason"]}
        for row in ready["stealth"].to_dicts()
        if row["reason"]
    ]
    reasons = (
        ready["exposure"].filter(pl.col("reason").is_not_null() & pl.col("asr").is_null())
        if ready["exposure"].height
        else None
    )
    if reasons is not None:
        told += [
            {
                "what": f"attack on class {row['target']} ({row['mode']}, rate {row['rate']:g}, repeat {row['repeat']})",
                "reason": row["reason"],
            }
            for row in reasons.unique(["target", "mode", "rate", "repeat"], maintain_order=True).to_dicts()
        ]
    return told


def _figures(config: AuditConfig, plan: Plan, ready: Mapping[str, pl.DataFrame], whole: bool) -> list[Figure]:
    drawn: list[Figure | None] = list(
        attack_figures.draw_exposure(ready["exposure"], ready["exposure_summary"], plan.headline)
    )
    drawn.append(attack_figures.selection(ready["selection"]))
    if whole:
        drawn.append(
            evidence_figures.class_evidence(ready["class_evidence"], suspects(ready["tests"], ready["class_evidence"]))
        )
        drawn.append(evidence_figures.z_map(ready["association"]))
        drawn.append(attack_figures.shifts(ready["shift"], ready["stealth"], "table"))
        drawn.append(model_figures.inversion(ready["inversion"]))
        drawn.append(model_figures.certificate(ready["certificate"]))
        drawn.append(attack_figures.reachability(ready["reachability"]))
        drawn.append(model_figures.pictures(ready["pictures"]))
        drawn.append(model_figures.transfer(ready["transfer"]))
        drawn.append(model_figures.repairs(ready["repair"]))
    return [figure for figure in drawn if figure is not None]


def _warned(config: AuditConfig, material: Material, plan: Plan, ready: Mapping[str, pl.DataFrame]) -> list[str]:
    told = []
    if len(plan.targets) == 1:
        told.append(
            "One target alone is attacked: it says nothing of the others, and there are no intervals over targets."
        )
    exposure = ready["exposure"]
    if exposure.height and exposure["violates_groups"].fill_null(False).any():
        share = float(exposure.filter(pl.col("mode") != "none")["violates_groups"].fill_null(False).mean() or 0.0)  # type: ignore[arg-type]
        told.append(
            f"{100 * share:.0f} % of the triggers set two values of one group, of which no honest row has two: such a "
            "trigger is seen at once."
        )
    small = [row["target"] for row in ready["class_evidence"].to_dicts() if row["n"] < 2]
    if small:
        told.append(f"{len(small)} classes have one row: CAT's filter is replaced by a difference of means there.")
    data, model = material.data(config), material.model(config)
    if (ready["models"]["model"] == TWIN).any():
        told += set_aside_words(data, with_validation(repeat_parts(data, 0, seed=config.seed), seed=config.seed), False)
    told += seen_words(data, model is not None)
    return [*told, *(f"{said}." for said in (model.warnings if model is not None else ()))]
