"""The rules of the claims about defences and pixels: pure functions of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.concepts.family import SETTINGS
from querist.claims.concepts.rules import Interval, above, below, both, number, over, plain, said
from querist.statistics import rank_p, wilson

__all__ = ["guard", "image_trigger", "inversion_space", "ranks"]

Tables = Mapping[str, pl.DataFrame]
CUT, DROP, LEVEL, NOTHING = 0.7, 0.01, 0.05, 0.05
AT = 8 / 255


def guard(tables: Tables, size: Size) -> Judgement:
    """The relative cut of success and the drop of accuracy, concepts grouped by name; random groups beside it."""
    rows = tables["guards"].with_columns(
        cut=pl.when(pl.col("asr_before") > 0).then(1 - pl.col("asr_after") / pl.col("asr_before")),
        drop=pl.col("accuracy_before") - pl.col("accuracy_after"),
    )
    decides = size["by"][0]
    cuts: dict[str, Interval | None] = {}
    sides, numbers, told = [], [], []
    for setting, name in SETTINGS.items():
        for by in size["by"]:
            mine = rows.filter((pl.col("setting") == setting) & (pl.col("by") == by))
            cut, drop = over(mine, "cut"), over(mine, "drop")
            what = f"{name}, groups by {by}"
            numbers += [
                number(f"{what}: relative cut of ASR", cut, CUT),
                number(f"{what}: drop of accuracy", drop, DROP),
            ]
            numbers += [
                plain(f"{what}: {said_of}", mine, column)
                for column, said_of in (
                    ("asr_before", "ASR before"),
                    ("asr_after", "ASR after"),
                    ("clean_asr_after", "ASR of the guarded clean model"),
                    ("accuracy_before", "accuracy before"),
                    ("accuracy_after", "accuracy after"),
                    ("clean_accuracy_after", "accuracy of the guarded clean model"),
                    ("coverage", f"of {size['groups']} groups, those that the trigger touches"),
                    ("certified", "certified accuracy against one group"),
                )
            ]
            if by == decides:
                cuts[setting] = cut
                sides += [above(cut, CUT), below(drop, DROP)]
                told.append(
                    f"on {name} it cuts success by {said(cut)} of it and costs {said(drop)} of accuracy, the trigger touching "
                    f"{said(over(mine, 'coverage'))} of {size['groups']} groups"
                )
    because = f"With {size['groups']} groups by {decides}, {'; '.join(told)}."
    return both(sides, cuts, CUT, because, numbers)


def image_trigger(tables: Tables, size: Size) -> Judgement:
    """The hit rate at 8/255 less that of random signs, by target and repeat."""
    rows = tables["reaches"].with_columns(over_null=pl.col("hit") - pl.col("null_hit"))
    numbers: list[Number] = []
    for (eps,), part in rows.sort("eps").group_by("eps", maintain_order=True):
        at = f"{255 * float(eps):g}/255"  # type: ignore[arg-type]
        numbers.append(number(f"hit rate at {at} less random signs", over(part, "over_null"), 0.0))
        for column, what in (
            ("hit", "hit rate"),
            ("clean_hit", "hit rate on the clean model"),
            ("asr", "end-to-end ASR"),
            ("null_asr", "ASR of random signs"),
            ("clean_asr", "ASR on the clean model"),
            ("collateral", "change of other concepts"),
        ):
            numbers.append(plain(f"{what} at {at}", part, column))
    here = rows.filter((pl.col("eps") - AT).abs() < 1e-9)
    found, hit, null = over(here, "over_null"), over(here, "hit"), over(here, "null_hit")
    drawn = {name: over(here, name) for name in ("physical_asr", "physical_clean_asr")}
    numbers += [number(f"pictures, {name.replace('_', ' ')}", one) for name, one in drawn.items()]
    names = ("physical_hit", "natural", "untriggered")
    numbers += [plain(f"pictures, {name.replace('_', ' ')}", here, name) for name in names]
    because = (
        f"Within 8/255 the network says the whole trigger in {said(hit)} of the pictures, {said(null)} under random signs: {said(found)} "
        f"more; drawn anew with the trigger they reach the target in {said(drawn['physical_asr'])}, "
        f"{said(drawn['physical_clean_asr'])} on the clean model."
    )
    side = above(found, 0.0)
    verdict: ClaimVerdict = "cannot say"
    if side is True:
        verdict = "holds"
    elif found is not None and found.high is not None and found.high <= NOTHING:
        verdict = "fails"
    if found is None:
        return Judgement("cannot say", None, None, None, 0.0, because, numbers=tuple(numbers))
    return Judgement(verdict, found.estimate, found.low, found.high, 0.0, because, numbers=tuple(numbers))


def ranks(tables: Tables, space: str) -> tuple[list[tuple[str, float, float, str]], list[float]]:
    """Poisoned models as (target, largest index, p, flagged class), and the largest indices of the clean retrains."""
    mine = tables["inversions"].filter(pl.col("space") == space)
    clean = mine.filter(pl.col("target").is_null())["largest"].to_list()
    rows = mine.filter(pl.col("target").is_not_null()).select("target", "largest", "flagged").iter_rows()
    return [(target, top, rank_p(top, clean, "greater"), flagged) for target, top, flagged in rows], clean


def inversion_space(tables: Tables, size: Size) -> Judgement:
    """Missed in pixels and found among concepts, model by model."""
    held = {space: ranks(tables, space) for space in ("pixels", "concepts")}
    numbers: list[Number] = []
    for space, (found, clean) in held.items():
        middle = float(np.median(clean)) if clean else None
        for target, top, p, flagged in found:
            numbers.append(
                Number(f"{target}, {space}: largest index (flags {flagged}), p {p:.2g}", top, null=middle, n=len(clean))
            )
    p = {space: {target: value for target, _, value, _ in found} for space, (found, _) in held.items()}
    targets = sorted(p["pixels"])
    missed = [p["pixels"][target] > LEVEL for target in targets]
    seen = [p["concepts"][target] <= LEVEL for target in targets]
    n, good = len(targets), sum(a and b for a, b in zip(missed, seen, strict=True))
    if not n or len(held["pixels"][1]) < 19:
        told = "There are too few clean retrains for a p of .05." if n else "There is no poisoned model."
        return Judgement("cannot say", None, None, None, 1.0, told, numbers=tuple(numbers))
    share = wilson(good, n)
    named = sum(flagged == target for target, _, _, flagged in held["concepts"][0])
    numbers.append(Number("models that pixels miss and concepts find", share.estimate, share.low, share.high, 1.0, n))
    numbers.append(Number("models whose class of the largest index among concepts is the target", named / n, n=n))
    verdict: ClaimVerdict = "holds" if good == n else "fails" if good < n / 2 else "cannot say"
    because = (
        f"Of {n} backdoored models {_count(missed)} are missed in pixels (p > .05 beside {len(held['pixels'][1])} clean retrains) and "
        f"{_count(seen)} are found among concepts (p <= .05); both hold of {good}, and {named} have the target on top among concepts."
    )
    return Judgement(verdict, share.estimate, share.low, share.high, 1.0, because, numbers=tuple(numbers))


def _count(flags: Sequence[bool]) -> int:
    return sum(flags)
