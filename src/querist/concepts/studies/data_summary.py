"""The summary's block `data`, and what must be said of a table before anything else."""

from __future__ import annotations

from typing import Any

import polars as pl

from querist.concepts.attacks import Parts
from querist.concepts.data import ConceptData

__all__ = ["data_summary", "data_warnings", "seen_words", "set_aside_words"]

COUNTS = (
    "n",
    "k",
    "classes",
    "missing",
    "class_size_min",
    "class_size_max",
    "profiles",
    "conflicting_profiles",
    "conflicting_rows",
)
KEYS = (
    "n",
    "k",
    "classes",
    "density",
    "missing",
    "class_size_min",
    "class_size_median",
    "class_size_max",
    "profiles",
    "conflicting_profiles",
    "conflicting_rows",
    "accuracy_ceiling",
)


def data_summary(
    facts: pl.DataFrame, concepts: pl.DataFrame, space: str, split: dict[str, int] | None
) -> dict[str, Any]:
    """Counts from the tables table_facts and facts."""
    held = {row["fact"]: row["value"] for row in facts.to_dicts()}
    found = {key: int(held[key]) if key in COUNTS and held[key] is not None else held.get(key) for key in KEYS}
    constant = concepts.filter(pl.col("constant"))["concept"].to_list()
    return found | {"constant_concepts": constant, "space": space, "split": split}


def data_warnings(data: ConceptData) -> list[str]:
    """Constant concepts, and unknown cells."""
    told = [f"{said}." for said in data.warnings]
    if data.missing:
        told.append(
            f"{data.missing} of {data.concepts.size} cells are unknown: they match no trigger, and heads read them as the mean."
        )
    return told


def set_aside_words(data: ConceptData, parts: Parts, given: bool) -> list[str]:
    """That rows to choose by were set aside, and of which, where the table names none. parts: with them; given: the model was."""
    names = set() if data.split is None else set(data.split.tolist())
    if parts.val is None or "train" not in names or len(names & {"val", "test"}) != 1:
        return []
    n = parts.val.n
    if given:
        return [
            f"No rows are named val, and the given model may have learnt from all of train: {n} of {n + parts.test.n} test rows, a third "
            "of each class drawn by the seed, are set aside; repairs are chosen by them and not counted on them."
        ]
    return [
        f"No rows are named val: {n} of {n + parts.train.n} training rows, a fifth of each class drawn by the seed, are set aside before "
        "anything is trained that is chosen by them (epochs, thresholds of the model, repairs)."
    ]


def seen_words(data: ConceptData, given: bool) -> list[str]:
    """That a given model may be judged by rows that it learnt from, where the table does not say which rows are train."""
    if not given or (data.split is not None and "train" in data.split):
        return []
    return [
        "The table does not name the rows that the given model learnt from (--split): it may be tested on some of them, which flatters it."
    ]
