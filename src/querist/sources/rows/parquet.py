"""Tables in files of Arrow's own making: Parquet (a file or a folder of them) and Arrow IPC, also called Feather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from querist.errors import CorruptFile, UnsupportedFormat
from querist.files import fingerprint, is_temporary
from querist.sources.rows.table import Rows

__all__ = ["IpcRows", "IpcStreamRows", "ParquetRows", "open_ipc", "parquet_files", "reading"]

BUFFER = 1 << 16
"""Bytes of a Parquet column that are read at a time: 30 MiB at most for groups of a million rows by eight, not 96."""

NOTE = b"querist.note"
"""Key of a Parquet file's metadata under which stands what a person must know of it."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Faults of Arrow as CorruptFile that names the file and its size."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        size = path.stat().st_size if path.is_file() else 0
        said = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
        raise CorruptFile(f"The table of {size} bytes cannot be read ({said})", value=str(path)) from None


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names; hidden ones, `_metadata` and torn writes are no tables.

    Raises UnsupportedFormat where there is none, or where folders are named `column=value`.
    """
    found = []
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        parts = path.relative_to(folder).parts
        if path.suffix.lower() not in (".parquet", ".pq") or not path.is_file() or is_temporary(path):
            continue
        if any(part.startswith((".", "_")) for part in parts):
            continue
        if any("=" in part for part in parts[:-1]):
            raise UnsupportedFormat(
                "The table keeps columns in the names of its folders",
                value=str(path.relative_to(folder)),
                mend="Write it again without partitions, every column inside the files",
            )
        found.append(path)
    if not found:
        raise UnsupportedFormat("The folder holds no Parquet file", value=str(folder), allowed="files *.parquet")
    return found


class ParquetRows(Rows):
    """Parquet files, read row group by row group; their columns must have the same names, types are widened to a common one.

    No file stays open. Raises CorruptFile, UnsupportedFormat for files whose columns differ.
    """

    def __init__(self, origin: str, files: Sequence[Path]):
        schemas, groups, places = [], [], []
        notes: list[str] = []
        for path in files:
            with reading(path), pq.ParquetFile(path) as file:
                schemas.append(file.schema_arrow.remove_metadata())
                notes.append((file.schema_arrow.metadata or {}).get(NOTE, b"").decode("utf-8", "replace"))
                for number in range(file.num_row_groups):
                    groups.append(file.metadata.row_group(number).num_rows)
                    places.append((path, number))
        for path, schema in zip(files[1:], schemas[1:], strict=True):
            if odd := set(schema.names) ^ set(schemas[0].names):
                raise UnsupportedFormat(
                    f"{path} has other columns than {files[0]}", value=", ".join(sorted(odd)), mend="Make them alike"
                )
        try:
            common = schemas[0] if len(schemas) == 1 else pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise UnsupportedFormat(f"The files' types do not agree ({error})", value=origin) from None
        super().__init__(origin, common, sum(groups), groups)
        self._files, self._places = list(files), places
        self.notes = tuple(dict.fromkeys(filter(None, notes)))

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            # Arrow's read-ahead keeps every group it has passed, and whole columns of a group without a buffer's size.
            with reading(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER) as file:
                for group in range(file.num_row_groups):
                    read = file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
                    for batch in read:
                        yield self._as_common(batch, columns)

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        path, group = self._places[number]
        with reading(path), pq.ParquetFile(path) as file:
            return self._as_common(file.read_row_group(group, columns=columns, use_threads=False), columns)

    def _as_common(self, read: Any, columns: list[str]) -> Any:
        wanted = pa.schema([self.schema.field(name) for name in columns])
        read = read.select(columns)
        return read if read.schema.equals(wanted) else read.cast(wanted)

    def _content(self) -> str:
        if len(self._files) == 1:
            return fingerprint(self._files[0])
        import hashlib

        digest = hashlib.sha256()
        for path in self._files:
            digest.update(fingerprint(path).encode())
        return f"sha256:{digest.hexdigest()}"


def open_ipc(origin: str, path: Path) -> Rows:
    """An Arrow file, with or without the footer that lets its batches be read one by one. Raises CorruptFile."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file):
            pass
    except pa.ArrowInvalid:
        return IpcStreamRows(origin, path)
    except OSError as error:
        raise CorruptFile(f"The table cannot be read ({error})", value=str(path)) from None
    return IpcRows(origin, path)


class IpcRows(Rows):
    """An Arrow file with a footer: each record batch is a group."""

    def __init__(self, origin: str, path: Path):
        with reading(path), pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
            sizes = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]
            super().__init__(origin, file.schema.remove_metadata(), sum(sizes), sizes)
        self._path = path

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with reading(self._path), pa.OSFile(str(self._path)) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(columns)

    def _read_group(self, number: int, columns: list[str]) -> pa.Table:
        with reading(self._path), pa.OSFile(str(self._path)) as source, pa.ipc.open_file(source) as file:
            return pa.Table.from_batches([file.get_batch(number).select(columns)])

    def _content(self) -> str:
        return fingerprint(self._path)


class IpcStreamRows(Rows):
    """An Arrow stream in a file: read from its start only."""

    def __init__(self, origin: str, path: Path):
        with reading(path), pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as stream:
            super().__init__(origin, stream.schema.remove_metadata())
        self._path = path

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with reading(self._path), pa.OSFile(str(self._path)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield batch.select(columns)

    def _content(self) -> str:
        return fingerprint(self._path)
