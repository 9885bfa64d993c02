"""A table searched for poison: evidence of classes, every method that applies, and all of them beside the truth where it is known."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from querist.concepts.configs import DetectConfig
from querist.concepts.questions import DETECT_QUESTIONS
from querist.concepts.studies.opening import Material, called
from querist.concepts.tables import DETECT_TABLES
from querist.errors import BadOption
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

if TYPE_CHECKING:
    from querist.concepts.studies.power import PowerPlan

__all__ = ["DetectReport", "DetectStudy", "detect"]


class DetectStudy(Study[DetectConfig]):
    """`concepts detect`. `held` are table, reference and model in memory by role."""

    room = "concepts"
    command = "detect"
    stages = ("model", "methods")
    tables = DETECT_TABLES
    questions = DETECT_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material}

    def material(self, config: DetectConfig) -> Material:
        """Table, reference and model, opened once per process."""
        if self._material is None:
            addresses = {"data": config.data, "reference": config.reference, "model": config.model}
            self._material = Material(addresses, self.held)
        return self._material

    def methods(self, config: DetectConfig) -> tuple[str, ...]:
        """Those asked for; or all, those left out that need a reference where there is none."""
        from querist.concepts.studies.detect_measure import METHODS, NEEDS_REFERENCE

        lacking = NEEDS_REFERENCE if self.material(config).reference(config) is None else ()
        return config.methods or tuple(name for name in METHODS if name not in lacking)

    def check(self, config: DetectConfig) -> None:
        """Everything that can be wrong before the work."""
        from querist.concepts.heads import head_widths
        from querist.concepts.studies.audit_check import check_strength
        from querist.concepts.studies.detect_measure import NEEDS_REFERENCE, read_truth

        material = self.material(config)
        data = material.data(config)
        head_widths(config.head)
        check_strength(config.strength, data)
        if material.reference(config) is None and (
            lacking := [name for name in config.methods if name in NEEDS_REFERENCE]
        ):
            raise BadOption(
                "This method needs trusted rows", value=", ".join(lacking), mend="Give --reference, or leave it out"
            )
        material.model(config)
        if config.truth is not None:
            read_truth(config.truth, data)
        self.plan(config)

    def plan(self, config: DetectConfig) -> PowerPlan:
        """What is planted in the tries of `power`."""
        from querist.concepts.studies.power import plan_power

        return plan_power(config, self.material(config).suspect(config)[0])

    def inputs(self, config: DetectConfig) -> Mapping[str, str]:
        """Content hashes of table, reference, model and truth."""
        return self.material(config).fingerprints(config, {"truth": config.truth})

    def argv(self, config: DetectConfig) -> Sequence[str]:
        """The command line of this search."""
        return command_words("concepts detect", config, positional=("data",))

    def portable(self, config: DetectConfig, folder: Path) -> DetectStudy:
        """Tables in memory are written once."""
        return DetectStudy(material=self.material(config).portable(config, folder))

    def units(self, config: DetectConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The model and the evidence of classes; then a unit per method, and one per try and rate of `power`."""
        if stage == "model":
            return [Unit("model", {}, 5.0), Unit("evidence", {}, 3.0)]
        path = done["models"]["path"][0]
        wanted = [name for name in self.methods(config) if name != "two-sample"]
        asked = [Unit(f"method/{name}", {"method": name, "path": path}, 5.0) for name in wanted]
        from querist.concepts.studies.power import power_units

        suspect = self.material(config).suspect(config)[0]
        return asked + power_units(config, self.plan(config), self.methods(config), suspect)

    def work(self, config: DetectConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """One unit."""
        from querist.concepts.studies import detect_measure as measure

        material = self.material(config)
        if unit.key == "model":
            return measure.model_unit(config, material, folder)
        if unit.key == "evidence":
            return measure.evidence_unit(config, material)
        if "repeat" in unit.payload:
            from querist.concepts.studies.power import carry_out_try

            return carry_out_try(config, material, self.plan(config), self.methods(config), **unit.payload)
        return measure.carry_out_method(config, material, unit.payload["method"], unit.payload["path"])

    def finish(self, config: DetectConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Verdicts, figures, the page."""
        from querist.concepts.studies.detect_answer import answer

        return answer(config, self.material(config), self.methods(config), self.plan(config), tables)


class DetectReport(Result):
    """A search's answer: `class_evidence`, `rows`, `detection` (with the truth), `power` (with tries), `inversion`, `stealth`."""


def detect(
    data: Any,
    model: Any = None,
    *,
    reference: Any = None,
    config: DetectConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> DetectReport:
    """Which classes, concepts and rows of a table look planted, by every method that applies.

    data, model, reference: as in `audit`; without a model a head is trained on the suspect rows. Further keywords are the
    fields of `DetectConfig` (methods, truth, class_level, retrains, power, …). Run options as in `audit`. The truth is held against the
    methods afterwards and given to none of them. Raises BadInput, UnitsFailed.
    """
    given = {"data": data, "model": model, "reference": reference}
    names = {role: called(what, role) for role, what in given.items() if what is not None}
    held = {role: what for role, what in given.items() if what is not None and not isinstance(what, str | os.PathLike)}
    settings = DetectConfig.build(config, **{**fields, **names})
    return answered(DetectReport, DetectStudy(held), settings, out=out, engine=engine, resume=resume, progress=progress)
