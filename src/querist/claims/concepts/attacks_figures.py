"""The figure of the claims about success: every target's rate in every cell, beside the clean model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Size
from querist.claims.concepts.family import SETTINGS
from querist.results.charts import Axes, by_depth, stack
from querist.results.figure import Figure

__all__ = ["success"]

CELL = ("selector", "size", "rate", "mode")


def success(tables: Mapping[str, pl.DataFrame], size: Size, *, claim: str) -> Iterator[Figure]:
    """A panel for each setting: targets, a mark for each cell, grey for the clean model."""
    every = tables["attacks"].drop_nulls("asr")
    cells = list(every.select(CELL).unique().sort(CELL).iter_rows())
    panels = []
    for setting, name in SETTINGS.items():
        rows = every.filter(pl.col("setting") == setting)
        if not rows.height:
            continue
        places = rows.select("table", "target").unique(maintain_order=True)
        several = places["table"].n_unique() > 1
        labels = [f"{table}: {target}" if several else target for table, target in places.iter_rows()]
        # Every panel has every cell, those that it lacks without a point: a cell keeps its mark from panel to panel.
        values = {_named(cell, every): _means(rows, places, "asr", cell) for cell in cells}
        values["clean model, the same triggers"] = _means(rows, places, "clean_model_asr", None)
        panels.append((name, by_depth(values, labels, Axes("target", "share sent to the target"))))
    if panels:
        data, layout = stack(panels)
        yield Figure(
            f"{claim}.success",
            "Success of the planted trigger by target",
            "Share of test rows of other classes that are predicted as the target once the trigger is set at the bottleneck, averaged "
            "over repeats; on the clean model of the repeat the same triggers achieve what the last mark shows.",
            data,
            layout,
            "attacks",
        )


def _named(cell: tuple, rows: pl.DataFrame) -> str:
    """What tells a cell from the others."""
    selector, concepts, rate, mode = cell
    parts = [selector, f"{concepts} concepts", f"{100 * rate:g} %", mode]
    varies = [rows[name].n_unique() > 1 for name in CELL]
    kept = [part for part, different in zip(parts, varies, strict=True) if different]
    return ", ".join(kept or parts)


def _means(rows: pl.DataFrame, places: pl.DataFrame, column: str, cell: tuple | None) -> list[float]:
    mine = rows
    for name, value in zip(CELL, cell or (), strict=False):
        mine = mine.filter(pl.col(name) == value)
    means = mine.group_by("table", "target").agg(pl.col(column).mean())
    found = places.join(means, on=["table", "target"], how="left", maintain_order="left")[column]
    return [np.nan if value is None else float(value) for value in found]
