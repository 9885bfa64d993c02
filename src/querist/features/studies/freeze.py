"""The sweep: a network trained on new data with its first k blocks frozen, beside other initial weights; every cell a unit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from querist.errors import BadOption
from querist.features.configs import FreezeConfig
from querist.features.questions import FREEZE_QUESTIONS
from querist.features.studies.freeze_data import Target, addresses_of, target_of
from querist.features.studies.opening import Material, called
from querist.features.tables import FREEZE_TABLES
from querist.reports.result import Result
from querist.reports.verb import answered, several
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

if TYPE_CHECKING:
    from querist.features.freezing import Blocks
    from querist.training import Hook

__all__ = ["FreezeStudy", "Sweep", "freeze"]

PER_ROW = 4e-3
"""Seconds of one core for one row forward and back through a network of the size of ResNet20: only to order units by."""
ALL = 1 << 60


class FreezeStudy(Study[FreezeConfig]):
    """`features freeze`. `held` are a network and data in memory by role: model, source, train-0, test-0, train-1 …"""

    room = "features"
    command = "freeze"
    stages = ("cells",)
    tables = FREEZE_TABLES
    questions = FREEZE_QUESTIONS

    def __init__(
        self, held: Mapping[str, Any] | None = None, material: Material | None = None, hooks: Sequence[Hook] = ()
    ):
        self.held, self.hooks = dict(held or {}), tuple(hooks)
        self._material = material
        self._targets: dict[int, Target] = {}
        self._blocks: Blocks | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "hooks": (), "_material": self._material, "_targets": {}, "_blocks": None}

    def material(self, config: FreezeConfig) -> Material:
        """The network and data by role, opened once per process."""
        if self._material is None:
            self._material = Material(addresses_of(config, self.held), self.held)
        return self._material

    def target(self, config: FreezeConfig, i: int) -> Target:
        """The i-th target, opened once."""
        if i not in self._targets:
            self._targets[i] = target_of(config, self.material(config), i)
        return self._targets[i]

    def blocks(self, config: FreezeConfig) -> Blocks:
        """The network's blocks, found once."""
        if self._blocks is None:
            from querist.features.studies.freeze_cell import blocks_of

            self._blocks = blocks_of(config, self.material(config), self.target(config, 0))
        return self._blocks

    def check(self, config: FreezeConfig) -> None:
        """Everything that can be wrong before the work: options, data without labels, blocks that are not there."""
        from querist.features.studies.check_freeze import check_freeze

        check_freeze(config, self)

    def inputs(self, config: FreezeConfig) -> Mapping[str, str]:
        """Content hashes of the network, of every row that is read, and of the source's chosen rows."""
        roles = {"model": "model"} | ({"source": "data"} if config.source else {})
        found = self.material(config).fingerprints(config, roles)
        for i in range(len(config.target)):
            target = self.target(config, i)
            found[f"target: {target.name}"] = target.fingerprint()
        return found

    def argv(self, config: FreezeConfig) -> Sequence[str]:
        """The command line of this sweep."""
        return command_words("features freeze", config, positional=("model",))

    def portable(self, config: FreezeConfig, folder: Path) -> FreezeStudy:
        """What is in memory is written once. Raises BadOption with hooks, which watch in this process."""
        if self.hooks:
            raise BadOption(
                "Hooks watch a training in this process", value=f"{len(self.hooks)} hooks", allowed="engine serial"
            )
        return FreezeStudy(material=_portable(self.material(config), config, folder))

    def units(self, config: FreezeConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """A unit per target, arm, number of frozen blocks and repeat; `scratch` is `random` at 0 blocks, trained once."""
        ks = self.blocks(config).numbers(config.ks)
        found = []
        for i in range(len(config.target)):
            target = self.target(config, i)
            rows = len(target.train_ids(0)) * config.epochs * len(config.lr)
            for arm, k in _grid(config.arms, ks):
                cost = PER_ROW * (rows * (1 - k / (2 * self.blocks(config).count)) + len(target.test_ids) / 3)
                for repeat in range(config.repeats):
                    cell = {"target": i, "arm": arm, "k": k, "repeat": repeat, "classes": target.classes}
                    key = f"{i:02d}/{arm}/k={k:03d}/repeat={repeat}"
                    found.append(Unit(key, {**cell, "first": not found}, cost, config.processes))
        return found

    def work(self, config: FreezeConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Train one cell, in a group of processes where that is asked for."""
        from querist.features.studies.freeze_cell import run_cell

        material = self.material(config)
        if config.processes == 1:
            return run_cell(material, config, unit.payload, str(folder), self.hooks)
        from querist.training import launch_group

        parcel = folder / "parcel"
        try:
            if material.held:
                parcel.mkdir()
                material = _portable(material, config, parcel)
            given = (material, config, dict(unit.payload), str(folder))
            return launch_group(run_cell, *given, processes=config.processes, device=config.device, threads=1)
        finally:
            shutil.rmtree(parcel, ignore_errors=True)

    def finish(self, config: FreezeConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Paired differences, break-even, verdicts, figures."""
        from querist.features.studies.freeze_answer import answer

        targets = [self.target(config, i) for i in range(len(config.target))]
        return answer(config, targets, self.blocks(config).numbers(config.ks), tables, self.material(config))


def _grid(arms: Sequence[str], ks: Sequence[int]) -> list[tuple[str, int]]:
    twin = "random" in arms and 0 in ks
    return [(arm, k) for arm in arms for k in ((0,) if arm == "scratch" else ks) if not (arm == "scratch" and twin)]


def _portable(material: Material, config: FreezeConfig, folder: Path) -> Material:
    roles = {role: "model" if role == "model" else "data" for role in material.addresses}
    return material.portable(config.model_copy(update={"n": ALL}), folder, roles)


class Sweep(Result):
    """A sweep's answer: `table` (cells) holds a row per training, `effects` the paired differences, `latent` A_l and N_l."""


def freeze(
    model: Any,
    *,
    target: Any,
    source: Any = None,
    test: Any = None,
    hooks: Sequence[Hook] = (),
    config: FreezeConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Sweep:
    """Train a network on new data with its first k blocks frozen, beside other initial weights: what is worth keeping?

    model: a MODEL address or a torch module (which stays as it is: copies are trained). target: labelled data, an address,
    (rows, labels), a dataset; several as a list or as a dictionary from name to data. test: data to test on, one for each
    target; by default the part `test` of a registered set, else a fifth of the rows is set aside. source: data that the
    network knows, for A_l. hooks: `training.Hook` objects that watch every training; they are shown the whole network, so
    frozen blocks are not cached, and training stays in this process (engine serial). Further keywords are the fields of
    `FreezeConfig` (arms, ks, repeats, epochs, train_n, lr, …); they replace those of `config`. out: a run folder, resumable
    cell by cell. progress: a callable (done, total, key), None for a bar on standard error, False for silence.

    Raises BadInput for a network, data or options that are wrong, InvariantBroken where something frozen changed, UnitsFailed
    where the work itself failed. A cell whose loss stops being finite is kept with the status diverged.

    Source: protocol ours, after Yosinski et al. (2014) for frozen blocks and Neyshabur et al. (2020) for shuffled data.
    """
    targets = several(target, "target")
    tests = [] if test is None else list(several(test, "test").values())
    held = {"model": model, "source": source} | {f"train-{i}": what for i, what in enumerate(targets.values())}
    held |= {f"test-{i}": what for i, what in enumerate(tests)}
    names: dict[str, Any] = {"model": called(model, "model")}
    names["target"] = tuple(called(what, name) for name, what in targets.items())
    names |= {} if source is None else {"source": called(source, "source")}
    names |= {} if not tests else {"test": tuple(called(what, f"test-{i}") for i, what in enumerate(tests))}
    settings = FreezeConfig.build(config, **{**fields, **names})
    in_memory = {k: what for k, what in held.items() if what is not None and not isinstance(what, str | os.PathLike)}
    if hooks and engine != "serial":
        raise BadOption("Hooks watch a training in this process", value=engine, allowed="engine serial")
    study = FreezeStudy(in_memory, hooks=hooks)
    return answered(Sweep, study, settings, out=out, engine=engine, resume=resume, progress=progress)
