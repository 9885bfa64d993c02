"""The monitor: what training does to the weights, looked at while it goes on, within a limit of its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption
from querist.reports.result import Result
from querist.training.hooks import Hook, one_training
from querist.weights import monitor as wing
from querist.weights.configs import MonitorConfig
from querist.weights.monitor import Alarm, Known, Memory
from querist.weights.studies.looking import Looker

if TYPE_CHECKING:
    import os

    import torch

    from querist.training.hooks import TrainState

__all__ = ["Monitor"]


class Monitor(Hook):
    """Watch the spectra of a network while it trains, each beside its null.

    In a plain loop call `monitor(step)` after every optimiser step and `monitor.close()` at the end, or use it as a context
    (`with Monitor(model) as monitor:`); as a hook of `querist.training` it needs neither. Each look follows the k largest
    singular triplets of every matrix, measures the update since the look before, and every `full_every`-th time takes the
    whole spectrum with its nulls.

    Parameters
    ----------
    model: the network; wrappers of DataParallel, DistributedDataParallel and torch.compile are looked through. Under
        DistributedDataParallel the process of rank 0 looks; parameters sharded by `fully_shard` are gathered one at a time,
        for which every process must call the monitor at the same steps.
    every: steps from one look to the next. layers: globs of tensor names. k: triplets that are followed.
    full_every: every so many looks the whole spectrum.
    max_overhead: most of the training time that looking may cost, as a share of it: looks that would exceed it are left
        out, and the first one, which needs the weights as they were, is made from a copy of them once its price is earned
        (from 1 on at once). What is looked at after training has ended delays no step; `overhead` tells what training has
        waited, `closing` what came after it.
    out: a run folder. Its tables are written at every look, so that nothing that was seen is lost with the process; its page
        is drawn rarely, out of a quarter of the limit, and at the end. `querist weights watch OUT` draws it at every look.
    on_alarm: called with each `Alarm`, in the process that looks; what it raises ends the training.
    seed: root of the streams from which copies are drawn.

    The monitor holds one copy of the watched weights on the CPU. It changes no weight, gradient, mode or global random
    state, so that a training is bit for bit the same with and without it. Raises BadOption, UnknownName where no tensor is
    left to watch, RunBusy where `out` holds a run whose state was not loaded.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: int = 100,
        layers: str | Sequence[str] = "*",
        k: int = 8,
        full_every: int = 10,
        max_overhead: float = 0.02,
        out: str | os.PathLike[str] | None = None,
        on_alarm: Callable[[Alarm], object] | None = None,
        seed: int = 0,
    ):
        self.config = MonitorConfig.build(
            every=every, layers=layers, k=k, full_every=full_every, max_overhead=max_overhead, seed=seed
        )
        self._looker = Looker(model, self.config, Path(out) if out is not None else None, on_alarm)
        self._step: int | None = None
        self._resumed = False

    # ---------------------------------------------------------------------------------------------- being called

    def __call__(self, step: int) -> None:
        """Tell that `step` optimiser steps are done. Raises BadOption for a step that does not go forward."""
        if self._step is not None and step <= self._step:
            raise BadOption(
                "Steps are counted over the whole training",
                value=f"{step} after {self._step}",
                allowed="a greater number at each call",
            )
        first = self._step is None
        self._step = step
        if not self._looker.works():
            return
        if self._resumed:
            self._go_on(step)
        elif first:
            self._looker.begin(step)
        elif self._looker.pace.candidate(step):
            self._looker.maybe_look(step)

    def _go_on(self, step: int) -> None:
        self._resumed = False
        self._looker.go_on(step)

    def on_start(self, state: TrainState) -> None:
        """The weights before the first step; after a restart those that the next update is measured from."""
        if not self._resumed:
            one_training(self, self._step, state)
        inner = {id(module) for module in state.model.modules()}
        if id(self._looker.model) not in inner:  # a trainer that works on a copy; else names stay those that were given
            self._looker.model = wing.unwrapped(state.model)
        self._looker.is_main = state.is_main
        if not self._resumed:
            self(state.step)
        elif self._looker.works():
            self._step = state.step
            self._go_on(state.step)

    def on_step(self, state: TrainState) -> None:
        """A look where one is due."""
        self(state.step)

    def on_end(self, state: TrainState) -> None:
        """The last look, and the end of the folder's run."""
        self.close(state.step)

    def close(self, step: int | None = None) -> None:
        """The last look, at the whole spectrum, unless the latest one was just that, and the page; the folder's run is then done.

        step: steps done; by default the last one told. The update up to it is measured only where none was before: a
        training may have put back its best weights by now. What all this takes is told as `closing`.
        """
        step = self._step if step is None else step
        if self._looker.status == "running" and step is not None and self._looker.works():
            self._looker.finish(step)
        self._looker.end("done")

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self._looker.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")

    # ------------------------------------------------------------------------------------------------- answers

    @property
    def overhead(self) -> float | None:
        """The time that training has waited for the monitor over the training time; None before there was any."""
        return self._looker.pace.overhead

    @property
    def closing(self) -> float:
        """Seconds that the last look and the page took after training had ended."""
        return self._looker.pace.closing

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """Rows of the table `alarms` so far."""
        return list(self._looker.records.alarms)

    def result(self) -> Result:
        """What was seen so far, in memory: findings, tables, figures; a first look that is still owed is made now.

        Raises BadOption before the first step.
        """
        return self._looker.result()

    def state(self) -> dict[str, Any]:
        """Everything but the weights themselves, as plain values: a restarted training goes on from it."""
        looker = self._looker
        return {
            "config": self.config.model_dump(mode="json"),
            "step": self._step,
            "event": looker.event,
            "training": looker.stopwatch.training(),
            "pace": looker.pace.state(),
            "records": looker.records.state(),
            "known": {name: memory.known.state() for name, memory in looker.memory.items()},
            "bands": {name: list(memory.band) for name, memory in looker.memory.items() if memory.band},
            "header": looker.header,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned. Looks made after it are forgotten. Raises BadOption for another config."""
        ours = self.config.model_dump(mode="json")
        theirs = dict(state["config"]) | {"layers": list(state["config"]["layers"])}
        changed = [
            f"{name}: {theirs.get(name)} -> {value}" for name, value in ours.items() if theirs.get(name) != value
        ]
        if changed:
            raise BadOption(
                "The monitor was begun with another configuration", value="; ".join(changed), mend="Give the old values"
            )
        looker = self._looker
        looker.stopwatch.before = state["training"]
        looker.pace.load_state(state["pace"])
        looker.header = state["header"]
        if state["event"] == 0:
            return  # the first look was not made: it is made of the weights with which the training goes on
        self._step, looker.event = state["step"], state["event"]
        looker.records.load_state(state["records"])
        for name, known in state["known"].items():
            band = state["bands"].get(name)
            looker.memory[name] = Memory(known=Known.of(known), band=(band[0], band[1]) if band else None)
        self._resumed = True
