"""The journal of a run: one JSON line per unit that ended, flushed to the disk before the next step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from querist.errors import CorruptFile

__all__ = ["Entry", "Journal"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one unit ended: its tables' names where it is done, the error (and its traceback) where it failed."""

    stage: str
    key: str
    status: Literal["done", "failed"]
    seconds: float
    tables: tuple[str, ...] = ()
    error: str | None = None
    trace: str | None = None


class Journal:
    """An append-only file of entries. The last entry of a unit counts; a last line cut off by a crash does not.

    A line is whole once its line feed is on the disk, so a torn line is cut away before the next one is added.
    """

    def __init__(self, path: Path):
        self.path = path

    def entries(self) -> dict[tuple[str, str], Entry]:
        """(stage, key) to the unit's last entry. Raises CorruptFile for a line before the last that is no entry."""
        return {(entry.stage, entry.key): entry for entry in self._read()}

    def append(self, entry: Entry) -> None:
        """Add one entry; it is on the disk when this returns."""
        line = json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogateescape") + b"\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            end = _whole(descriptor)
            if end != os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, end)
            os.pwrite(descriptor, line, end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self) -> Iterator[Entry]:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
                entry = Entry(**{**value, "tables": tuple(value["tables"])})
            except (ValueError, TypeError, KeyError):
                if number == len(lines):
                    return
                raise CorruptFile(
                    f"Line {number} of the run's journal is no entry",
                    value=str(self.path),
                    mend="Remove that line; its unit is then done again",
                ) from None
            yield entry


def _whole(descriptor: int) -> int:
    """Bytes up to and with the last line feed."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65536)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0 if size else size
