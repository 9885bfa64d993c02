"""Learning rates over a training: a factor on every group's own rate, as a closed form of the steps or epochs done."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from querist.errors import BadOption

__all__ = ["Rate", "Schedule", "Spec"]

Kind = Literal["constant", "linear", "cosine", "step", "plateau"]
KINDS = ("constant", "linear", "cosine", "step", "plateau")


@dataclass(frozen=True, slots=True)
class Schedule:
    """How learning rates change.

    Parameters
    ----------
    kind: "constant"; "linear" and "cosine" fall from 1 to `floor` over the training; "step" multiplies by `gamma` after
        each `every` units; "plateau" multiplies by `gamma` after more than `patience` validations in a row without a
        better one.
    warmup: units over which the factor rises from 1/warmup to 1 before that.
    gamma, every: see "step".
    floor: least factor ("linear", "cosine", "plateau").
    patience, min_delta: see "plateau"; a validation is better if it is so by more than min_delta.
    unit: "step" (optimiser steps) or "epoch".

    Source: cosine annealing, Loshchilov and Hutter (ICLR 2017), without restarts. The factors are those of torch's
    schedulers (CosineAnnealingLR, LinearLR, StepLR, ReduceLROnPlateau with an absolute threshold).
    """

    kind: Kind = "constant"
    warmup: int = 0
    gamma: float = 0.1
    every: int = 1
    floor: float = 0.0
    patience: int = 10
    min_delta: float = 0.0
    unit: Literal["step", "epoch"] = "step"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadOption("No such schedule", value=self.kind, allowed=", ".join(KINDS))
        if self.unit not in ("step", "epoch"):
            raise BadOption("No such unit of a schedule", value=self.unit, allowed="step, epoch")
        for name, good, allowed in (
            ("warmup", self.warmup >= 0, "warmup >= 0"),
            ("gamma", 0 < self.gamma < math.inf, "gamma > 0"),
            ("every", self.every >= 1, "every >= 1"),
            ("floor", 0 <= self.floor <= 1, "0 <= floor <= 1"),
            ("patience", self.patience >= 0, "patience >= 0"),
            ("min_delta", 0 <= self.min_delta < math.inf, "min_delta >= 0"),
        ):
            if not good:
                raise BadOption(f"The schedule's {name} is out of range", value=getattr(self, name), allowed=allowed)

    @property
    def needs_end(self) -> bool:
        """Whether the factor depends on how long the training lasts."""
        return self.kind in ("linear", "cosine")

    def factor(self, done: int, end: int | None = None) -> float:
        """The factor of the step that follows `done` units, of `end` in all; a plateau's own scale is left out."""
        if done < self.warmup:
            return (done + 1) / self.warmup
        after = done - self.warmup
        if self.kind == "step":
            return self.gamma ** (after // self.every)
        if not self.needs_end:
            return 1.0
        assert end is not None
        share = min(1.0, after / max(1, end - self.warmup))
        fall = share if self.kind == "linear" else (1 - math.cos(math.pi * share)) / 2
        return 1 - (1 - self.floor) * fall


Spec = str | Schedule | Callable[[int], float]
"""A kind by name, a Schedule, or a function from optimiser steps done to the factor of the next one."""


class Rate:
    """A schedule at work: the factor now, and a plateau's memory. `end`: (steps, epochs), None where unknown."""

    def __init__(self, spec: Spec, end: tuple[int | None, int | None], *, validates: bool, better_is: str = "min"):
        self.schedule = Schedule(spec) if isinstance(spec, str) else spec  # pyright: ignore[reportArgumentType]
        self.scale, self.best, self.bad = 1.0, None, 0
        self._sign = 1.0 if better_is == "min" else -1.0
        self._end: int | None = None
        if not isinstance(self.schedule, Schedule):
            if not callable(self.schedule):
                raise BadOption(
                    "This is no schedule",
                    value=self.schedule,
                    allowed=f"{', '.join(KINDS)}, a Schedule, a function of steps",
                )
            return
        self._end = end[0] if self.schedule.unit == "step" else end[1]
        if self.schedule.needs_end and self._end is None:
            raise BadOption(
                "This schedule must know how long the training lasts",
                value=f"{self.schedule.kind} by {self.schedule.unit}",
                allowed="epochs=, or max_steps= where the number of steps in an epoch is unknown or the unit is a step",
            )
        if self.schedule.kind == "plateau" and not validates:
            raise BadOption("This schedule needs validation data", value="plateau", mend="Give validation=")

    def factor(self, step: int, epoch: int) -> float:
        """The factor of the next step, after `step` steps and `epoch` epochs."""
        if not isinstance(self.schedule, Schedule):
            return float(self.schedule(step))
        return self.scale * self.schedule.factor(step if self.schedule.unit == "step" else epoch, self._end)

    def validated(self, value: float) -> None:
        """Tell the schedule what a validation gave."""
        if not isinstance(self.schedule, Schedule) or self.schedule.kind != "plateau":
            return
        value *= self._sign
        if self.best is None or value < self.best - self.schedule.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
            if self.bad > self.schedule.patience:
                self.scale, self.bad = max(self.schedule.floor, self.scale * self.schedule.gamma), 0

    def describe(self) -> dict[str, Any]:
        """What a resumed training must find again."""
        if not isinstance(self.schedule, Schedule):
            return {"function": getattr(self.schedule, "__qualname__", type(self.schedule).__qualname__)}
        return {**asdict(self.schedule), "end": self._end if self.schedule.needs_end else None}

    def state(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {"scale": self.scale, "best": self.best, "bad": self.bad}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.scale, self.best, self.bad = state["scale"], state["best"], state["bad"]
