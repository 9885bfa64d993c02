"""Pace: which steps are looked at, so that looking costs no more than it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from querist.weights.monitor._look import Look
    from querist.weights.spectrum import LayerMatrix

__all__ = ["Event", "FirstLook", "Pace", "Stopwatch", "work"]

Event = Literal["whole", "top"]
_PAGE = 1.0
"""Seconds that the first page is taken to cost; measured, .1 to .7."""
_LEAST = 0.05
"""Seconds that the first of all looks, which loads what is loaded once, and the first writing are taken to cost at least."""
_SMALL = 1e7
"""Multiplications up to which a look costs about the same whatever the size (2 to 7 ms)."""
_SPEED = 1e9
"""Multiplications a second of a whole look with its copies, until a layer above `_SMALL` was measured: 1 to 4.5e9 on one core."""


class Stopwatch:
    """Training time: from the start of this sitting on, with `before` of earlier ones, time that was booked left out."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.clock = clock
        """Seconds; whoever reads it has waited for the devices."""
        self.before = 0.0
        self._begun: float | None = None
        self._booked = 0.0

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._begun is None:
            self._begun = self.clock()

    def training(self) -> float:
        """Seconds of training so far."""
        if self._begun is None:
            return self.before
        return self.before + max(self.clock() - self._begun - self._booked, 0.0)

    def book(self, since: float) -> float:
        """Take the time from `since` on out of the training; how much it was."""
        spent = self.clock() - since
        self._booked += spent
        return spent


class Pace:
    """When an event is due, from measured times alone: no clock is read here.

    An event is due at every multiple of `every`; every `full_every`-th is a whole one (all eigenvalues), the others look at
    the largest ones only. One is left out unless what was spent and what it is expected to cost together stay within the
    looks' part of `max_overhead` of the training time so far; a whole one that cannot be afforded becomes a small one, and
    stays due. Pages are drawn from a part of their own, `page_share`, so that neither starves the other. What is spent
    once training has ended delays no step: it is counted apart, in `closing`.
    """

    def __init__(self, every: int, full_every: int, max_overhead: float, page_share: float = 0.0):
        self.every, self.full_every, self.max_overhead, self.page_share = every, full_every, max_overhead, page_share
        self.next_step: int | None = None
        self.since_whole = 0
        self.skipped = 0
        self.training, self.looked, self.drawn, self.closing = 0.0, 0.0, 0.0, 0.0
        self.costs: dict[str, float] = {}

    @property
    def immediate(self) -> bool:
        """Whether looking may cost as much as training: then nothing has to be earned first."""
        return self.max_overhead >= 1

    @property
    def own(self) -> float:
        """Seconds for which training waited."""
        return self.looked + self.drawn

    def candidate(self, step: int) -> bool:
        """Whether a step is one at which an event may be due: the same in every process, whatever was spent."""
        return self.next_step is None or step >= self.next_step

    def go_on(self, step: int) -> None:
        """From this step the next candidate is the next multiple of `every`."""
        self.next_step = (step // self.every + 1) * self.every

    def decide(self, step: int, training: float) -> Event | None:
        """Which event to make at a candidate step, after so many seconds of training (own time excluded)."""
        self.training = training
        self.go_on(step)
        if self.since_whole + 1 >= self.full_every and self.affords(self.costs.get("whole", 0.0)):
            return "whole"
        if self.affords(self.costs.get("top", 0.0)):
            return "top"
        self.skipped += 1
        return None

    def affords(self, cost: float) -> bool:
        """Whether looking for so many seconds more stays within its part of the limit."""
        return self.looked + cost <= (1 - self.page_share) * self.max_overhead * self.training

    def affords_page(self) -> bool:
        """Whether drawing once more stays within its part of the limit."""
        cost = self.costs.get("page", _PAGE)
        return self.drawn + cost <= self.page_share * self.max_overhead * self.training

    def spent(self, event: Event, seconds: float, whole: float = 0.0) -> int:
        """Book an event's price; the number of events that were left out before it. As `priced`."""
        self.looked += seconds
        return self.priced(event, seconds, whole)

    def priced(self, event: Event, seconds: float, whole: float = 0.0) -> int:
        """Learn what an event costs whose seconds are booked already; the number of events that were left out before it.

        whole: how much of it went into whole spectra, which a small event has only where one was brought forward.
        """
        self._expect(event, seconds - (whole if event == "top" else 0.0))
        if "top" not in self.costs:
            self._expect("top", seconds - whole)
        self.since_whole = 0 if event == "whole" else self.since_whole + 1
        skipped, self.skipped = self.skipped, 0
        return skipped

    def _expect(self, event: str, seconds: float) -> None:
        """Or half-way back to it from what was dearer: a machine that was busy once makes the next events rarer."""
        before = self.costs.get(event)
        self.costs[event] = seconds if before is None else max(seconds, (before + seconds) / 2)

    def also(self, seconds: float) -> None:
        """Book time beside the events: copies, parts of the first look."""
        self.looked += seconds

    def drew(self, seconds: float) -> None:
        """Book the drawing of a page."""
        self.drawn += seconds
        self._expect("page", seconds)

    @property
    def overhead(self) -> float | None:
        """Own time over training time; None before there was any training."""
        return self.own / self.training if self.training > 0 else None

    def state(self) -> dict[str, Any]:
        """Plain values from which `load_state` goes on."""
        return {**{name: getattr(self, name) for name in _STATE}, "costs": dict(self.costs)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned. A training that goes on has not ended: what closing cost is forgotten."""
        for name in _STATE:
            setattr(self, name, state[name])
        self.costs = dict(state["costs"])


_STATE = ("next_step", "since_whole", "skipped", "training", "looked", "drawn")


class FirstLook:
    """The first look, from a copy of the weights: layer by layer, small ones first, as each is earned.

    A look at the whole spectrum of every layer may cost more than a short training has to give. What it must see is only
    there at the beginning, so the weights are copied then, and looked at when the price is there.
    """

    def __init__(self, step: int, layers: Sequence[tuple[LayerMatrix, Tensor, torch.device]]):
        self.step, self.order = step, [matrix.layer_id for matrix, *_ in layers]
        self.owed = sorted(layers, key=lambda pair: work(pair[0]), reverse=True)
        self.seconds = 0.0
        self._seen: dict[str, Look] = {}
        self._dearest, self._most = 0.0, 0.0

    def expected(self) -> float:
        """What the next layer will cost, from the dearest and the largest one so far; without one the writing of the tables."""
        if not self.owed or not self._seen:
            return _LEAST + (work(self.owed[-1][0]) / _SPEED if self.owed else 0.0)
        size = work(self.owed[-1][0])
        price = self._dearest * max(1.0, size / max(self._most, _SMALL))
        return price if self._most >= _SMALL else max(price, size / _SPEED)

    def next(self) -> tuple[LayerMatrix, Tensor, torch.device]:
        """The next layer, its copy, which is let go, and where it was."""
        return self.owed.pop()

    def seen(self, look: Look, size: float, seconds: float) -> None:
        """Take in a layer's look and its price."""
        self._seen[look.row["layer_id"]] = look
        self.seconds += seconds
        self._dearest, self._most = max(self._dearest, seconds), max(self._most, size)

    def looks(self) -> list[Look]:
        """The looks so far, in the network's order."""
        return [self._seen[name] for name in self.order if name in self._seen]


def work(matrix: LayerMatrix) -> float:
    """Multiplications of a matrix's Gram matrix: what its spectrum costs, but for a factor."""
    return float(min(matrix.shape)) ** 2 * max(matrix.shape)
