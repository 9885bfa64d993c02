"""Outcomes and their kinds: what is counted of each person, checked, with what is missing left as missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float

from querist.effects.errors import OutcomeEmpty, OutcomeKind
from querist.errors import BadOption, ShapeMismatch, UnknownName, near
from querist.sources.rows.open import open_rows
from querist.sources.rows.table import Rows
from querist.sources.rows.values import kind_of, numbers, plain, texts
from querist.statistics.arrays import in_blocks

__all__ = ["KINDS", "Kind", "Outcomes", "check_kind", "parse_outcomes", "prepare_outcomes"]

Kind = Literal["binary", "continuous", "count", "hurdle"]

KINDS: tuple[str, ...] = get_args(Kind)

_ALLOWED = {
    "binary": "0 and 1",
    "continuous": "any number",
    "count": "whole numbers of 0 or more",
    "hurdle": "numbers of 0 or more",
}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """K outcomes of n people: `names`, `kinds`, values [n, K] (NaN where missing), observed [n, K], and what was taken for granted."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: Float[np.ndarray, "n K"]
    observed: Bool[np.ndarray, "n K"]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> dict[str, int]:
        """Rows in which an outcome is missing, for the outcomes where there are any."""
        counts = (~self.observed).sum(axis=0).tolist()
        return {name: count for name, count in zip(self.names, counts, strict=True) if count}

    def take(self, rows: Any) -> Outcomes:
        """Some rows: numbers, a mask or a slice."""
        return Outcomes(self.names, self.kinds, self.values[rows], self.observed[rows], self.notes)

    def column(self, k: int) -> Float[np.ndarray, "n"]:
        """Values of one outcome in float64."""
        return np.ascontiguousarray(self.values[:, k], dtype=float)

    def compact(self) -> Outcomes:
        """The same outcomes column by column, in the smallest floats that hold every value as it is: to be kept, not to be added up
        (`column`)."""
        values: Any = np.asfortranarray(self.values)
        for kind in (np.float16, np.float32):
            if all(_held_by(values[:, k], kind) for k in range(values.shape[1])):
                values = values.astype(kind, order="F")
                break
        observed = np.broadcast_to(True, values.shape) if self.observed.all() else self.observed
        return Outcomes(self.names, self.kinds, values, observed, self.notes)


def _held_by(column: np.ndarray, kind: type) -> bool:
    """Whether floats of this kind hold every value as it is."""
    for rows in in_blocks(column.size):
        part = column[rows]
        with np.errstate(over="ignore"):
            if not np.array_equal(part.astype(kind), part, equal_nan=True):
                return False
    return True


def parse_outcomes(spelled: Iterable[str]) -> dict[str, str | None]:
    """`name:kind` or `name` (kind found from the values), as the command line spells outcomes; `name:auto` for a name with a colon.

    >>> parse_outcomes(["visit:binary", "spend"])
    {'visit': 'binary', 'spend': None}

    Raises OutcomeKind for a kind that there is not, BadOption for one name twice.
    """
    found: dict[str, str | None] = {}
    for one in spelled:
        name, colon, kind = str(one).rpartition(":")
        name, kind = (name, kind) if colon else (kind, "auto")
        if kind not in (*KINDS, "auto"):
            raise OutcomeKind(
                f"No such kind of outcome in {one}",
                value=kind,
                allowed=", ".join(KINDS),
                mend=f"The nearest is {near(kind, KINDS, 1)}; write {one}:auto where the colon is part of the name",
            )
        if not name:
            raise BadOption("An outcome without a name", value=one, allowed="NAME or NAME:KIND")
        if name in found:
            raise BadOption("An outcome is named twice", value=name, mend="Name each once")
        found[name] = None if kind == "auto" else kind
    return found


def prepare_outcomes(
    Y: Any,
    kinds: Mapping[str, str | None] | Iterable[str] | None = None,
    positive: Any = None,
    *,
    start: int = 0,
) -> Outcomes:
    """Outcomes as numbers, checked against their kinds.

    Parameters
    ----------
    Y: frame, Arrow table or batch, mapping, `Rows`, one column [n] (named as it is, else "y") or an array [n, K] (y0, y1 …, or the
        names of `kinds` where there are as many). Missing: NaN, None, null.
    kinds: name to kind (None: found from the values), or "name:kind" texts. The outcomes named are taken, in this order; all columns
        where None.
    positive: for text outcomes the label that counts as 1 (also for one with two numbers): one label, or by name.
    start: number of the first row, for messages.

    A kind that is not named: binary where only 0 and 1 occur, else continuous; `notes` says which. Raises OutcomeKind (value, row,
    what is allowed), OutcomeEmpty, NonFinite for infinity, UnknownName, ShapeMismatch.
    """
    asked = None if kinds is None else dict(kinds) if isinstance(kinds, Mapping) else parse_outcomes(kinds)
    for name, kind in (asked or {}).items():
        if kind is not None and kind not in KINDS:
            raise OutcomeKind(f"No such kind of outcome for {name}", value=kind, allowed=", ".join(KINDS))
    table = _table(Y, list(asked) if asked else None)
    named = asked if asked is not None else dict.fromkeys(table.column_names)
    if not named:
        raise BadOption("No outcome is named", value=0, allowed="1 or more")
    values = np.full((table.num_rows, len(named)), np.nan)
    chosen, notes = [], []
    for k, (name, kind) in enumerate(named.items()):
        if name not in table.column_names:
            raise UnknownName("No outcome has this name", value=name, allowed=near(name, table.column_names, 12))
        one, label = table.column(name), _positive(positive, name)
        column, said = _as_numbers(one, name, kind, label, start)
        values[:, k] = column
        notes += said
        known = column[~np.isnan(column)]
        if not known.size:
            raise OutcomeEmpty(
                "An outcome is missing in every row", value=name, allowed="some known values", mend="Leave it out"
            )
        if kind is None:
            kind = "binary" if ((known == 0) | (known == 1)).all() else "continuous"
            notes.append(f"The outcome {name} is taken as {kind}; name its kind where it is another")
        check_kind(column, name, kind, start)
        chosen.append(kind)
    observed = ~np.isnan(values)
    # Where all is known, one True stands for every row.
    observed = np.broadcast_to(True, values.shape) if observed.all() else observed
    return Outcomes(tuple(named), tuple(chosen), values, observed, tuple(notes))


def _table(Y: Any, names: list[str] | None) -> pa.Table:
    if isinstance(Y, pa.Table):
        return Y
    if isinstance(Y, pa.RecordBatch):
        return pa.Table.from_batches([Y])
    if isinstance(Y, Rows):
        return Y.table(names)
    if isinstance(Y, Mapping) or hasattr(Y, "columns"):
        return open_rows(Y).table()
    if isinstance(Y, pa.Array | pa.ChunkedArray):
        array: Any = Y
        shape: tuple[int, ...] = (len(Y),)
    else:
        named = getattr(Y, "name", None)
        array = Y if named is not None or hasattr(Y, "to_arrow") else _array(Y)
        shape = np.shape(array)
        if named and names is None:
            names = [str(named)]
    if len(shape) == 1:
        return open_rows({(names or ["y"])[0]: array}).table()
    if len(shape) != 2 or not shape[1]:
        raise ShapeMismatch("Outcomes must be one column or a table of them", value=shape, allowed="[n] or [n, K]")
    if names is None or len(names) != shape[1]:
        names = [f"y{k}" for k in range(shape[1])]
    return open_rows({name: array[:, k] for k, name in enumerate(names)}).table()


def _array(Y: Any) -> np.ndarray:
    from querist.statistics.arrays import as_array

    array = as_array(Y)
    if array.dtype.kind == "U" and not isinstance(Y, np.ndarray):  # a list that mixes text and numbers
        array = np.asarray(Y, dtype=object)
    return array


def _positive(positive: Any, name: str) -> Any:
    return positive.get(name) if isinstance(positive, Mapping) else positive


def _as_numbers(
    column: Any, name: str, kind: str | None, positive: Any, start: int
) -> tuple[Float[np.ndarray, "n"], list[str]]:
    array = plain(column)
    text = kind_of(array.type) == "category" and not pa.types.is_boolean(array.type)
    if positive is None or (not text and kind not in (None, "binary")):
        if text:
            raise _needs_label(array, name, start)
        return numbers(array, name, start), []
    label = _spelled(positive)
    found = texts(array, name)
    found = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    known = sorted(set(found.drop_null().unique().to_pylist()))
    if not text and (label not in known or (kind is None and len(known) > 2)):
        return numbers(array, name, start), []  # the label is meant for another outcome, or for nothing in this one
    if label not in known and known:
        raise OutcomeKind(
            f"The outcome {name} never is what counts as 1",
            value=label,
            allowed=", ".join(known[:12]),
            mend=f"Name its label (--positive {known[-1]})",
        )
    if len(known) > 2:
        raise OutcomeKind(
            f"The outcome {name} has more than two values",
            value=", ".join(known[:6]),
            allowed=f"{label} and one other",
            mend="Join its values first",
        )
    out = np.asarray([np.nan if v is None else float(v == label) for v in found.to_pylist()], dtype=float)
    return out, [f"The outcome {name} is 1 where it is {label}"]


def _needs_label(array: pa.Array, name: str, start: int) -> OutcomeKind:
    shown = texts(array, name)
    shown = shown.dictionary_decode() if pa.types.is_dictionary(shown.type) else shown
    known = sorted(set(shown.drop_null().unique().to_pylist()))
    row = next((i for i, value in enumerate(shown.to_pylist()) if value is not None), 0)
    return OutcomeKind(
        f"The outcome {name} is text",
        value=f"{shown[row].as_py()!r} in row {start + row}",
        allowed="numbers, or text with the label that counts as 1",
        mend=f"Give --positive LABEL, one of {', '.join(known[:6])}",
    )


def _spelled(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return "true" if label else "false"
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label)


def check_kind(column: np.ndarray, name: str, kind: str, start: int) -> None:
    """Raises OutcomeKind where a value cannot be one of this kind, its row counted from `start`."""
    if kind == "continuous":
        return
    wrong = column < 0
    if kind == "binary":
        wrong = ~np.isnan(column) & (column != 0) & (column != 1)
    elif kind == "count":
        wrong |= ~np.isnan(column) & (column != np.rint(column))
    if wrong.any():
        row = int(np.argmax(wrong))
        held: Sequence[float] = np.unique(column[~np.isnan(column)])[:3].tolist()
        two = kind == "binary" and np.unique(column[~np.isnan(column)]).size == 2
        raise OutcomeKind(
            f"The outcome {name} is not {kind}",
            value=f"{column[row]:g} in row {start + row}",
            allowed=_ALLOWED[kind],
            mend=f"Say which of its values counts as 1 (--positive {held[-1]:g})" if two else "Name another kind",
        )
