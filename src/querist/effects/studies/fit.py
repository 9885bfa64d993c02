"""The fit of a model of effects: networks as units of their own, then the model, written and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import FitConfig
from querist.effects.questions import FIT_QUESTIONS
from querist.effects.studies.fit_models import check_options, model_kind
from querist.effects.studies.fit_table import Streaming, open_streaming, row_count
from querist.effects.studies.people import Opened, open_people, write_table
from querist.effects.tables import FIT_TABLES
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

__all__ = ["FitStudy"]

PER_ROW = {"default": 6e-5, "small": 1e-5, "paper": 4e-4}
"""Seconds of one core for a row in one pass of a network, by preset; only to order units by."""
PER_FIT = 2e-5
"""Seconds of one core for a row of a fit beside its networks."""


class FitStudy(Study[FitConfig]):
    """`effects fit`. `held` is a table in memory, in place of the address."""

    room = "effects"
    command = "fit"
    stages = ("networks", "model")
    tables = FIT_TABLES
    questions = FIT_QUESTIONS

    def __init__(self, held: Any = None):
        self.held = held
        self._opened: Opened | Streaming | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "_opened": None}

    def opened(self, config: FitConfig) -> Opened | Streaming:
        """The table, opened once per process: in memory, or by its roles alone where it is streamed."""
        if self._opened is None:
            table = config.table if self.held is None else self.held
            self._opened = (
                open_streaming(table, config) if config.stream else open_people(table, config, need_outcomes=True)
            )
        return self._opened

    def check(self, config: FitConfig) -> None:
        """Options, roles, arms, outcomes, the arm among features, clusters and propensities."""
        from querist.effects.sample import refuse_arm_columns
        from querist.effects.studies.fit_train import estimator_for

        check_options(config)
        table = self.opened(config)
        estimator_for(config, table)
        if isinstance(table, Opened):
            refuse_arm_columns(table.columns, table.encoded, table.codes, table.arms)

    def inputs(self, config: FitConfig) -> Mapping[str, str]:
        """The table's content."""
        return {"table": self.opened(config).rows.fingerprint}

    def argv(self, config: FitConfig) -> Sequence[str]:
        """The command line of this fit."""
        return command_words("effects fit", config, positional=("table",))

    def portable(self, config: FitConfig, folder: Path) -> FitStudy:
        """A table in memory is written once."""
        return self if self.held is None else FitStudy(write_table(self.held, folder))

    def units(self, config: FitConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """First every network of a cross-fitted model, which a kill does not set back; then the model."""
        kind, rows = model_kind(config.model), row_count(self.opened(config))
        per_network = rows * config.epochs * PER_ROW[config.preset]
        threads = config.processes
        if stage == "networks":
            if not kind.crossed:
                return []
            return [
                Unit(f"{fold:02d}/{member:02d}", {"fold": fold, "member": member}, per_network, threads, lasting=True)
                for fold in range(config.folds or 2)
                for member in range(config.ensemble)
            ]
        paths = done["checkpoints"]["path"].to_list() if "checkpoints" in done else []
        cost = rows * PER_FIT + (per_network * config.ensemble if kind.trained and not kind.crossed else 0.0)
        return [Unit("model", {"checkpoints": paths}, cost, threads)]

    def work(self, config: FitConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Train a network, or put the model together; in a group of processes where that is asked for."""
        from querist.effects.studies.fit_train import CHECKPOINT, train_model, train_network
        from querist.training import launch_group

        group: dict[str, Any] = {"processes": config.processes, "threads": 1}
        if config.processes > 1:
            group["device"] = config.device
        given = unit.payload
        if "checkpoints" in given:
            tables = launch_group(train_model, self, config, given["checkpoints"], str(folder), **group)
            tables["model"][0]["path"] = str(folder / "model")
            return tables
        launch_group(train_network, self, config, given["fold"], given["member"], str(folder), **group)
        return {"checkpoints": [{"fold": given["fold"], "member": given["member"], "path": str(folder / CHECKPOINT)}]}

    def finish(self, config: FitConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Judge, draw, and keep the model."""
        from querist.effects.studies.fit_answer import answer

        return answer(config, tables)
