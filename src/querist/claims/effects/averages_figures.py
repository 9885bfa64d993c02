"""Figures of the claims on averages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from querist.claims.claim import Size
from querist.claims.effects import averages_rules as rules
from querist.claims.effects.rules import Contrast, figure
from querist.results.figure import Figure

__all__ = ["observational", "social_pressure"]

Tables = Mapping[str, pl.DataFrame]


def social_pressure(tables: Tables, size: Size) -> Iterator[Figure]:
    """The base effect and the steps."""
    yield figure(
        "social-pressure.steps",
        "Turnout: the base effect of any letter, then from letter to letter",
        "Average differences with 95 % intervals over households, before adjustment.",
        "turnout per person",
        rules.step_contrasts(tables),
        "steps",
    )


def observational(tables: Tables, size: Size) -> Iterator[Figure]:
    """Error of every method."""
    groups = {
        row["method"]: Contrast(
            row["method"], row["error"], row["low"] - size["benchmark"], row["high"] - size["benchmark"]
        )
        for row in tables["estimates"].to_dicts()
    }
    yield figure(
        "observational.errors",
        "Error beside the experiment",
        f"Estimate less {size['benchmark']:.0f} dollars, with the estimate's 95 % interval. At 0 the method "
        "finds what the experiment found.",
        "dollars",
        groups,
        "estimates",
    )
