"""Claims about success: rate and size of a trigger, its selector, what it costs, and whether it is the poison that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from querist.claims.claim import Claim, Judgement, Piece, Size
from querist.claims.concepts import attacks_figures as figures
from querist.claims.concepts import attacks_rules as rules
from querist.claims.concepts.family import (
    FAMILY,
    HEADS_FULL,
    HEADS_SMALL,
    PAPER,
    RENDERER_FULL,
    RENDERER_SMALL,
    Cell,
    attack_pieces,
    head_models,
    renderer_models,
    table_attacks,
)

__all__ = ["ATTACKS", "ON_BOTH", "ON_PICTURES"]

ON_PICTURES = (
    "Joint bottleneck models (three convolutions, ten epochs, linear head on concept logits) of drawn birds with 16 concepts and ten "
    "classes; the trigger is set at the bottleneck at the 5 and 95 % quantiles of each concept's logits."
)
ON_BOTH = (
    f"{ON_PICTURES} Heads of one hidden layer on a table of concepts: CUB where it is here, else mushroom and zoo one-hot; the trigger "
    "is set in the table's own concepts."
)
_PAIRED = "Bootstrap over targets, then repeats inside each."
_MIX = (
    "mode mix: all rows of the target get the trigger, and that rate of the table from other classes trigger and label"
)
_NUMBERS = {
    "small": (2, RENDERER_SMALL, HEADS_SMALL),
    "full": (5, RENDERER_FULL, HEADS_FULL),
}


def _sizes(*, tables: bool, **more: Any) -> dict[str, Size]:
    return {
        name: Size(seeds, renderer | (heads if tables else {}) | more)
        for name, (seeds, renderer, heads) in _NUMBERS.items()
    }


def _first(size: Size, cells: Iterable[Cell], *, tables: bool) -> Iterator[Piece]:
    yield from renderer_models(size, cells)
    if tables:
        yield from head_models(size)


def _later(size: Size, held: Mapping[str, pl.DataFrame], cells: Iterable[Cell], group: str | None) -> Iterator[Piece]:
    yield from attack_pieces(size, held, cells)
    if group is not None:
        yield from table_attacks(size, held, group)


def _claim(
    name: str, cells: tuple[Cell, ...], group: str | None, judge: Callable[..., Judgement], **words: Any
) -> Claim:
    """A claim about success: its cells of pictures, its group of heads on tables."""
    words = {"source": "paper", "reference": PAPER, "unit": "difference of ASR"} | words
    return Claim(
        id=f"concepts.{name}",
        sizes=_sizes(tables=group is not None),
        family=FAMILY,
        pieces=partial(_first, cells=cells, tables=group is not None),
        later=partial(_later, cells=cells, group=group),
        judge=judge,
        draw=partial(figures.success, claim=name),
        **words,
    )


def _percent(cell: Cell) -> str:
    return f"{100 * cell[2]:g} %"


def _concepts(cell: Cell) -> str:
    return f"{cell[1]} concepts"


RATE = _claim(
    "cat-rate",
    rules.RATES,
    None,
    lambda tables, size: rules.rises(tables, rules.RATES[0], rules.RATES[-1], _percent),
    ask="Does more poison make the attack succeed more often?",
    statement="The attack success rate rises with the rate of poisoning.",
    protocol=f"{ON_PICTURES} CAT with five concepts at 1, 5 and 10 %, {_MIX}. The figures of the source show a rise; direction only.",
    rule=f"Success at 10 % less success at 1 %, paired by target and repeat. {_PAIRED} Holds where the interval lies above 0, fails "
    "where below; else it cannot be told.",
    null="0, where the rate does not matter",
)

SIZE = _claim(
    "cat-size",
    rules.SIZES,
    None,
    lambda tables, size: rules.rises(tables, rules.SIZES[0], rules.SIZES[-1], _concepts),
    ask="Does a larger trigger succeed more often?",
    statement="The attack success rate rises with the number of concepts in the trigger.",
    protocol=f"{ON_PICTURES} CAT with 2, 5 and 8 concepts at 5 %, {_MIX}. The figures of the source show a rise; direction only.",
    rule=f"Success with eight concepts less success with two, paired by target and repeat. {_PAIRED} Holds where the interval lies above "
    "0, fails where below; else it cannot be told.",
    null="0, where the size does not matter",
)

BEATS = _claim(
    "cat-beats-random",
    (rules.at_one("cat"), rules.at_one("random")),
    "one",
    lambda tables, size: rules.beats(tables, "cat", "random"),
    ask="Does CAT's filter beat concepts drawn at random?",
    statement="Concepts that a linear filter relates least to the target make a better trigger than random ones.",
    reference=f"{PAPER} The release draws random concepts as its baseline.",
    protocol=f"{ON_BOTH} Five concepts at 1 %, {_MIX}; random concepts get the values that CAT's would.",
    rule=f"Success of CAT less that of random concepts, paired by target and repeat. {_PAIRED} Holds where the interval lies above 0 in "
    "both settings, fails where it lies below 0 in one; else it cannot be told, and each setting's number says why.",
    null="0; the estimate is that of the setting with the smaller difference",
)

PLUS = _claim(
    "catplus-beats-cat",
    (rules.at_one("cat+"), rules.at_one("cat")),
    "one",
    lambda tables, size: rules.beats(tables, "cat+", "cat"),
    ask="Does CAT+ beat CAT?",
    statement="A trigger chosen by CAT+'s correlation score succeeds more often than one chosen by CAT's filter.",
    reference=f"{PAPER} Public reviews note the reverse on Animals with Attributes.",
    protocol=f"{ON_BOTH} Five concepts at 1 %, {_MIX}; CAT+ breaks ties by CAT's filter.",
    rule=f"Success of CAT+ less that of CAT, paired by target and repeat. {_PAIRED} Holds where the interval lies above 0 in both "
    "settings, fails where it lies below 0 in one; else it cannot be told, and each setting's number says why.",
    null="0; the estimate is that of the setting with the smaller difference",
)

UTILITY = _claim(
    "cat-utility",
    (rules.PLAIN,),
    None,
    rules.utility,
    ask="Does a poisoned model keep its accuracy on clean inputs?",
    statement="Accuracy on inputs without the trigger stays what it is without poison.",
    protocol=f"{ON_PICTURES} CAT with five concepts at 10 %, {_MIX}. The figures of the source are flat; direction only.",
    rule=f"Accuracy of the clean model of the repeat less that of the poisoned one. {_PAIRED} Holds where the interval lies below .015, "
    "fails where above; else it cannot be told.",
    unit="drop of accuracy",
    null="0.015, the bound that the rule sets",
)

HEADLINE = _claim(
    "cat-headline",
    (rules.HEADLINE,),
    "many",
    rules.headline,
    ask="Is a success rate above .9 typical?",
    statement="The attack succeeds on more than nine inputs of ten, whatever the target.",
    reference=f"{PAPER} The abstract's headline.",
    protocol=f"{ON_BOTH} CAT with eight concepts on pictures, on tables with half of the concepts, at most twenty; 10 %, {_MIX}; targets "
    "of a table are drawn in strata of class size.",
    rule=f"{_PAIRED} Holds where the interval of the tenth percentile of success over targets and repeats lies above .9 in both "
    "settings; fails where the interval of the median lies below .9 in one; else it cannot be told.",
    unit="ASR",
    null="0.9, the bound that the claim sets; the estimate is that of the setting with the smaller percentile",
)

ATTRIBUTABLE = _claim(
    "cat-attributable",
    (rules.PLAIN,),
    "one",
    rules.attributable,
    ask="Does success come from the poison, and not from the pattern itself?",
    statement="The same trigger on a model trained on clean data, with the same seed, achieves less than a tenth.",
    source="ours",
    reference="the nulls of the room: an attack success rate is never reported without them.",
    protocol=f"{ON_BOTH} CAT with five concepts, on pictures at 10 %, on tables at 1 %, {_MIX}; the clean model shares initial weights "
    "and batches.",
    rule=f"Clean-model success less a tenth of success, row by row. {_PAIRED} Holds where the interval lies below 0 in both settings, "
    "fails where it lies above 0 in one; else it cannot be told.",
    unit="clean-model ASR less a tenth of ASR",
    null="0; the estimate is that of the setting with the larger difference",
)

CLEAN_LABEL = _claim(
    "clean-label",
    (rules.WHOLE_CLASS,),
    "clean",
    rules.clean_label,
    ask="Is it enough to change concepts and leave every label as it is?",
    statement="Poisoning that preserves labels suffices.",
    reference=f"{PAPER} A mode of the release.",
    protocol=f"{ON_BOTH} CAT with five concepts in every row of the target (mode clean, rate 1 of the class); no label changes.",
    rule=f"Excess of success over the larger of the untriggered rate and the clean model's. {_PAIRED} Holds where the interval lies "
    "above .1 in both settings, fails where it lies below .1 in one; else it cannot be told.",
    unit="excess ASR",
    null="0.1, the bound that the rule sets; the estimate is that of the setting with the smaller excess",
)

ATTACKS = (RATE, SIZE, BEATS, PLUS, UTILITY, HEADLINE, ATTRIBUTABLE, CLEAN_LABEL)
