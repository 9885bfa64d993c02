"""What an audit shows: its three sentences and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.concepts.configs import AuditConfig
from querist.concepts.questions import AUDIT_QUESTIONS, EXPOSED, MODEL_BACKDOORED, PROTOCOL, TABLE_POISONED
from querist.concepts.studies.audit_summary import protocol_text, repair_block
from querist.concepts.studies.plan import Plan
from querist.concepts.studies.table_verdicts import flagged_rows, suspects
from querist.concepts.studies.words import percent, times
from querist.concepts.tables import AUDIT_TABLES
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout, Section

__all__ = ["lay_out", "lead", "scope"]

Ready = Mapping[str, pl.DataFrame]


def lead(
    config: AuditConfig,
    plan: Plan,
    findings: Sequence[Finding],
    ready: Ready,
    block: Mapping[str, Any] | None,
    whole: bool,
) -> str:
    """Three sentences: is the table suspicious, how exposed are we, what is to be done."""
    verdicts = {(f.question, f.subject): f for f in findings}
    exposed = verdicts.get((EXPOSED.id, "headline"))
    said = []
    if whole:
        said.append(_suspicion(verdicts[TABLE_POISONED.id, "table"], ready))
    said.append(_exposure(plan, exposed, block))
    if whole:
        said.append(_advice(config, findings, ready, block))
    return " ".join(said)


def _suspicion(table: Finding, ready: Ready) -> str:
    if table.verdict == "yes":
        named = sorted(suspects(ready["tests"], ready["class_evidence"]))
        several = (
            f"class {named[0]}"
            if len(named) == 1
            else f"{times(len(named), 'class', 'classes')} ({', '.join(named[:5])})"
        )
        return f"The table is suspicious: {several} {'looks' if len(named) == 1 else 'look'} planted."
    if table.verdict == "no":
        return f"Nothing was found in the table, by a test that {scope(ready)}."
    first = ready["class_evidence"].row(0, named=True)["target"]
    return (
        f"Nothing in the table stands out enough to decide; class {first} is the first to look at, and trusted rows "
        "(--reference) would tell."
    )


def scope(ready: Ready) -> str:
    """How much a no of the reference test can see, and how little of a few relabelled rows."""
    mix, dirty = (
        ready["tests"].filter(pl.col("test") == test)["statistic"].drop_nulls() for test in ("power", "power, dirty")
    )
    seen = ["an unknown share" if not len(one) else percent(float(one[0])) for one in (mix, dirty)]
    return f"finds 1 % of planted rows in {seen[0]} of tries in mode mix, and in {seen[1]} in mode dirty"


def _exposure(plan: Plan, finding: Finding | None, block: Mapping[str, Any] | None) -> str:
    one = plan.headline
    if block is None or finding is None:
        return "How exposed a model would be could not be measured."
    drop = 100 * block["mean_accuracy_drop"]
    moved = "does not move" if abs(drop) < 0.05 else f"{'falls' if drop > 0 else 'rises'} by {abs(drop):.1f} points"
    told = (
        f"whoever can write {percent(one.rate)} of it (mode {one.mode}, {times(one.size, 'concept')}, chosen by {one.selector}) sends "
        f"{percent(block['mean_asr'])} of other classes' rows to the class of their choice ({times(block['targets'], 'target')}; "
        f"{percent(block['mean_clean_model_asr'])} without poison), and accuracy {moved}"
    )
    start = {
        "yes": "A model trained on it is exposed",
        "no": "Poison adds little to what a model trained on it does anyway",
        "cannot say": "Whether poison would do much cannot be said",
    }[finding.verdict]
    return f"{start}: {told}."


def _advice(config: AuditConfig, findings: Sequence[Finding], ready: Ready, block: Mapping[str, Any] | None) -> str:
    verdicts = {(f.question, f.subject): f for f in findings}
    flagged = flagged_rows(ready["rows"])
    steps = []
    if verdicts[TABLE_POISONED.id, "table"].verdict == "yes":
        steps.append(
            f"have the {times(flagged, 'flagged row')} annotated anew before anything is trained on the table"
            if flagged
            else "have the classes named above annotated anew before anything is trained on the table"
        )
    model = verdicts.get((MODEL_BACKDOORED.id, "model"))
    if model is not None and model.verdict == "yes":
        steps.append("do not ship the model")
    exposed = verdicts.get((EXPOSED.id, "headline"))
    unpoisoned = _unpoisoned(config, block)
    if (exposed is not None and exposed.verdict != "no") or unpoisoned:
        steps.append(f"close or log the interface on which concepts are set{f' ({unpoisoned})' if unpoisoned else ''}")
        worked = [f for f in findings if f.question == "concepts.monitor-works" and f.verdict == "yes"]
        if worked:
            steps.append("run the monitor of the bottleneck")
    repaired = [f for f in findings if f.question == "concepts.repaired" and f.verdict == "yes"]
    if repaired:
        best = (repair_block(ready["repair"]) or {}).get("best")
        chosen = next((finding for finding in repaired if finding.subject == best), repaired[0])
        steps.append(f"if an attack is found, repair with {chosen.subject}")
    if not steps:
        return "No step is called for by these findings; keep trusted rows, so that the next delivery can be tested."
    return "What to do: " + "; ".join(steps) + "."


def _unpoisoned(config: AuditConfig, block: Mapping[str, Any] | None) -> str:
    """Why the interface is a way in without any poison, where it is: the triggers alone succeed beyond the limit on the clean model."""
    if block is None or block["mean_clean_model_asr"] <= config.asr_limit:
        return ""
    size = times(block["headline"]["size"], "concept")
    return f"{size} set there move {percent(block['mean_clean_model_asr'])} of rows even where nothing was poisoned"


def _trigger(plan: Plan, ready: Ready) -> str:
    """The concepts that the worked attack sets, by name."""
    one = plan.headline
    rows = ready["selection"].filter(
        (pl.col("target") == str(plan.worked))
        & (pl.col("selector") == one.selector)
        & (pl.col("repeat") == 0)
        & (pl.col("step") <= one.size)
    )
    picks = [f"{row['concept']} = {row['value']}" for row in rows.sort("step").to_dicts()]
    return f", which sets {', '.join(picks)}" if picks else ""


def lay_out(
    config: AuditConfig,
    plan: Plan,
    findings: Sequence[Finding],
    drawn: Sequence[Figure],
    ready: Ready,
    opening: str,
    block: Mapping[str, Any] | None,
    whole: bool,
) -> Layout:
    """Findings, protocol, data, evidence, what to do."""
    have = {figure.name for figure in drawn}

    def figures(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name in have)

    def tables(*names: str) -> tuple[str, ...]:
        return tuple(name for name in names if ready[name].height)

    words = (*PROTOCOL, protocol_text(config, plan))
    attacks = [
        Section(
            "How exposed is a model trained on it?",
            words=(
                "Each attack plants a trigger in a copy of the training rows, trains the same model from the same weights and batches, and "
                "sets the trigger at the bottleneck of test rows. Nothing is planted in rows of mode none: the clean model.",
            ),
            findings=tuple(
                ("*", f"concepts.{name}")
                for name in ("exposed", "attributable", "even-over-targets", "selector-matters", "utility-kept")
            ),
            figures=figures("asr_by_target", "four_bars", "asr_by_rate", "size_by_rate", "selection"),
            tables=tables("exposure_summary", "exposure", "selection"),
        )
    ]
    if not whole:
        sections = (
            Section("The protocol", words=words),
            *attacks,
            Section("Models", tables=tables("models"), open=False),
        )
        return Layout("How exposed is a model of these concepts?", opening, sections, AUDIT_TABLES, AUDIT_QUESTIONS)
    sections = [
        Section("The protocol", words=words),
        Section(
            "Is the table suspicious?",
            findings=(("*", "concepts.table-poisoned"),),
            figures=figures("class_evidence", "z_map"),
            tables=tables("class_evidence", "tests", "rows", "association"),
        ),
        *attacks,
        Section(
            "Would it be noticed?",
            words=(
                f"Shown is the headline attack on class {plan.worked}{_trigger(plan, ready)}. In mode mix every row of the target "
                "carries the trigger, so that no honest row of that label is left and relabelled rows are held against the untouched rows "
                "of their old classes.",
            ),
            findings=(("*", "concepts.stealthy"), ("*", "concepts.monitor-works")),
            figures=figures("marginal_shift"),
            tables=tables("stealth", "monitor", "shift"),
        ),
        Section(
            "Does the model hide a trigger?",
            words=(
                "For each class the fewest concepts are sought that send 90 % of other classes' rows to it. A clean "
                "model has such triggers "
                "too, often of a few concepts: only clean retrains tell whether one is conspicuously small.",
            ),
            findings=(("*", "concepts.model-backdoored"), ("*", "concepts.concepts-informative")),
            figures=figures("inverted_sizes"),
            tables=tables("models", "inversion"),
        ),
        Section(
            "Could the trigger come through the image?",
            findings=(("*", "concepts.reachable"),),
            figures=figures("reachability", "pictures"),
            tables=tables("reachability"),
        ),
        Section(
            "What can be certified?",
            findings=(("*", "concepts.certified"),),
            figures=figures("certified"),
            tables=tables("certificate"),
        ),
        Section("Other architectures", figures=figures("transfer"), tables=tables("transfer"), open=False),
        Section("Repairs", findings=(("*", "concepts.repaired"),), figures=figures("repairs"), tables=tables("repair")),
        Section("The table", tables=tables("table_facts", "facts"), open=False),
        Section("Recommendations", words=tuple(_recommendations(findings, _unpoisoned(config, block)))),
    ]
    asked = {finding.question for finding in findings}
    kept = [
        section
        for section in sections
        if (section.words and not section.findings)
        or section.figures
        or section.tables
        or any(question in asked for _, question in section.findings)
    ]
    return Layout("What can be hidden in these concepts?", opening, tuple(kept), AUDIT_TABLES, AUDIT_QUESTIONS)


def _recommendations(findings: Sequence[Finding], unpoisoned: str) -> list[str]:
    said = {
        finding.question: finding.verdict for finding in findings if finding.subject in ("table", "headline", "model")
    }
    told = []
    if said.get("concepts.table-poisoned") == "yes":
        told.append(
            "Re-annotate: the rows of the table `rows` that are flagged, and all rows of the classes named above. "
            "`querist concepts repair DATA --method relabel --flags RUN/tables/rows.parquet` does so from their neighbours."
        )
    elif said.get("concepts.table-poisoned") == "cannot say":
        told.append(
            "Keep trusted rows: a few hundred that were annotated twice and give them as --reference. Without them a skilful attack and "
            "an unusual class look alike."
        )
    exposed = said.get("concepts.exposed") in ("yes", "cannot say")
    if exposed or unpoisoned:
        why = f": {unpoisoned}" if unpoisoned else ": whoever can set concepts can use a trigger"
        told.append(
            f"Guard the bottleneck{why}. Log interventions, limit how many concepts one person may set, and do not take concept values "
            "from a feed that is not signed."
        )
    if exposed:
        told.append(
            "Compare deliveries: hold each new delivery of annotations against the last one with `concepts detect --reference`."
        )
    if said.get("concepts.model-backdoored") == "cannot say":
        told.append(
            "To judge the model itself, run with --budget full or --retrains 99 and a reference: an anomaly index without clean retrains "
            "is no verdict."
        )
    return told or ["No step is called for by these findings."]
