"""From the tables of all repairs to the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from querist.concepts.configs import RepairConfig
from querist.concepts.figures import models as figures
from querist.concepts.questions import PROTOCOL, REPAIR_QUESTIONS
from querist.concepts.studies.audit_summary import certificate_block, model_block, repair_block
from querist.concepts.studies.data_summary import data_warnings, seen_words, set_aside_words
from querist.concepts.studies.opening import Material
from querist.concepts.studies.repair_verdicts import repair_findings
from querist.concepts.studies.repair_work import parts_of
from querist.concepts.studies.table_verdicts import certified_finding
from querist.concepts.studies.words import percent
from querist.concepts.tables import REPAIR_TABLES
from querist.results.layout import Layout, Section
from querist.runs.study import Answer

__all__ = ["answer"]


def answer(
    config: RepairConfig, material: Material, methods: Sequence[str], tables: Mapping[str, pl.DataFrame]
) -> Answer:
    """Verdicts, the best, the page."""
    data = material.data(config)
    ready = {spec.name: tables.get(spec.name, spec.frame([])) for spec in REPAIR_TABLES}
    place = {name: i for i, name in enumerate(methods)}
    if ready["repair"].height:
        ready["repair"] = ready["repair"].sort(
            pl.col("method").replace_strict(place, return_dtype=pl.Int64), maintain_order=True
        )
    parts = parts_of(config, material)
    test = parts.test
    findings = repair_findings(ready["repair"], config.asr_limit, test.n) + certified_finding(ready["certificate"])
    block = repair_block(ready["repair"])
    known = config.truth is not None
    drawn = [
        figures.repairs(ready["repair"]),
        figures.certificate(ready["certificate"]),
        figures.inversion(ready["inversion"]),
    ]
    kept = [figure for figure in drawn if figure is not None]
    have = {figure.name for figure in kept}
    how = (
        "Success is that of the trigger of the truth; the best is chosen without it, by inverted triggers on validation rows."
        if known
        else "No trigger is known: success is that of inverted triggers, the smallest that were found, and flatters repairs that are "
        "chosen by them. A trigger that was not found is not measured."
    )
    if block is None or not block["methods"]:
        lead = "No repair could be made: see what was passed over."
    elif block["best"] is None:
        lead = "No repair keeps accuracy within two points on validation rows."
    else:
        one = next(row for row in block["methods"] if row["method"] == block["best"])
        lead = (
            f"Repair with {block['best']}: success falls from {percent(one['asr_before'])} to "
            f"{percent(one['asr_after'])}, accuracy goes from "
            f"{percent(one['accuracy_before'])} to {percent(one['accuracy_after'])}."
        )
    sections = (
        Section("The protocol", words=(*PROTOCOL, how)),
        Section(
            "Before and after",
            findings=(("*", "concepts.repaired"),),
            figures=tuple(name for name in ("repairs",) if name in have),
            tables=("repair",),
        ),
        Section(
            "What can be certified",
            findings=(("*", "concepts.certified"),),
            figures=tuple(name for name in ("certified",) if name in have),
            tables=("certificate",) if ready["certificate"].height else (),
        ),
        Section(
            "The model",
            figures=tuple(name for name in ("inverted_sizes",) if name in have),
            tables=("models", "inversion"),
            open=False,
        ),
    )
    given = material.model(config) is not None
    warnings = [*data_warnings(data), *set_aside_words(data, parts, given), *seen_words(data, given)]
    if not known:
        warnings.append(
            "No truth was given: repairs are judged by inverted triggers, which need not be the planted one."
        )
    return Answer(
        tables=ready,
        findings=findings,
        figures=kept,
        layout=Layout("Can it be repaired?", lead, sections, REPAIR_TABLES, REPAIR_QUESTIONS),
        summary={
            "protocol": [*PROTOCOL, how],
            "model": model_block(ready["models"]),
            "repair": block,
            "certificate": certificate_block(ready["certificate"]),
        },
        warnings=warnings,
        passed_over=ready["passed_over"].to_dicts(),
    )
