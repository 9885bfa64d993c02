"""The serial engine: one unit after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from querist.runs.study import Unit
from querist.runs.work import Outcome

__all__ = ["Serial"]


class Serial:
    """Units in their given order, here."""

    name = "serial"
    crosses = False

    def map(self, work: Callable[[Unit], Outcome], units: Sequence[Unit]) -> Iterator[Outcome]:
        """See `Engine.map`."""
        for unit in units:
            yield work(unit)

    def close(self) -> None:
        """Nothing is held."""
