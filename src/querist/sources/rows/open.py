"""Anything that is a table, opened as `Rows`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from querist.errors import SourceNotFound, UnsupportedFormat
from querist.sources.address import Address, parse
from querist.sources.rows.table import Rows

__all__ = ["open_rows"]


def open_rows(source: Any, *, options: Iterable[str] = ()) -> Rows:
    """Open a table to be read in batches.

    Parameters
    ----------
    source: a TABLE address or path (a Parquet file or a folder of them; CSV, TSV, also `.gz`; Arrow IPC: `.arrow`, `.feather`,
        `.ipc`; `package.module:factory`; `#a:b` for some rows), a registered data set, or what `memory.in_memory` takes:
        polars, pandas, Arrow tables and readers, columns by name, a 2-D array, anything with the Arrow C stream. `Rows` pass.
    options: keys that the address may carry (`?arm=segment`); they are handed on in `Rows.options`.

    Raises SourceNotFound, UnknownName, UnsupportedFormat, CorruptFile, BadOption, BadValues, ShapeMismatch, TooFewRows.
    """
    if isinstance(source, Rows):
        return source
    if not isinstance(source, str | Path | Address):
        from querist.sources.rows.memory import in_memory

        return in_memory(source)
    address = source if isinstance(source, Address) else parse(str(source))
    bare = replace(address, split="" if address.rows is not None else address.split, rows=None)
    rows = _opened(bare if bare.kind == "python" else bare.only(options), options)
    if address.kind != "python":
        rows.options = dict(address.options)
    return rows.part(*address.rows) if address.rows is not None else rows


def _opened(address: Address, options: Iterable[str]) -> Rows:
    if address.kind == "python":
        from querist.sources.models import call_factory

        made = open_rows(call_factory(address), options=options)
        made.origin = str(address)
        return made
    if address.kind == "hub":
        raise UnsupportedFormat("Tables are not read from the hub", value=str(address), mend="Download the file first")
    path, origin = address.local(), str(replace(address, options=()))
    if not path.exists():
        raise SourceNotFound("There is no table here", value=str(path))
    form = address.format if address.kind == "file" else replace(address, kind="file", path=str(path)).format
    if form in ("parquet", "folder") or (form is None and path.is_dir()):
        from querist.sources.rows.parquet import ParquetRows, parquet_files

        return ParquetRows(origin, parquet_files(path) if path.is_dir() else [path])
    if path.is_dir():
        raise UnsupportedFormat("A folder is read as Parquet only", value=str(address))
    if form == "csv":
        from querist.sources.rows.separated import CsvRows

        return CsvRows(origin, path)
    if form == "arrow":
        from querist.sources.rows.parquet import open_ipc

        return open_ipc(origin, path)
    raise UnsupportedFormat(
        "No table of a known form",
        value=str(address),
        allowed="Parquet (.parquet, a folder), CSV (.csv, .tsv, .gz), Arrow (.arrow, .feather, .ipc), a registered name",
        mend="Write the scheme before the path (csv:, parquet:) where the ending says something else",
    )
