"""What is known of one column after its rows have passed: mergeable counts, moments, vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from querist.errors import BadOption, BadValues, UnknownName
from querist.sources.rows.values import Kind, kind_of, numbers, pc, plain, texts, unsupported
from querist.statistics.moments import Moments

__all__ = ["LEVELS_HELD", "ColumnFacts", "ColumnMissing"]

LEVELS_HELD = 1_000_000
"""Different values of one column that are counted; a column with more is an id, not a category."""


class ColumnMissing(UnknownName):
    """A column that was learnt from and is not in the table now."""

    code = "column-missing"


@dataclass(slots=True)
class ColumnFacts:
    """One column's facts: `count` known values, `missing` ones; numbers: `mean, sd, low, high`; levels: `counts` by text.

    `type` is the Arrow type first seen. Update with batches or merge with the facts of other rows: the same up to rounding.
    """

    name: str
    kind: Kind
    type: str
    count: int = 0
    missing: int = 0
    mean: float = 0.0
    m2: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, type_: pa.DataType, kind: Kind | None = None) -> ColumnFacts:
        """Nothing seen yet. Raises UnsupportedFormat for nested types."""
        found = kind_of(type_)
        if found is None:
            raise unsupported(name, type_)
        return cls(name, kind or found, str(type_))

    def update(self, values: Any, start: int = 0) -> ColumnFacts:
        """Add rows of an Arrow column; returns itself. start: number of the first, for messages.

        Raises NonFinite for infinity, BadValues for text among numbers and for more than a million levels.
        """
        if self.kind == "number":
            return self._merge_numbers(numbers(values, self.name, start))
        array = plain(values)
        self.missing += len(array)
        table = pc.value_counts(texts(array, self.name))
        known = table.field("values")
        known = known.dictionary_decode() if pa.types.is_dictionary(known.type) else known
        for level, times in zip(known.to_pylist(), table.field("counts").to_pylist(), strict=True):
            if level is not None:
                self.counts[level] = self.counts.get(level, 0) + times
                self.count, self.missing = self.count + times, self.missing - times
        return self._bounded()

    def _merge_numbers(self, found: np.ndarray) -> ColumnFacts:
        known = found[~np.isnan(found)]
        self.missing += found.size - known.size
        if known.size:
            other = Moments(1).update(known)
            self._add(known.size, float(other.mean[0]), float(other.m2[0]), float(other.low[0]), float(other.high[0]))
        return self

    def _add(self, count: int, mean: float, m2: float, low: float, high: float) -> None:
        total = self.count + count
        gap = mean - self.mean
        self.m2 += m2 + gap * gap * (self.count * count / total)
        self.mean += gap * (count / total)
        self.count, self.low, self.high = total, min(self.low, low), max(self.high, high)

    def _bounded(self) -> ColumnFacts:
        if len(self.counts) > LEVELS_HELD:
            raise BadValues(
                f"The column {self.name} has more levels than a category can have",
                value=f"over {LEVELS_HELD:,} among {self.count:,} rows",
                mend="It looks like an id: leave it out",
            )
        return self

    def merge(self, other: ColumnFacts) -> ColumnFacts:
        """Add what was seen of other rows; returns itself. Raises BadOption for another column."""
        if (other.name, other.kind) != (self.name, self.kind):
            raise BadOption(
                "Facts of different columns do not merge",
                value=f"{other.name} ({other.kind})",
                allowed=f"{self.name} ({self.kind})",
            )
        self.missing += other.missing
        if self.kind == "number":
            if other.count:
                self._add(other.count, other.mean, other.m2, other.low, other.high)
            return self
        self.count += other.count
        for level, times in other.counts.items():
            self.counts[level] = self.counts.get(level, 0) + times
        return self._bounded()

    @property
    def rows(self) -> int:
        """Rows seen."""
        return self.count + self.missing

    @property
    def sd(self) -> float:
        """Standard deviation of the known numbers (n − 1 below the sum); 0 below two of them."""
        return float(np.sqrt(self.m2 / (self.count - 1))) if self.count > 1 else 0.0

    @property
    def constant(self) -> bool:
        """Whether nothing in this column ever differs, a missing value being different from a known one."""
        if not self.count or not self.missing:
            return not self.count or (self.low == self.high if self.kind == "number" else len(self.counts) == 1)
        return False
