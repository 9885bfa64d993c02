"""The room's noun: rows of concepts with a label each, checked once and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import ArrayLike

from querist.concepts.checking import (
    SPACES,
    Space,
    check_values,
    cut_of,
    labels_of,
    same_rows,
    some,
    table_of,
    unique,
)
from querist.concepts.errors import NotBinary, SchemaMismatch
from querist.errors import BadOption, ShapeMismatch, UnknownName, near
from querist.statistics.arrays import as_array

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SPACES", "ConceptData", "Space", "class_sums", "same_schema"]


@dataclass(frozen=True, slots=True, eq=False, init=False)
class ConceptData:
    """Concepts [n k] with labels [n]: a copy of what was given, read-only.

    concepts: 0/1 and values between them (space hard, prob) or any finite number (logit); NaN is unknown. labels: integers or
    strings; `codes` are 0 … L − 1 in the order of `classes`, the labels as they were given, sorted, or `class_names` where
    given (string labels name one of them, integer labels are positions in them). groups [k]: one name per concept, shared by
    those that belong together. split [n], ids [n]: text. images [n 3 h w] are held as given. Worked out once: `class_sizes` [L],
    which concepts are `constant` [k] (at most one known value), `missing` cells, `binary_values` (0, 1 and unknown alone), and
    `warnings`.

    Raises ShapeMismatch with every shape, TooFewRows for an empty table, NonFinite for an infinite value and BadValues for
    one outside [0, 1], with row and column, DuplicateName for concepts, classes or ids that share a name, UnknownName for a
    label outside `class_names`, BadOption.
    """

    concepts: Float[np.ndarray, "n k"]
    codes: Int[np.ndarray, "n"]
    classes: tuple[Any, ...]
    concept_names: tuple[str, ...]
    space: Space
    groups: tuple[str, ...] | None
    split: Shaped[np.ndarray, "n"] | None
    ids: Shaped[np.ndarray, "n"] | None
    images: Any
    warnings: tuple[str, ...]
    class_sizes: Int[np.ndarray, "L"]
    constant: Bool[np.ndarray, "k"]
    binary_values: bool
    missing: int

    def __init__(
        self,
        concepts: Any,
        labels: ArrayLike,
        *,
        images: Any = None,
        concept_names: Sequence[str] | None = None,
        class_names: Sequence[Any] | None = None,
        groups: Sequence[str] | None = None,
        split: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        space: Space = "hard",
    ):
        if space not in SPACES:
            raise BadOption("No such space of concepts", value=space, allowed=", ".join(SPACES))
        values, given = table_of(concepts), as_array(labels)
        same_rows(values, labels=given, images=images, split=split, ids=ids)
        names = (
            tuple(f"c{k}" for k in range(values.shape[1])) if concept_names is None else tuple(map(str, concept_names))
        )
        for what, per_column in (("concept_names", names), ("groups", groups)):
            if per_column is not None and len(per_column) != values.shape[1]:
                raise ShapeMismatch(
                    f"concepts and {what} must have one entry per column",
                    value=f"concepts {values.shape}, {what} ({len(per_column)},)",
                    mend="Name every column",
                )
        unique(names, "Concepts")
        check_values(values, names, space)
        codes, classes = labels_of(given, class_names)
        row_ids = None if ids is None else np.array([str(i) for i in as_array(ids).ravel()])
        if row_ids is not None:
            unique(row_ids, "Rows")
        parts = None if split is None else np.array([str(s) for s in as_array(split).ravel()])
        held = {
            "concepts": values,
            "codes": codes,
            "classes": classes,
            "concept_names": names,
            "space": space,
            "groups": None if groups is None else tuple(map(str, groups)),
            "split": parts,
            "ids": row_ids,
            "images": images,
            "warnings": (),
        }
        unknown = np.isnan(values)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        constant = ~(low < high)
        held |= {
            "class_sizes": np.bincount(codes, minlength=len(classes)),
            "constant": constant,
            "missing": int(np.count_nonzero(unknown)),
            "binary_values": bool(((values == 0) | (values == 1) | unknown).all()),
        }
        if constant.any():
            said = some([names[k] for k in np.flatnonzero(constant)])
            held["warnings"] = (f"{said} never change; they are kept, and no trigger is chosen from them",)
        for name, value in held.items():
            if isinstance(value, np.ndarray) and name != "images":
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    def from_table(cls, source: Any, **options: Any) -> ConceptData:
        """A table with a column per concept: `readers.read_table`."""
        from querist.concepts.tabular import read_table

        return read_table(source, **options)

    @classmethod
    def from_npz(cls, path: Path | str, **options: Any) -> ConceptData:
        """A numpy archive: `readers.read_npz`."""
        from querist.concepts.tabular import read_npz

        return read_npz(path, **options)

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.concepts)

    @property
    def k(self) -> int:
        """Concepts."""
        return self.concepts.shape[1]

    @property
    def n_classes(self) -> int:
        """Classes, those without a row here included."""
        return len(self.classes)

    @property
    def labels(self) -> np.ndarray:
        """Labels [n] as they were given."""
        return np.array(self.classes)[self.codes]

    @property
    def density(self) -> float | None:
        """Mean over all known cells; None where none is known."""
        known = self.concepts.size - self.missing
        return float(np.nansum(self.concepts, dtype=np.float64) / known) if known else None

    @property
    def means(self) -> Float[np.ndarray, "k"]:
        """p_k, the mean over the known cells of each concept; NaN where none is known."""
        known = ~np.isnan(self.concepts)
        count = known.sum(axis=0)
        total = np.where(known, self.concepts, 0).sum(axis=0, dtype=np.float64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def usable(self, constants: str = "exclude") -> Int[np.ndarray, "u"]:
        """Indices of the concepts a trigger may be chosen from: those that are not constant, or all ("allow")."""
        if constants not in ("exclude", "allow"):
            raise BadOption("No such rule for constant concepts", value=constants, allowed="exclude, allow")
        return np.arange(self.k) if constants == "allow" else np.flatnonzero(~self.constant)

    def target(self, label: Any) -> int:
        """The code of a class that has rows, by its label (or its text). Raises UnknownName with the nearest."""
        present = [name for name, size in zip(self.classes, self.class_sizes, strict=True) if size]
        code = self.code(label, among=present)
        if not self.class_sizes[code]:
            raise UnknownName(
                "No row has this class", value=str(label), allowed=near(str(label), [str(p) for p in present], 12)
            )
        return code

    def code(self, label: Any, *, among: Sequence[Any] | None = None) -> int:
        """The code of a class, with or without rows here. Raises UnknownName with the nearest of `among` (all classes)."""
        for code, known in enumerate(self.classes):
            if known == label or str(known) == str(label):
                return code
        names = [str(name) for name in (self.classes if among is None else among)]
        raise UnknownName("No row has this class", value=str(label), allowed=near(str(label), names, 12))

    def part(self, name: str) -> ConceptData:
        """The rows of one part of the split. Raises UnknownName."""
        parts = [] if self.split is None else sorted(set(self.split.tolist()))
        if name not in parts:
            raise UnknownName("The table has no such part", value=name, allowed=", ".join(parts) or "none: give split=")
        return self.subset(self.split == name)

    def subset(self, rows: ArrayLike) -> ConceptData:
        """These rows (indices or a mask), with all classes and names kept; ids are dropped where a row is taken twice."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        held = {name: getattr(self, name) for name in ("split", "ids", "images")}
        if len(np.unique(chosen)) < len(chosen):
            held["ids"] = None
        return self.changed(
            concepts=self.concepts[chosen],
            codes=self.codes[chosen],
            **{name: None if value is None else value[chosen] for name, value in held.items()},
        )

    def columns(self, keep: Iterable[int]) -> ConceptData:
        """These concepts, in this order."""
        kept = np.asarray(list(keep), dtype=int)
        return self.changed(
            concepts=self.concepts[:, kept],
            concept_names=[self.concept_names[k] for k in kept],
            groups=None if self.groups is None else [self.groups[k] for k in kept],
        )

    def changed(self, *, codes: ArrayLike | None = None, **fields: Any) -> ConceptData:
        """The same table with some fields replaced (checked anew); `codes` are positions in `classes`."""
        kept = ("concepts", "images", "concept_names", "groups", "split", "ids", "space")
        given: dict[str, Any] = {name: getattr(self, name) for name in kept} | fields
        return ConceptData(labels=self.codes if codes is None else codes, class_names=self.classes, **given)

    def binary(self, rule: str | None = None) -> ConceptData:
        """The table as 0, 1 and unknown. rule: a cut ("0.5": above it is 1) or "quantile:q", a cut for each concept.

        Without a rule the table must be binary already: NotBinary names the columns. Raises BadOption for another rule.
        """
        if rule is None:
            if not self.binary_values:
                other = ~np.isnan(self.concepts) & (self.concepts != 0) & (self.concepts != 1)
                bad = np.flatnonzero(other.any(axis=0))
                raise NotBinary(
                    "Concepts hold more than 0 and 1",
                    value=some([self.concept_names[k] for k in bad]),
                    mend='Give binarise="0.5" or binarise="quantile:0.5"',
                )
            return self
        cut = cut_of(self.concepts, rule)
        values = np.where(np.isnan(self.concepts), np.nan, self.concepts > cut).astype(np.float32)
        return self.changed(concepts=values, space="hard")

    def facts(self) -> pl.DataFrame:
        """One row per concept: concept, index, mean, known, constant, group."""
        import polars as pl

        return pl.DataFrame(
            {
                "concept": self.concept_names,
                "index": range(self.k),
                "mean": [None if np.isnan(m) else float(m) for m in self.means],
                "known": (~np.isnan(self.concepts)).sum(axis=0).tolist(),
                "constant": self.constant.tolist(),
                "group": self.groups or [None] * self.k,
            },
            schema_overrides={"mean": pl.Float64, "group": pl.String, "index": pl.Int64, "known": pl.Int64},
        )

    def to_parquet(self, path: Path | str, *, stamp: str | None = None) -> None:
        """Write the table with its column roles in the file's metadata; images are not in it. stamp: a lasting note."""
        from querist.concepts.tabular import write_parquet

        write_parquet(self, path, stamp)


def class_sums(rows: np.ndarray, codes: np.ndarray, classes: int) -> Float[np.ndarray, "L k"]:
    """Σ of rows [n k] in each class."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=classes)
    present = np.flatnonzero(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1][present]
    total = np.zeros((classes, rows.shape[1]))
    total[present] = np.add.reduceat(rows[order], starts, axis=0, dtype=float)
    return total


def same_schema(data: ConceptData, reference: ConceptData) -> None:
    """Raises SchemaMismatch, listing what is missing and what is extra, unless both have the same concepts in one order."""
    if data.concept_names == reference.concept_names:
        return
    missing = [name for name in data.concept_names if name not in set(reference.concept_names)]
    extra = [name for name in reference.concept_names if name not in set(data.concept_names)]
    raise SchemaMismatch(
        "The reference has other concepts",
        value=f"missing {some(missing) or 'none'}; extra {some(extra) or 'none'}"
        + ("" if missing or extra else "; the order differs"),
        mend="Give both tables the same columns in the same order",
    )
