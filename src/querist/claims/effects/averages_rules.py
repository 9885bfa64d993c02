"""The rules of the claims on averages: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.effects.rules import Contrast, judge, said
from querist.claims.judging import verdict_of
from querist.statistics import holm

__all__ = ["METHODS", "observational", "savings", "social_pressure", "step_contrasts"]

Tables = Mapping[str, pl.DataFrame]
LEVEL = 0.05
METHODS = ("overlap-weighted", "doubly robust, the treated")
"""Those that the rule looks at."""


def step_contrasts(tables: Tables) -> dict[str, Contrast]:
    """The base effect and the steps, by name."""
    return {
        row["what"]: Contrast(row["what"], row["estimate"], row["low"], row["high"], row["households"], row["p"])
        for row in tables["steps"].to_dicts()
    }


def social_pressure(tables: Tables, size: Size) -> Judgement:
    """Four differences above 0 by adjusted p."""
    found = step_contrasts(tables)
    adjusted = [None if p is None else float(p) for p in holm([one.p for one in found.values()])]
    known = [
        (one.estimate, one, p) for one, p in zip(found.values(), adjusted, strict=True) if one.estimate is not None
    ]
    if not known:
        return Judgement("cannot say", None, None, None, 0.0, "Nothing was measured.")
    numbers: list[Number] = []
    for one, p, row in zip(found.values(), adjusted, tables["steps"].to_dicts(), strict=True):
        numbers += [one.number(0.0), Number(f"{one.what}: adjusted p", p, null=LEVEL)]
        numbers += [Number(f"{one.what}: standard error", row["se"], null=row["se_naive"])]
    sides = [value > 0 if p is not None and p < LEVEL else None for value, _, p in known]
    told = "; ".join(
        f"{one.what} {said(one, '+.4f')} (adjusted p {'unknown' if p is None else f'{p:.2g}'})" for _, one, p in known
    )
    value, least, p = min(known, key=lambda one: one[0])
    because = f"Turnout per person: {told}, households whole."
    return Judgement(verdict_of(sides), value, least.low, least.high, 0.0, because, p, tuple(numbers))


def savings(tables: Tables) -> dict[str, Contrast]:
    """By method: absolute error of the naive comparison less its own."""
    return {
        row["method"]: Contrast(
            f"{row['method']}: error saved beside the naive comparison", row["gain"], row["gain_low"], row["gain_high"]
        )
        for row in tables["estimates"].to_dicts()
        if row["method"] != "naive"
    }


def observational(tables: Tables, size: Size) -> Judgement:
    """Both methods save error, and the overlap finding warns."""
    saved = savings(tables)
    rows = tables["estimates"].to_dicts()
    numbers = [
        Number(f"{row['method']}: estimate", row["estimate"], row["low"], row["high"], size["benchmark"])
        for row in rows
    ]
    numbers += [one.number(0.0) for name, one in saved.items() if name not in METHODS]
    findings = tables["overlaps"].to_dicts()
    overlap = findings[0]["verdict"] if findings else "cannot say"
    if findings:
        numbers.append(Number("smallest effective share of an arm", findings[0]["share"], null=1.0))
    needed = [saved[name] for name in METHODS if name in saved]
    sides = [one.side("above") for one in needed] + [{"no": True, "yes": False}.get(overlap)]
    verdict: ClaimVerdict = verdict_of(sides) if len(needed) == len(METHODS) else "cannot say"
    told = ", ".join(f"{row['method']} {row['estimate']:.0f} [{row['low']:.0f}, {row['high']:.0f}]" for row in rows)
    savings_told = ", ".join(f"{name} {said(saved[name], '.0f')}" for name in METHODS if name in saved)
    because = (
        f"Against {size['benchmark']:.0f} dollars of the experiment: {told}. "
        f"Error saved: {savings_told}. effects.overlap says {overlap}."
    )
    return judge(needed, "above", because, numbers, verdict=verdict)
