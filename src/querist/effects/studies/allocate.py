"""Who gets which arm under a budget, from a table of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import AllocateConfig
from querist.effects.questions import ALLOCATE_QUESTIONS
from querist.effects.studies.allocate_inputs import Wanted, wanted_of
from querist.effects.tables.serve import ALLOCATE_TABLES
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit
from querist.sources.rows import Rows, open_rows

__all__ = ["AllocateStudy"]


class AllocateStudy(Study[AllocateConfig]):
    """`effects allocate`. `held` is a table of scores in memory, in place of the address."""

    room = "effects"
    command = "allocate"
    tables = ALLOCATE_TABLES
    questions = ALLOCATE_QUESTIONS

    def __init__(self, held: Any = None):
        self.held = held
        self._rows: Rows | None = None
        self._wanted: Wanted | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "_rows": None, "_wanted": None}

    def rows(self, config: AllocateConfig) -> Rows:
        """The table, opened once per process."""
        if self._rows is None:
            self._rows = open_rows(config.scores if self.held is None else self.held)
        return self._rows

    def wanted(self, config: AllocateConfig) -> Wanted:
        """Rewards, costs and limits, read once per process."""
        if self._wanted is None:
            self._wanted = wanted_of(config, self.rows(config))
        return self._wanted

    def check(self, config: AllocateConfig) -> None:
        """Scores, worths, costs, capacities, groups, the budget."""
        self.wanted(config)

    def inputs(self, config: AllocateConfig) -> Mapping[str, str]:
        """The table's content."""
        return {"scores": self.rows(config).fingerprint}

    def argv(self, config: AllocateConfig) -> Sequence[str]:
        """The command line of this allocation."""
        return command_words("effects allocate", config, positional=("scores",))

    def portable(self, config: AllocateConfig, folder: Path) -> AllocateStudy:
        """A table in memory is written once."""
        from querist.effects.studies.people import write_table

        return self if self.held is None else AllocateStudy(write_table(self.rows(config).table(), folder))

    def units(self, config: AllocateConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """One: people compete for one budget."""
        return [Unit("allocation", {}, 1e-6 * self.wanted(config).reward.size)]

    def work(self, config: AllocateConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Allocate, and follow the budget's path."""
        from querist.effects.studies.allocate_measure import measure

        return measure(config, self.wanted(config))

    def finish(self, config: AllocateConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Judge and draw."""
        from querist.effects.studies.allocate_answer import answer

        return answer(config, self.wanted(config), tables)
