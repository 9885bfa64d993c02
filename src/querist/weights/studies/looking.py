"""What a monitor does when it is called: copies, looks, tables and pages, each at its price."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption
from querist.reports.result import Result
from querist.runs.provenance import header
from querist.weights import monitor as wing
from querist.weights.configs import MonitorConfig
from querist.weights.monitor import Alarm, Event, FirstLook, Look, Memory, Pace, Plan, Stopwatch
from querist.weights.studies.monitor_folder import MonitorFolder, reload_seconds, watched_result
from querist.weights.studies.records import Records
from querist.weights.studies.watching import Watched

if TYPE_CHECKING:
    import torch

__all__ = ["PAGE_SHARE", "Looker"]

PAGE_SHARE = 0.25
"""What drawing may take of the limit; looks have the rest."""


class Looker:
    """A network that is watched: what is known of it, what was spent on it, and where it is written.

    `weights.Monitor` decides when it is called; see there for the parameters.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        config: MonitorConfig,
        out: Path | None,
        on_alarm: Callable[[Alarm], object] | None,
    ):
        self.config, self.on_alarm = config, on_alarm
        self.stopwatch = Stopwatch()
        self.pace = Pace(config.every, config.full_every, config.max_overhead, 0.0 if out is None else PAGE_SHARE)
        self.model = wing.unwrapped(model)
        self.records = Records(config.k)
        self.memory: dict[str, Memory] = {}
        self.folder = MonitorFolder(out) if out is not None else None
        self.is_main: bool | None = None
        self.begun = time.monotonic()
        self.event = 0
        self.first: FirstLook | None = None
        self.status = "running"
        self.header: dict[str, Any] | None = None
        self._drawn, self._stale = 0, False
        self._closing_since: float | None = None
        self._latest: tuple[int, Event] | None = None
        import scipy.special  # noqa: F401 - what the tests of copies need: loaded here, or the first look would pay for it

        self.records.begin(*wing.watched(self.model, config.layers))
        self.sharded = wing.is_sharded(self.model)

    def main(self) -> bool:
        """Whether this process is the one that looks."""
        return wing.is_first() if self.is_main is None else self.is_main

    def works(self) -> bool:
        """Whether this process has anything to do: rank 0, and all of them where tensors are sharded."""
        return self.sharded or self.main()

    def begin(self, step: int) -> None:
        """Keep a copy of the weights for the first look, and open the folder."""
        places = wing.devices(self.model)
        begun = self._started(places)
        layers = []
        with wing.unchanged(places):
            made, passed = wing.watched(self.model, self.config.layers)
            for matrix in made:
                W = wing.dense(matrix)  # of a sharded tensor the gathering, in every process
                if self.main():
                    layers.append((matrix, W.detach().to("cpu", copy=True), W.device))
        self._latest = (step, "whole")
        self.pace.go_on(step)
        if not self.main():
            return
        self.records.begin(made, passed)
        self.first = FirstLook(step, layers)
        self._open(resume=self.header is not None)
        self._book(begun)
        if self.pace.immediate:
            self.earn(whatever=True)
            self._maybe_draw()

    def earn(self, *, whatever: bool = False) -> bool:
        """Go on with the first look as far as its price is there, or to its end; whether it is made."""
        first = self.first
        if first is None:
            return True
        places = wing.devices(self.model)
        while True:
            if not whatever and not self.pace.affords(first.expected()):
                return False
            if not first.owed:
                break
            begun = self.stopwatch.clock()
            matrix, W, place = first.next()
            memory = self.memory.setdefault(matrix.layer_id, Memory())
            plan = replace(self._plan(first.step, len(first.order), True), event=1)
            with wing.unchanged(places):
                seen = wing.look(W.to(place), matrix, memory, plan)
            wing.synchronise(places)
            first.seen(seen, wing.work(matrix), self._book(begun))
        begun = self.stopwatch.clock()
        self.first, self.event = None, 1
        looks = first.looks()
        raised = self._record(looks, first.step, "whole", first.seconds, self.pace.training, begun)
        whole = sum(one.whole_seconds for one in looks)
        self.pace.priced("whole", first.seconds + self._book(begun), whole)
        self._tell(raised)
        return True

    def maybe_look(self, step: int) -> None:
        """At a candidate step: what is owed of the first look, a look, a page, each where its price is there."""
        self._started(wing.devices(self.model))
        self.pace.training = self.stopwatch.training()
        decided: Event | None = None
        if not self.main():
            self.pace.go_on(step)
        elif self.earn():
            decided = self.pace.decide(step, self.pace.training)
        else:
            self.pace.go_on(step)
            self.pace.skipped += 1
        if self.sharded:
            decided = wing.agreed(decided, self.model)
        if decided is not None:
            self._look(step, decided)
        if self.main():
            self._maybe_draw()

    def _started(self, places: Sequence[torch.device]) -> float:
        """Wait for the devices and read the clock."""
        wing.synchronise(places)
        self.stopwatch.start()
        return self.stopwatch.clock()

    def _book(self, since: float) -> float:
        """Book the time from `since` on as one for which training waited, unless it has ended; how much it was."""
        if self._closing_since is not None:
            return self.stopwatch.clock() - since
        seconds = self.stopwatch.book(since)
        self.pace.also(seconds)
        return seconds

    def go_on(self, step: int) -> None:
        """After a restart: the weights as they are, from which the next update is measured."""
        places = wing.devices(self.model)
        begun = self._started(places)
        with wing.unchanged(places):
            made, passed = wing.watched(self.model, self.config.layers)
            for matrix in made:
                W = wing.dense(matrix)
                if self.main():
                    memory = self.memory.setdefault(matrix.layer_id, Memory())
                    wing.begin_again(W, matrix, memory, self._plan(step, len(made), False))
        if self.main():
            self.records.begin(made, passed)
            self._open(resume=True)
        self._book(begun)

    def _look(self, step: int, event: Event, *, last: bool = False) -> None:
        places = wing.devices(self.model)
        begun = self._started(places)
        training = self.pace.training
        self.event += 1
        self._latest = (step, event)
        with wing.unchanged(places):
            looks = self._all_layers(step, event, last)
        wing.synchronise(places)
        if not self.main():
            return
        raised = self._record(looks, step, event, self.stopwatch.clock() - begun, training, begun)
        self.pace.priced(event, self._book(begun), sum(one.whole_seconds for one in looks))
        self.records.book(self.pace.own, training, self._closed())
        self._tell(raised)

    def _record(
        self, looks: Sequence[Look], step: int, event: Event, seconds: float, training: float, begun: float
    ) -> list[Alarm]:
        """Take a look's rows into the tables, and write them; begun: from when on its time is not booked yet."""
        unbooked = 0.0 if self._closing_since is not None else self.stopwatch.clock() - begun
        own = self.pace.own + unbooked
        row = {
            "step": step,
            "event": event,
            "layers": len(looks),
            "skipped": self.pace.skipped,
            "seconds": seconds,
            "training_seconds": training,
            "own_seconds": own,
            "overhead": own / training if training > 0 else None,
            "closing_seconds": self._closed(),
        }
        raised = self.records.add(looks, row)
        self._stale = True
        if self.folder is not None and self.folder.open:
            self.folder.write_tables(self.records.tables())
        return raised

    def _tell(self, raised: Sequence[Alarm]) -> None:
        if self.on_alarm is not None:
            for alarm in raised:
                self.on_alarm(alarm)

    def _closed(self) -> float:
        """Seconds since training ended."""
        return 0.0 if self._closing_since is None else self.stopwatch.clock() - self._closing_since

    def finish(self, step: int) -> None:
        """What is left to do after the last step."""
        begun = self._started(wing.devices(self.model))
        self.pace.training = self.stopwatch.training()
        if self._latest is None and not self.event:
            self.begin(step)
        self._closing_since = begun
        if self.main():
            self.earn(whatever=True)
        if self._latest != (step, "whole"):
            self._look(step, "whole", last=True)
        if self.main():
            self.status = "done"
            if self.folder is not None:
                self._draw()
            self.pace.closing = self.stopwatch.book(begun)
            self.records.book(self.pace.own, self.pace.training, self.pace.closing)
            if self.folder is not None:
                self.folder.settle(self.result())

    def _all_layers(self, step: int, event: Event, last: bool) -> list[Look]:
        made, passed = wing.watched(self.model, self.config.layers)
        if self.main():
            self.records.begin(made, passed)
        looks = []
        updates = bool(self.records.update)
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
            if not self.main():
                continue
            memory = self.memory.setdefault(matrix.layer_id, Memory())
            if last and updates:
                memory.previous = None
            whole = event == "whole" or memory.known.spikes is None
            looks.append(wing.look(W, matrix, memory, self._plan(step, len(made), whole, brought_forward)))
        return looks

    def _plan(self, step: int, layers: int, whole: bool, affords: Callable[[], bool] = lambda: False) -> Plan:
        return Plan(step, self.event, whole, self.config.k, layers, self.config.seed, affords)

    def _head(self) -> dict[str, Any]:
        watched = Watched(str(self.folder.folder) if self.folder is not None else "RUN")
        goes_on = "A training restarted from its checkpoint goes on with this run."
        return header(watched, self.config, "serial", {}) | {"goes_on": goes_on, "network": type(self.model).__name__}

    def _open(self, *, resume: bool) -> None:
        before = self.header
        self.header = self._head()
        if before is not None:
            self.header["started"] = before["started"]
        if self.folder is not None and not self.folder.open:
            self.folder.begin(self.header, resume=resume)

    def _maybe_draw(self) -> None:
        """Draw the page where there is something new to show and its price is there."""
        if self.folder is not None and self._stale and self.event and (self.pace.immediate or self.pace.affords_page()):
            begun = self.stopwatch.clock()
            self._draw()
            self.pace.drew(self.stopwatch.book(begun))
            self.records.book(self.pace.own, self.pace.training)

    def _draw(self) -> None:
        assert self.folder is not None
        self._drawn, self._stale = self._drawn + 1, False
        reload = reload_seconds(self._drawn, self.begun) if self.status == "running" else None
        self.folder.draw(self.result(), reload=reload)

    def result(self) -> Result:
        """As `Monitor.result`."""
        if self.event == 0 and self.first is not None:
            self.pace.training = self.stopwatch.training()
            self.earn(whatever=True)
        if self.event == 0:
            raise BadOption("Nothing was looked at yet", value="no step", mend="Call the monitor with a step first")
        head = self.header or self._head()
        head = head | {"status": self.status, "seconds": time.monotonic() - self.begun}
        return watched_result(head, self.records.tables(), self.folder.folder if self.folder is not None else None)

    def end(self, status: str) -> None:
        """Close the books and the folder."""
        if self.status == "running":
            self.status = status
        if self.folder is not None and self.folder.open:
            self.folder.end(self.status, time.monotonic() - self.begun)
        elif self.folder is not None:
            self.folder.release()
