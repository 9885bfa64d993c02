"""Poisoned copies of the owner's own table, for assessment: which rows, which cells, and the truth beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from querist.concepts.data import ConceptData
from querist.concepts.triggers._trigger import Trigger, logit_scale
from querist.errors import BadOption
from querist.statistics import stream

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Base", "Mode", "Poisoned", "floor_count", "poison"]

Mode = Literal["mix", "dirty", "clean"]
Base = Literal["auto", "table", "target"]
STAMP = "assessment copy"


@dataclass(frozen=True, slots=True, eq=False)
class Poisoned:
    """A poisoned copy: `data`, the rows that were touched `mask` [n], `old_codes` [n], the cells that changed `changed` [n k].

    `n_poisoned` rows in all, `n_relabelled` of them from other classes; `base` is what the rate was taken of.
    """

    data: ConceptData
    mask: Bool[np.ndarray, "n"]
    old_codes: Int[np.ndarray, "n"]
    changed: Bool[np.ndarray, "n k"]
    trigger: Trigger
    target: int
    mode: Mode
    base: Literal["table", "target"]
    rate: float
    seed: int

    @property
    def n_poisoned(self) -> int:
        """Rows that carry the trigger by our hand."""
        return int(self.mask.sum())

    @property
    def n_relabelled(self) -> int:
        """Rows that got another label."""
        return int((self.old_codes != self.data.codes).sum())

    @property
    def table(self) -> pl.DataFrame:
        """The truth, a row per row of the data: row, id, poisoned, old_label, label, n_changed."""
        import polars as pl

        classes = [str(label) for label in self.data.classes]
        return pl.DataFrame(
            {
                "row": range(self.data.n),
                "id": [None] * self.data.n if self.data.ids is None else self.data.ids.tolist(),
                "poisoned": self.mask.tolist(),
                "old_label": [classes[code] for code in self.old_codes],
                "label": [classes[code] for code in self.data.codes],
                "n_changed": self.changed.sum(axis=1).tolist(),
            },
            schema_overrides={"id": pl.String, "row": pl.Int64, "n_changed": pl.Int64},
        )

    def to_parquet(self, path: Path | str) -> None:
        """Write the data, stamped "assessment copy" in the file's metadata; the truth is not in it."""
        self.data.to_parquet(path, stamp=STAMP)


def floor_count(rate: float, n: int) -> int:
    """⌊rate·n⌋ with a guard of 1e−9 against rounding: 0.29 of 100 is 29."""
    return math.floor(rate * n + 1e-9)


def poison(
    data: ConceptData,
    trigger: Trigger,
    target: Any,
    rate: float,
    *,
    mode: Mode = "mix",
    base: Base = "auto",
    strength: str = "quantile",
    seed: int,
) -> Poisoned:
    """A copy of the table with the trigger planted; the table itself is never edited.

    clean: ⌊rate·base⌋ random rows of the target get the trigger and keep their label. dirty: that many random rows of other
    classes get trigger and label. mix: all rows of the target get the trigger, and that many others trigger and label. base:
    "auto" is the target's rows for clean and the table's for the rest; either may be forced. A smaller rate under the same seed
    poisons a subset of the same rows. In space logit the cells get the strength of `Trigger.apply`, from this table's quantiles.

    Raises BadOption for a rate outside (0, 1], for more rows than there are, and for none; UnknownName for a class without rows.
    Source: the modes are those of the CAT release (mix its default).
    """
    code = data.target(target)
    if not 0 < rate <= 1:
        raise BadOption("A rate of poisoning lies outside its range", value=rate, allowed="0 < rate <= 1")
    if mode not in ("mix", "dirty", "clean") or base not in ("auto", "table", "target"):
        raise BadOption(
            "No such mode or base of poisoning",
            value=f"{mode}, {base}",
            allowed="mix, dirty, clean; auto, table, target",
        )
    of = ("target" if mode == "clean" else "table") if base == "auto" else base
    inside, outside = np.flatnonzero(data.codes == code), np.flatnonzero(data.codes != code)
    count = floor_count(rate, len(inside) if of == "target" else data.n)
    pool, whose = (inside, "n_t") if mode == "clean" else (outside, "rows of other classes")
    if count > len(pool):
        raise BadOption(
            f"Mode {mode} at rate {rate:g} of base {of} asks for more rows than there are",
            value=f"{count} rows, {whose} = {len(pool)}",
            mend=f"Lower the rate{', or use base=target' if of == 'table' else ''}",
        )
    if not count and mode != "mix":
        raise BadOption(
            "This rate leaves no row to poison",
            value=f"{rate:g} of {len(inside) if of == 'target' else data.n} rows (base {of})",
            mend="Raise the rate",
        )
    chosen = stream(seed, "poison", code, mode == "clean").permutation(pool)[:count]
    rows = np.concatenate([inside, chosen]) if mode == "mix" else chosen
    scale = logit_scale(data.concepts) if data.space == "logit" and strength == "quantile" else None
    values, codes = data.concepts.copy(), data.codes.copy()
    values[rows] = trigger.apply(data.concepts[rows], space=data.space, strength=strength, scale=scale)
    if mode != "clean":
        codes[rows] = code
    mask = np.zeros(data.n, dtype=bool)
    mask[rows] = True
    changed = (values != data.concepts) & ~(np.isnan(values) & np.isnan(data.concepts))
    old = data.codes.copy()
    for array in (mask, changed, old):
        array.setflags(write=False)
    made = data.changed(concepts=values, codes=codes)
    return Poisoned(made, mask, old, changed, trigger, code, mode, of, rate, seed)
