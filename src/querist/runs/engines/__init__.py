"""Engines: who carries out the units of a stage. What comes out never depends on which one it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from querist.errors import BadOption
from querist.runs.study import Unit
from querist.runs.work import Outcome

__all__ = ["AUTO_SECONDS", "Engine", "choose"]

AUTO_SECONDS = 30.0
"""`auto` starts a pool above this many seconds of estimated work: starting one costs 3 to 5 s of imports per worker."""

_NAMES = "auto, serial, local, local:N, ray, ray://HOST:PORT"


class Engine(Protocol):
    """Carries out units and yields their outcomes as they end.

    `crosses` says whether units leave this process, so that what is held in memory must be written for them first.
    """

    name: str
    crosses: bool

    def map(self, work: Callable[[Unit], Outcome], units: Sequence[Unit]) -> Iterator[Outcome]:
        """Outcomes of all units, in the order in which they end. Closing the iterator ends what still runs."""
        ...

    def close(self) -> None:
        """Give back what the engine holds between stages."""
        ...


def choose(name: str) -> Callable[[Sequence[Unit]], Engine]:
    """From an engine's name to a function that gives the engine for the units of a stage, the same one where it can.

    Raises BadOption for a name that is not known and MissingExtra for one whose package is not here.
    """
    from querist.runs.engines.local import Local
    from querist.runs.engines.serial import Serial

    serial = Serial()
    if name == "serial":
        return lambda units: serial
    if name == "auto":
        pool = Local()
        return lambda units: pool if len(units) > 1 and sum(unit.cost for unit in units) > AUTO_SECONDS else serial
    if match := re.fullmatch(r"local(?::0*([1-9][0-9]*))?", name):
        local = Local(int(match[1]) if match[1] else None)
        return lambda units: local
    if name == "ray" or name.startswith("ray://"):
        from querist.runs.engines.ray import Ray

        cluster = Ray(name)
        return lambda units: cluster
    raise BadOption("No such engine", value=name, allowed=_NAMES, mend="N is a number of processes, at least 1")
