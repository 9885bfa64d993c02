"""The rules of the claims about success: pure functions of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Judgement, Number, Size
from querist.claims.concepts.family import SETTINGS, Cell
from querist.claims.concepts.rules import Interval, above, below, both, number, of_cell, over, paired, said

__all__ = [
    "HEADLINE",
    "MANY",
    "PLAIN",
    "RATES",
    "SIZES",
    "WHOLE_CLASS",
    "at_one",
    "attributable",
    "beats",
    "clean_label",
    "headline",
    "rises",
    "utility",
]

Tables = Mapping[str, pl.DataFrame]

PLAIN: Cell = ("cat", 5, 0.1, "mix")
RATES: tuple[Cell, ...] = tuple(("cat", 5, rate, "mix") for rate in (0.01, 0.05, 0.1))
SIZES: tuple[Cell, ...] = tuple(("cat", size, 0.05, "mix") for size in (2, 5, 8))
HEADLINE: Cell = ("cat", 8, 0.1, "mix")
WHOLE_CLASS: Cell = ("cat", 5, 1.0, "clean")
MANY = ("cat", None, 0.1, "mix")
"""The largest trigger of a table, whatever its size there."""
TYPICAL, ACCURACY, TENTH, EXCESS = 0.9, 0.015, 0.1, 0.1


def at_one(selector: str) -> Cell:
    """Five concepts at one per cent."""
    return (selector, 5, 0.01, "mix")


def rises(tables: Tables, first: Cell, last: Cell, what: Callable[[Cell], str]) -> Judgement:
    """Success at the last cell less that at the first, on rendered pictures."""
    rows = tables["attacks"]
    held = {cell: of_cell(rows, "renderer", *cell) for cell in (first, last)}
    found = over(paired(held[last], held[first]), "difference")
    cells = dict.fromkeys(
        (selector, size, rate, mode)
        for selector, size, rate, mode in rows.select("selector", "size", "rate", "mode")
        .unique()
        .sort(pl.all())
        .iter_rows()
    )
    numbers = [number(f"ASR at {what(last)} less that at {what(first)}", found, 0.0)]
    for cell in cells:
        mine = of_cell(rows, "renderer", *cell)
        numbers.append(_rate(f"ASR at {what(cell)}", mine))
    told = f"{said(over(held[first], 'asr'))} at {what(first)} and {said(over(held[last], 'asr'))} at {what(last)}"
    because = f"Success on {SETTINGS['renderer']} is {told}: a difference of {said(found)}."
    return both([above(found, 0.0)], {"renderer": found}, 0.0, because, numbers)


def _rate(what: str, rows: pl.DataFrame) -> Number:
    clean = over(rows, "clean_model_asr")
    return number(f"{what} (null: the clean model's)", over(rows, "asr"), None if clean is None else clean.estimate)


def beats(tables: Tables, selector: str, other: str) -> Judgement:
    """Success of one selector less that of another, in both settings."""
    found: dict[str, Interval | None] = {}
    numbers, told = [], []
    for setting, name in SETTINGS.items():
        held = [of_cell(tables["attacks"], setting, *at_one(one)) for one in (selector, other)]
        found[setting] = over(paired(held[0], held[1]), "difference")
        numbers.append(number(f"{name}: {selector} less {other}", found[setting], 0.0))
        numbers += [_rate(f"{name}: ASR of {one}", rows) for one, rows in zip((selector, other), held, strict=True)]
        told.append(f"{said(found[setting])} on {name}")
    because = f"With five concepts at 1 % {_spelled(selector)} succeeds over {_spelled(other)} by {' and '.join(told)}."
    return both([above(one, 0.0) for one in found.values()], found, 0.0, because, numbers)


def _spelled(selector: str) -> str:
    return {"cat": "CAT", "cat+": "CAT+", "random": "random concepts"}[selector]


def utility(tables: Tables, size: Size) -> Judgement:
    """The drop of accuracy beside the clean model."""
    rows = of_cell(tables["attacks"], "renderer", *PLAIN)
    found, accuracy = over(rows, "accuracy_drop"), over(rows, "accuracy")
    numbers = [number("drop of accuracy", found, ACCURACY), number("accuracy of poisoned models", accuracy)]
    because = f"Poisoned at 10 % the models of {SETTINGS['renderer']} lose {said(found)} of accuracy and keep {said(accuracy)}."
    return both([below(found, ACCURACY)], {"renderer": found}, ACCURACY, because, numbers)


def headline(tables: Tables, size: Size) -> Judgement:
    """The tenth percentile over targets above .9; contradicted by a median below it."""
    rows = {
        "renderer": of_cell(tables["attacks"], "renderer", *HEADLINE),
        "table": of_cell(tables["attacks"], "table", *MANY),
    }
    found, sides, numbers, told = {}, [], [], []
    for setting, name in SETTINGS.items():
        found[setting] = over(rows[setting], "asr", _tenth)
        median = over(rows[setting], "asr", _median)
        low = above(found[setting], TYPICAL)
        sides.append(True if low is True else False if above(median, TYPICAL) is False else None)
        numbers.append(number(f"{name}: tenth percentile of ASR", found[setting], TYPICAL))
        numbers.append(number(f"{name}: median ASR", median, TYPICAL))
        numbers.append(_rate(f"{name}: mean ASR", rows[setting]))
        targets = rows[setting].select("table", "target").n_unique()
        told.append(f"{said(found[setting])} (median {said(median)}) over {targets} targets on {name}")
    because = f"At 10 % with the largest trigger the tenth percentile of success is {' and '.join(told)}."
    return both(sides, found, TYPICAL, because, numbers)


def _tenth(values: np.ndarray) -> float:
    return float(np.quantile(values, 0.1))


def _median(values: np.ndarray) -> float:
    return float(np.median(values))


def attributable(tables: Tables, size: Size) -> Judgement:
    """The clean model's success less a tenth of the poisoned one's, row by row."""
    cells = {"renderer": PLAIN, "table": at_one("cat")}
    found: dict[str, Interval | None] = {}
    numbers, told = [], []
    for setting, name in SETTINGS.items():
        rows = of_cell(tables["attacks"], setting, *cells[setting])
        rows = rows.with_columns(over_tenth=pl.col("clean_model_asr") - TENTH * pl.col("asr"))
        found[setting] = over(rows, "over_tenth")
        clean, own, natural = (over(rows, column) for column in ("clean_model_asr", "asr", "natural"))
        numbers.append(number(f"{name}: clean model's ASR less a tenth of ASR", found[setting], 0.0))
        numbers.append(number(f"{name}: clean model's ASR", clean))
        numbers.append(number(f"{name}: ASR", own))
        numbers.append(number(f"{name}: share of rows that carry the trigger already", natural))
        told.append(f"{said(clean)} beside {said(own)} on {name}")
    because = f"The same trigger succeeds on clean models by {' and '.join(told)}."
    sides = [below(one, 0.0) for one in found.values()]
    return both(sides, found, 0.0, because, numbers, worst=max)


def clean_label(tables: Tables, size: Size) -> Judgement:
    """Excess of success where every row of the target carries the trigger and keeps its label."""
    found: dict[str, Interval | None] = {}
    numbers, told = [], []
    for setting, name in SETTINGS.items():
        rows = of_cell(tables["attacks"], setting, *WHOLE_CLASS)
        found[setting] = over(rows, "excess")
        numbers.append(number(f"{name}: excess", found[setting], EXCESS))
        numbers.append(_rate(f"{name}: ASR", rows))
        told.append(f"{said(found[setting])} on {name}")
    because = f"With every row of the target triggered and no label changed the excess is {' and '.join(told)}."
    return both([above(one, EXCESS) for one in found.values()], found, EXCESS, because, numbers)
