"""Tables written as Parquet in row groups, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from querist.errors import ShapeMismatch
from querist.files import replacing
from querist.sources.rows.table import BATCH_ROWS, Rows, exactly

__all__ = ["RowsWriter", "write_batches", "write_rows"]


class RowsWriter:
    """Writes batches to a Parquet file that appears only when the last one is in: `with RowsWriter(path) as out: out.write(...)`.

    Every row group but the last has exactly `group_rows` rows, however the batches were cut; at most one group is held. The
    first batch fixes the schema unless one is given. metadata: texts kept in the file. An error inside leaves no file.
    """

    def __init__(
        self,
        path: Path | str,
        schema: pa.Schema | None = None,
        *,
        group_rows: int = BATCH_ROWS,
        metadata: dict[str, str] | None = None,
    ):
        self.path, self.schema, self.group_rows, self.metadata = Path(path), schema, group_rows, metadata
        self.rows = 0
        self._replacing: AbstractContextManager[Path] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._count = 0

    def __enter__(self) -> RowsWriter:
        self._replacing = replacing(self.path)
        self._temporary = self._replacing.__enter__()
        return self

    def write(self, rows: pa.RecordBatch | pa.Table | dict[str, Any]) -> None:
        """Add rows. Raises ShapeMismatch for other columns than before."""
        table = pa.table(rows) if isinstance(rows, dict) else rows
        if self.schema is None:
            self.schema = table.schema.remove_metadata()
        if table.schema.names != self.schema.names:
            raise ShapeMismatch(
                f"Rows for {self.path.name} have other columns",
                value=", ".join(table.schema.names),
                allowed=", ".join(self.schema.names),
            )
        if not table.schema.equals(self.schema):
            table = table.cast(self.schema)
        for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
            self._held.append(batch)
            self._count += batch.num_rows
        self.rows += table.num_rows
        if self._count >= self.group_rows:
            self._flush(whole=True)

    def _flush(self, *, whole: bool) -> None:
        rest: list[pa.RecordBatch] = []
        for batch in exactly(self._held, self.group_rows):
            if whole and batch.num_rows < self.group_rows:
                rest = [batch]
            else:
                self._open().write_table(pa.Table.from_batches([batch]), row_group_size=self.group_rows)
        self._held, self._count = rest, sum(batch.num_rows for batch in rest)

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            assert self.schema is not None
            schema = self.schema.with_metadata(self.metadata) if self.metadata else self.schema
            self._writer = pq.ParquetWriter(self._temporary, schema, compression="zstd")
        return self._writer

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._replacing is not None
        try:
            if kind is None:
                self._flush(whole=False)
                if self.schema is not None:
                    self._open()
            if self._writer is not None:
                self._writer.close()
        except BaseException as failed:
            if not self._replacing.__exit__(type(failed), failed, failed.__traceback__):
                raise
        else:
            self._replacing.__exit__(kind, error, trace)


def write_batches(
    path: Path | str,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema | None = None,
    *,
    group_rows: int = BATCH_ROWS,
    metadata: dict[str, str] | None = None,
) -> int:
    """Write batches as one Parquet file and return the number of rows."""
    with RowsWriter(path, schema, group_rows=group_rows, metadata=metadata) as out:
        for batch in batches:
            out.write(batch)
    return out.rows


def write_rows(
    path: Path | str, rows: Rows, columns: Iterable[str] | None = None, *, group_rows: int = BATCH_ROWS
) -> int:
    """Write a table, or some of its columns, as one Parquet file in row groups; returns the number of rows."""
    names = rows.chosen(columns)
    schema = pa.schema([rows.schema.field(name) for name in names])
    batches: Iterator[pa.RecordBatch] = rows.batches(names, rows=group_rows)
    return write_batches(path, batches, schema, group_rows=group_rows)
