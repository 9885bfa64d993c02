"""`Rows`: a table that is read in batches, as often as one likes, and never held whole unless asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from querist.errors import BadOption, BadValues, UnknownName, near

if TYPE_CHECKING:
    from querist.sources.rows.columns import Columns

__all__ = ["BATCH_ROWS", "PASS_ROWS", "Pieces", "Rows", "exactly", "one_batch", "refuse_twins"]

BATCH_ROWS = 131_072
"""Rows of a batch where nothing else is asked for: a million numbers at eight columns, 8 MiB."""

PASS_ROWS = 16_384
"""Rows at a time in passes over all columns of what is held in memory beside them: 6 MiB of float32 at a hundred columns. However
many columns are read, the same rows are added up together."""


class Rows:
    """A table in Arrow batches. `querist.sources.rows.open_rows` opens one.

    `origin` says where it comes from; `names` and `schema` what it holds; `n` how many rows there are, None where only a
    pass would tell. `batches` may be called again and again. `groups` gives the rows of each piece that can be read by
    itself (row groups of Parquet, record batches of Arrow, slices of what lies in memory); a source that can only be read
    from its start, such as CSV, has none: `grouped` writes it once as Parquet. `options` are those of its address,
    `notes` what a person must know of it (that it is synthetic), `about` what a file that querist wrote says of its columns.
    """

    def __init__(
        self,
        origin: str,
        schema: pa.Schema | None = None,
        n: int | None = None,
        groups: Sequence[int] | None = None,
    ):
        self.origin = origin
        self.options: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        self.about: dict[str, Any] = {}
        self._schema, self._n = schema, n
        self._groups = None if groups is None else tuple(int(size) for size in groups)
        self._print: str | None = None
        if schema is not None:
            refuse_twins(schema.names, origin)

    def __repr__(self) -> str:
        return f"Rows({self.origin!r}, n={self.n}, columns={len(self.names)})"

    # ------------------------------------------------------------------------------------------ what a source defines

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Batches of any size in the order of the table, of these columns; `rows` is the size that will be handed on."""
        raise NotImplementedError

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        raise NotImplementedError

    def _content(self) -> str:
        """`sha256:<hex>` of what the table holds."""
        from querist.sources.rows.hashing import hash_rows
        from querist.sources.rows.values import kind_of

        digest = hashlib.sha256("\0".join(self.names).encode())
        plain = [field.name for field in self.schema if kind_of(field.type) is not None]
        for batch in self.batches():
            digest.update(hash_rows(batch, plain).tobytes())
            for name in self.names:
                if name not in plain:  # nested or bytes: no part of an encoding, still part of the table
                    digest.update(repr(batch.column(name).to_pylist()).encode("utf-8", "surrogatepass"))
        return f"sha256:{digest.hexdigest()}"

    # ------------------------------------------------------------------------------------------------- what is shared

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        assert self._schema is not None
        return self._schema

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the order of the table."""
        return list(self.schema.names)

    @property
    def n(self) -> int | None:
        """Rows; None where only a pass would tell."""
        return self._n

    @property
    def fingerprint(self) -> str:
        """`sha256:<hex>` of the file's bytes, or of the values where there is no file; the values are read once for it."""
        self._print = self._print or self._content()
        return self._print

    def count(self) -> int:
        """Rows, by a pass over one column where they are not known."""
        if self.n is None:
            self._n = sum(batch.num_rows for batch in self.batches(self.names[:1]))
        assert self.n is not None
        return self.n

    def chosen(self, columns: Iterable[str] | None) -> list[str]:
        """These columns, all where None; each must be there. Raises UnknownName with near names, BadOption for none."""
        if columns is None:
            return self.names
        names = [columns] if isinstance(columns, str) else [str(name) for name in columns]
        known = set(self.names)
        for name in names:
            if name not in known:
                raise UnknownName(f"No column of this name in {self.origin}", value=name, allowed=near(name, known, 12))
        if not names:
            raise BadOption("No column is named", value=self.origin, allowed=near("", known, 12))
        return list(dict.fromkeys(names))

    def batches(self, columns: Iterable[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The table from its start in batches of exactly `rows` rows, the last one excepted; columns in the order asked for.

        Wherever the table comes from and however it is stored, the batches are cut at the same rows.
        Raises UnknownName for a column, BadOption, CorruptFile while reading.
        """
        if rows < 1:
            raise BadOption("A batch has at least one row", value=rows)
        names = self.chosen(columns)
        return exactly(self._read(names, rows), rows)

    def table(self, columns: Iterable[str] | None = None) -> pa.Table:
        """These columns whole, in memory."""
        names = self.chosen(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self.batches(names), schema=schema)

    @property
    def groups(self) -> tuple[int, ...]:
        """Rows of each piece that can be read by itself. Raises BadOption where a source can only be read from its start."""
        if self._groups is None:
            raise BadOption(
                "The table cannot be read in pieces",
                value=self.origin,
                allowed="Parquet, Arrow files, tables in memory",
                mend="Write it as Parquet first (Rows.grouped, write_rows)",
            )
        return self._groups

    @property
    def has_groups(self) -> bool:
        """Whether the table can be read in pieces."""
        return self._groups is not None

    def group(self, number: int, columns: Iterable[str] | None = None) -> pa.Table:
        """One piece. Raises BadOption for a number that is none."""
        if not 0 <= number < len(self.groups):
            raise BadOption("No such group of rows", value=number, allowed=f"0 to {len(self.groups) - 1}")
        return self._read_group(number, self.chosen(columns))

    def group_pieces(self, number: int, columns: Iterable[str] | None = None, start: int = 0) -> Pieces:
        """One group a few rows at a time, from its row `start`: see `Pieces`."""
        names = self.chosen(columns)
        if not 0 <= number < len(self.groups):
            raise BadOption("No such group of rows", value=number, allowed=f"0 to {len(self.groups) - 1}")
        return Pieces(self._stream_group(number, names), start)

    def _stream_group(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._read_group(number, columns).to_batches()

    def grouped(self, folder: Any, group_rows: int = BATCH_ROWS) -> Rows:
        """Itself where it has groups; else the same table written once as `rows.parquet` in a folder, and opened from there."""
        if self.has_groups:
            return self
        from pathlib import Path

        from querist.sources.rows.parquet import ParquetRows
        from querist.sources.rows.write import write_rows

        path = Path(folder) / "rows.parquet"
        write_rows(path, self, group_rows=group_rows)
        written = ParquetRows(self.origin, [path])
        written.options, written.notes = dict(self.options), self.notes
        return written

    def take(self, rows: Sequence[int] | np.ndarray, columns: Iterable[str] | None = None) -> pa.Table:
        """Rows by number, in the order given; only the groups that hold one are read, or the table in one pass where it has none.

        Raises BadOption for a number outside.
        """
        names = self.chosen(columns)
        wanted = np.asarray(rows, dtype=np.int64)
        if not self.has_groups:
            return self._take_passing(wanted, names)
        starts = np.concatenate([[0], np.cumsum(self.groups)]).astype(np.int64)
        outside = (wanted < 0) | (wanted >= starts[-1])
        if outside.any():
            raise BadOption("No such row", value=int(wanted[outside][0]), allowed=f"0 to {starts[-1] - 1}")
        holder = np.searchsorted(starts, wanted, side="right") - 1
        order = np.argsort(holder, kind="stable")
        pieces = [self._read_group(int(g), names).take(wanted[holder == g] - starts[g]) for g in np.unique(holder)]
        if not pieces:
            return pa.schema([self.schema.field(name) for name in names]).empty_table()
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return pa.concat_tables(pieces).take(place)

    def _take_passing(self, wanted: np.ndarray, names: list[str]) -> pa.Table:
        outside = (wanted < 0) | (wanted >= self.count())
        if outside.any():
            raise BadOption("No such row", value=int(wanted[outside][0]), allowed=f"0 to {self.count() - 1}")
        order = np.argsort(wanted, kind="stable")
        placed, at, pieces = wanted[order], 0, []
        for batch in self.batches(names):
            low, high = np.searchsorted(placed, [at, at + batch.num_rows])
            if low < high:
                pieces.append(batch.take(pa.array(placed[low:high] - at)))
            at += batch.num_rows
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(pieces, schema=schema).take(place)

    def part(self, start: int | None, stop: int | None) -> Rows:
        """Rows start to stop (not included) of this table. Raises TooFewRows where none is left."""
        from querist.sources.rows.views import Part

        return Part(self, start or 0, stop)

    def select(self, columns: Iterable[str]) -> Rows:
        """The same table with these columns only. Raises UnknownName."""
        from querist.sources.rows.views import Selected

        return Selected(self, self.chosen(columns))

    def columns(
        self,
        names: Iterable[str] | None = None,
        *,
        levels_max: int = 10_000,
        categories: Iterable[str] = (),
    ) -> Columns:
        """What the columns hold, learnt in one pass: see `querist.sources.rows.columns.learn`."""
        from querist.sources.rows.columns import learn

        return learn(self, names, levels_max=levels_max, categories=categories)


class Pieces:
    """Batches of any size handed on as tables of as many rows as are asked for, one after another."""

    def __init__(self, batches: Iterator[pa.RecordBatch], start: int = 0):
        self._batches = batches
        self._held: pa.RecordBatch | None = None
        self._skip(start)

    def _skip(self, rows: int) -> None:
        while rows:
            batch = self._more()
            step = min(rows, batch.num_rows)
            self._held = batch.slice(step)
            rows -= step

    def _more(self) -> pa.RecordBatch:
        while self._held is None or not self._held.num_rows:
            self._held = next(self._batches)
        return self._held

    def next(self, rows: int) -> pa.Table:
        """The next rows, so many; there must be as many left."""
        parts = []
        while rows:
            batch = self._more()
            step = min(rows, batch.num_rows)
            parts.append(batch.slice(0, step))
            self._held = batch.slice(step)
            rows -= step
        return pa.Table.from_batches(parts)


def exactly(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly `rows`, the last one excepted; nothing is copied where a batch fits already."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while count + batch.num_rows - start >= rows:
            take = rows - count
            held.append(batch.slice(start, take))
            whole, held, count, start = one_batch(held), [], 0, start + take
            yield whole  # what it was joined from is let go before it is handed on
            del whole
        if start < batch.num_rows:
            held.append(batch.slice(start))
            count += batch.num_rows - start
        del batch  # or the next one would be read beside it
    if held:
        yield one_batch(held)


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def refuse_twins(names: Sequence[str], origin: str) -> None:
    """Raises BadValues where two columns share a name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadValues(f"Two columns of {origin} share a name", value=name, mend="Give each its own")
        seen.add(name)
