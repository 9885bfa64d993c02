"""Columns learnt from one pass over a table, and rows encoded by them: the same codes whatever the batches and the order.

Columns are known by name and kept in one order of their own (by name, numbers inside names by value), so neither the order
of a table's columns nor the way its rows are cut changes an encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from querist.errors import BadOption, TooFewRows, UnsupportedFormat, near
from querist.sources.rows.facts import ColumnFacts, ColumnMissing
from querist.sources.rows.table import BATCH_ROWS, PASS_ROWS, Rows
from querist.sources.rows.values import numbers, pc, texts

__all__ = ["CLIP", "FORM", "MISSING", "UNKNOWN", "Columns", "Encoded", "learn", "name_order"]

CLIP = 8.0
"""Standard deviations beyond which a number counts as this far."""

MISSING, UNKNOWN = 0, 1
"""Codes of a level that is missing, and of one never seen or seen too rarely to be kept; levels follow from 2."""

FORM = "querist.columns/1"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as a network takes them.

    numbers [n p]: standardised, clipped at ±8, 0 where missing; missing [n p]; codes [n q]: 0 missing, 1 unknown, 2 … levels.
    `number_names` and `category_names` name their columns; `ignored` the columns of the table that were not used.
    """

    numbers: Float[np.ndarray, "n p"]
    missing: Bool[np.ndarray, "n p"]
    codes: Int[np.ndarray, "n q"]
    number_names: tuple[str, ...] = ()
    category_names: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Encoded:
        """Some rows: a slice, numbers or a mask."""
        return Encoded(
            self.numbers[rows],
            self.missing[rows],
            self.codes[rows],
            self.number_names,
            self.category_names,
            self.ignored,
        )

    @property
    def missing_counts(self) -> dict[str, int]:
        """Rows in which a column is missing, for the columns where there are any."""
        counts = [*self.missing.sum(axis=0).tolist(), *(self.codes == MISSING).sum(axis=0).tolist()]
        return {n: c for n, c in zip((*self.number_names, *self.category_names), counts, strict=True) if c}

    @property
    def unknown_counts(self) -> dict[str, int]:
        """Rows with an unknown level, for the columns where there are any."""
        counts = (self.codes == UNKNOWN).sum(axis=0).tolist()
        return {name: count for name, count in zip(self.category_names, counts, strict=True) if count}


class Columns:
    """Columns that were learnt: `learn` or `Rows.columns` makes them.

    `numbers`, `categories`: names of those that are used, in the order of `Encoded`; `constant`: those dropped because they
    never differ; `levels`: the kept levels of each category, code − 2 is their place; `facts` by name, dropped ones too.
    """

    def __init__(self, facts: Iterable[ColumnFacts], *, levels_max: int = 10_000):
        if levels_max < 1:
            raise BadOption("A category keeps at least one level", value=levels_max)
        self.levels_max = levels_max
        self.facts: Mapping[str, ColumnFacts] = {
            one.name: one for one in sorted(facts, key=lambda f: name_order(f.name))
        }
        used = [one for one in self.facts.values() if not one.constant]
        self.numbers = tuple(one.name for one in used if one.kind == "number")
        self.categories = tuple(one.name for one in used if one.kind == "category")
        self.constant = tuple(one.name for one in self.facts.values() if one.constant)
        self.levels: Mapping[str, tuple[str, ...]] = {
            n: _kept(self.facts[n].counts, levels_max) for n in self.categories
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that are used: numbers, then categories."""
        return (*self.numbers, *self.categories)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Codes of each category: its levels and 2."""
        return tuple(len(self.levels[name]) + 2 for name in self.categories)

    @property
    def n(self) -> int:
        """Rows they were learnt from."""
        return next(iter(self.facts.values())).rows if self.facts else 0

    def __eq__(self, other: object) -> bool:
        """Equal in what is encoded: the Arrow types in which the values came do not count."""
        return isinstance(other, Columns) and _without_types(self.to_json()) == _without_types(other.to_json())

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return (
            f"Columns(numbers={len(self.numbers)}, categories={len(self.categories)}, constant={list(self.constant)})"
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: constant columns dropped, values missing, levels too rare to be kept."""
        said = [f"The column {name} never changes and is dropped" for name in self.constant]
        for name in self.names:
            one = self.facts[name]
            if one.missing:
                said.append(f"The column {name} is missing in {one.missing} of {one.rows} rows")
            if one.kind == "category" and len(one.counts) > (kept := len(self.levels[name])):
                said.append(f"The column {name} has {len(one.counts)} levels; the {kept} most frequent are kept")
        return tuple(said)

    # -------------------------------------------------------------------------------------------------------- encoding

    def encode(self, source: Any, *, start: int = 0) -> Encoded:
        """Rows of a batch, a table, `Rows`, or anything that `open_rows` takes, encoded in blocks beside the result.

        start: number of the first row, for messages. Raises ColumnMissing, NonFinite, BadValues.
        """
        if isinstance(source, pa.RecordBatch | pa.Table):
            names, n = source.schema.names, source.num_rows
            batches = self._cut(source)
        else:
            from querist.sources.rows.open import open_rows

            rows = open_rows(source)
            names, n = rows.names, rows.count()
            self._present(names)
            batches = rows.batches(self.names, rows=PASS_ROWS) if self.names else iter(())
        self._present(names)
        encoded = Encoded(
            np.zeros((n, len(self.numbers)), dtype=np.float32),
            np.zeros((n, len(self.numbers)), dtype=bool),
            np.zeros((n, len(self.categories)), dtype=np.int64),
            self.numbers,
            self.categories,
            tuple(name for name in names if name not in self.facts),
        )
        at = 0
        for batch in batches:
            self._fill(batch, encoded[at : at + batch.num_rows], start + at)
            at += batch.num_rows
            del batch  # or the next one would be read beside it
        return encoded

    def encoded_batches(self, rows: Any, size: int = BATCH_ROWS) -> Iterator[Encoded]:
        """A table of any length, encoded batch by batch."""
        from querist.sources.rows.open import open_rows

        opened = open_rows(rows)
        self._present(opened.names)
        start = 0
        for batch in opened.batches(self.names or None, rows=size):
            yield self.encode(batch, start=start)
            start += batch.num_rows

    def _cut(self, source: pa.RecordBatch | pa.Table) -> Iterator[Any]:
        self._present(source.schema.names)
        picked = source.select(list(self.names))
        return (picked.slice(at, PASS_ROWS) for at in range(0, source.num_rows, PASS_ROWS))

    def _present(self, names: Iterable[str]) -> None:
        there = set(names)
        gone = [name for name in self.names if name not in there]
        if gone:
            raise ColumnMissing(
                f"{len(gone)} of the {len(self.names)} columns that were learnt are not in the table"
                if len(gone) > 1
                else "A column that was learnt is not in the table",
                value=", ".join(gone[:8]) + (f" and {len(gone) - 8} more" if len(gone) > 8 else ""),
                allowed=near(gone[0], there, 12),
                mend="Columns are found by name; their order does not matter",
            )

    def _fill(self, batch: Any, out: Encoded, start: int) -> None:
        for k, name in enumerate(self.numbers):
            one = self.facts[name]
            z = numbers(batch.column(name), name, start)
            gone = np.isnan(z)
            if gone.any():  # what is never written to takes no memory
                out.missing[:, k] = gone
            z = (z - one.mean) / (one.sd or 1.0)
            np.clip(z, -CLIP, CLIP, out=z)
            z[gone] = 0.0
            out.numbers[:, k] = z
        for k, name in enumerate(self.categories):
            out.codes[:, k] = self._codes(name, batch.column(name))

    def _codes(self, name: str, values: Any) -> Int[np.ndarray, "n"]:
        array = texts(values, name)
        levels = self.levels[name]
        if {"false", "true"}.issuperset(levels) and _is_number(values.type):  # booleans learnt, 0 and 1 given
            array = pc.if_else(pc.equal(array, "1"), "true", pc.if_else(pc.equal(array, "0"), "false", array))
        if pa.types.is_dictionary(array.type):
            known = _codes_of(array.dictionary, levels)
            taken = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
            return np.where(taken < 0, MISSING, known[taken]) if len(known) else np.full(len(array), MISSING)
        return _codes_of(array, levels)

    def dense(self, encoded: Encoded) -> Float[np.ndarray, "n d"]:
        """The same rows for learners without embeddings, float32 [n d] with the columns of `dense_names`.

        Numbers as they are (where there is nothing else, the very array of `encoded`, not to be changed); one column for each
        level; a column that says where a value is missing, only for columns in which
        one was missing when they were learnt. A level that is unknown has 0 everywhere.
        """
        p = len(self.numbers)
        if len(self.dense_names) == p:
            return encoded.numbers
        out = np.zeros((len(encoded), len(self.dense_names)), dtype=np.float32)
        out[:, :p] = encoded.numbers
        at = p
        for k, name in enumerate(self.numbers):
            if self.facts[name].missing:
                out[:, at] = encoded.missing[:, k]
                at += 1
        for k, name in enumerate(self.categories):
            first = MISSING if self.facts[name].missing else UNKNOWN + 1
            width = len(self.levels[name]) + (first == MISSING)
            codes = encoded.codes[:, k]
            place = np.where(codes > UNKNOWN, codes - 2 + (first == MISSING), 0)
            shown = np.flatnonzero((codes > UNKNOWN) | ((codes == MISSING) & (first == MISSING)))
            out[shown, at + place[shown]] = 1.0
            at += width
        return out

    @cached_property
    def dense_names(self) -> tuple[str, ...]:
        """Names of the columns of `dense`: `age`, `age:missing`, `zip:missing`, `zip=Urban`."""
        names = list(self.numbers)
        names += [f"{name}:missing" for name in self.numbers if self.facts[name].missing]
        for name in self.categories:
            names += [f"{name}:missing"] if self.facts[name].missing else []
            names += [f"{name}={level}" for level in self.levels[name]]
        return tuple(names)

    # ------------------------------------------------------------------------------------------------------------ JSON

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; of a category the kept levels with their counts, of the rest how many levels and rows."""
        columns = []
        for one in self.facts.values():
            entry: dict[str, Any] = {"name": one.name, "kind": one.kind, "type": one.type}
            entry |= {"count": one.count, "missing": one.missing}
            if one.kind == "number":
                known = {"low": one.low, "high": one.high} if one.count else {"low": None, "high": None}
                entry |= {"mean": one.mean, "m2": one.m2, **known}
            else:
                kept = self.levels.get(one.name, _kept(one.counts, self.levels_max))
                counted = {level: one.counts[level] for level in kept}
                entry |= {"levels": counted, "rare_levels": len(one.counts) - len(kept)}
            columns.append(entry)
        return {"form": FORM, "levels_max": self.levels_max, "columns": columns}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Columns:
        """What `to_json` gave. Raises UnsupportedFormat for another value."""
        try:
            if value["form"] != FORM:
                raise KeyError(value["form"])
            facts = [_fact(entry) for entry in value["columns"]]
            made = cls(facts, levels_max=int(value["levels_max"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnsupportedFormat(f"These are no columns of querist ({error})", allowed=FORM) from None
        return made


def learn(
    rows: Rows, names: Iterable[str] | None = None, *, levels_max: int = 10_000, categories: Iterable[str] = ()
) -> Columns:
    """What the columns of a table hold, in one pass.

    Parameters
    ----------
    names: the columns; all where None.
    levels_max: levels of a category that keep a code of their own, the most frequent first; the others are unknown.
    categories: columns of numbers to be used as levels.

    The same rows in the same order give the same bits, however the table is stored. Numbers: mean and standard deviation over
    known values. Raises UnknownName, UnsupportedFormat for nested columns, NonFinite for infinity (row and column), BadValues
    for more than a million levels, TooFewRows for an empty table.
    """
    chosen = rows.chosen(names)
    levels = {categories} if isinstance(categories, str) else set(categories)
    if levels:
        rows.chosen(levels)
    schema = rows.schema
    facts = [ColumnFacts.of(n, schema.field(n).type, "category" if n in levels else None) for n in chosen]
    start = 0
    for batch in rows.batches(chosen, rows=PASS_ROWS):
        for one in facts:
            one.update(batch.column(one.name), start)
        start += batch.num_rows
        del batch  # as in `Columns.encode`
    if not start:
        raise TooFewRows(f"The table {rows.origin} has no rows", value=0, allowed="1 or more")
    return Columns(facts, levels_max=levels_max)


def name_order(name: str) -> tuple[Any, ...]:
    """What names are sorted by: the numbers in them by value, so that x2 comes before x10."""
    parts = re.split(r"(\d+)", name)
    return (*((part, 0) if k % 2 == 0 else ("", int(part)) for k, part in enumerate(parts)), (name, 0))


def _kept(counts: Mapping[str, int], levels_max: int) -> tuple[str, ...]:
    often = sorted(counts, key=lambda level: (-counts[level], level))[:levels_max]
    return tuple(sorted(often))


def _codes_of(array: pa.Array, levels: tuple[str, ...]) -> Int[np.ndarray, "n"]:
    found = pc.index_in(array, value_set=pa.array(levels, pa.large_string()), skip_nulls=True)
    codes = np.asarray(found.cast(pa.int64()).fill_null(UNKNOWN - 2)) + 2
    if array.null_count:
        codes[np.asarray(array.is_null())] = MISSING
    return codes


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _without_types(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"columns": [{k: v for k, v in entry.items() if k != "type"} for entry in value["columns"]]}


def _fact(entry: Mapping[str, Any]) -> ColumnFacts:
    one = ColumnFacts(entry["name"], entry["kind"], entry["type"], int(entry["count"]), int(entry["missing"]))
    if one.kind == "number":
        one.mean, one.m2 = float(entry["mean"]), float(entry["m2"])
        one.low = np.inf if entry["low"] is None else float(entry["low"])
        one.high = -np.inf if entry["high"] is None else float(entry["high"])
    else:
        one.counts = {str(level): int(times) for level, times in entry["levels"].items()}
    return one
