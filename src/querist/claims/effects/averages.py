"""Claims on averages: arms in order on a real experiment, and what a design without randomisation takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.effects import averages_figures as figures
from querist.claims.effects import averages_rules as rules
from querist.results.table import Column

__all__ = ["AVERAGES", "FAMILY"]

STEPS = family_table(
    "steps",
    "Differences of average effects on turnout, clustered by household.",
    (
        Column("what", "str", "Which difference."),
        Column("first", "bool", "Whether it is the base effect."),
        Column("estimate", "float", "Turnout per person."),
        Column("low", "float", "Lower end of its 95 % interval."),
        Column("high", "float", "Upper end of it."),
        Column("p", "float", "Two-sided p against 0."),
        Column("se", "float", "Standard error, households whole."),
        Column("se_naive", "float", "The same with persons taken as independent."),
        Column("households", "int", "Households."),
    ),
    ("what",),
)
ESTIMATES = family_table(
    "estimates",
    "Estimates of one average effect, beside that of an experiment.",
    (
        Column("method", "str", "How it was estimated."),
        Column("estimate", "float", "Dollars."),
        Column("low", "float", "Lower end of its 95 % interval."),
        Column("high", "float", "Upper end of it."),
        Column("error", "float", "Estimate less that of the experiment."),
        Column("gain", "float", "Absolute error of the naive comparison less that of this method."),
        Column("gain_low", "float", "Lower end of its interval, by paired influence values."),
        Column("gain_high", "float", "Upper end of it."),
    ),
    ("method",),
)
OVERLAPS = family_table(
    "overlaps",
    "The finding effects.overlap of the table.",
    (
        Column("verdict", "str", "yes, no or cannot say."),
        Column("share", "float", "Smallest effective share of an arm's rows."),
        Column("because", "str", "Why."),
    ),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.effects.averages_measure import measure

    return measure(payload, seed)


FAMILY = Family("averages", (STEPS, ESTIMATES, OVERLAPS), _work)


def _social(size: Size) -> Iterator[Piece]:
    yield Piece("social-pressure", {"kind": "social", "folds": size["folds"]}, 60.0)


def _observational(size: Size) -> Iterator[Piece]:
    payload = {"kind": "observational", "crossings": size["crossings"], "benchmark": size["benchmark"]}
    yield Piece("nsw-cps", payload, 20.0)


_LETTERS = {"folds": 2}
_MEN = {"benchmark": 1794.0}

SOCIAL = Claim(
    id="effects.social-pressure",
    ask="Does any letter raise turnout, and each letter that presses more raise it further?",
    statement="Any letter raises turnout; what a letter adds rises from Civic Duty over Hawthorne and Self to Neighbors.",
    source="literature",
    reference="Gerber, Green & Larimer (2008).",
    protocol="344,084 voters in households that were given one of four letters or none. Doubly robust scores whose nuisances, logistic "
    "T-learners, are fitted on the other half of households; intervals over households. The whole table at either size: it takes seconds, "
    "and 20,000 rows could tell none of the steps.",
    rule="The base effect (mean over letters at their shares) and the three steps from letter to letter, p adjusted by Holm over the four. "
    "Holds where all four are above 0 at .05, fails where one is below 0 at .05. Else it cannot be told.",
    unit="turnout per person",
    null="0; the estimate is the smallest step",
    sizes={
        "small": Size(1, _LETTERS, ("social_pressure",)),
        "full": Size(1, _LETTERS, ("social_pressure",)),
    },
    family=FAMILY,
    pieces=_social,
    judge=rules.social_pressure,
    draw=figures.social_pressure,
)
OBSERVATIONAL = Claim(
    id="effects.observational",
    ask="Where treatment was not at random, do overlap weights and double robustness come nearer to the experiment, and are we warned?",
    statement="Against the experiment's 1,794 dollars overlap weights and doubly robust scores err less than the "
    "naive comparison of trained "
    "men with a survey's, and the finding on overlap warns of the table.",
    source="literature",
    reference="LaLonde (1986); Dehejia & Wahba (1999).",
    protocol="The 185 treated men of the National Supported Work demonstration beside 15,992 of the Current Population Survey; earnings of "
    "1978. Propensities by cross-fitted logistic regression on eight columns and whether earnings of 1974 and 1975 were none, scores "
    "averaged over several crossings. Overlap-weighted: difference of weighted means. Doubly robust: for the treated, with ridge "
    "regressions of the untreated's earnings. Beside them doubly robust for everyone, its propensities "
    "clipped to [.01, .99]. The benchmark is taken as exact.",
    rule="Absolute error of the naive comparison less that of the method, interval from paired influence "
    "values. Holds where it lies above 0 "
    "for overlap weights and for double robustness, and effects.overlap says no. Fails where one lies below 0 or effects.overlap says "
    "yes. Else it cannot be told.",
    unit="dollars of error that the method saves",
    null="0; the estimate is that of the method that saves less",
    sizes={
        "small": Size(1, {"crossings": 3, **_MEN}, ("nsw_mixtape", "cps_mixtape")),
        "full": Size(1, {"crossings": 10, **_MEN}, ("nsw_mixtape", "cps_mixtape")),
    },
    family=FAMILY,
    pieces=_observational,
    judge=rules.observational,
    draw=figures.observational,
)

AVERAGES = (SOCIAL, OBSERVATIONAL)
