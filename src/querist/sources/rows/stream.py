"""Batches for training from a table larger than memory: many places of the table at once, in an order that the seed decides.

A table is often sorted by time or by arm, and a batch from one place of it is then a poor sample. So a step takes its rows
from several lanes, each reading another piece of the table, its rows shuffled within chunks; the lanes' shares of a step are
those of their rows, so that all of them end together. What a step holds does not depend on how many processes share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.sources.rows.table import Pieces, Rows
from querist.statistics import stream

__all__ = ["RowStream"]

LANES, CHUNK = 8, 16_384
"""Places read at once, and rows shuffled among each other: 8 MiB of float32 at sixteen columns."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows start to start + length of a group; `kept` of them are used; `row` is the first one's number in the table."""

    group: int
    start: int
    length: int
    kept: int
    row: int


class RowStream:
    """A source for `training.fit`: dicts of tensors with the rows of a step.

    Parameters
    ----------
    rows: a table with groups (`Rows.grouped` makes them).
    arrays: an Arrow table of some rows to arrays by name, all with these rows first: encoded columns, outcomes, weights.
    columns: those that `arrays` needs; all where None.
    batch_size: rows of a step, over all processes; a step may have up to `lanes` more or fewer.
    lanes: places of the table that a step takes its rows from, and the most processes that can share it.
    shuffle: without it, and with one lane, the steps are the table from its start, `batch_size` rows each.
    keep: which rows are used, [n]; the others are left for validation.
    about: a JSON value that differs where `arrays` does something else; a resumed training must find the same.

    Memory: `lanes` chunks of `chunk_rows` rows, shared over the processes, however many rows there are. A position in the order is a
    number of steps: chunks before it are not read.
    Raises BadOption, ShapeMismatch for `keep`, TooFewRows where no row is kept.
    """

    def __init__(
        self,
        rows: Rows,
        arrays: Callable[[pa.Table], Arrays],
        *,
        columns: list[str] | None = None,
        batch_size: int = 4096,
        seed: int = 0,
        lanes: int = LANES,
        chunk_rows: int = CHUNK,
        shuffle: bool = True,
        keep: Bool[np.ndarray, "n"] | None = None,
        about: Any = None,
    ):
        for name, value in (("batch_size", batch_size), ("lanes", lanes), ("chunk_rows", chunk_rows)):
            if value < 1:
                raise BadOption(f"{name} must be at least 1", value=value)
        self.rows, self.arrays, self.columns = rows, arrays, rows.chosen(columns)
        self.batch_size, self.seed, self.lanes, self.shuffle = batch_size, seed, lanes, shuffle
        self.chunk_rows, self.keep, self.about = chunk_rows, keep, about
        n = sum(rows.groups)
        if keep is not None and np.shape(keep) != (n,):
            raise ShapeMismatch(
                "keep must say of every row whether it is used", value=np.shape(keep), allowed=f"({n},)"
            )
        self._pieces = self._cut()
        self.used = sum(chunk.kept for piece in self._pieces for chunk in piece)
        if not self.used:
            raise TooFewRows("No row is used", value=f"{n} rows, none kept")

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.used // self.batch_size)

    def describe(self) -> dict[str, Any]:
        """See `training.batches.Batches`."""
        kept = None if self.keep is None else hashlib.sha256(np.packbits(self.keep).tobytes()).hexdigest()[:16]
        return {
            "rows": self.rows.fingerprint,
            "columns": self.columns,
            "used": self.used,
            "keep": kept,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "lanes": self.lanes,
            "chunk_rows": self.chunk_rows,
            "shuffle": self.shuffle,
            "about": self.about,
        }

    def epoch(self, epoch: int, skip: int, rank: int, processes: int, accumulate: int) -> Iterator[list[Any]]:
        """See `training.batches.Batches`. Raises BadOption where there are more processes than lanes."""
        import torch

        if processes > self.lanes:
            raise BadOption(
                "A table is streamed to at most as many processes as it has lanes",
                value=processes,
                allowed=f"1 to {self.lanes}",
                mend="Give more lanes",
            )
        lanes = [lane for k, lane in enumerate(self._lanes(epoch)) if k % processes == rank]
        totals = [sum(chunk.kept for _, _, chunk in lane) for lane in lanes]

        def due(step: int, total: int) -> int:
            return min(step * self.batch_size, self.used) * total // self.used

        readers = [_Lane(self._read(epoch, lane, due(skip, total))) for lane, total in zip(lanes, totals, strict=True)]
        for step in range(skip, self.steps):
            parts = [
                reader.take(due(step + 1, total) - due(step, total))
                for reader, total in zip(readers, totals, strict=True)
            ]
            joined = _joined([part for part in parts if part is not None])
            if joined is None:
                yield []
                continue
            size = len(next(iter(joined.values())))
            edges = [size * k // accumulate for k in range(accumulate + 1)]
            yield [
                {name: torch.from_numpy(values[low:high]) for name, values in joined.items()}
                for low, high in pairwise(edges)
                if low < high
            ]

    # ------------------------------------------------------------------------------------------------------- the order

    def _cut(self) -> list[list[_Chunk]]:
        """Pieces of chunks: groups, cut where there are fewer than four for each lane; without `shuffle` whole groups."""
        groups = self.rows.groups
        share = -(-4 * self.lanes // max(len(groups), 1)) if self.shuffle or self.lanes > 1 else 1
        pieces, row = [], 0
        for group, size in enumerate(groups):
            chunks = max(1, -(-size // self.chunk_rows))
            width = -(-size // max(chunks, min(share, size))) if size else 1
            made = [self._chunk(group, at, min(width, size - at), row + at) for at in range(0, size, width)]
            run = -(-len(made) // share)
            pieces += [made[k : k + run] for k in range(0, len(made), run or 1)]
            row += size
        return pieces

    def _chunk(self, group: int, start: int, length: int, row: int) -> _Chunk:
        kept = length if self.keep is None else int(np.count_nonzero(self.keep[row : row + length]))
        return _Chunk(group, start, length, kept, row)

    def _lanes(self, epoch: int) -> list[list[tuple[int, int, _Chunk]]]:
        """For each lane the chunks it reads in this epoch, with the numbers of piece and chunk: the shortest lane takes the next."""
        order = np.arange(len(self._pieces))
        if self.shuffle:
            order = stream(self.seed, "rows", "pieces", epoch).permutation(order)
        lanes: list[list[tuple[int, int, _Chunk]]] = [[] for _ in range(self.lanes)]
        held = [0] * self.lanes
        for piece in order.tolist():
            shortest = held.index(min(held))
            lanes[shortest] += [(piece, k, chunk) for k, chunk in enumerate(self._pieces[piece])]
            held[shortest] += sum(chunk.kept for chunk in self._pieces[piece])
        return lanes

    def _read(self, epoch: int, lane: list[tuple[int, int, _Chunk]], skip: int) -> Iterator[Arrays]:
        """Shuffled chunks of a lane, without its first `skip` rows; neighbouring chunks of a group come from one reading."""
        wanted = []
        for piece, number, chunk in lane:
            if skip < chunk.kept:
                wanted.append((piece, number, chunk, skip))
            skip = max(0, skip - chunk.kept)
        reading: Pieces | None = None
        before: _Chunk | None = None
        for piece, number, chunk, first in wanted:
            follows = before is not None and (before.group, before.start + before.length) == (chunk.group, chunk.start)
            if reading is None or not follows:
                reading = self.rows.group_pieces(chunk.group, self.columns, chunk.start)
            table, before = reading.next(chunk.length), chunk
            if self.keep is not None:
                table = table.filter(pa.array(self.keep[chunk.row : chunk.row + chunk.length]))
            arrays = {name: np.asarray(values) for name, values in self.arrays(table).items()}
            order = np.arange(chunk.kept)
            if self.shuffle:
                order = stream(self.seed, "rows", "chunk", epoch, piece, number).permutation(order)
            yield {name: values[order[first:]] for name, values in arrays.items()}


class _Lane:
    """Rows of a lane, taken a few at a time."""

    def __init__(self, chunks: Iterator[Arrays]):
        self.chunks = chunks
        self.held: Arrays = {}
        self.at = self.size = 0

    def take(self, count: int) -> Arrays | None:
        parts = []
        while count:
            if self.at == self.size:
                self.held, self.at = next(self.chunks), 0
                self.size = len(next(iter(self.held.values())))
            some = min(count, self.size - self.at)
            parts.append({name: values[self.at : self.at + some] for name, values in self.held.items()})
            self.at, count = self.at + some, count - some
        return _joined(parts)


def _joined(parts: list[Arrays]) -> Arrays | None:
    if not parts:
        return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
