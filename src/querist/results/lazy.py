"""A mapping whose values are made when they are first asked for, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

__all__ = ["Lazy"]

V = TypeVar("V")
W = TypeVar("W")


class Lazy(Mapping[str, V]):
    """Names in their order, each with what makes its value; names, length and membership make nothing.

    What a maker needs, it holds: give it frames and rows that nobody changes, never an array of the caller's.
    """

    def __init__(self, makers: Mapping[str, Callable[[], V]]):
        self._makers = dict(makers)
        self._made: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __repr__(self) -> str:
        return f"Lazy({', '.join(self._makers)})"

    def then(self, change: Callable[[str, V], W]) -> Lazy[W]:
        """The same names, each value changed by change(name, value) when it is asked for."""
        return Lazy({name: partial(_changed, self, name, change) for name in self._makers})


def _changed(values: Mapping[str, V], name: str, change: Callable[[str, V], W]) -> W:
    return change(name, values[name])
