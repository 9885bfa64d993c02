"""Tables larger than memory: opened, read in Arrow batches, their columns learnt in one pass and encoded, written, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.sources.rows.columns import Columns, Encoded
    from querist.sources.rows.facts import ColumnFacts, ColumnMissing
    from querist.sources.rows.hashing import hash_rows
    from querist.sources.rows.open import open_rows
    from querist.sources.rows.table import Rows
    from querist.sources.rows.write import RowsWriter, write_rows

__all__ = [
    "ColumnFacts",
    "ColumnMissing",
    "Columns",
    "Encoded",
    "Rows",
    "RowsWriter",
    "hash_rows",
    "open_rows",
    "write_rows",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.sources.rows.columns": ("Columns", "Encoded"),
        "querist.sources.rows.facts": ("ColumnFacts", "ColumnMissing"),
        "querist.sources.rows.hashing": ("hash_rows",),
        "querist.sources.rows.open": ("open_rows",),
        "querist.sources.rows.table": ("Rows",),
        "querist.sources.rows.write": ("RowsWriter", "write_rows"),
    },
)
