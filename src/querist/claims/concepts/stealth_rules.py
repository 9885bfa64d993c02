"""The rules of the claims about tables: pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.concepts.rules import Interval, above, number, over, said
from querist.claims.judging import verdict_of
from querist.statistics import holm, wilson

__all__ = ["score", "unseen"]

LEVEL, LIMIT, CHANCE, HALF = 0.05, 0.6, 0.5, 0.5


def unseen(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """No target told apart, or most of them."""
    rows = tables["stealth_tests"].drop_nulls("p")
    numbers: list[Number] = []
    if not rows.height:
        return Judgement("cannot say", None, None, None, CHANCE, "No target has rows to compare.")
    rows = rows.with_columns(p_adj=pl.Series(np.asarray(holm(rows["p"].to_numpy()), dtype=float)))
    told = rows.filter(pl.col("p_adj") <= LEVEL).height
    close = bool((rows["high"] < LIMIT).all())
    for row in rows.to_dicts():
        what = f"{row['table']}, {row['target']}: AUC, p {row['p_adj']:.2g}" + (
            "" if size.seeds == 1 else f", {row['repeat']}"
        )
        numbers.append(Number(what, row["auc"], row["low"], row["high"], CHANCE, row["n_a"] + row["n_b"]))
    found = over(rows, "auc")
    numbers.append(number("mean AUC over targets", found, CHANCE))
    numbers.append(Number("share of targets told apart", told / rows.height, null=LEVEL, n=rows.height))
    verdict: ClaimVerdict = "cannot say"
    if not told and close:
        verdict = "holds"
    elif told > rows.height / 2:
        verdict = "fails"
    lost = tables["stealth_tests"].height - rows.height
    because = (
        f"Of {rows.height} targets {told} have poisoned rows that are told apart at p <= .05 (Holm); the AUC is {said(found)} on average, "
        f".5 by chance{f'; {lost} targets have too few rows' if lost else ''}."
    )
    assert found is not None
    return Judgement(verdict, found.estimate, found.low, found.high, CHANCE, because, numbers=tuple(numbers))


def score(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """The share of classes with a first pick of their own."""
    rows = tables["first_picks"]
    if not rows.height:
        return Judgement("cannot say", None, None, None, HALF, "There is no class.")
    place = ["table", "repeat", "index", "value"]
    shared = rows.with_columns(classes=pl.len().over(place))
    own, n = shared.filter(pl.col("classes") == 1).height, rows.height
    told = wilson(own, n)
    found = Interval(told.estimate, told.low, told.high, n)
    numbers = [number("share of classes with a first pick of their own", found, HALF)]
    parts = []
    for (table,), part in shared.group_by("table", maintain_order=True):
        alone = part.filter(pl.col("classes") == 1).height / part.height
        literals, distinct = 2 * int(part["concepts"][0]), part.select("index", "value").n_unique()
        by_chance = float((1 - 1 / literals) ** (part.filter(pl.col("repeat") == part["repeat"][0]).height - 1))
        numbers.append(
            Number(f"{table}: share, beside that of independent uniform picks", alone, null=by_chance, n=part.height)
        )
        numbers.append(Number(f"{table}: distinct first picks", float(distinct), n=part.height))
        parts.append(f"{distinct} distinct first picks for {part.height} classes of {table}")
    verdict = verdict_of([above(found, HALF)])
    because = f"{own} of {n} classes have a first pick that is theirs alone: {said(found)}; {', '.join(parts)}."
    return Judgement(verdict, found.estimate, found.low, found.high, HALF, because, numbers=tuple(numbers))
