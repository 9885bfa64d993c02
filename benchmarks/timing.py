"""Timing by turns: contenders run one after another in each round, so that a drift of the machine meets all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Ratio:
    """A measured ratio beside its target; `most` is True where it must not be exceeded."""

    what: str
    value: float
    target: float
    most: bool = True

    @property
    def held(self) -> bool:
        return self.value <= self.target if self.most else self.value >= self.target

    def line(self) -> str:
        sign = "<=" if self.most else ">="
        return (
            f"{self.what:<72} {self.value:8.2f}   target {sign} {self.target:<7g} {'held' if self.held else 'MISSED'}"
        )


def seconds(contenders: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median seconds of each contender over rounds by turns, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            gc.collect()
            begun = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - begun)
    return {name: median(values) for name, values in times.items()}
