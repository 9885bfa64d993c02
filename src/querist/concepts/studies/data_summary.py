"""The summary's block `data`, and what must be said of a table before anything else."""

from __future__ import annotations

from typing import Any

import polars as pl

from querist.concepts.data import ConceptData

__all__ = ["data_summary", "data_warnings"]

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
