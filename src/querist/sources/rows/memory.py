"""Tables that are already here: Arrow tables, frames, columns by name, arrays; and streams, which are set down on disk once."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from querist.errors import BadValues, ShapeMismatch, UnsupportedFormat
from querist.sources.rows.parquet import ParquetRows
from querist.sources.rows.table import BATCH_ROWS, Rows

__all__ = ["ArrayRows", "TableRows", "in_memory"]


class TableRows(Rows):
    """An Arrow table in memory; groups are slices of it."""

    def __init__(self, origin: str, table: pa.Table):
        sizes = [min(BATCH_ROWS, table.num_rows - at) for at in range(0, table.num_rows, BATCH_ROWS)]
        super().__init__(origin, table.schema.remove_metadata(), table.num_rows, sizes)
        self._table = table.replace_schema_metadata(None)

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(columns).to_batches(max_chunksize=rows)

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        return self._table.select(columns).slice(number * BATCH_ROWS, self.groups[number])

    def table(self, columns: Any = None) -> pa.Table:
        """These columns; nothing is copied."""
        return self._table.select(self.chosen(columns))


class ArrayRows(Rows):
    """A 2-D array with columns x0, x1 …; only the batch that is asked for is turned to Arrow."""

    def __init__(self, origin: str, array: np.ndarray):
        kind = pa.from_numpy_dtype(array.dtype)
        sizes = [min(BATCH_ROWS, len(array) - at) for at in range(0, len(array), BATCH_ROWS)]
        schema = pa.schema([(f"x{k}", kind) for k in range(array.shape[1])])
        super().__init__(origin, schema, len(array), sizes)
        self._array = array

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self._array), rows):
            yield self._batch(at, at + rows, columns)

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        at = number * BATCH_ROWS
        return pa.Table.from_batches([self._batch(at, at + BATCH_ROWS, columns)])

    def _batch(self, start: int, stop: int, columns: list[str]) -> pa.RecordBatch:
        part = self._array[start:stop]
        arrays = [pa.array(np.ascontiguousarray(part[:, int(name[1:])])) for name in columns]
        return pa.record_batch(arrays, names=columns)


def in_memory(source: Any) -> Rows:
    """A table that lies in memory, or a stream of batches.

    Arrow tables and batches, polars (also lazy), pandas, a mapping from names to columns, a 2-D array or tensor (columns x0,
    x1 …). Arrow readers and anything else with the Arrow C stream can be read only once: they are written to a temporary file,
    which goes when the Rows go. Raises ShapeMismatch, BadValues for columns of mixed values, UnsupportedFormat.
    """
    family = type(source).__module__.partition(".")[0]
    if isinstance(source, pa.Table):
        return TableRows("Arrow table", source)
    if isinstance(source, pa.RecordBatch):
        return TableRows("Arrow batch", pa.Table.from_batches([source]))
    if family == "polars" and type(source).__name__ == "LazyFrame":
        return _set_down(f"polars {type(source).__name__}", source.sink_parquet)
    if family == "polars" and hasattr(source, "to_arrow") and hasattr(source, "columns"):
        return TableRows("polars table", source.to_arrow())
    if family == "pandas" and hasattr(source, "columns"):
        try:
            return TableRows("pandas table", pa.Table.from_pandas(source, preserve_index=False))
        except (pa.ArrowException, ValueError) as error:
            raise BadValues(
                f"A column of the pandas table holds values of several kinds ({str(error).splitlines()[0][:160]})",
                value=", ".join(str(name) for name in source.columns[:8]),
                mend="Give each column one kind",
            ) from None
    if isinstance(source, Mapping):
        return TableRows("columns", _of_columns(source))
    if isinstance(source, pa.RecordBatchReader):
        return _stream("Arrow reader", source)
    if isinstance(source, np.ndarray) or hasattr(source, "detach"):
        return _of_array(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _stream(f"{type(source).__name__} (Arrow stream)", pa.RecordBatchReader.from_stream(source))
    raise UnsupportedFormat(
        "No table of a known form",
        value=type(source).__name__,
        allowed="an address or path (Parquet, CSV, Arrow), a registered name, polars, pandas, Arrow, a dict of columns, a 2-D array",
    )


def _of_array(source: Any) -> Rows:
    from querist.statistics.arrays import as_array

    array = as_array(source)
    if array.ndim != 2:
        raise ShapeMismatch("A table must have rows and columns", value=array.shape, allowed="[n d]")
    if not array.shape[1]:
        raise ShapeMismatch("A table must have columns", value=array.shape, allowed="[n d] with d of 1 or more")
    if array.dtype.kind in "OUS":
        return TableRows("array", _of_columns({f"x{k}": array[:, k] for k in range(array.shape[1])}))
    if array.dtype.kind not in "biuf":
        raise BadValues("An array must hold numbers, booleans or text", value=str(array.dtype))
    return ArrayRows("array", array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _of_columns(source: Mapping[Any, Any]) -> pa.Table:
    if not source:
        raise ShapeMismatch("A table must have columns", value="no columns")
    arrays = {str(name): _column(values, str(name)) for name, values in source.items()}
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} {size}" for name, size in list(sizes.items())[:12])
        raise ShapeMismatch("Columns have other numbers of rows", value=shown, mend="Give one entry per row")
    return pa.table(arrays)


def _column(values: Any, name: str) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if hasattr(values, "detach"):
        from querist.statistics.arrays import as_array

        values = as_array(values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise ShapeMismatch(f"The column {name} must hold one value per row", value=repr(values)[:60])
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ShapeMismatch(f"The column {name} must hold one value per row", value=values.shape, allowed="(n,)")
        values = values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        said = str(error).strip().splitlines()[0][:160]
        raise BadValues(f"The column {name} holds values of several kinds ({said})", mend="Give it one kind") from None


def _stream(origin: str, reader: pa.RecordBatchReader) -> Rows:
    from querist.sources.rows.write import write_batches

    return _set_down(origin, lambda path: write_batches(path, reader, reader.schema))


def _set_down(origin: str, write: Any) -> Rows:
    folder = Path(tempfile.mkdtemp(prefix="querist-rows-"))
    try:
        write(folder / "rows.parquet")
        rows = ParquetRows(origin, [folder / "rows.parquet"])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(rows, shutil.rmtree, folder, True)
    return rows
