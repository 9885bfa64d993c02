"""Keeping watch of a model in use: has anything moved, and does it still deliver."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import MonitorConfig
from querist.effects.questions import MONITOR_QUESTIONS
from querist.effects.serving.folder import load, save
from querist.effects.serving.scorer import model_hash
from querist.effects.studies.people import OPTIONS, Opened, outcome_worths, write_table
from querist.effects.tables.serve import MONITOR_TABLES
from querist.errors import BadOption
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit
from querist.sources.rows import Rows, open_rows

__all__ = ["MonitorStudy", "monitor"]


class MonitorStudy(Study[MonitorConfig]):
    """`effects monitor`. `held` are tables in memory, "before" and "after", in place of addresses."""

    room = "effects"
    command = "monitor"
    tables = MONITOR_TABLES
    questions = MONITOR_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None):
        self.held = dict(held or {})
        self._rows: dict[str, Rows] = {}
        self._model: Any = None
        self._people: Opened | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "_rows": {}, "_model": None, "_people": None}

    def rows(self, config: MonitorConfig, name: str) -> Rows:
        """A table, opened once per process."""
        if name not in self._rows:
            self._rows[name] = open_rows(self.held.get(name, getattr(config, name)), options=OPTIONS)
        return self._rows[name]

    def model(self, config: MonitorConfig) -> Any:
        """The model, read once per process."""
        if self._model is None:
            self._model = load(config.model)
        return self._model

    def people(self, config: MonitorConfig) -> Opened | None:
        """The later table with its arms and outcomes, None where no arm is named."""
        from querist.effects.studies.evaluate_sources import with_model

        rows = self.rows(config, "after")
        if config.arm is None and not rows.options.get("arm"):
            return None
        if self._people is None:
            self._people = with_model(rows, config, self.model(config))
        return self._people

    def check(self, config: MonitorConfig) -> None:
        """The model, both tables and their columns, segments."""
        if not config.model:
            raise BadOption("The model is not named", allowed="a model folder", mend="Name it first")
        columns = self.model(config).columns_
        for name in ("before", "after"):
            columns.encode(next(self.rows(config, name).batches(rows=1)))
        if config.segment:
            self.rows(config, "after").chosen(config.segment)
        people = self.people(config)
        if people is not None:
            outcome_worths(config.value, people.outcomes.names)

    def inputs(self, config: MonitorConfig) -> Mapping[str, str]:
        """Content of the model and both tables."""
        tables = {name: self.rows(config, name).fingerprint for name in ("before", "after")}
        return {"model": model_hash(config.model)} | tables

    def argv(self, config: MonitorConfig) -> Sequence[str]:
        """The command line of this watch."""
        return command_words("effects monitor", config, positional=("model", "before", "after"))

    def portable(self, config: MonitorConfig, folder: Path) -> MonitorStudy:
        """Tables in memory are written once."""
        held = {}
        for name in self.held:
            (folder / name).mkdir()
            held[name] = write_table(self.rows(config, name).table(), folder / name)
        return MonitorStudy(held)

    def units(self, config: MonitorConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """Drift, and effects where they are known."""
        found = [Unit("drift", {}, 5.0)]
        return found if self.people(config) is None else [*found, Unit("effects", {}, 5.0)]

    def work(self, config: MonitorConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """What the unit names."""
        from querist.effects.studies.monitor_measure import measure_drift, measure_effects

        model = self.model(config)
        if unit.key == "drift":
            return measure_drift(config, model, self.rows(config, "before"), self.rows(config, "after"))
        people = self.people(config)
        assert people is not None
        return measure_effects(config, model, people, self.rows(config, "before"))

    def finish(self, config: MonitorConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Judge and lay out."""
        from querist.effects.studies.monitor_answer import answer

        return answer(config, tables, self.people(config))


def monitor(
    model: Any,
    before: Any,
    after: Any,
    *,
    config: MonitorConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Result:
    """Hold a later table against an earlier one and against what a model predicts of it.

    model: a fitted estimator, a model folder or the run of a fit; before, after: tables in memory or addresses. Further keywords are
    the fields of `MonitorConfig` (arm, outcome, cluster, segment, …): without `arm` only features and scores are compared. out: a run
    folder, for which the model must be a folder.

    Tables: psi, arm_shares, realised, segments. Raises BadInput for tables that lack columns of the model, arms or outcomes that it does
    not know, and what `open_rows` and `load` raise.
    """
    held = {name: table for name, table in (("before", before), ("after", after)) if not isinstance(table, str | Path)}
    named = {name: name if name in held else str(table) for name, table in (("before", before), ("after", after))}
    saved = isinstance(model, str | Path)
    if out is not None and not saved:
        raise BadOption(
            "A run names its model by a folder", value=type(model).__name__, mend="Save it first (model.save)"
        )
    with tempfile.TemporaryDirectory() as place:
        if not saved:
            save(model, Path(place) / "model")
        settings = MonitorConfig.build(
            config, **{**fields, **named, "model": str(model) if saved else str(Path(place) / "model")}
        )
        study = MonitorStudy(held)
        return answered(Result, study, settings, out=out, engine=engine, resume=resume, progress=progress)
