"""What is kept of a long training: a bounded number of events, evenly spread, and histograms on one common grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["BINS", "Kept", "log_histogram"]

BINS = 20
"""Bins per decade of λ, aligned at powers of ten: the same grid for every layer and step."""


def log_histogram(evals: Float[np.ndarray, "N"], side: int) -> tuple[int, np.ndarray, int]:
    """The first bin, counts from there on, and how many values are zero within rounding (eps·λ_max·side, the longer one).

    Bin i holds λ from 10^(i/20) to 10^((i+1)/20). Without a positive value there are no counts.
    """
    top = float(evals.max()) if evals.size else 0.0
    positive = evals[evals > np.finfo(np.float64).eps * top * side] if top > 0 else evals[:0]
    if not positive.size:
        return 0, np.zeros(0, dtype=np.int64), int(evals.size)
    index = np.floor(BINS * np.log10(positive) + 1e-9).astype(np.int64)
    first = int(index.min())
    return first, np.bincount(index - first), int(evals.size - positive.size)


class Kept:
    """Rows of a table by event, at most `limit` events: beyond that every second one is let go, then every fourth, …

    The first and the latest event are always among them, so that the limit is at least 2.
    """

    def __init__(self, limit: int):
        self.limit, self.stride, self.count = max(limit, 2), 1, 0
        self._rows: dict[int, list[dict[str, Any]]] = {}

    def add(self, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        """Keep the rows of one event; nothing where there are none. again: in the place of the latest event's."""
        if not rows:
            return
        if again:
            self._rows[self.count - 1] = [dict(row) for row in rows]
            return
        self._drop()
        self._rows[self.count] = [dict(row) for row in rows]
        self.count += 1
        while len(self._rows) > self.limit:
            self.stride *= 2
            self._drop(but=self.count - 1)

    def _drop(self, but: int | None = None) -> None:
        self._rows = {i: rows for i, rows in self._rows.items() if i % self.stride == 0 or i == but}

    @property
    def latest(self) -> list[dict[str, Any]]:
        """Rows of the latest event."""
        return self._rows.get(self.count - 1, [])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for rows in self._rows.values():
            yield from rows

    def __len__(self) -> int:
        return len(self._rows)

    def state(self) -> dict[str, Any]:
        """Plain values from which `load_state` goes on."""
        rows = [[i, rows] for i, rows in self._rows.items()]
        return {"limit": self.limit, "stride": self.stride, "count": self.count, "rows": rows}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned; lists that a checkpoint made tuples are taken as they are."""
        self.limit, self.stride, self.count = state["limit"], state["stride"], state["count"]
        self._rows = {int(i): [dict(row) for row in rows] for i, rows in state["rows"]}
