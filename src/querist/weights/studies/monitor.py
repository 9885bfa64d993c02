"""The monitor: what training does to the weights, looked at while it goes on, within a limit of its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption
from querist.reports.result import Result
from querist.results.figure import Figure
from querist.results.summary import envelope, plain
from querist.runs.provenance import header
from querist.training.hooks import Hook
from querist.weights import monitor as wing
from querist.weights.configs import MonitorConfig
from querist.weights.monitor import Alarm, Event, Known, Look, Memory, Pace, Plan, Stopwatch
from querist.weights.studies.monitor_folder import MonitorFolder, reload_seconds
from querist.weights.studies.records import Records
from querist.weights.studies.watching import Watched, answer

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
    max_overhead: most of the training time that looking may cost, as a share of it. Between the first and the last look,
        which are always made, those that would exceed it are left out. `overhead` tells what it has cost.
    out: a run folder, written at every look; `querist weights watch OUT` follows it, and its page reloads itself.
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
        self.on_alarm = on_alarm
        self.stopwatch = Stopwatch()
        self.pace = Pace(every, full_every, max_overhead)
        self._model = wing.unwrapped(model)
        self._records = Records(k)
        self._memory: dict[str, Memory] = {}
        self._folder = MonitorFolder(Path(out)) if out is not None else None
        self._is_main: bool | None = None
        self._wall = time.monotonic()
        self._event = 0
        self._latest: tuple[int, Event] | None = None
        self._step: int | None = None
        self._resumed = False
        self._status = "running"
        self._header: dict[str, Any] | None = None
        import scipy.special  # noqa: F401 - what the tests of copies need: loaded here, or the first look would pay for it

        self._records.begin(*wing.watched(self._model, self.config.layers))
        self._sharded = wing.is_sharded(self._model)

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
        if not self._works():
            return
        if self._resumed:
            self._go_on(step)
        elif first or self.pace.candidate(step):
            self._maybe_look(step)

    def on_start(self, state: TrainState) -> None:
        """The look before the first step; after a restart only the weights that the next update is measured from."""
        inner = {id(module) for module in state.model.modules()}
        if (
            id(self._model) not in inner
        ):  # a trainer that works on a copy; names stay those of the network that was given
            self._model = wing.unwrapped(state.model)
        self._is_main = state.is_main
        if not self._resumed:
            self(state.step)
        elif self._works():
            self._step = state.step
            self._go_on(state.step)

    def on_step(self, state: TrainState) -> None:
        """A look where one is due."""
        self(state.step)

    def on_end(self, state: TrainState) -> None:
        """The last look, and the end of the folder's run."""
        self.close(state.step)

    def close(self, step: int | None = None) -> None:
        """The last look, at the whole spectrum, unless the latest one was just that; the folder's run is then done.

        step: steps done; by default the last one told. The update up to it is measured only where none was before: a
        training may have put back its best weights by now.
        """
        if self._status != "running" or (self._step is None and step is None):
            self._end("done")
            return
        step = self._step if step is None else step
        if self._works() and self._latest != (step, "whole"):
            self._look(step or 0, "whole", last=True)
        elif self._folder is not None and self._folder.open:
            begun = self.stopwatch.clock()
            self._write(last=True)
            self.pace.also(self.stopwatch.book(begun))
        self._end("done")

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self._end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")

    # ------------------------------------------------------------------------------------------------- answers

    @property
    def overhead(self) -> float | None:
        """The monitor's own time over the training time so far; None before there was any training."""
        return self.pace.overhead

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """Rows of the table `alarms` so far."""
        return list(self._records.alarms)

    def result(self) -> Result:
        """What was seen so far, in memory: findings, tables, figures. Raises BadOption before the first look."""
        if self._event == 0:
            raise BadOption("Nothing was looked at yet", value="no step", mend="Call the monitor with a step first")
        head = self._header or self._head()
        head = head | {"status": self._status, "seconds": time.monotonic() - self._wall}
        tables = self._records.tables()
        name = type(self._model).__name__
        told = answer(self.config, tables, self._records.whole, self._records.update, name, done=self._status == "done")
        folder = self._folder.folder if self._folder is not None else None
        summary = envelope(
            head,
            schema=Watched.version,
            run=None if folder is None else str(folder),
            warnings=told.warnings,
            passed_over=told.passed_over,
            tables={name: None if folder is None else f"tables/{name}.parquet" for name in tables},
            findings=told.findings,
            own=told.summary,
        )
        drawn: Sequence[Figure] = told.figures  # type: ignore[assignment] - `answer` gives a list
        figures = {figure.name: Figure(**plain(figure.as_dict())) for figure in drawn}
        return Result(head, told.layout, tuple(told.findings), tables, figures, summary, folder)

    def state(self) -> dict[str, Any]:
        """Everything but the weights themselves, as plain values: a restarted training goes on from it."""
        return {
            "config": self.config.model_dump(mode="json"),
            "step": self._step,
            "event": self._event,
            "training": self.stopwatch.training(),
            "pace": self.pace.state(),
            "records": self._records.state(),
            "known": {name: memory.known.state() for name, memory in self._memory.items()},
            "bands": {name: list(memory.band) for name, memory in self._memory.items() if memory.band},
            "header": self._header,
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
        self._step, self._event = state["step"], state["event"]
        self.stopwatch.before = state["training"]
        self.pace.load_state(state["pace"])
        self._records.load_state(state["records"])
        for name, known in state["known"].items():
            band = state["bands"].get(name)
            self._memory[name] = Memory(known=Known.of(known), band=(band[0], band[1]) if band else None)
        self._header = state["header"]
        self._resumed = self._event > 0

    # ------------------------------------------------------------------------------------------------- looking

    def _main(self) -> bool:
        return wing.is_first() if self._is_main is None else self._is_main

    def _works(self) -> bool:
        """Whether this process has anything to do: rank 0, and all of them where tensors are sharded."""
        return self._sharded or self._main()

    def _maybe_look(self, step: int) -> None:
        wing.synchronise(wing.devices(self._model))
        self.stopwatch.start()
        decided = self.pace.decide(step, self.stopwatch.training())
        if self._sharded:
            decided = wing.agreed(decided, self._model)
        if decided is not None:
            self._look(step, decided)

    def _go_on(self, step: int) -> None:
        """After a restart: the weights as they are, from which the next update is measured."""
        self._resumed = False
        self.stopwatch.start()
        begun = self.stopwatch.clock()
        with wing.unchanged(wing.devices(self._model)):
            made, passed = wing.watched(self._model, self.config.layers)
            for matrix in made:
                W = wing.dense(matrix)
                if self._main():
                    memory = self._memory.setdefault(matrix.layer_id, Memory())
                    wing.begin_again(W, matrix, memory, self._plan(step, len(made), False))
        if self._main():
            self._records.begin(made, passed)
            self._open(resume=True)
        self.pace.also(self.stopwatch.book(begun))

    def _look(self, step: int, event: Event, *, last: bool = False) -> None:
        places = wing.devices(self._model)
        wing.synchronise(places)
        self.stopwatch.start()
        training, begun = self.stopwatch.training(), self.stopwatch.clock()
        self._event += 1
        self._latest = (step, event)
        with wing.unchanged(places):
            looks = self._all_layers(step, event, last)
        wing.synchronise(places)
        if not self._main():
            return
        measured = self.stopwatch.clock() - begun
        own = self.pace.own + measured
        row = {
            "step": step,
            "event": event,
            "layers": len(looks),
            "skipped": self.pace.skipped,
            "seconds": measured,
            "training_seconds": training,
            "own_seconds": own,
            "overhead": own / training if self._event > 1 and training > 0 else None,
        }
        raised = self._records.add(looks, row)
        self.pace.training = training
        if self._folder is not None:
            self._write(last)
        self.pace.spent(event, self.stopwatch.book(begun), sum(one.whole_seconds for one in looks))
        self._records.book(self.pace.own, training)
        if self.on_alarm is not None:
            for alarm in raised:
                self.on_alarm(alarm)

    def _all_layers(self, step: int, event: Event, last: bool) -> list[Look]:
        made, passed = wing.watched(self._model, self.config.layers)
        if self._main():
            self._records.begin(made, passed)
        looks = []
        updates = bool(self._records.update)
        promised = 0.0

        def brought_forward() -> bool:
            """Whether one more layer's whole spectrum may be looked at out of turn, beside those of this look already."""
            nonlocal promised
            more = promised + self.pace.costs.get("whole", 0.0) / max(len(made), 1)
            if self.pace.affords(self.pace.costs.get("top", 0.0) + more):
                promised = more
                return True
            return False

        for matrix in made:
            W = wing.dense(matrix)  # of a sharded tensor the gathering, in every process
            if not self._main():
                continue
            memory = self._memory.setdefault(matrix.layer_id, Memory())
            if last and updates:
                memory.previous = None
            whole = event == "whole" or memory.known.spikes is None
            looks.append(wing.look(W, matrix, memory, self._plan(step, len(made), whole, brought_forward)))
        return looks

    def _plan(self, step: int, layers: int, whole: bool, affords: Callable[[], bool] = lambda: False) -> Plan:
        return Plan(step, self._event, whole, self.config.k, layers, self.config.seed, affords)

    # ------------------------------------------------------------------------------------------------- folder

    def _head(self) -> dict[str, Any]:
        watched = Watched(str(self._folder.folder) if self._folder is not None else "RUN")
        goes_on = "A training restarted from its checkpoint goes on with this run."
        return header(watched, self.config, "serial", {}) | {"goes_on": goes_on}

    def _open(self, *, resume: bool) -> None:
        before = self._header
        self._header = self._head()
        if before is not None:
            self._header["started"] = before["started"]
        if self._folder is not None and not self._folder.open:
            self._folder.begin(self._header, resume=resume)

    def _write(self, last: bool) -> None:
        assert self._folder is not None
        if not self._folder.open:
            self._open(resume=False)
        if last:
            self._status = "done"
        reload = None if last else reload_seconds(self._event, self._wall)
        self._folder.write(self.result(), reload=reload)

    def _end(self, status: str) -> None:
        if self._status == "running":
            self._status = status
        if self._folder is not None and self._folder.open:
            self._folder.end(self._status, time.monotonic() - self._wall)
        elif self._folder is not None:
            self._folder.release()
