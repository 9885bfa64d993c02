"""Whether poisoned rows can be told apart: the rows of the tables stealth and shift, the finding, the summary's block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.attacks import Stealth, stealth_of, two_sample
from querist.concepts.data import ConceptData
from querist.concepts.questions import DELIVERY_DIFFERS, STEALTHY
from querist.concepts.studies.words import because, number
from querist.concepts.triggers import Poisoned
from querist.errors import TooFewRows
from querist.results.finding import Finding, Verdict

__all__ = ["delivery_finding", "delivery_rows", "shift_rows", "stealth_finding", "stealth_rows", "stealth_summary"]

LEVEL, LIMIT = 0.05, 0.6
WORDS = {
    "label": "the other rows of their label and poisoned rows",
    "origin": "the untouched rows of their old classes and relabelled rows",
    "table": "the whole table before and after, row by row",
    "deliveries": "the reference and the suspect rows",
}
Rows = list[dict[str, Any]]


def stealth_rows(made: Poisoned, before: np.ndarray, *, permutations: int, seed: int) -> Rows:
    """The three comparisons of a copy."""
    found = stealth_of(made, before, permutations=permutations, seed=seed)
    return [_row(name, one) for name, one in found.items()]


def delivery_rows(data: ConceptData, reference: ConceptData, *, permutations: int, seed: int) -> tuple[Rows, Rows]:
    """The suspect rows against the reference: rows of stealth and of shift."""
    try:
        found = two_sample(reference.concepts, data.concepts, permutations=permutations, seed=seed)
    except TooFewRows as error:
        return [_row("deliveries", str(error))], []
    moved = [
        {"comparison": "deliveries", "concept": name, "shift": float(value)}
        for name, value in zip(data.concept_names, found.shift, strict=True)
    ]
    return [_row("deliveries", found)], moved


def _row(name: str, found: Stealth | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"comparison": name, "reason": found}
    kept = ("n_a", "n_b", "auc", "low", "high", "p", "mmd2", "p_mmd", "shift_mean", "shift_max")
    return {"comparison": name, **{key: getattr(found, key) for key in kept}}


def shift_rows(made: Poisoned, before: np.ndarray) -> Rows:
    """Shift of every concept's mean, in the whole table and among the rows of the target."""
    inside = set(made.trigger.index)
    sets = {
        "table": (before, made.data.concepts),
        "label": (made.data.concepts[~made.mask & (made.data.codes == made.target)], made.data.concepts[made.mask]),
    }
    rows = []
    for name, (a, b) in sets.items():
        if not len(a) or not len(b):
            continue
        shift = _mean(b) - _mean(a)
        for k, concept in enumerate(made.data.concept_names):
            rows.append({"comparison": name, "concept": concept, "shift": float(shift[k]), "in_trigger": k in inside})
    return rows


def _mean(rows: np.ndarray) -> np.ndarray:
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, rows, 0).sum(axis=0, dtype=float) / np.maximum(count, 1), np.nan)


def stealth_finding(table: pl.DataFrame, target: str) -> list[Finding]:
    """Comparison (i), poisoned rows and the other rows of their label, decides; in mode mix it has no honest rows of the label."""
    row, reason = _decisive(table, ("label", "origin"))
    if row is None:
        said = f"Poisoned rows were not compared: {reason}."
        return [Finding(target, STEALTHY.id, None, STEALTHY.unit, None, None, 0.5, None, "cannot say", said)]
    apart, told = _told_apart(row)
    turned: dict[Verdict, Verdict] = {"yes": "no", "no": "yes", "cannot say": "cannot say"}
    return [
        Finding(
            target, STEALTHY.id, row["auc"], STEALTHY.unit, row["low"], row["high"], 0.5, row["p"], turned[apart], told
        )
    ]


def delivery_finding(table: pl.DataFrame) -> list[Finding]:
    """The suspect rows beside the trusted ones, whole tables: a difference need not be poison, and poison may make none."""
    row, reason = _decisive(table, ("deliveries",))
    asked, unit = DELIVERY_DIFFERS.id, DELIVERY_DIFFERS.unit
    if row is None:
        said = f"The rows were not compared: {reason}."
        return [Finding("reference", asked, None, unit, None, None, 0.5, None, "cannot say", said)]
    apart, told = _told_apart(row)
    return [Finding("reference", asked, row["auc"], unit, row["low"], row["high"], 0.5, row["p"], apart, told)]


def _decisive(table: pl.DataFrame, names: tuple[str, ...]) -> tuple[dict[str, Any] | None, str]:
    """The first of these comparisons that was possible; else why none was."""
    rows = {row["comparison"]: row for row in table.to_dicts()}
    found = next((rows[name] for name in names if name in rows and rows[name]["auc"] is not None), None)
    return found, "; ".join(f"{key}: {row['reason']}" for key, row in rows.items()) or "nothing was compared"


def _told_apart(row: Mapping[str, Any]) -> tuple[Verdict, str]:
    """Whether two sets of rows can be told apart, and the sentence that says so."""
    p, high = row["p"], row["high"]
    verdict: Verdict = "yes" if p <= LEVEL else "no" if high is not None and high < LIMIT else "cannot say"
    rule = {
        "yes": f"p {number(p)} is at most {LEVEL}: they can be told apart",
        "no": f"p {number(p)} is above {LEVEL} and the upper end below {LIMIT}",
        "cannot say": f"p {number(p)} is above {LEVEL}, but the upper end is not below {LIMIT}",
    }[verdict]
    told = because(
        f"The AUC between {WORDS[row['comparison']]} ({row['n_a']} and {row['n_b']})",
        row["auc"],
        row["low"],
        high,
        "",
        "0.5 (labels permuted)",
        rule,
        rows=row["n_a"] + row["n_b"],
    ).replace(" ;", ";")
    return verdict, told


def stealth_summary(table: pl.DataFrame) -> Mapping[str, Any] | None:
    """The summary's block, of the comparison that decided; None where none was possible."""
    for name in ("label", "origin", "deliveries"):
        rows = table.filter((pl.col("comparison") == name) & pl.col("auc").is_not_null())
        if rows.height:
            row = rows.row(0, named=True)
            return {key: row[key] for key in ("auc", "p", "mmd2", "shift_mean", "shift_max")} | {"comparison": name}
    return None
