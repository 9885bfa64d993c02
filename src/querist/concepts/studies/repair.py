"""Repairs of a model and its table: each method a unit, with accuracy and success before and after."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.concepts.configs import RepairConfig
from querist.concepts.questions import REPAIR_QUESTIONS
from querist.concepts.studies.opening import Material, called
from querist.concepts.tables import REPAIR_TABLES
from querist.errors import UnknownName, near
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit, listed

__all__ = ["RepairReport", "RepairStudy", "repair"]


class RepairStudy(Study[RepairConfig]):
    """`concepts repair`. `held` are table and model in memory by role."""

    room = "concepts"
    command = "repair"
    stages = ("model", "repairs")
    tables = REPAIR_TABLES
    questions = REPAIR_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material}

    def material(self, config: RepairConfig) -> Material:
        """Table and model, opened once per process."""
        if self._material is None:
            self._material = Material({"data": config.data, "model": config.model}, self.held)
        return self._material

    def methods(self, config: RepairConfig) -> tuple[str, ...]:
        """Those asked for, or all. Raises UnknownName."""
        from querist.concepts.studies.repair_measure import METHODS

        if config.method == "best":
            return METHODS
        named = listed(config.method)
        for name in named:
            if name not in METHODS:
                raise UnknownName("No such repair", value=name, allowed=near(name, (*METHODS, "best"), 12))
        return named

    def check(self, config: RepairConfig) -> None:
        """Everything that can be wrong before the work."""
        from querist.concepts.studies.repair_work import check_repair

        self.methods(config)
        check_repair(config, self.material(config))

    def inputs(self, config: RepairConfig) -> Mapping[str, str]:
        """Content hashes of table, model, flags and truth."""
        return self.material(config).fingerprints(config, {"flags": config.flags, "truth": config.truth})

    def argv(self, config: RepairConfig) -> Sequence[str]:
        """The command line of these repairs."""
        return command_words("concepts repair", config, positional=("data",))

    def portable(self, config: RepairConfig, folder: Path) -> RepairStudy:
        """Tables in memory are written once."""
        return RepairStudy(material=self.material(config).portable(config, folder))

    def units(self, config: RepairConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The model with its inverted triggers; then a unit per method."""
        if stage == "model":
            return [Unit("model", {}, 5.0)]
        path = done["models"]["path"][0]
        kept = ("target", "method", "size", "norm", "trigger")
        found = done["inversion"].select(kept).filter(pl.col("size").is_not_null()).to_dicts()
        return [
            Unit(f"repair/{name}", {"method": name, "path": path, "first": i == 0, "inverted": found}, 5.0)
            for i, name in enumerate(self.methods(config))
        ]

    def work(self, config: RepairConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """One unit."""
        from querist.concepts.studies import repair_work as work

        material = self.material(config)
        if unit.key == "model":
            return work.model_unit(config, material, folder)
        return work.method_unit(config, material, unit.payload, folder)

    def finish(self, config: RepairConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Verdicts, the best, the page."""
        from querist.concepts.studies.repair_answer import answer

        return answer(config, self.material(config), self.methods(config), tables)


class RepairReport(Result):
    """The answer of repairs: `repair` holds a row per method and stage, its `path` where the repaired model lies."""


def repair(
    data: Any,
    model: Any = None,
    *,
    config: RepairConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> RepairReport:
    """Repairs of a model and its table, each with accuracy and success before and after.

    data, model: as in `audit`; without a model one is trained on the table. Further keywords are the fields of `RepairConfig`
    (method, flags, truth, groups, …). Run options as in `audit`; with `out` the repaired models stay there. Raises BadInput,
    UnitsFailed.
    """
    given = {"data": data, "model": model}
    names = {role: called(what, role) for role, what in given.items() if what is not None}
    held = {role: what for role, what in given.items() if what is not None and not isinstance(what, str | os.PathLike)}
    settings = RepairConfig.build(config, **{**fields, **names})
    return answered(RepairReport, RepairStudy(held), settings, out=out, engine=engine, resume=resume, progress=progress)
