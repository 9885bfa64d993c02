"""The evaluation of models and scores on a table that none of them was fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import EvaluateConfig
from querist.effects.questions import EVALUATE_QUESTIONS
from querist.effects.studies.people import Opened, write_table
from querist.effects.tables import EVALUATE_TABLES
from querist.errors import BadOption
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

__all__ = ["EvaluateStudy"]

PER_ROW = 4e-6
"""Seconds of one core for a row in all numbers of one score, arm and outcome, bootstrap left out; only to order units by."""
PER_RESAMPLE = 4e-8
"""The same for a row in one resample."""


class EvaluateStudy(Study[EvaluateConfig]):
    """`effects evaluate`. `held` is a table in memory, in place of the address; `models` fitted ones by name, in place of folders."""

    room = "effects"
    command = "evaluate"
    stages = ("scores", "numbers")
    tables = EVALUATE_TABLES
    questions = EVALUATE_QUESTIONS

    def __init__(self, held: Any = None, models: Mapping[str, Any] | None = None):
        self.held = held
        self.models = dict(models or {})
        self._opened: Opened | None = None
        self._sources: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "models": self.models, "_opened": None, "_sources": None}

    def sources(self, config: EvaluateConfig) -> dict[str, Any]:
        """Models by name, or the column that a name stands for, opened once per process."""
        from querist.effects.studies.evaluate_sources import open_sources

        if self._sources is None:
            self._sources = open_sources((config.source, *config.also), self.models)
        return self._sources

    def opened(self, config: EvaluateConfig) -> Opened:
        """The table, opened once per process, with the arms and outcomes of the first model where there is one."""
        from querist.effects.studies.evaluate_sources import open_table

        if self._opened is None:
            table = config.table if self.held is None else self.held
            self._opened = open_table(table, config, self.sources(config))
        return self._opened

    def check(self, config: EvaluateConfig) -> None:
        """Sources, roles, arms, outcomes; names in --value and --cost."""
        from querist.effects.studies.evaluate_sources import check_sources, priced

        if not config.source:
            raise BadOption("Whose scores is not said", allowed="a model folder, or column:NAME", mend="Name it first")
        people = self.opened(config)
        check_sources(self.sources(config), people)
        priced(config, people)

    def inputs(self, config: EvaluateConfig) -> Mapping[str, str]:
        """The table's content, and every model's."""
        from querist.effects.studies.evaluate_sources import fingerprints

        return {"table": self.opened(config).rows.fingerprint} | fingerprints(self.sources(config))

    def argv(self, config: EvaluateConfig) -> Sequence[str]:
        """The command line of this evaluation."""
        return command_words("effects evaluate", config, positional=("source", "table"))

    def portable(self, config: EvaluateConfig, folder: Path) -> EvaluateStudy:
        """What is in memory is written once: the table, and models as folders."""
        from querist.effects.serving import load, save

        models = {}
        for i, (name, model) in enumerate(self.models.items()):
            save(model, folder / f"model-{i}")
            models[name] = load(folder / f"model-{i}")
        return EvaluateStudy(None if self.held is None else write_table(self.held, folder), models)

    def units(self, config: EvaluateConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """First each source's predictions; then the numbers of each outcome, and policies over all outcomes."""
        people = self.opened(config)
        if stage == "scores":
            cost = len(people) * 2e-5
            return [Unit(f"{i:03d}", {"source": name}, cost) for i, name in enumerate(self.sources(config))]
        paths = {row["score"]: row["path"] for row in done["sources"].to_dicts()}
        per_outcome = len(people) * len(paths) * people.arms * (PER_ROW + PER_RESAMPLE * config.bootstrap)
        found = [
            Unit(f"outcome/{k:03d}", {"outcome": k, "paths": paths}, per_outcome)
            for k in range(len(people.outcomes.names))
        ]
        return [*found, Unit("policies", {"outcome": None, "paths": paths}, per_outcome / 4)]

    def work(self, config: EvaluateConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Predict, or judge what the unit names."""
        from querist.effects.studies.evaluate_measure import measure_outcome, measure_policies, predict

        people = self.opened(config)
        if "source" in unit.payload:
            name = unit.payload["source"]
            return predict(config, people, name, self.sources(config)[name], folder)
        if unit.payload["outcome"] is None:
            return measure_policies(config, people, unit.payload["paths"])
        return measure_outcome(config, people, unit.payload["paths"], unit.payload["outcome"])

    def finish(self, config: EvaluateConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Adjust, judge, draw."""
        from querist.effects.studies.evaluate_answer import answer

        return answer(config, self.opened(config), tables)
