"""The check of a table before any model: were arms given at random, can they be compared, what could be found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import CheckConfig
from querist.effects.questions import CHECK_QUESTIONS
from querist.effects.studies.people import Opened, assembled, open_people, write_table
from querist.effects.tables import CHECK_TABLES
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

__all__ = ["CheckStudy", "check"]

RELABELLED = 999
"""Relabellings by default."""
PER_ARM = 200
"""And at least so many for each arm: an adjusted p is no smaller than the number of tests over that of relabellings."""
PER_CELL = 1.2e-8
"""Seconds of one core for one number of the table in one relabelling; only to order units by."""


class CheckStudy(Study[CheckConfig]):
    """`effects check`. `held` is a table in memory, in place of the address."""

    room = "effects"
    command = "check"
    tables = CHECK_TABLES
    questions = CHECK_QUESTIONS

    def __init__(self, held: Any = None):
        self.held = held
        self._opened: Opened | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "_opened": None}

    def opened(self, config: CheckConfig) -> Opened:
        """The table, opened once per process."""
        if self._opened is None:
            self._opened = open_people(config.table if self.held is None else self.held, config)
        return self._opened

    def check(self, config: CheckConfig) -> None:
        """Roles, arms, the design, clusters that lie in several arms."""
        from querist.effects.design import assignment_units

        people = self.opened(config)
        assignment_units(people.codes, people.people.cluster, people.labels)

    def inputs(self, config: CheckConfig) -> Mapping[str, str]:
        """The table's content."""
        return {"table": self.opened(config).rows.fingerprint}

    def argv(self, config: CheckConfig) -> Sequence[str]:
        """The command line of this check."""
        return command_words("effects check", config, positional=("table",))

    def portable(self, config: CheckConfig, folder: Path) -> CheckStudy:
        """A table in memory is written once."""
        return self if self.held is None else CheckStudy(write_table(self.held, folder))

    def units(self, config: CheckConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The table as a whole, and a classifier for each arm."""
        people = self.opened(config)
        cells = min(len(people), config.rows) * max(len(people.people.roles.features), 1)
        cost = PER_CELL * cells * relabellings(config, people)
        arms = range(people.arms) if people.arms > 2 else (1,)
        found = [Unit(f"arm/{arm:03d}", {"arm": arm}, cost) for arm in arms]
        return [Unit("table", {"arm": None}, 1.0), *found]

    def work(self, config: CheckConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """What the unit names."""
        from querist.effects.studies.check_measure import measure_arm, measure_table

        people = self.opened(config)
        if unit.payload["arm"] is None:
            return measure_table(config, people)
        return measure_arm(config, people, unit.payload["arm"], relabellings(config, people))

    def finish(self, config: CheckConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Judge and draw."""
        from querist.effects.studies.check_answer import answer

        return answer(config, self.opened(config), tables)


def relabellings(config: CheckConfig, people: Opened) -> int:
    """How often whole units are relabelled."""
    return max(RELABELLED, PER_ARM * (people.arms + 1)) if config.permutations is None else config.permutations


def check(
    X: Any,
    arm: Any,
    *,
    control: Any = None,
    Y: Any = None,
    design: Mapping[Any, float] | None = None,
    cluster: Any = None,
    block: Any = None,
    config: CheckConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Result:
    """Check a table before any model is fitted: randomisation, balance, overlap, missing outcomes, detectable effects.

    X: features [n, d], a frame, Arrow table or array; arm: labels [n]; Y: outcomes, a mapping, frame or array; design: label to
    probability; cluster: ids of the units that were assigned; block: strata inside which they were. Further keywords are the fields
    of `CheckConfig`; out, engine, resume, progress as in every verb.

    Tables: arms, arm_auc, balance, overlap, attrition, detectable, suspicious. Raises BadInput for a table that is wrong
    (ControlAbsent, NoControl, NoTreated, ArmMissing, ClusterMixed, LengthMismatch, OutcomeKind, …).
    """
    table, roles = assembled(X, arm, Y, cluster=cluster, block=block)
    if control is not None:
        roles["control"] = str(control)
    if design is not None:
        roles["design"] = tuple(f"{label}={share!r}" for label, share in design.items())
    settings = CheckConfig.build(config, **{"table": "table", **roles, **fields})
    quiet = False if out is None and progress is None else progress
    return ask(CheckStudy(table), settings, out=out, engine=engine, resume=resume, progress=quiet)
