"""A table of people read by the roles of its columns: features, arm, outcomes, the unit of assignment, weights."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from jaxtyping import Int

from querist.effects.errors import ArmMissing
from querist.effects.outcomes import Outcomes, parse_outcomes, prepare_outcomes
from querist.errors import BadOption, BadValues, UnknownName, near
from querist.sources.rows.table import Rows
from querist.sources.rows.values import kind_of, numbers, plain, texts
from querist.statistics.arrays import compact, numbered

__all__ = [
    "People",
    "Roles",
    "arm_labels",
    "missing_cells",
    "missing_features",
    "numbered_labels",
    "read_people",
    "roles_of",
]

pc: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class Roles:
    """Which column is what. `outcomes`: name to kind, None where the values tell; `features`: what a model may see."""

    features: tuple[str, ...]
    arm: str
    outcomes: Mapping[str, str | None] = field(default_factory=dict)
    cluster: str | None = None
    block: str | None = None
    weight: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([*self.features, *self.held]))

    @property
    def held(self) -> list[str]:
        """Every column that is more than a feature, each once."""
        others = [one for one in (self.cluster, self.block, self.weight) if one is not None]
        return list(dict.fromkeys([self.arm, *self.outcomes, *others]))


@dataclass(frozen=True, slots=True)
class People:
    """A table in memory: `features` an Arrow table, outcomes (None where none is named), cluster, block [n], weight [n].

    Arms are held as `places` [n], small integers, among their distinct labels `levels`; `arm` gives the labels themselves. `kept`
    are the numbers of its rows in the table that was read, None where all are; `warnings` what a person must know.
    """

    roles: Roles
    features: pa.Table
    levels: np.ndarray
    places: Int[np.ndarray, "n"]
    outcomes: Outcomes | None
    cluster: np.ndarray | None
    block: np.ndarray | None
    weight: np.ndarray | None
    kept: Int[np.ndarray, "n"] | None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.places.size

    @property
    def arm(self) -> np.ndarray:
        """The label of each row's arm."""
        return self.levels[self.places]

    def of(self, table: pa.Table) -> pa.Table:
        """These people's rows of the table that was read."""
        return table if self.kept is None else table.take(pa.array(self.kept))

    def numbers_of(self, rows: Int[np.ndarray, "r"]) -> Int[np.ndarray, "r"]:
        """Numbers, in the table that was read, of some of these people."""
        return rows if self.kept is None else self.kept[rows]


def roles_of(
    rows: Rows,
    *,
    arm: str | None = None,
    outcomes: Iterable[str] | Mapping[str, str | None] = (),
    feature: Sequence[str] = (),
    drop: Sequence[str] = (),
    cluster: str | None = None,
    block: str | None = None,
    weight: str | None = None,
    others: Iterable[str] = (),
) -> Roles:
    """The roles of a table's columns. What the table's address says (`?arm=segment&cluster=id`) stands in for what is left out.

    feature, drop: names or patterns; without `feature` every column that has no other role is one. Cluster, block and weight are
    features only where `feature` names them letter for letter. others: further columns that are no features (propensities, ids).
    Raises UnknownName with near names, for a pattern that matches nothing too; BadOption for a missing arm, for an outcome or
    the arm named as a feature, and where no feature is left.
    """
    given = rows.options
    arm = arm or given.get("arm")
    cluster, block, weight = (
        cluster or given.get("cluster"),
        block or given.get("block"),
        weight or given.get("weight"),
    )
    named = dict(outcomes) if isinstance(outcomes, Mapping) else parse_outcomes(outcomes)
    if not named and given.get("outcome"):
        named = parse_outcomes(given["outcome"].split(","))
    if arm is None:
        raise BadOption(
            "The column of arms is not named", allowed=near("arm", rows.names, 12), mend="Give --arm COLUMN"
        )
    rows.chosen([arm, *named, *(one for one in (cluster, block, weight) if one), *others])
    held = {arm, *named}
    for name in feature:
        if name in held:
            raise BadOption(
                f"{name} is {'the arm' if name == arm else 'an outcome'} and cannot be a feature",
                value=name,
                mend="Leave it out of --feature",
            )
    exact = set(feature) & set(rows.names)
    held |= ({one for one in (cluster, block, weight) if one} | set(others)) - exact
    wanted = set(rows.names) if not feature else _matching(rows, feature, "--feature")
    features = wanted - held - _matching(rows, drop, "--drop")
    kept = tuple(name for name in rows.names if name in features)
    if not kept:
        raise BadOption(
            "No feature is left", value=", ".join([*feature, *drop]) or rows.origin, mend="Name some (--feature)"
        )
    left = tuple(name for name in rows.names if name not in features and name not in held)
    return Roles(kept, arm, named, cluster, block, weight, left)


def _matching(rows: Rows, patterns: Sequence[str], option: str) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        hits = {name for name in rows.names if name == pattern} or set(fnmatch.filter(rows.names, pattern))
        if not hits:
            raise UnknownName(f"{option} names no column", value=pattern, allowed=near(pattern, rows.names, 12))
        found |= hits
    return found


def arm_labels(column: Any, *, what: str = "arm") -> tuple[np.ndarray, np.ndarray]:
    """Labels of an Arrow column (whole numbers and booleans as such, all else as text) and which are known [n].

    Raises BadValues for numbers that are not whole.
    """
    array = plain(column)
    known = ~np.asarray(array.is_null())
    if pa.types.is_dictionary(array.type):
        array = texts(array, what).dictionary_decode()
    if pa.types.is_boolean(array.type):
        return np.asarray(array.fill_null(False)), known
    if kind_of(array.type) == "number":
        found = numbers(array, what)
        known = ~np.isnan(found)
        odd = known & (found != np.rint(found))
        if odd.any():
            raise BadValues(
                f"The column {what} holds numbers that are no labels",
                value=f"{found[odd][0]:g} in row {int(np.argmax(odd))}",
                allowed="text, whole numbers or booleans",
                mend="Cut graded treatments into arms first",
            )
        return np.where(known, found, 0).astype(np.int64), known
    return np.asarray(texts(array, what).fill_null("").to_pylist(), dtype=str), known


def numbered_labels(column: Any, *, what: str = "arm") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`arm_labels` as the distinct ones, sorted, and the place [n] of each row's among them (any place where it is not known).

    Texts are never held row by row. Raises as `arm_labels`.
    """
    array = plain(column)
    if kind_of(array.type) == "number" or pa.types.is_boolean(array.type):
        labels, known = arm_labels(array, what=what)
        levels, places = numbered(labels)
    else:
        known = ~np.asarray(array.is_null())
        array = texts(array, what)
        array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        entries = np.asarray(["" if entry is None else entry for entry in array.dictionary.to_pylist()], dtype=str)
        levels, order = np.unique(entries, return_inverse=True)
        if not levels.size:
            levels, order = np.array([""]), np.zeros(1, dtype=np.int64)
        places = compact(order, levels.size)[np.asarray(array.indices.fill_null(0))]
    return levels, compact(places, levels.size), known


def _held(levels: np.ndarray, places: Int[np.ndarray, "n"]) -> tuple[np.ndarray, Int[np.ndarray, "n"]]:
    """Labels without those that no row has."""
    seen = np.bincount(places, minlength=levels.size) > 0
    if seen.all():
        return levels, places
    held = levels[seen]
    return held, compact(np.cumsum(seen) - 1, held.size)[places]


def read_people(
    rows: Rows, roles: Roles, *, positive: Any = None, drop_missing_arm: bool = False, features: bool = True
) -> People:
    """The columns of these roles in memory, arms and outcomes checked.

    drop_missing_arm: leave out rows without an arm and say how many, instead of refusing the table. Outcomes that are missing stay
    missing. features: whether they are read too; a People without them has a table of no columns, and no warning of them. Raises
    ArmMissing, OutcomeKind, OutcomeEmpty, BadValues for a cluster or weight that is missing.
    """
    table = rows.table(roles.names if features else roles.held)
    levels, places, known = numbered_labels(table.column(roles.arm), what=roles.arm)
    warnings = list(rows.notes)
    kept = None
    if not known.all():
        gone = int((~known).sum())
        if not drop_missing_arm:
            raise ArmMissing(
                f"{roles.arm} is missing in {gone} of {table.num_rows} rows",
                value=f"first at row {int(np.argmin(known))}",
                allowed="a label in every row",
                mend="Leave these rows out (--drop-missing-arm)",
            )
        kept = np.flatnonzero(known)
        table, places = table.take(kept), places[kept]
        warnings.append(f"{gone} rows without an arm are left out")
    levels, places = _held(levels, places)
    outcomes = None
    if roles.outcomes:
        outcomes = prepare_outcomes(table.select(list(roles.outcomes)), roles.outcomes, positive)
        warnings += outcomes.notes
        for name, count in outcomes.missing.items():
            warnings.append(
                f"The outcome {name} is missing in {count} of {len(outcomes)} rows and counts there for nothing"
            )
    held = table.select(list(roles.features) if features else [])
    warnings += missing_features({name: missing_cells(held.column(name)) for name in held.column_names}, places.size)
    return People(
        roles,
        held,
        levels,
        places,
        outcomes,
        _ids(table, roles.cluster),
        _ids(table, roles.block),
        None if roles.weight is None else _weights(table, roles.weight),
        kept,
        tuple(warnings),
    )


def missing_features(missing: Mapping[str, int], rows: int) -> list[str]:
    """Warnings of the features that are missing in so many of the rows."""
    return [f"The feature {name} is missing in {n} of {rows} rows" for name, n in missing.items() if n]


def missing_cells(column: Any) -> int:
    """Cells of an Arrow column without a value, NaN among them."""
    count = column.null_count
    if pa.types.is_floating(column.type):
        count += pc.sum(pc.is_nan(column)).as_py() or 0
    return count


def _ids(table: pa.Table, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    column = plain(table.column(name))
    if kind_of(column.type) == "number":
        found = numbers(column, name)
        gone = np.isnan(found)
    else:
        found = np.asarray(texts(column, name).to_pylist(), dtype=object)
        gone = np.array([value is None for value in found], dtype=bool)
    if gone.any():
        raise BadValues(
            f"{name} is missing in {int(gone.sum())} rows",
            value=f"first at row {int(np.argmax(gone))}",
            allowed="an id in every row",
            mend="Leave these rows out",
        )
    return found if found.dtype == object else _whole(found)


def _whole(found: np.ndarray) -> np.ndarray:
    return found.astype(np.int64) if (found == np.rint(found)).all() and np.abs(found).max(initial=0) < 2**53 else found


def _weights(table: pa.Table, name: str) -> np.ndarray:
    found = numbers(table.column(name), name)
    wrong = ~(found >= 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadValues(
            f"The weight {name} is negative or missing", value=f"{found[row]:g} in row {row}", allowed="0 or more"
        )
    return found
