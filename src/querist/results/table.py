"""Tables: polars frames with a declared schema, each column with its unit and meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from querist.errors import InvariantBroken

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Column", "Kind", "TableSpec"]

Kind = Literal["str", "int", "float", "bool", "list[str]", "list[int]", "list[float]"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, kind, meaning (one plain sentence) and unit."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table's name, meaning, columns and the columns that together identify a row."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Column name to polars data type, in order."""
        import polars as pl

        kinds: dict[str, Any] = {
            "str": pl.String(),
            "int": pl.Int64(),
            "float": pl.Float64(),
            "bool": pl.Boolean(),
            "list[str]": pl.List(pl.String()),
            "list[int]": pl.List(pl.Int64()),
            "list[float]": pl.List(pl.Float64()),
        }
        return {column.name: kinds[column.kind] for column in self.columns}

    def frame(self, rows: Iterable[Mapping[str, Any]] | pl.DataFrame) -> pl.DataFrame:
        """Rows as a frame of exactly this schema: absent keys and non-finite numbers become null.

        Raises InvariantBroken for a key that the table does not declare, or for a repeated row key.
        """
        import polars as pl

        schema = self.schema()
        if isinstance(rows, pl.DataFrame):
            unknown = set(rows.columns) - set(schema)
            frame = rows
        else:
            rows = list(rows)
            unknown = {name for row in rows for name in row} - set(schema)
            data = {name: [_plain(row.get(name)) for row in rows] for name in schema}
            frame = pl.DataFrame(data, schema=schema, strict=False) if not unknown else pl.DataFrame(schema=schema)
        if unknown:
            raise InvariantBroken(f"table {self.name} has no column {', '.join(sorted(unknown))}")
        if dict(frame.schema) != schema:
            absent = [pl.lit(None).cast(kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
            frame = frame.with_columns(absent).select(pl.col(name).cast(kind) for name, kind in schema.items())
        floats = pl.col([name for name, kind in schema.items() if kind == pl.Float64()])
        # Rows come through here more than once (unit, join, answer); most have nothing to replace.
        if frame.height and pl.Float64() in schema.values() and not all(frame.select(floats.is_finite().all()).row(0)):
            frame = frame.with_columns(pl.when(floats.is_finite()).then(floats).otherwise(None).name.keep())
        if self.key and frame.select(self.key).is_duplicated().any():
            raise InvariantBroken(f"table {self.name} has two rows with the same {', '.join(self.key)}")
        return frame

    def describe(self) -> dict[str, Any]:
        """The specification as plain JSON values, for layout.json and the docs."""
        return {
            "name": self.name,
            "meaning": self.meaning,
            "key": list(self.key),
            "columns": [{"name": c.name, "kind": c.kind, "unit": c.unit, "meaning": c.meaning} for c in self.columns],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _plain(value.item())
    return value
