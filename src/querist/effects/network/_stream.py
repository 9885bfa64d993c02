"""Batches of a table that is never held whole: pieces from all over it in a shuffle buffer, the same after a restart.

A file sorted by arm or time trains as a shuffled one does: an epoch takes its pieces in an order of its own, at least eight of them at a
time, and mixes their rows. Each process reads pieces of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from querist.effects.links import Links
from querist.effects.network._survey import Plan
from querist.effects.outcomes import check_kind
from querist.sources.rows import Columns
from querist.statistics import stream
from querist.statistics.arrays import numbered

__all__ = ["BUFFER", "Streamed"]

BUFFER = 8
"""Pieces of the table whose rows are mixed."""

Batch = dict[str, torch.Tensor]


@dataclass
class Streamed:
    """A `training.Batches` of the rows outside a fold that are not set aside.

    positions: label of an arm to its number; counts [G]: such rows in each piece; weigh(codes) -> weights in the loss;
    usable [M + 1, K]: whether an arm carries an outcome; kinds of the outcomes, which every row is held to.
    """

    plan: Plan
    columns: Columns
    links: Links
    positions: Mapping[Any, int]
    counts: Int[np.ndarray, "G"]
    fold: int
    batch_size: int
    seed: int
    mean_weight: float = 1.0
    weigh: Callable[[Int[np.ndarray, "n"]], Float[np.ndarray, "n"]] | None = None
    shuffle: bool = True
    buffer: int = BUFFER
    usable: np.ndarray | None = None
    kinds: Sequence[str] = ()
    starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.concatenate([[0], np.cumsum(self.plan.rows.groups)])

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch in one process; in several the last ones may be shared by fewer."""
        return -(-int(self.counts.sum()) // self.batch_size)

    def describe(self) -> dict[str, Any]:
        """See `training.Batches`."""
        return {
            "table": self.plan.rows.fingerprint,
            "columns": self.plan.roles.names,
            "rows": int(self.counts.sum()),
            "fold": self.fold,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "buffer": self.buffer,
            "seed": self.seed,
        }

    def epoch(self, epoch: int, skip: int, rank: int, processes: int, accumulate: int) -> Iterator[list[Batch]]:
        """See `training.Batches`: this process's share of every step."""
        pieces = np.flatnonzero(self.counts)
        if self.shuffle:
            pieces = stream(self.seed, "effects", "pieces", epoch).permutation(pieces)
        # A process without a piece of its own in the last round has fewer steps; the loop waits for the others.
        own, size = pieces[rank::processes], self._share(rank, processes)
        taken = 0
        rest: Batch = {}
        for turn, start in enumerate(range(0, len(own), self.buffer)):
            mixed = self._mixed([self.piece(int(g)) for g in own[start : start + self.buffer]], epoch, rank, turn)
            mixed = _joined([rest, mixed])
            last = start + self.buffer >= len(own)
            n, at = len(mixed["arm"]), 0
            while n - at >= size or (last and at < n):
                taken += 1
                if taken > skip:
                    yield _cut(_part(mixed, at, min(at + size, n)), accumulate)
                at += size
            rest = _part(mixed, at, n)

    def _share(self, rank: int, processes: int) -> int:
        """Rows of a step that are this process's."""
        return max(1, self.batch_size // processes + (rank < self.batch_size % processes))

    def _mixed(self, parts: list[Batch], epoch: int, rank: int, turn: int) -> Batch:
        whole = _joined(parts)
        if not self.shuffle:
            return whole
        order = torch.from_numpy(
            stream(self.seed, "effects", "buffer", epoch, rank, turn).permutation(len(whole["arm"]))
        )
        return {name: value[order] for name, value in whole.items()}

    def piece(self, number: int) -> Batch:
        """The rows of one piece that are trained on, as tensors."""
        start = int(self.starts[number])
        piece = self.plan.piece(number, start)
        for k, (name, kind) in enumerate(zip(self.plan.roles.outcomes, self.kinds, strict=False)):
            check_kind(piece.outcomes[:, k], name, kind, start)
        # With one fold rows are of none (−1).
        piece = piece.take(np.flatnonzero(~piece.valid & ((piece.fold != self.fold) | (piece.fold < 0))))
        known, place = numbered(piece.arm)
        code = np.array([self.positions[one] for one in known.tolist()], dtype=np.int64)[place]
        y, weight = piece.outcomes, piece.weight / self.mean_weight
        weight = weight if self.weigh is None else weight * self.weigh(code)
        seen = np.isfinite(y) if self.usable is None else np.isfinite(y) & self.usable[code]
        encoded = self.columns.encode(piece.table, start=start)
        return {
            "numbers": torch.from_numpy(encoded.numbers),
            "missing": torch.from_numpy(encoded.missing),
            "codes": torch.from_numpy(encoded.codes),
            "arm": torch.from_numpy(code),
            "y": torch.from_numpy(self.links.targets(np.where(seen, y, 0.0)).astype(np.float32)),
            "weight": torch.from_numpy((weight[:, None] * seen).astype(np.float32)),
        }


def _joined(parts: list[Batch]) -> Batch:
    used = [one for one in parts if one]
    return used[0] if len(used) == 1 else {name: torch.cat([one[name] for one in used]) for name in used[0]}


def _part(batch: Batch, start: int, stop: int) -> Batch:
    return {name: value[start:stop] for name, value in batch.items()}


def _cut(batch: Batch, accumulate: int) -> list[Batch]:
    n = len(batch["arm"])
    edges = np.linspace(0, n, accumulate + 1).round().astype(int)
    return [_part(batch, a, b) for a, b in pairwise(edges.tolist()) if b > a]
