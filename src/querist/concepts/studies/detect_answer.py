"""From the tables of all methods to the answer of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from querist.concepts.configs import DetectConfig
from querist.concepts.figures import attack as attack_figures
from querist.concepts.figures import evidence as figures
from querist.concepts.figures import models as model_figures
from querist.concepts.questions import DETECT_QUESTIONS, PROTOCOL
from querist.concepts.studies.audit_present import scope
from querist.concepts.studies.audit_summary import model_block
from querist.concepts.studies.data_summary import data_summary, data_warnings
from querist.concepts.studies.inversion_verdicts import inversion_block, inversion_finding
from querist.concepts.studies.opening import Material
from querist.concepts.studies.power import PowerPlan, detectors_of
from querist.concepts.studies.power_answer import (
    decided,
    power_block,
    power_findings,
    power_lead,
    power_table,
    power_words,
)
from querist.concepts.studies.stealth import delivery_finding, stealth_summary
from querist.concepts.studies.table_verdicts import (
    flagged_rows,
    poisoned_findings,
    poisoning_block,
    suspects,
)
from querist.concepts.studies.words import percent, times
from querist.concepts.tables import DETECT_TABLES
from querist.results.finding import Finding
from querist.results.layout import Layout, Section
from querist.runs.study import Answer

__all__ = ["answer"]

Ready = Mapping[str, pl.DataFrame]
NOTHING = (
    "None of the methods is given the truth, a trigger or a success rate; the truth was held against them afterwards."
)


def answer(config: DetectConfig, material: Material, methods: Sequence[str], plan: PowerPlan, tables: Ready) -> Answer:
    """Verdicts, figures, the page, the summary."""
    data = material.data(config)
    ready = {spec.name: tables.get(spec.name, spec.frame([])) for spec in DETECT_TABLES}
    place = {name: i for i, name in enumerate(methods)}
    for name in ("rows", "detection", "roc"):
        if ready[name].height:
            ready[name] = ready[name].sort(
                pl.col("method").replace_strict(place, return_dtype=pl.Int64), maintain_order=True
            )
    trusted = material.reference(config) is not None
    order = {name: i for i, name in enumerate(detectors_of(methods, trusted))}
    ready["power_runs"] = decided(ready["power_runs"]).sort(
        pl.col("method").replace_strict(order, return_dtype=pl.Int64), "rate", "repeat"
    )
    ready["power"] = power_table(ready["power_runs"])
    findings = poisoned_findings(ready["tests"], ready["class_evidence"])
    given = material.model(config) is not None
    findings += inversion_finding(
        ready["inversion"],
        trusted,
        "the given model" if given else "a model trained on the table",
    )
    if ready["stealth"].height:
        findings += delivery_finding(ready["stealth"])
    findings += power_findings(ready["power"], ready["power_runs"], plan)
    named = suspects(ready["tests"], ready["class_evidence"])
    drawn = [
        figures.class_evidence(ready["class_evidence"], named),
        figures.z_map(ready["association"]),
        figures.roc(ready["roc"], ready["detection"]),
        figures.power(ready["power"]),
        attack_figures.shifts(ready["shift"], ready["stealth"], "deliveries"),
        model_figures.inversion(ready["inversion"]),
    ]
    kept = [figure for figure in drawn if figure is not None]
    have = {figure.name for figure in kept}
    names = list(data.concept_names)
    n = int(ready["class_evidence"]["n"].sum())
    passed = [{"what": row["what"], "reason": row["reason"]} for row in ready["passed_over"].to_dicts()]
    if not trusted:
        reason = "no trusted rows were given (--reference)"
        passed += [{"what": what, "reason": reason} for what in ("reference test", "two-sample")]
    if config.retrains == 0:
        passed.append({"what": "calibration of the inversion", "reason": "no clean retrains (--retrains)"})
    if not plan.tries:
        passed.append({"what": "power", "reason": "no copies with known poison were asked for (--power)"})
    if config.truth is None:
        passed.append({"what": "detection", "reason": "the truth is not known (--truth)"})
    return Answer(
        tables=ready,
        findings=findings,
        figures=kept,
        layout=_laid_out(plan, trusted, findings, ready, have, named),
        summary={
            "protocol": [*PROTOCOL, NOTHING],
            "data": data_summary(ready["table_facts"], ready["facts"], data.space, None),
            "model": model_block(ready["models"]),
            "poisoning": poisoning_block(findings, ready["tests"], ready["class_evidence"], ready["rows"], names, n),
            "inversion": inversion_block(ready["inversion"], findings, names),
            "stealth": stealth_summary(ready["stealth"]),
            "detection": ready["detection"].to_dicts() or None,
            "power": power_block(ready["power"], plan, trusted),
        },
        warnings=data_warnings(data),
        passed_over=passed,
    )


def _laid_out(
    plan: PowerPlan, trusted: bool, findings: Sequence[Finding], ready: Ready, have: set[str], named: set[str]
) -> Layout:
    def figures_of(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in have)

    def tables_of(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if ready[name].height)

    table = next(f for f in findings if f.subject == "table")
    flagged = flagged_rows(ready["rows"])
    lead = {
        "yes": f"The table is suspicious: {', '.join(sorted(named)[:5])} {'looks' if len(named) == 1 else 'look'} planted. "
        f"{times(flagged, 'row')} {'is' if flagged == 1 else 'are'} flagged: have {'it' if flagged == 1 else 'them'} annotated anew first.",
        "no": f"Nothing was found, by a test that {scope(ready)}.",
        "cannot say": "Nothing stands out enough to decide. "
        f"Class {ready['class_evidence'].row(0, named=True)['target']} is the first to look at; trusted rows (--reference) would tell.",
    }[table.verdict]
    if ready["detection"].height:
        best = ready["detection"].sort("auc", descending=True, nulls_last=True).row(0, named=True)
        if best["auc"] is not None:
            lead += (
                f" Held against the truth, {best['method']} has the largest AUC ({best['auc']:.3f}; "
                f"{percent(best['base_rate'])} of rows are poisoned)."
            )
    lead += power_lead(findings, ready["power"], plan)
    sections = (
        Section("The protocol", words=(*PROTOCOL, NOTHING)),
        Section(
            "Which class?",
            findings=(("*", "concepts.table-poisoned"),),
            figures=figures_of("class_evidence", "z_map"),
            tables=tables_of("class_evidence", "tests", "association"),
        ),
        Section(
            "What would have been found?",
            words=power_words(plan, trusted, table.verdict == "yes") if plan.tries else (),
            findings=(("*", "concepts.would-be-found"),),
            figures=figures_of("power"),
            tables=tables_of("power", "power_runs"),
        ),
        Section("Which rows?", figures=figures_of("roc"), tables=tables_of("detection", "rows", "roc")),
        Section(
            "Does the model hide a trigger?",
            findings=(("*", "concepts.model-backdoored"),),
            figures=figures_of("inverted_sizes"),
            tables=tables_of("inversion", "models"),
        ),
        Section(
            "Against the last delivery",
            findings=(("*", "concepts.delivery-differs"),),
            figures=figures_of("marginal_shift"),
            tables=tables_of("stealth", "shift"),
        ),
        Section("The table", tables=tables_of("table_facts", "facts"), open=False),
    )
    kept = tuple(section for section in sections if section.words or section.figures or section.tables)
    return Layout("Is anything planted in this table?", lead, kept, DETECT_TABLES, DETECT_QUESTIONS)
