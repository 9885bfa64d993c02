"""The rules of the claims on customers: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Judgement, Number, Size
from querist.claims.effects.rules import Contrast, contrast, judge, mean_of, said
from querist.claims.judging import verdict_of
from querist.statistics import paired_t

__all__ = ["PUBLISHED", "by_arm", "criteo", "hillstrom", "leak", "own_rows", "published_qini", "versus_nothing"]

Tables = Mapping[str, pl.DataFrame]

PUBLISHED = {"Mens E-Mail": (0.0090, 0.0126), "Womens E-Mail": (0.0638, 0.0114)}
"""Qini of visits of T-learners with logistic regression, 70 % of all rows, ten splits: mean and sd."""
CRITEO_QINI, CRITEO_MARGIN, PRINTED = 0.070, 0.01, 0.164
WAYS = ("observed", "counterfactual", "observed, arms exchanged", "natural response with the arm's sign")


def own_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the claim's own fits, without those that check the path."""
    return rows.filter(~pl.col("piece").str.starts_with("published/"))


# --------------------------------------------------------------------------------------------------------------- leak


def leak(tables: Tables, size: Size) -> Judgement:
    """Observed less counterfactual scoring of one network."""
    rows = tables["leaks"]
    found = contrast(
        "Qini, observed less counterfactual", rows, "observed", "counterfactual", "sklift", by=("split",), name="how"
    )
    numbers = []
    for how in WAYS:
        mine = rows.filter(pl.col("how") == how)
        means = mine.group_by("split").agg(pl.col("sklift").mean()).sort("split")
        numbers.append(mean_of(f"Qini, {how}", means["sklift"].to_list(), 0.0))
        numbers += [
            mean_of(f"Qini of {arm}, {how}", mine.filter(pl.col("arm") == arm)["sklift"].to_list(), 0.0)
            for arm in sorted(mine["arm"].unique().to_list())
        ]
    by_what = {number.what: number for number in numbers}
    observed, counter, exchanged, signed = (by_what[f"Qini, {how}"] for how in WAYS)
    because = (
        f"The same networks reach a Qini of {said(observed)} where each row is asked by its own arm and {said(counter)} where it is not, a "
        f"difference of {said(found)}; with arms exchanged between people before they are fed in {said(exchanged)}, natural response with "
        f"the sign of the arm {said(signed)}."
    )
    return judge([found], "above", because, numbers)


# ---------------------------------------------------------------------------------------------------------- hillstrom


def versus_nothing(tables: Tables, model: str, outcome: str) -> tuple[Contrast, Contrast]:
    """A model's ranking less that of natural response, mean over arms, and its choice less one arm for all, over splits."""
    found = []
    for name, column, what in (
        ("scored", "over_natural", "qini less that of natural response"),
        ("valued", "over_arm", "value less that of the best single arm"),
    ):
        mine = own_rows(tables[name]).filter((pl.col("model") == model) & (pl.col("outcome") == outcome))
        means = mine.group_by("split").agg(pl.col(column).mean()).sort("split").drop_nulls(column)[column].to_numpy()
        label = f"{model}, {outcome}: {what}"
        found.append(
            Contrast(label, n=means.size)
            if means.size < 2
            else Contrast.of(label, paired_t(means, np.zeros(means.size)))
        )
    return found[0], found[1]


def by_arm(tables: Tables, model: str, outcome: str) -> dict[str, Contrast]:
    """A model's ranking less that of natural response, arm by arm: a mean over arms hides where it does not."""
    rows = own_rows(tables["scored"]).filter((pl.col("model") == model) & (pl.col("outcome") == outcome))
    found = {}
    for (arm,), mine in rows.drop_nulls("over_natural").sort("split").group_by("arm", maintain_order=True):
        values = mine["over_natural"].to_numpy()
        label = f"{model}, {outcome}, {arm}: qini less that of natural response"
        found[str(arm)] = (
            Contrast(label, n=values.size)
            if values.size < 2
            else Contrast.of(label, paired_t(values, np.zeros(values.size)))
        )
    return dict(sorted(found.items()))


def published_qini(tables: Tables) -> dict[str, tuple[Number, bool]]:
    """By arm: mean Qini of the T-learner on all rows, and whether it is within one sd of what was measured before."""
    rows = tables["scored"].filter(pl.col("piece").str.starts_with("published/") & (pl.col("outcome") == "visit"))
    found = {}
    for arm, (middle, sd) in PUBLISHED.items():
        number = mean_of(
            f"T-learner on all rows, {arm}: Qini", rows.filter(pl.col("arm") == arm)["sklift"].to_list(), middle
        )
        found[arm] = (number, number.value is not None and abs(number.value - middle) <= sd)
    return found


def hillstrom(tables: Tables, size: Size) -> Judgement:
    """MTMT beside natural response and beside one arm for all, on visits; every other model told."""
    ranking, choice = versus_nothing(tables, "MTMT", "visit")
    checked = published_qini(tables)
    numbers = [number for number, _ in checked.values()]
    rows = own_rows(tables["scored"])
    for outcome in rows["outcome"].unique(maintain_order=True).to_list():
        for model in rows["model"].unique(maintain_order=True).to_list():
            numbers += [one.number(0.0) for one in by_arm(tables, model, outcome).values() if one.n]
            if (model, outcome) != ("MTMT", "visit"):
                numbers += [one.number(0.0) for one in versus_nothing(tables, model, outcome) if one.n]
            for arm in rows["arm"].unique(maintain_order=True).to_list():
                mine = rows.filter((pl.col("model") == model) & (pl.col("outcome") == outcome) & (pl.col("arm") == arm))
                numbers.append(mean_of(f"{model}, {outcome}, {arm}: rate qini", mine["qini"].to_list(), 0.0))
                if mine["sklift"].null_count() < mine.height:
                    numbers.append(mean_of(f"{model}, {outcome}, {arm}: sklift Qini", mine["sklift"].to_list(), 0.0))
    sound = all(fine for _, fine in checked.values())
    path = " and ".join(
        f"{said(number, '.4f')} for {arm} (before {number.null:.4f})" for arm, (number, _) in checked.items()
    )
    apart = ", ".join(f"{said(one, '+.5f')} for {arm}" for arm, one in by_arm(tables, "MTMT", "visit").items())
    because = (
        f"On visits MTMT's qini less that of natural response is {said(ranking, '+.5f')} per person ({apart}), and its choice of arms less "
        f"the best single arm is worth {said(choice, '+.5f')}. T-learners on all rows reach a Qini of {path}"
        f"{'' if sound else ', which is not within one sd, so the path is in doubt'}."
    )
    verdict = verdict_of([one.side("above") for one in (ranking, choice)]) if sound else "cannot say"
    return judge([ranking, choice], "above", because, numbers, verdict=verdict)


# ------------------------------------------------------------------------------------------------------------- criteo


def criteo(tables: Tables, size: Size) -> Judgement:
    """MTMT beside the best baseline, where the learners reach what is published for them."""
    rows = tables["scored"].filter((pl.col("table") == "criteo-uplift") & (pl.col("outcome") == "visit"))
    means = {
        model: mean_of(f"{model}: Qini", rows.filter(pl.col("model") == model)["sklift"].to_list())
        for model in rows["model"].unique(maintain_order=True).to_list()
    }
    numbers = [*means.values(), Number("printed in the paper, no target", PRINTED)]
    others = {
        m: number.value for m, number in means.items() if m not in ("MTMT", "single arm") and number.value is not None
    }
    if not others:
        return Judgement("cannot say", None, None, None, 0.0, "Nothing was measured.", numbers=tuple(numbers))
    best = max(others, key=lambda model: others[model])
    found = contrast(f"Qini, MTMT less {best}", rows, "MTMT", best, "sklift", by=("split",))
    learners = [others.get(name) for name in ("S-learner", "T-learner")]
    sound = all(value is not None and abs(value - CRITEO_QINI) <= CRITEO_MARGIN for value in learners)
    told = ", ".join(f"{model} {said(number, '.4f')}" for model, number in means.items())
    because = (
        f"Qini of visits: {told}; MTMT less {best} {said(found, '+.4f')}"
        f"{'' if sound else '; the learners are not within .01 of the published .070, so the path is in doubt'}."
    )
    verdict = verdict_of([found.side("above")]) if sound else "cannot say"
    return judge([found], "above", because, numbers, verdict=verdict)
