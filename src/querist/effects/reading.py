"""A table of people read by the roles of its columns: features, arm, outcomes, the unit of assignment, weights."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from querist.effects.arrays import labels_of
from querist.effects.errors import ArmMissing
from querist.effects.outcomes import Outcomes, parse_outcomes, prepare_outcomes
from querist.errors import BadOption, BadValues, UnknownName, near
from querist.sources.rows.table import Rows
from querist.sources.rows.values import kind_of, numbers, plain, texts

__all__ = ["People", "Roles", "arm_labels", "read_people", "roles_of"]

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
        others = [one for one in (self.cluster, self.block, self.weight) if one is not None]
        return list(dict.fromkeys([*self.features, self.arm, *self.outcomes, *others]))


@dataclass(frozen=True, slots=True)
class People:
    """A table in memory: `features` an Arrow table, arm labels [n], outcomes (None where none is named), cluster, block [n], weight [n].

    `kept` are the numbers of its rows in the table that was read; `warnings` what a person must know.
    """

    roles: Roles
    features: pa.Table
    arm: np.ndarray
    outcomes: Outcomes | None
    cluster: np.ndarray | None
    block: np.ndarray | None
    weight: np.ndarray | None
    kept: np.ndarray
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arm)


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


def read_people(rows: Rows, roles: Roles, *, positive: Any = None, drop_missing_arm: bool = False) -> People:
    """The columns of these roles in memory, arms and outcomes checked.

    drop_missing_arm: leave out rows without an arm and say how many, instead of refusing the table. Outcomes that are missing stay
    missing. Raises ArmMissing, OutcomeKind, OutcomeEmpty, BadValues for a cluster or weight that is missing.
    """
    table = rows.table(roles.names)
    labels, known = arm_labels(table.column(roles.arm), what=roles.arm)
    warnings = list(rows.notes)
    kept = np.arange(table.num_rows)
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
        table, labels = table.take(kept), labels[kept]
        warnings.append(f"{gone} rows without an arm are left out")
    labels = labels_of(labels, roles.arm)
    outcomes = None
    if roles.outcomes:
        outcomes = prepare_outcomes(table.select(list(roles.outcomes)), roles.outcomes, positive)
        warnings += outcomes.notes
        for name, count in outcomes.missing.items():
            warnings.append(
                f"The outcome {name} is missing in {count} of {len(outcomes)} rows and counts there for nothing"
            )
    features = table.select(list(roles.features))
    for name in roles.features:
        if missing := _missing(features.column(name)):
            warnings.append(f"The feature {name} is missing in {missing} of {features.num_rows} rows")
    return People(
        roles,
        features,
        labels,
        outcomes,
        _ids(table, roles.cluster),
        _ids(table, roles.block),
        None if roles.weight is None else _weights(table, roles.weight),
        kept,
        tuple(warnings),
    )


def _missing(column: Any) -> int:
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
