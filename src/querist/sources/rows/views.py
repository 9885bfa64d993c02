"""Views of another table: some of its rows, some of its columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from querist.errors import TooFewRows
from querist.sources.rows.table import Rows

__all__ = ["Part", "Selected"]


class Part(Rows):
    """Rows start to stop of another table."""

    def __init__(self, whole: Rows, start: int, stop: int | None):
        n, groups, pieces = None, None, []
        if whole.n is not None:
            stop = whole.n if stop is None else min(stop, whole.n)
            n = stop - start
            if n <= 0:
                raise TooFewRows(f"The part {start}:{stop} of {whole.origin} is empty", value=f"{whole.n} rows in all")
        if whole.has_groups and stop is not None:
            at = 0
            for number, size in enumerate(whole.groups):
                low, high = max(start - at, 0), min(stop - at, size)
                if low < high:
                    pieces.append((number, low, high - low))
                at += size
            groups = [length for _, _, length in pieces]
        super().__init__(f"{whole.origin}#{start}:{'' if stop is None else stop}", None, n, groups)
        self._whole, self._start, self._stop, self._pieces = whole, start, stop, pieces
        self.options, self.notes = whole.options, whole.notes

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return self._whole.schema

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self._whole.names

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        if self._groups is not None:
            for number in range(len(self._pieces)):
                yield from self._read_group(number, columns).to_batches()
            return
        at = 0
        for batch in self._whole._read(columns, rows):
            low = max(self._start - at, 0)
            high = batch.num_rows if self._stop is None else min(self._stop - at, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            at += batch.num_rows
            if self._stop is not None and at >= self._stop:
                return

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        group, start, length = self._pieces[number]
        return self._whole._read_group(group, columns).slice(start, length)


class Selected(Rows):
    """Some columns of another table, as if it held no others."""

    def __init__(self, whole: Rows, columns: list[str]):
        super().__init__(whole.origin, None, whole.n, whole.groups if whole.has_groups else None)
        self._whole, self._columns = whole, columns
        self.options, self.notes = whole.options, whole.notes

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return pa.schema([self._whole.schema.field(name) for name in self._columns])

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    @property
    def n(self) -> int | None:
        """Rows; None where only a pass would tell."""
        return self._n if self._n is not None else self._whole.n

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        return self._whole._read(columns, rows)

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        return self._whole._read_group(number, columns)
