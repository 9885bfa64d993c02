"""Claims that need tables and no models: whether poisoned rows can be told apart, and whether a score picks what is a class's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.concepts import stealth_figures as figures
from querist.claims.concepts import stealth_rules as rules
from querist.claims.concepts.family import PAPER, table_pieces
from querist.results.table import Column

__all__ = ["FAMILY", "FIRST_PICKS", "STEALTH", "STEALTH_TESTS"]

_PLACE = (
    Column("table", "str", "Which table."),
    Column("target", "str", "The class that the trigger is for."),
    Column("repeat", "int", "Which draw of poisoned rows and negatives."),
)
STEALTH_TESTS = family_table(
    "stealth_tests",
    "Poisoned rows and the other rows of their label, told apart or not.",
    (
        *_PLACE,
        Column("n_a", "int", "Honest rows of the target."),
        Column("n_b", "int", "Poisoned rows."),
        Column("auc", "float", "Cross-fitted AUC of a ridge classifier."),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end of it."),
        Column("p", "float", "Permutation p of the AUC."),
        Column("mmd2", "float", "Unbiased squared kernel distance."),
        Column("p_mmd", "float", "Its permutation p."),
        Column("shift_mean", "float", "Mean difference of concepts' means."),
        Column("shift_max", "float", "Largest difference of concepts' means."),
        Column("reason", "str", "Why there is no test."),
    ),
    ("target", "repeat"),
)
FIRST_PICKS = family_table(
    "first_picks",
    "What CAT+ picks first for each class.",
    (
        *_PLACE,
        Column("concept", "str", "The concept."),
        Column("index", "int", "Its position."),
        Column("value", "int", "The value that is set."),
        Column("cnt", "int", "Rows of other classes that have that value."),
        Column("concepts", "int", "Concepts of the table that a trigger may be chosen from."),
    ),
    ("target", "repeat"),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.concepts.stealth_measure import measure

    return measure(payload, seed)


FAMILY = Family("tables alone", (STEALTH_TESTS, FIRST_PICKS), _work)


def _stealth_pieces(size: Size) -> Iterator[Piece]:
    yield from table_pieces(size, "stealth", size["table_targets"], permutations=size["permutations"])


def _pick_pieces(size: Size) -> Iterator[Piece]:
    yield from table_pieces(size, "first-picks", None)


UNSEEN = Claim(
    id="concepts.cat-stealth",
    ask="Can poisoned rows not be told apart from honest ones?",
    statement="Concept vectors that carry the trigger look like those that do not.",
    source="paper",
    reference=f"{PAPER} There human and machine judges look at them; here a two-sample test does.",
    protocol="CUB where it is here, else mushroom and zoo one-hot. CAT with five concepts, mode dirty at 5 %: rows of other classes get "
    "trigger and label. Those rows beside the honest rows of the target, by a ridge classifier of fixed penalty, five folds, and "
    "permutations. In mode mix no honest row of the target would be left to compare with.",
    rule="The verdict of concepts.stealthy for every target, p adjusted after Holm. Holds where no target has p <= .05 and every upper "
    "limit of the AUC lies below .6; fails where more than half of the targets have p <= .05; else it cannot be told.",
    unit="AUC",
    null="0.5",
    sizes={
        "small": Size(1, {"table_targets": 8, "permutations": 999}),
        "full": Size(1, {"table_targets": 50, "permutations": 999}),
    },
    family=FAMILY,
    pieces=_stealth_pieces,
    judge=rules.unseen,
    draw=figures.unseen,
)

SCORE = Claim(
    id="concepts.catplus-score",
    ask="Does CAT+'s score pick concepts that are a class's own?",
    statement="The correlation score finds concepts that are specific to the target class.",
    source="paper",
    reference=f"{PAPER} Implied: the score is called a correlation with the target.",
    protocol="CUB where it is here, else mushroom and zoo one-hot. The first pick (concept and value) of CAT+ for every class.",
    rule="Share of classes whose first pick is no other class's of the table, with Wilson's interval. Holds where the interval lies above "
    "one half, fails where below; else it cannot be told.",
    unit="share of classes",
    null="0.5, the bound that the rule sets",
    sizes={"small": Size(1, {"table_targets": None}), "full": Size(1, {"table_targets": None})},
    family=FAMILY,
    pieces=_pick_pieces,
    judge=rules.score,
    draw=figures.score,
)

STEALTH = (UNSEEN, SCORE)
