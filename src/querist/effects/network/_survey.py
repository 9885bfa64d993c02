"""What a fit must know of a table before it streams it: arms, counts, folds of all rows, and a bounded sample held in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int, UInt64

from querist.effects.errors import ArmMissing
from querist.effects.reading import Roles, arm_labels
from querist.errors import BadValues
from querist.sources.rows import Columns, Rows, hash_rows
from querist.sources.rows.values import kind_of, numbers, texts
from querist.statistics.arrays import numbered
from querist.statistics.streams import torch_seed

__all__ = ["HELD", "Piece", "Plan", "Survey", "survey"]

HELD = 1 << 20
"""Rows that are held in memory at most: they give the links' constants, the validation rows and the refit."""


@dataclass(frozen=True)
class Piece:
    """Rows of one piece that have an arm: the table, arm labels, outcomes [n, K], weights, folds (−1 with one fold), rows set aside
    for validation, rows that are held in memory."""

    table: pa.Table
    arm: np.ndarray
    outcomes: Float[np.ndarray, "n K"]
    weight: Float[np.ndarray, "n"]
    fold: Int[np.ndarray, "n"]
    valid: Bool[np.ndarray, "n"]
    held: Bool[np.ndarray, "n"]
    dropped: int = 0

    def take(self, rows: Int[np.ndarray, "r"]) -> Piece:
        """Some of its rows."""
        return Piece(
            self.table.take(rows),
            self.arm[rows],
            self.outcomes[rows],
            self.weight[rows],
            self.fold[rows],
            self.valid[rows],
            self.held[rows],
        )


@dataclass(frozen=True)
class Plan:
    """Columns of a table by their roles, and how rows are dealt to folds: by the hash of their cluster, or of their number.

    A share `valid` of the units is set aside; those below the share `held` are kept in memory. positive: label that counts as 1,
    for all or by outcome. drop_missing_arm: rows without an arm are passed over.
    """

    rows: Rows
    roles: Roles
    folds: int
    valid: float
    seed: int
    positive: Any = None
    drop_missing_arm: bool = False
    held: float = 1.0

    def piece(self, number: int, start: int) -> Piece:
        """One piece of the table, whose first row has the number `start`. Raises ArmMissing, BadValues with the row."""
        roles = self.roles
        table = self.rows.group(number, roles.names)
        unit = np.arange(start, start + table.num_rows, dtype=np.uint64)
        if roles.cluster is not None:
            _present(table.column(roles.cluster), roles.cluster, start)
            unit = hash_rows(table, [roles.cluster])
        label, known = arm_labels(table.column(roles.arm), what=roles.arm)
        if not known.all():
            if not self.drop_missing_arm:
                raise ArmMissing(
                    f"{roles.arm} is missing",
                    value=f"first at row {start + int(np.argmin(known))}",
                    allowed="a label in every row",
                    mend="Leave these rows out (--drop-missing-arm)",
                )
            at = np.flatnonzero(known)
            table, label, unit = table.take(at), label[at], unit[at]
        fold = np.full(len(unit), -1)
        if self.folds > 1:
            fold = (_share(unit, self.seed, "fold") * self.folds).astype(np.int64)
        return Piece(
            table,
            label,
            self._outcomes(table, start),
            _weights(table, roles.weight, start),
            fold,
            _share(unit, self.seed, "valid") < self.valid,
            _share(unit, self.seed, "held") < self.held,
            int((~known).sum()),
        )

    def _outcomes(self, table: pa.Table, start: int) -> Float[np.ndarray, "n K"]:
        columns = []
        for name in self.roles.outcomes:
            column, label = table.column(name), self.positive
            label = label.get(name) if isinstance(label, Mapping) else label
            if label is not None and kind_of(column.type) == "category" and not pa.types.is_boolean(column.type):
                said = np.asarray(texts(column, name).to_pylist(), dtype=object)
                columns.append(np.where(said == None, np.nan, said == str(label)).astype(float))  # noqa: E711
            else:
                columns.append(numbers(column, name, start))
        return np.stack(columns, axis=1)


def _share(unit: UInt64[np.ndarray, "n"], seed: int, name: str) -> Float[np.ndarray, "n"]:
    """A uniform number for each unit, the same wherever the unit is met (splitmix64)."""
    with np.errstate(over="ignore"):
        z = unit + np.uint64(torch_seed(seed, "mtmt", "units", name))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z + np.uint64(0x9E3779B97F4A7C15)) if shift == 30 else z
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / (1 << 53)


@dataclass(frozen=True)
class Survey:
    """columns: learnt features; arms: weight of the rows of each label; groups [G, J]: rows of each piece and fold that are not set
    aside; n rows, their mean weight, `dropped` of them without an arm. Of the rows held in memory: features (a table), arm
    labels, outcomes [h, K], cluster ids, weights, folds, and which are set aside."""

    columns: Columns
    arms: Mapping[Any, float]
    groups: Int[np.ndarray, "G J"]
    n: int
    mean_weight: float
    dropped: int
    features: pa.Table
    arm: np.ndarray
    outcomes: Float[np.ndarray, "h K"]
    cluster: np.ndarray | None
    weight: Float[np.ndarray, "h"]
    fold: Int[np.ndarray, "h"]
    valid: Bool[np.ndarray, "h"]


def survey(plan: Plan) -> tuple[Plan, Survey]:
    """Two passes that read every column once: features are learnt, then arms counted and rows dealt out.

    Raises ArmMissing, BadValues, UnknownName and what reading raises.
    """
    rows, roles = plan.rows, plan.roles
    columns = rows.columns(roles.features)
    plan = replace(plan, held=min(1.0, HELD / rows.count()))
    arms: Counter[Any] = Counter()
    counts = np.zeros((len(rows.groups), plan.folds), dtype=np.int64)
    kept: list[Piece] = []
    cluster: list[np.ndarray] = []
    start, n, total, dropped = 0, 0, 0.0, 0
    for number, size in enumerate(rows.groups):
        piece = plan.piece(number, start)
        seen, place = numbered(piece.arm)
        arms.update(dict(zip(seen.tolist(), np.bincount(place, piece.weight).tolist(), strict=True)))
        counts[number] = np.bincount(np.maximum(piece.fold[~piece.valid], 0), minlength=plan.folds)
        at = np.flatnonzero(piece.held)
        if roles.cluster is not None:
            cluster.append(hash_rows(piece.table, [roles.cluster])[at])
        kept.append(piece.take(at))
        start, n, dropped = start + size, n + len(piece.arm), dropped + piece.dropped
        total += float(piece.weight.sum())
    if not total > 0:
        raise BadValues("No row has a weight", value=roles.weight, allowed="a positive one")
    return plan, Survey(
        columns,
        dict(arms),
        counts,
        n,
        total / n,
        dropped,
        pa.concat_tables([one.table.select(list(roles.features)) for one in kept]),
        np.concatenate([one.arm for one in kept]),
        np.concatenate([one.outcomes for one in kept]),
        np.concatenate(cluster) if cluster else None,
        np.concatenate([one.weight for one in kept]),
        np.concatenate([one.fold for one in kept]),
        np.concatenate([one.valid for one in kept]),
    )


def _present(column: Any, name: str, start: int) -> None:
    gone = np.asarray(column.is_null(nan_is_null=True))
    if gone.any():
        raise BadValues(
            f"{name} is missing",
            value=f"first at row {start + int(np.argmax(gone))}",
            allowed="an id in every row",
            mend="Leave these rows out",
        )


def _weights(table: pa.Table, name: str | None, start: int) -> Float[np.ndarray, "n"]:
    if name is None:
        return np.ones(table.num_rows)
    found = numbers(table.column(name), name, start)
    wrong = ~(found >= 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadValues(
            f"The weight {name} is negative or missing",
            value=f"{found[row]:g} in row {start + row}",
            allowed="0 or more",
        )
    return found
