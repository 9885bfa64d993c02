"""Timing by turns: contenders run one after another in each round, so that a drift of the machine meets all of them.

What is measured is CPU seconds, of all threads of the process together: other work on the machine then counts little, and a
contender gains nothing by threads. A peer in a process of its own reports the same of itself.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """A measured ratio beside its target; `most` is True where it must not be exceeded.

    ours and beside: what the ratio was taken of, in `unit`; named: what stands beside, a limit or a peer. With `absent`, the reason
    why the peer could not be asked, there is no value, and the target counts neither as held nor as missed.
    """

    what: str
    value: float | None
    target: float
    most: bool = True
    ours: float | None = None
    beside: float | None = None
    named: str = ""
    unit: str = "s"
    absent: str = ""

    @property
    def held(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.target if self.most else self.value >= self.target

    @property
    def verdict(self) -> str:
        return "absent" if self.value is None else "held" if self.held else "MISSED"

    def line(self) -> str:
        if self.value is None:
            return f"{self.what:<72} peer absent: {self.absent}"
        sign = "<=" if self.most else ">="
        return f"{self.what:<72} {self.value:8.2f}   target {sign} {self.target:<7g} {self.verdict}"


class Reported(float):
    """Seconds that a contender measured of itself, in place of the clock here."""


def cost(
    what: str, times: Mapping[str, float], beside: str, target: float, *, ours: str = "ours", scale: float = 1
) -> Ratio:
    """What we take over what the named limit or peer takes, at most `target`; scale: 100 for per cent."""
    return Ratio(what, scale * times[ours] / times[beside], target, True, times[ours], times[beside], beside)


def gain(what: str, times: Mapping[str, float], beside: str, target: float, *, ours: str = "ours") -> Ratio:
    """How many times longer the named peer takes than we do, at least `target`."""
    return Ratio(what, times[beside] / times[ours], target, False, times[ours], times[beside], beside)


def budget(what: str, ours: float, most: float, unit: str = "s") -> Ratio:
    """Something measured over the most of it that is allowed."""
    return Ratio(what, ours / most, 1, True, ours, most, "its budget", unit)


def seconds(contenders: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median CPU seconds of each contender over rounds by turns, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            gc.collect()
            begun = time.process_time()
            found = run()
            spent = float(found) if isinstance(found, Reported) else time.process_time() - begun
            if number:
                times[name].append(spent)
    return {name: median(values) for name, values in times.items()}
