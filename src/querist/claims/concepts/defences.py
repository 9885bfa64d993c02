"""Claims about defences and pixels: a vote of groups of concepts, triggers made in pictures, triggers found by inversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from querist.claims.claim import Claim, Piece, Size
from querist.claims.concepts import defences_figures as figures
from querist.claims.concepts import defences_rules as rules
from querist.claims.concepts.attacks import ON_BOTH, ON_PICTURES
from querist.claims.concepts.attacks_rules import PLAIN
from querist.claims.concepts.family import (
    FAMILY,
    HEADS_FULL,
    HEADS_SMALL,
    PAPER,
    RENDERER_FULL,
    RENDERER_SMALL,
    guard_pieces,
    head_models,
    inversion_pieces,
    reach_pieces,
    renderer_models,
)

__all__ = ["DEFENCES"]

RETRAINS = 19
"""The fewest clean retrains beside which a p of .05 can be reached."""
_EPS = tuple(e / 255 for e in (2, 4, 8, 16, 32))


def _guard_models(size: Size) -> Iterator[Piece]:
    yield from renderer_models(size, (PLAIN,))
    yield from head_models(size, size["table_repeats"])


def _guards(size: Size, tables: Mapping[str, pl.DataFrame]) -> Iterator[Piece]:
    yield from guard_pieces(size, tables, PLAIN)


def _models(size: Size) -> Iterator[Piece]:
    yield from renderer_models(size, (PLAIN,))


def _reaches(size: Size, tables: Mapping[str, pl.DataFrame]) -> Iterator[Piece]:
    yield from reach_pieces(size, tables, PLAIN)


def _inverted_models(size: Size) -> Iterator[Piece]:
    yield from renderer_models(size, (PLAIN,), 1, clean=size["retrains"])


def _inversions(size: Size, tables: Mapping[str, pl.DataFrame]) -> Iterator[Piece]:
    yield from inversion_pieces(size, tables, PLAIN)


GUARD = Claim(
    id="concepts.guard-asr",
    ask="Does ConceptGuard cut success by seven tenths and keep accuracy?",
    statement="Voting over groups of concepts (ConceptGuard) takes at least 70 % of the attack's success away and costs no accuracy.",
    source="literature",
    reference="ConceptGuard (arXiv 2411.16512) and its public reviews.",
    protocol=f"{ON_BOTH} CAT with five concepts, on pictures at 10 %, on tables at 1 %, mode mix. The head is replaced by four, one for "
    "each group of concepts, trained on the poisoned table, ties broken by a fixed order of classes; groups by the words of names, as "
    "published, and at random. The guarded clean model stands beside it.",
    rule="Relative cut of success (1 − after/before) and accuracy before less after, bootstrap over targets, then repeats; groups by name. "
    "Holds where the cut's interval lies above .7 and the drop's below .01 in both settings; fails where in one the cut's lies below .7 or "
    "the drop's above .01; else it cannot be told. Random groups are reported and decide nothing.",
    unit="relative cut of ASR",
    null="0.7, the bound that the claim sets; the estimate is that of the setting with the smaller cut",
    sizes={
        "small": Size(
            2,
            RENDERER_SMALL
            | HEADS_SMALL
            | {"table_targets": 4, "table_repeats": 1, "groups": 4, "by": ("names", "random")},
        ),
        "full": Size(
            5,
            RENDERER_FULL
            | HEADS_FULL
            | {"table_targets": 20, "table_repeats": 5, "groups": 4, "by": ("names", "random")},
        ),
    },
    family=FAMILY,
    pieces=_guard_models,
    later=_guards,
    judge=rules.guard,
    draw=figures.guard,
)

IMAGE = Claim(
    id="concepts.image-trigger",
    ask="Can the trigger be made in the picture?",
    statement="The trigger can be reached from pixels.",
    source="paper",
    reference=f"{PAPER} Its code for pictures is not public; the search is ours, not a reproduction.",
    protocol=f"{ON_PICTURES} CAT with five concepts at 10 %, mode mix. Test pictures; projected gradients on the model itself "
    "within ε, random signs of the same size, the same search on the clean model; and the pictures drawn anew with the trigger.",
    rule="Hit rate (the network says the whole trigger) within 8/255 less that of random signs, bootstrap over targets, then repeats. "
    "Holds where the interval lies above 0; fails where its upper end is .05 or less; else it cannot be told. Physical success is reported "
    "and decides nothing.",
    unit="difference of hit rates",
    null="0, where a search finds no more than noise",
    sizes={
        "small": Size(
            1, RENDERER_SMALL | {"pictures": 100, "eps": (2 / 255, 8 / 255, 32 / 255), "steps": 40, "restarts": 2}
        ),
        "full": Size(5, RENDERER_FULL | {"pictures": 100, "eps": _EPS, "steps": 40, "restarts": 2}),
    },
    family=FAMILY,
    pieces=_models,
    later=_reaches,
    judge=rules.image_trigger,
    draw=figures.image_trigger,
)

INVERSION = Claim(
    id="concepts.inversion-space",
    ask="Does inversion miss the backdoor in pixels and find it among concepts?",
    statement="Neural Cleanse over pixels does not see a concept-level backdoor; the same idea over concepts does.",
    source="paper",
    reference=f"{PAPER} That pixels miss it is the figures'; that concepts find it is ours.",
    protocol=f"{ON_PICTURES} CAT with five concepts at 10 %, mode mix: one backdoored model for each target, and nineteen clean retrains "
    "with other seeds. In each model the smallest mask and pattern of every class over pixels, and the smallest trigger of every class at "
    "the bottleneck, on clean pictures that no model was trained on; the largest anomaly index of a model is ranked among those of the "
    "clean retrains.",
    rule="Rank p of each backdoored model. Holds where in all of them p > .05 in pixels and p <= .05 among concepts; fails where both are "
    "so in fewer than half; else it cannot be told.",
    unit="share of models",
    null="1, all models",
    sizes={
        "small": Size(1, RENDERER_SMALL | {"retrains": RETRAINS, "rows": 32, "steps": 60}),
        "full": Size(1, RENDERER_FULL | {"retrains": 99, "rows": 64, "steps": 200}),
    },
    family=FAMILY,
    pieces=_inverted_models,
    later=_inversions,
    judge=rules.inversion_space,
    draw=figures.inversion_space,
)

DEFENCES = (GUARD, IMAGE, INVERSION)
