"""The rules of the claims on known effects: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from querist.claims.claim import Judgement, Size
from querist.claims.effects.rules import Contrast, contrast, judge, least, mean_of, said
from querist.claims.judging import verdict_of

__all__ = [
    "RIVALS",
    "enhancer",
    "enhancer_contrasts",
    "interaction",
    "interaction_contrasts",
    "many_arms",
    "many_arms_contrasts",
    "multitask",
    "multitask_contrasts",
    "tier",
    "tier_contrasts",
]

Tables = Mapping[str, pl.DataFrame]

RIVALS = ("flat heads", "constant effect", "MTMT, refit on totals")
"""What MTMT must beat; the first is the primary contrast."""
BESIDE = ("T-learner", "S-learner", "flat heads, tiered refit", "tiers, no refit")
GAINS = (
    ("tiers alone", "tiers, no refit", "flat heads"),
    ("the tiered refit of tiers", "MTMT", "tiers, no refit"),
    ("the tiered refit of flat heads", "flat heads, tiered refit", "flat heads"),
    ("tiers where both are refitted", "MTMT", "flat heads, tiered refit"),
)
LINEAR = "The generator is nearly linear in its increments, but for setting 4, and flatters a linear refit."


def _cells(tables: Tables, size: Size, name: str = "errors") -> Iterator[tuple[str, pl.DataFrame]]:
    for setting, n in size["cells"]:
        mine = tables[name].filter((pl.col("setting") == setting) & (pl.col("n") == n))
        yield f"setting {setting}, n={n}", mine


def tier_contrasts(tables: Tables, size: Size, column: str, others: Sequence[str]) -> dict[str, dict[str, Contrast]]:
    """By other model and cell: log error of MTMT less that of the other."""
    return {
        other: {
            cell: contrast(f"{cell}: {column}, MTMT less {other}", rows, "MTMT", other, column, log=True)
            for cell, rows in _cells(tables, size)
        }
        for other in others
    }


def tier(tables: Tables, size: Size) -> Judgement:
    """Increments against flat heads, constant effects and the refit on totals, in every setting."""
    needed = tier_contrasts(tables, size, "increments", RIVALS)
    sides = [one.side("below") for cells in needed.values() for one in cells.values()]
    numbers = [one.number(0.0) for other in RIVALS[1:] for one in needed[other].values()]
    for column, others in (("increments", BESIDE), ("totals", (*RIVALS, *BESIDE))):
        numbers += [
            one.number(0.0) for cells in tier_contrasts(tables, size, column, others).values() for one in cells.values()
        ]
    sources = {}
    for cell, rows in _cells(tables, size):
        for what, a, b in GAINS:
            sources[cell, what] = contrast(f"{cell}: gain of {what}", rows, a, b, "increments", log=True)
        for model in rows["model"].unique(maintain_order=True):
            mine = rows.filter(pl.col("model") == model)
            numbers += [
                mean_of(f"{cell}: RMSE of {column}, {model}", mine[column].to_list())
                for column in ("increments", "totals")
            ]
    numbers += [one.number(0.0) for one in sources.values()]
    told = "; ".join(
        f"{cell}: {', '.join(f'{said(needed[other][cell])} against {other}' for other in RIVALS)}"
        for cell in needed[RIVALS[0]]
    )
    where = "; ".join(
        f"{cell}: {', '.join(f'{what} {said(sources[cell, what])}' for what, *_ in GAINS)}"
        for cell in needed[RIVALS[0]]
    )
    because = f"Log RMSE of increments of MTMT less that of the other: {told}. What changes it: {where}. {LINEAR}"
    primary = list(needed[RIVALS[0]].values())
    return judge(primary, "below", because, numbers, verdict=verdict_of(sides))


def interaction_contrasts(tables: Tables, size: Size) -> dict[str, Contrast]:
    """By cell: log error of totals with the interaction less without."""
    return {
        cell: contrast(
            f"{cell}: totals, with less without interaction", rows, "MTMT", "without interaction", "totals", log=True
        )
        for cell, rows in _cells(tables, size)
    }


def interaction(tables: Tables, size: Size) -> Judgement:
    """With and without the interaction, in every setting."""
    found = interaction_contrasts(tables, size)
    increments = [
        contrast(
            f"{cell}: increments, with less without interaction",
            rows,
            "MTMT",
            "without interaction",
            "increments",
            log=True,
        )
        for cell, rows in _cells(tables, size)
    ]
    told = "; ".join(f"{said(one)} in {cell}" for cell, one in found.items())
    because = f"With the interaction log RMSE of total effects changes by {told}."
    return judge(list(found.values()), "below", because, [one.number(0.0) for one in increments])


def enhancer_contrasts(tables: Tables, size: Size) -> dict[str, Contrast]:
    """By cell: loss without the interaction less loss without the enhancer; MTMT's own error cancels."""
    return {
        cell: contrast(
            f"{cell}: loss of the interaction less that of the enhancer",
            rows,
            "without interaction",
            "without enhancer",
            "totals",
            log=True,
        )
        for cell, rows in _cells(tables, size)
    }


def enhancer(tables: Tables, size: Size) -> Judgement:
    """Whether the interaction's loss is the larger, in every setting."""
    found = enhancer_contrasts(tables, size)
    losses = [
        contrast(f"{cell}: loss of the {part}", rows, f"without {part}", "MTMT", "totals", log=True)
        for cell, rows in _cells(tables, size)
        for part in ("interaction", "enhancer")
    ]
    told = "; ".join(f"{said(one)} in {cell}" for cell, one in found.items())
    each = "; ".join(f"{one.what} {said(one)}" for one in losses)
    because = f"The loss of the interaction less that of the enhancer is {told} in log RMSE ({each})."
    return judge(list(found.values()), "above", because, [one.number(0.0) for one in losses])


def multitask_contrasts(tables: Tables, size: Size) -> dict[str, Contrast]:
    """By cell: log error on the rare outcome, learnt together less alone."""
    return {
        cell: contrast(f"{cell}: rare outcome, together less alone", rows, "together", "alone", "rare", log=True)
        for cell, rows in _cells(tables, size)
    }


def multitask(tables: Tables, size: Size) -> Judgement:
    """Two outcomes together beside the rare one alone."""
    found = multitask_contrasts(tables, size)
    numbers = [
        mean_of(f"{cell}: RMSE on the rare outcome, {model}", rows.filter(pl.col("model") == model)["rare"].to_list())
        for cell, rows in _cells(tables, size)
        for model in ("together", "alone")
    ]
    told = "; ".join(f"{said(one)} in {cell}" for cell, one in found.items())
    because = f"Learnt together log RMSE on the rare outcome changes by {told}."
    return judge(list(found.values()), "below", because, numbers)


def many_arms_contrasts(tables: Tables, size: Size) -> dict[str, Contrast]:
    """By cell, other network and arm: qini of MTMT less that of the other, on the first outcome."""
    found = {}
    for cell, rows in _cells(tables, size, "ranks"):
        first = rows.filter(pl.col("outcome") == 1)
        for other in ("M3TN", "EFIN-like"):
            for arm in sorted(first["arm"].unique().to_list()):
                what = f"{cell}, arm {arm}: qini, MTMT less {other}"
                mine = first.filter(pl.col("arm") == arm)
                found[f"{other}, arm {arm} ({cell})"] = contrast(what, mine, "MTMT", other, "qini")
    return found


def many_arms(tables: Tables, size: Size) -> Judgement:
    """Every arm beside either network."""
    found = many_arms_contrasts(tables, size)
    numbers = []
    for cell, rows in _cells(tables, size, "ranks"):
        first = rows.filter(pl.col("outcome") == 1)
        for model in ("MTMT", "tiers, no refit", "M3TN", "EFIN-like"):
            mine = first.filter(pl.col("model") == model).group_by("repeat").agg(pl.col("qini").mean()).sort("repeat")
            numbers.append(mean_of(f"{cell}: qini, mean over arms, {model}", mine["qini"].to_list()))
        best = first.filter(pl.col("model") == "MTMT").group_by("repeat").agg(pl.col("best").mean()).sort("repeat")
        numbers.append(mean_of(f"{cell}: qini of the true order", best["best"].to_list()))
    worst = least(list(found.values()), "above")
    better = sum(one.side("above") is True for one in found.values())
    because = (
        f"MTMT ranks better at {better} of {len(found)} pairs of arm and network, by intervals over draws"
        f"{'' if worst is None else f'; least so: {worst.what} {said(worst)}'}."
    )
    return judge(list(found.values()), "above", because, numbers)
