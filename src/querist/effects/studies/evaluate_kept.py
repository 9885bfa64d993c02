"""Predictions of an evaluation as files: a column for each outcome and arm, written in pieces and read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.evaluation import Scored
from querist.files import replacing, write_arrays

__all__ = ["Kept", "Pen", "scored_of", "writing"]

TOLD = ".npz"
"""Ending of the file beside the columns."""


class Pen:
    """Writes rows of [columns, n] in turn; no more is held than is given."""

    def __init__(self, file: Any, columns: int, n: int):
        self._file, self._shape, self._at = file, (columns, n), 0
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": self._shape})
        self._start = file.tell()

    def write(self, columns: Sequence[Float[np.ndarray, "rows"]]) -> None:
        """Add rows."""
        for c, column in enumerate(columns):
            self._file.seek(self._start + 8 * (c * self._shape[1] + self._at))
            self._file.write(np.ascontiguousarray(column, dtype="<f8"))
        self._at += len(columns[0])


@contextmanager
def writing(path: Path, columns: int, n: int, tier: np.ndarray | None) -> Iterator[Pen]:
    """A file of columns, whole or not at all, and beside it, for a model, its tier weights."""
    write_arrays(path.with_suffix(TOLD), {} if tier is None else {"tier": tier})
    with replacing(path) as temporary, temporary.open("wb") as file:
        yield Pen(file, columns, n)


class Kept:
    """What `writing` wrote: `natural` and `total` of a model by outcome and arm, or the one column of a score that only ranks."""

    def __init__(self, path: str | Path, arms: int, outcomes: int):
        self._path, self._shape = Path(path), (arms, outcomes)
        with np.load(self._path.with_suffix(TOLD), allow_pickle=False) as told:
            self.tier = told["tier"] if "tier" in told.files else None
        with self._path.open("rb") as file:
            np.lib.format.read_magic(file)
            (self.columns, self.n), _, _ = np.lib.format.read_array_header_1_0(file)
            self._start = file.tell()

    @property
    def effects(self) -> bool:
        """Whether it is a model's."""
        return self.tier is not None

    @property
    def totals(self) -> range:
        """Numbers of the columns that are total effects, or a score."""
        return range(self._shape[1] if self.effects else 0, self.columns)

    def column(self, number: int) -> Float[np.ndarray, "n"]:
        """One column, in the order in which they were written."""
        with self._path.open("rb") as file:
            file.seek(self._start + 8 * number * self.n)
            return np.fromfile(file, "<f8", self.n)

    def natural(self, k: int) -> Float[np.ndarray, "n"]:
        """Natural responses of an outcome."""
        return self.column(k)

    def total(self, m: int, k: int) -> Float[np.ndarray, "n"]:
        """Total effects of an arm on an outcome."""
        _, outcomes = self._shape
        return self.column(outcomes + m * outcomes + k) if self.effects else self.column(0)


def scored_of(paths: Mapping[str, str], arms: int, outcomes: int, places: Sequence[int]) -> dict[str, Scored]:
    """Predictions of the outcomes at some places, by score; arms without control. One column stands for every arm and outcome."""
    found = {}
    for name, path in paths.items():
        held = Kept(path, arms, outcomes)
        shape = (held.n, arms, len(places))
        if not held.effects:
            found[name] = Scored(
                name, np.broadcast_to(held.total(0, 0)[:, None, None], shape), None, None, effects=False
            )
            continue
        natural, total = np.empty((held.n, len(places))), np.empty(shape)
        for j, k in enumerate(places):
            natural[:, j] = held.natural(k)
            for m in range(arms):
                total[:, m, j] = held.total(m, k)
        found[name] = Scored(name, total, natural, held.tier)
    return found
