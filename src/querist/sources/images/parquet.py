"""Tables: a column of encoded pictures, columns of numbers, or a column of vectors; Parquet in row groups, CSV whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from querist.errors import BadOption, BadValues, CorruptFile, SourceNotFound, UnknownName, UnsupportedFormat, near
from querist.sources.address import Address
from querist.sources.data import Batch, Data
from querist.sources.images.pictures import Broken, as_labels, as_stack, decode, pictures_data, stack_data
from querist.sources.images.transform import Transform
from querist.sources.tensors.ref import PassedOver

__all__ = ["open_table", "read_columns"]


def open_table(address: Address, transform: Transform) -> Data:
    """`parquet:FILE?x=col,col&y=col` or `csv:...`: rows of numbers, or pictures where x is one column of encoded ones.

    Without x all numeric columns but y are taken. Raises SourceNotFound, UnknownName for columns, CorruptFile,
    UnsupportedFormat for columns that hold neither numbers nor pictures.
    """
    address.only(["x", "y"])
    path = address.local()
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    y = address.option("y")
    if address.format == "csv":
        x = address.option("x")
        table = read_columns(path, None if x is None else [*x.split(","), *([y] if y else [])])
        names = x.split(",") if x else [n for n in table.columns if n != y and table[n].dtype.is_numeric()]
        return _numbers(
            str(address), {name: table[name].to_numpy() for name in names}, _labels(table, y), path, transform
        )
    return _parquet(address, path, y, transform)


def read_columns(path: Path, columns: list[str] | None) -> Any:
    """Columns of a CSV file (its separator a tab in .tsv) as a polars frame. Raises UnknownName, CorruptFile."""
    import polars as pl

    separator = "\t" if path.name.lower().endswith(".tsv") else ","
    try:
        if columns is not None:
            names = pl.read_csv(path, separator=separator, n_rows=0).columns
            for name in columns:
                if name not in names:
                    raise UnknownName(f"No column of this name in {path}", value=name, allowed=near(name, names, 12))
        return pl.read_csv(path, separator=separator, columns=columns, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise CorruptFile(f"The table cannot be read ({str(error).splitlines()[0][:150]})", value=str(path)) from None


def _labels(table: Any, y: str | None) -> np.ndarray | None:
    if y is None:
        return None
    if y not in table.columns:
        raise UnknownName("No column of this name", value=y, allowed=near(y, table.columns, 12))
    if table[y].null_count():
        raise BadValues(f"The column {y} has missing labels", value=f"{table[y].null_count()} rows")
    return table[y].to_numpy()


def _numbers(
    name: str, columns: dict[str, np.ndarray], labels: np.ndarray | None, path: Path, transform: Transform
) -> Data:
    if not columns:
        raise BadOption("The table has no columns of numbers", value=str(path), mend="Name columns with ?x=col,col")
    for column, values in columns.items():
        if values.dtype.kind not in "buif":
            raise UnsupportedFormat(
                f"The column {column} of {path} holds no numbers",
                value=str(values.dtype),
                mend="Name others with ?x=col,col",
            )
    rows = np.stack([values.astype(np.float32) for values in columns.values()], axis=1)
    found, classes = as_labels(labels, len(rows), str(path)) if labels is not None else (None, None)
    return stack_data(name, rows, found, classes, transform)


def _parquet(address: Address, path: Path, y: str | None, transform: Transform) -> Data:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(
            f"The Parquet file of {path.stat().st_size} bytes cannot be read ({str(error)[:120]})", value=str(path)
        ) from None
    given = address.option("x")
    names = given.split(",") if given else [f.name for f in schema if f.name != y and _numeric(f.type)]
    for name in (*names, *([y] if y else [])):
        if name not in schema.names:
            raise UnknownName(f"No column of this name in {path}", value=name, allowed=near(name, schema.names, 12))
    if not names:
        raise BadOption("The table has no columns of numbers", value=str(path), mend="Name columns with ?x=col,col")
    try:
        labels = file.read(columns=[y]).column(0).to_numpy() if y else None
        groups = _Groups(file, names)
        kind = schema.field(names[0]).type
        if len(names) == 1 and not _numeric(kind):
            found, classes = as_labels(labels, groups.count, f"{path}: {y}") if labels is not None else (None, None)
            if _holds_bytes(kind):
                return pictures_data(
                    str(address), lambda one: _picture(groups, one, path), groups.count, found, classes, transform
                )
            return _vectors(str(address), groups, found, classes, path)
        table = file.read(columns=names)
        return _numbers(str(address), {n: table.column(n).to_numpy() for n in names}, labels, path, transform)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"The Parquet file cannot be read ({str(error)[:120]})", value=str(path)) from None


class _Groups:
    """Rows of some columns by number, one row group in memory at a time: ids come in ascending order."""

    def __init__(self, file: Any, columns: list[str]):
        self.file, self.columns = file, columns
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.count = int(self.starts[-1])
        self._held: tuple[int, Any] | None = None

    def value(self, one: int) -> Any:
        """One row's value of the first column, as a Python object."""
        group = int(np.searchsorted(self.starts, one, side="right")) - 1
        if self._held is None or self._held[0] != group:
            self._held = (group, self.file.read_row_group(group, columns=self.columns).column(0).combine_chunks())
        return self._held[1][one - int(self.starts[group])].as_py()


def _picture(groups: _Groups, one: int, path: Path) -> np.ndarray:
    value = groups.value(one)
    content = value.get("bytes") if isinstance(value, dict) else value
    what = f"{path}: row {one}"
    if not content:
        raise Broken(what, "the row holds no picture")
    return decode(content, what)


def _vectors(name: str, groups: _Groups, labels: np.ndarray | None, classes: Any, path: Path) -> Data:
    first = np.asarray(groups.value(0)) if groups.count else np.empty(0)
    if first.ndim != 1 or first.dtype.kind not in "buif" or not first.size:
        raise UnsupportedFormat(
            "The column holds neither numbers, vectors nor pictures", value=f"{path}: {groups.columns[0]}"
        )

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        import torch

        kept, rows, broken = [], [], []
        for one in ids.tolist():
            value = groups.value(one)
            if value is None or len(value) != first.size:
                broken.append(
                    PassedOver(f"{path}: row {one}", None, None, f"a vector of length {first.size} is expected")
                )
            else:
                kept.append(one)
                rows.append(value)
        chosen = np.asarray(kept, dtype=np.int64)
        stack = as_stack(np.asarray(rows, dtype=np.float32).reshape(len(kept), first.size), str(path))
        return Batch(chosen, torch.from_numpy(stack), None if labels is None else labels[chosen]), broken

    return Data(name, np.arange(groups.count), fetch, "rows", classes)


def _numeric(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
