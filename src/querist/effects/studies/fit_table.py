"""The table of a fit that is streamed: its roles and arms from passes over single columns, never held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from querist.effects.arrays import arm_codes
from querist.effects.configs import FitConfig
from querist.effects.errors import ArmMissing
from querist.effects.reading import Roles, arm_labels
from querist.effects.studies.people import Opened, control_label, design_shares, open_roles
from querist.sources.rows import Rows
from querist.statistics.arrays import numbered

__all__ = ["Streaming", "looked_at", "open_streaming", "row_count"]

LOOKED_AT = 50_000
"""Rows whose predictions are compared before and after arms are exchanged."""


@dataclass(frozen=True)
class Streaming:
    """A table that is read piece by piece; labels with control first, rows of each."""

    rows: Rows
    roles: Roles
    labels: tuple[Any, ...]
    counts: tuple[int, ...]
    shares: tuple[float, ...] | None

    @property
    def names(self) -> list[str]:
        """Labels as text."""
        return [str(label) for label in self.labels]


def open_streaming(table: Any, config: FitConfig) -> Streaming:
    """Roles by names alone, arms by one pass over their column.

    Raises what `open_rows`, `roles_of`, `control_label`, `arm_codes` raise, ArmMissing, BadOption without an outcome.
    """
    rows, roles = open_roles(table, config, need_outcomes=True)
    seen: dict[Any, int] = {}
    start = 0
    for batch in rows.batches([roles.arm]):
        labels, known = arm_labels(batch.column(0), what=roles.arm)
        if not known.all() and not config.drop_missing_arm:
            raise ArmMissing(
                f"{roles.arm} is missing",
                value=f"first at row {start + int(np.argmin(known))}",
                allowed="a label in every row",
                mend="Leave these rows out (--drop-missing-arm)",
            )
        found, place = numbered(labels[known])
        for label, count in zip(found.tolist(), np.bincount(place).tolist(), strict=True):
            seen[label] = seen.get(label, 0) + count
        start += batch.num_rows
    control = control_label(config.control or rows.options.get("control"), np.array(list(seen)), roles)
    ordered, _ = arm_codes(np.array(list(seen)), control)
    counts = tuple(seen[label] for label in ordered)
    return Streaming(rows, roles, tuple(ordered), counts, design_shares(config.design, list(ordered)))


def row_count(table: Opened | Streaming) -> int:
    """Rows that have an arm."""
    return sum(table.counts) if isinstance(table, Streaming) else len(table)


def looked_at(table: Opened | Streaming) -> tuple[pa.Table, pa.Table]:
    """About 50,000 rows from all over the table with all columns of a role, arm included; and the same rows with every arm
    replaced by the next one that these rows hold."""
    roles = table.roles if isinstance(table, Streaming) else table.people.roles
    stride = max(1, table.rows.count() // LOOKED_AT)
    pieces, start = [], 0
    for batch in table.rows.batches(roles.names):
        taken = np.arange(-start % stride, batch.num_rows, stride)
        pieces.append(pa.Table.from_batches([batch]).take(taken))
        start += batch.num_rows
    whole = pa.concat_tables(pieces)
    labels, known = arm_labels(whole.column(roles.arm), what=roles.arm)
    whole, labels = whole.filter(pa.array(known)), labels[known]
    _, first, code = np.unique(labels, return_index=True, return_inverse=True)
    column = whole.column(roles.arm)
    other = column.take(pa.array(np.roll(first, -1)[code.reshape(-1)]))
    place = whole.column_names.index(roles.arm)
    return whole, whole.set_column(place, roles.arm, other)
