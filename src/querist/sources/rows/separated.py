"""Tables as text: comma- or tab-separated values, also compressed, read in blocks of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from querist.errors import CorruptFile, UnknownName
from querist.files import fingerprint
from querist.sources.rows.table import Rows, refuse_twins

__all__ = ["CsvRows"]

BLOCK = 4 << 20
"""Bytes of text read at a time."""

_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error")


class CsvRows(Rows):
    """A file of separated values with a header. Empty cells and NA, N/A, NaN, null and their like are missing.

    The first block suggests the types; one pass over the file, made when the types are first needed, widens those that a
    later row contradicts (whole numbers to numbers, everything else to text) and counts the rows. Until then `n` is None.
    Raises CorruptFile for rows of another length and bytes that are no UTF-8, BadValues for columns of one name.
    """

    def __init__(self, origin: str, path: Path, types: Mapping[str, pa.DataType] | None = None):
        """types: those of its columns where they are known beforehand, which saves the pass; all columns must be named."""
        super().__init__(origin)
        self._path = path
        with self._open({}) as reader:
            first = reader.schema
        if types is not None:
            if set(types) != set(first.names):
                odd = ", ".join(sorted(set(types) ^ set(first.names)))
                raise UnknownName(f"{path} has other columns than it should", value=odd, allowed=", ".join(types))
            self._schema = pa.schema([(name, types[name]) for name in first.names])
        refuse_twins(first.names, origin)
        self._first = first

    @property
    def names(self) -> list[str]:
        """Names of the columns: those of the header."""
        return list(self._first.names)

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns; the first call makes a pass."""
        if self._schema is None:
            self._schema, self._n = self._settle()
        return self._schema

    def count(self) -> int:
        """Rows; the first call makes a pass."""
        _ = self.schema
        return super().count()

    def _settle(self) -> tuple[pa.Schema, int]:
        types = {f.name: pa.int64() if pa.types.is_null(f.type) else f.type for f in self._first}
        for name, found in types.items():
            if pa.types.is_binary(found):  # what Arrow takes bytes for that are no text
                types[name] = pa.string()
        while True:
            try:
                with self._open(types) as reader:
                    n = sum(batch.num_rows for batch in reader)
                return pa.schema(list(types.items())), n
            except _Contradicted as error:
                name = self.names[error.column]
                if types[name] == pa.string():
                    raise CorruptFile(f"The column {name} cannot be read ({error})", value=str(self._path)) from None
                types[name] = pa.float64() if types[name] == pa.int64() else pa.string()

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        types = {field.name: field.type for field in self.schema}
        with self._open(types, columns) as reader:
            try:
                yield from reader
            except pa.ArrowInvalid as error:
                raise CorruptFile(f"The table cannot be read ({str(error)[:160]})", value=str(self._path)) from None

    @contextmanager
    def _open(self, types: dict[str, Any], columns: list[str] | None = None) -> Iterator[Any]:
        separator = "\t" if self._path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
        source = None
        try:
            source = pa.input_stream(str(self._path), compression="detect")
            with pc.open_csv(
                source,
                read_options=pc.ReadOptions(block_size=BLOCK, use_threads=False),
                parse_options=pc.ParseOptions(delimiter=separator, newlines_in_values=True),
                convert_options=pc.ConvertOptions(
                    column_types=types, include_columns=columns, strings_can_be_null=True
                ),
            ) as reader:
                yield reader
        except (pa.ArrowException, OSError) as error:
            said = str(error).strip()
            if found := _COLUMN.search(said):
                raise _Contradicted(int(found[1]), said) from None
            raise CorruptFile(f"The table cannot be read ({said[:160]})", value=str(self._path)) from None
        finally:
            if source is not None:
                source.close()

    def _content(self) -> str:
        return fingerprint(self._path)


class _Contradicted(Exception):
    """A value that its column's type cannot hold."""

    def __init__(self, column: int, said: str):
        super().__init__(said.splitlines()[0][:160])
        self.column = column
