"""Pace: which steps are looked at, so that looking costs no more than it may."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

__all__ = ["Event", "Pace", "Stopwatch"]

Event = Literal["whole", "top"]


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

    An event is due at the first step and at every multiple of `every`; every `full_every`-th is a whole one (all
    eigenvalues), the others look at the largest ones only. Between the first and the last event, which are always
    made, one is left out unless what was spent, what it is expected to cost and what the last one will cost together stay
    within `max_overhead` of the training time so far; a whole one that cannot be afforded becomes a small one, and stays
    due.
    """

    def __init__(self, every: int, full_every: int, max_overhead: float):
        self.every, self.full_every, self.max_overhead = every, full_every, max_overhead
        self.next_step: int | None = None
        self.since_whole = 0
        self.skipped = 0
        self.training, self.own = 0.0, 0.0
        self.costs: dict[str, float] = {}

    def candidate(self, step: int) -> bool:
        """Whether a step is one at which an event may be due: the same in every process, whatever was spent."""
        return self.next_step is None or step >= self.next_step

    def decide(self, step: int, training: float) -> Event | None:
        """Which event to make at a candidate step, after so many seconds of training (own time excluded)."""
        self.training = training
        first = self.next_step is None
        self.next_step = (step // self.every + 1) * self.every
        if first:
            return "whole"
        if self.since_whole + 1 >= self.full_every and self.affords(self.costs.get("whole", 0.0)):
            return "whole"
        if self.affords(self.costs.get("top", 0.0)):
            return "top"
        self.skipped += 1
        return None

    def affords(self, cost: float) -> bool:
        """Whether so many seconds more, and a last whole event after them, stay within the limit."""
        reserve = self.costs.get("whole", 0.0)
        return self.own + cost + reserve <= self.max_overhead * self.training

    def spent(self, event: Event, seconds: float, whole: float = 0.0) -> int:
        """Book an event's price; the number of events that were left out before it.

        whole: how much of it went into whole spectra, which a small event has only where one was brought forward.
        """
        self.own += seconds
        self._expect(event, seconds - (whole if event == "top" else 0.0))
        if "top" not in self.costs:
            self._expect("top", seconds - whole)
        self.since_whole = 0 if event == "whole" else self.since_whole + 1
        skipped, self.skipped = self.skipped, 0
        return skipped

    def _expect(self, event: Event, seconds: float) -> None:
        """Or half-way back to it from what was dearer: a machine that was busy once makes the next events rarer."""
        before = self.costs.get(event)
        self.costs[event] = seconds if before is None else max(seconds, (before + seconds) / 2)

    def also(self, seconds: float) -> None:
        """Book time beside the events: writing, drawing."""
        self.own += seconds

    @property
    def overhead(self) -> float | None:
        """Own time over training time; None before there was any training."""
        return self.own / self.training if self.training > 0 else None

    def state(self) -> dict[str, Any]:
        """Plain values from which `load_state` goes on."""
        return {
            "next_step": self.next_step,
            "since_whole": self.since_whole,
            "skipped": self.skipped,
            "training": self.training,
            "own": self.own,
            "costs": dict(self.costs),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.next_step, self.since_whole, self.skipped = state["next_step"], state["since_whole"], state["skipped"]
        self.training, self.own, self.costs = state["training"], state["own"], dict(state["costs"])
