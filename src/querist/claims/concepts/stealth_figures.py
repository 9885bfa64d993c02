"""Figures of the claims about tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from querist.claims.claim import Size
from querist.results.charts import Axes, Mark, bars, by_depth
from querist.results.figure import Figure

__all__ = ["score", "unseen"]

Tables = Mapping[str, pl.DataFrame]
MOST = 30


def unseen(tables: Tables, size: Size) -> Iterator[Figure]:
    """The AUC of each target with its interval."""
    rows = tables["stealth_tests"].drop_nulls("p").sort("auc")
    if not rows.height:
        return
    labels = [f"{table}: {target}" for table, target in rows.select("table", "target").iter_rows()]
    marks = [Mark("chance", 0.5, "y"), Mark("upper limit allowed", 0.6, "y")]
    axes = Axes("target", "AUC")
    data, layout = by_depth(
        {"AUC": rows["auc"]}, labels, axes, low=rows["low"].to_numpy(), high=rows["high"].to_numpy(), marks=marks
    )
    yield Figure(
        "cat-stealth.auc",
        "How well poisoned rows are told apart from the honest rows of their label",
        "Cross-fitted AUC of a ridge classifier with its 95 % interval, by target; 1 where every poisoned row is known.",
        data,
        layout,
        "stealth_tests",
    )


def score(tables: Tables, size: Size) -> Iterator[Figure]:
    """How many classes share each first pick."""
    rows = tables["first_picks"]
    if not rows.height:
        return
    counts = (
        rows.group_by("table", "concept", "value")
        .len("classes")
        .sort(["classes", "table", "concept", "value"], descending=[True, False, False, False])
        .head(MOST)
    )
    names = ("table", "concept", "value")
    several = rows["table"].n_unique() > 1
    labels = [
        f"{table}: {concept} = {value}" if several else f"{concept} = {value}"
        for table, concept, value in counts.select(names).iter_rows()
    ]
    data, layout = bars({"classes": counts["classes"]}, labels, Axes("first pick", "classes that share it"))
    yield Figure(
        "catplus-score.picks",
        "What CAT+ picks first, and for how many classes",
        f"Concept and value, the {MOST} commonest at most. A pick that is a class's own has a bar of 1.",
        data,
        layout,
        "first_picks",
    )
