"""Carrying out a study: stage after stage, each unit once, tables joined in key order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from querist.errors import BadInput, InvariantBroken, QueristError
from querist.runs.engines import Engine
from querist.runs.progress import Progress, Report
from querist.runs.study import Study, StudyConfig, Unit
from querist.runs.work import Outcome, Work

if TYPE_CHECKING:
    from collections.abc import Generator

    import polars as pl

__all__ = ["Store", "UnitsFailed", "carry", "join"]

_SHOWN = 3


class UnitsFailed(QueristError):
    """Units raised; the others are done. `failed` lists {unit, error}; the first one's exception is the cause.

    Where every one of them is a person's mistake (NaN in the data, say), the command line exits as it does for bad input.
    """

    code = "units-failed"

    def __init__(self, failed: Sequence[Mapping[str, str]], total: int, where: str, bad_input: bool = False):
        self.failed, self.total, self.where = [dict(row) for row in failed], total, where
        self.exit_code = BadInput.exit_code if bad_input else QueristError.exit_code
        super().__init__(self.failed, total, where, bad_input)

    def __str__(self) -> str:
        told = "; ".join(f"{row['unit']}: {row['error'].rstrip('.')}" for row in self.failed[:_SHOWN])
        more = f"; and {len(self.failed) - _SHOWN} more" if len(self.failed) > _SHOWN else ""
        return f"{len(self.failed)} of {self.total} units failed ({told}{more}). {self.where}"


class Store(Protocol):
    """Where outcomes go: a run folder, or memory."""

    keep: bool

    @property
    def folder(self) -> Path:
        """The run folder, or what stands for it."""
        ...

    @property
    def scratch(self) -> Path:
        """Where units write."""
        ...

    def done(self, stage: str) -> set[str]:
        """Keys of the stage's units that are done."""
        ...

    def commit(self, stage: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        ...

    def tables(self, stage: str, key: str) -> Mapping[str, pl.DataFrame]:
        """A finished unit's tables."""
        ...


def carry(
    study: Study[Any],
    config: StudyConfig,
    store: Store,
    engine_for: Callable[[Sequence[Unit]], Engine],
    report: Report | bool | None = None,
) -> dict[str, pl.DataFrame]:
    """Do every unit that the store does not hold, and join the tables of all stages.

    A stage begins when all units of the one before it are done. Raises UnitsFailed at the end of a stage whose units
    failed, after all of them were tried; InvariantBroken for two units with one key.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    tables: dict[str, pl.DataFrame] = {}
    movable: Study[Any] | None = None
    with ExitStack() as engines:
        for stage in study.stages:
            units = list(study.units(config, stage, dict(tables)))
            keys = [unit.key for unit in units]
            if len(set(keys)) != len(keys):
                raise InvariantBroken(f"{study.room} {study.command}: two units of stage {stage} have one key")
            done = store.done(stage)
            pending = [unit for unit in units if unit.key not in done]
            engine = engine_for(pending)
            engines.callback(engine.close)
            if engine.crosses and pending and movable is None:
                place = store.scratch / "portable"
                place.mkdir(parents=True)
                movable = study.portable(config, place)
            worker = movable if engine.crosses and movable is not None else study
            work = Work(worker, config, stage, store.scratch, store.keep)
            title = f"{study.room} {study.command}" + (f", {stage}" if len(study.stages) > 1 else "")
            total, left = _counted(units), _counted(pending)
            with Progress(title, total, total - left, report) as progress:
                failures = _stage(engine, work, pending, store, progress)
            if failures:
                raise _failed(stage, units, failures, store) from next(iter(failures.values())).cause
            for key in sorted(keys):
                for name, frame in store.tables(stage, key).items():
                    parts.setdefault(name, []).append(frame)
            tables = join(study, parts)
    return tables


def _stage(engine: Engine, work: Work, units: Sequence[Unit], store: Store, progress: Progress) -> dict[str, Outcome]:
    """Do these units and keep them; the failed ones by key."""
    failures: dict[str, Outcome] = {}
    parts = {unit.key: unit.parts or (unit.key,) for unit in units}
    with closing(cast("Generator[Outcome, None, None]", engine.map(work, units))) as outcomes:
        for outcome in outcomes:
            store.commit(work.stage, outcome)
            if outcome.error is not None:
                failures[outcome.key] = outcome
            for part in parts[outcome.key]:
                progress.advance(part)
    return failures


def _counted(units: Sequence[Unit]) -> int:
    return sum(len(unit.parts) or 1 for unit in units)


def join(study: Study[Any], parts: Mapping[str, Sequence[pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Frames of each table as one. Raises InvariantBroken where two units gave a row with the same key."""
    specs = {spec.name: spec for spec in study.tables}
    return {name: specs[name].join(frames) for name, frames in parts.items()}


def _failed(stage: str, units: Sequence[Unit], failures: Mapping[str, Outcome], store: Store) -> UnitsFailed:
    rows = [
        {"unit": f"{stage}/{unit.key}", "error": str(failures[unit.key].error)}
        for unit in units
        if unit.key in failures
    ]
    kept = f"The others are kept in {store.folder}; the same command with --resume does the failed ones again."
    where = kept if store.keep else "Give out= a folder to keep what is done."
    return UnitsFailed(rows, len(units), where, all(outcome.bad_input for outcome in failures.values()))
