"""The audit: models, then attacks on copies and all that is measured beside them, then what follows; every piece a unit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from querist.concepts.configs import AuditConfig
from querist.concepts.questions import AUDIT_QUESTIONS
from querist.concepts.studies.opening import Material, called
from querist.concepts.studies.plan import Plan, plan_of
from querist.concepts.tables import AUDIT_TABLES
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

R = TypeVar("R", bound=Result)

__all__ = ["AuditReport", "AuditStudy", "asked", "audit"]


class AuditStudy(Study[AuditConfig]):
    """`concepts audit`. `held` are table, reference and model in memory by role: data, reference, model. `parts`: which are run."""

    room = "concepts"
    command = "audit"
    stages = ("models", "measure", "follow")
    tables = AUDIT_TABLES
    questions = AUDIT_QUESTIONS
    whole = True

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material
        self._plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material, "_plan": None}

    def material(self, config: AuditConfig) -> Material:
        """Table, reference and model, opened once per process."""
        if self._material is None:
            addresses = {"data": config.data, "reference": config.reference, "model": config.model}
            self._material = Material(addresses, self.held)
        return self._material

    def plan(self, config: AuditConfig) -> Plan:
        """Targets, settings and repeats, worked out once."""
        if self._plan is None:
            self._plan = plan_of(config, self.material(config).data(config))
        return self._plan

    def check(self, config: AuditConfig) -> None:
        """Everything that can be wrong before the work."""
        from querist.concepts.studies.audit_check import check_audit

        check_audit(config, self.material(config), self.plan(config))

    def inputs(self, config: AuditConfig) -> Mapping[str, str]:
        """Content hashes of table, reference and model."""
        return self.material(config).fingerprints(config)

    def argv(self, config: AuditConfig) -> Sequence[str]:
        """The command line of this audit."""
        return command_words(f"concepts {self.command}", config, positional=("data",))

    def portable(self, config: AuditConfig, folder: Path) -> AuditStudy:
        """Tables in memory are written once."""
        return type(self)(material=self.material(config).portable(config, folder))

    def units(self, config: AuditConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The models and the look at the table; then targets by repeats and the rest; then what waits for all of these."""
        from querist.concepts.studies.audit_units import units_of

        return units_of(config, self.material(config), self.plan(config), stage, done, whole=self.whole)

    def work(self, config: AuditConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """One unit, by the first word of its key."""
        from querist.concepts.studies.audit_units import carry_out_unit

        return carry_out_unit(config, self.material(config), self.plan(config), unit, folder)

    def finish(self, config: AuditConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Summaries, verdicts, figures, the page."""
        from querist.concepts.studies.audit_answer import answer

        return answer(config, self.material(config), self.plan(config), tables, whole=self.whole)


class AuditReport(Result):
    """An audit's answer: `exposure`, `class_evidence`, `rows`, `inversion`, `stealth`, … hold the evidence, `findings` the verdicts."""


def audit(
    data: Any,
    model: Any = None,
    *,
    reference: Any = None,
    config: AuditConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> AuditReport:
    """Is the owner's table suspicious, how exposed is a model trained on it, and what should be done?

    data: a DATA address or `ConceptData`. model: the model under audit, a folder that `CBM.save` wrote, a `CBM`, (g, f), or a bare f
    from concepts to class logits; without one the audit trains its own. reference: rows that are trusted, with the same
    concepts. Further keywords are the fields of `AuditConfig` (budget, targets, sizes, rates, repair, …); they replace those of
    `config`. out: a run folder, resumable unit by unit. progress: a callable (done, total, key), None for a bar on standard
    error, False for silence. Everything is tried on copies.

    Raises BadInput for a table, model or options that are wrong, UnitsFailed where the work itself failed.
    """
    return asked(AuditReport, AuditStudy, data, model, reference, config, out, engine, resume, progress, fields)


def asked(
    kind: type[R],
    study: type[AuditStudy],
    data: Any,
    model: Any,
    reference: Any,
    config: AuditConfig | None,
    out: Any,
    engine: str,
    resume: bool,
    progress: Any,
    fields: Mapping[str, Any],
) -> R:
    """What the verbs of an audit share: addresses and options put together, objects held, the study asked."""
    given = {"data": data, "model": model, "reference": reference}
    names = {role: called(what, role) for role, what in given.items() if what is not None}
    held = {role: what for role, what in given.items() if what is not None and not isinstance(what, str | os.PathLike)}
    settings = AuditConfig.build(config, **{**fields, **names})
    return answered(kind, study(held), settings, out=out, engine=engine, resume=resume, progress=progress)
