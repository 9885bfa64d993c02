"""Figures of the claims about laws over layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from querist.claims.claim import Size
from querist.claims.features.laws_rules import tested_gaps
from querist.features.figures.compare import Setting, contraction_figure, evolution_figures
from querist.results.charts import Axes, by_depth, stack
from querist.results.figure import Figure

__all__ = ["compression", "consistent", "learns_input"]

Tables = Mapping[str, pl.DataFrame]


def _of(tables: Tables, name: str, net: str) -> pl.DataFrame:
    return tables[name].filter((pl.col("net") == net) & (pl.col("repeat") == 0))


def _setting(size: Size) -> Setting:
    said = f"{size['n']} images of each set, sliced W₂, {size['projections']} directions, normalisation iso."
    return Setting(tuple(size["targets"]), said, 0.05)


def _named(figure: Figure, claim: str, net: str, size: Size) -> Figure:
    place = f"-{size['nets'].index(net) + 1}" if len(size["nets"]) > 1 else ""
    return replace(figure, name=f"{claim}.{figure.name}{place}")


def learns_input(tables: Tables, size: Size) -> Iterator[Figure]:
    """Excess by block beside random networks."""
    for net in size["nets"]:
        rows = _of(tables, "net_profiles", net)
        if rows.height:
            yield _named(contraction_figure(rows, _setting(size)), "learns-input", net, size)


def consistent(tables: Tables, size: Size) -> Iterator[Figure]:
    """Steps from block to block of source and target, in both frames, beside random networks."""
    for net in size["nets"]:
        for figure in evolution_figures(_of(tables, "evolution", net), _setting(size)):
            yield _named(figure, "consistent", net, size)


def compression(tables: Tables, size: Size) -> Iterator[Figure]:
    """Excess by block, of compressed copies and of other pictures."""
    for net in size["nets"]:
        found = tested_gaps(tables, net)
        if not found:
            continue
        panels = []
        for target in (size["changed"], size["other"]):
            mine = {layer: gap for (name, layer), gap in found.items() if name == target}
            middle, low, high = ([getattr(gap, end) for gap in mine.values()] for end in ("excess", "low", "high"))
            axes = Axes("block, in forward order", "excess, units of z")
            panels.append((target, by_depth({"excess": middle}, list(mine), axes, low=low, high=high)))
        data, layout = stack(panels)
        caption = (
            f"What the distance to clean {size['source']} exceeds that between two parts of it by, block by block, with 95 % intervals. "
            f"{size['n']} images of each set, sliced W₂, {size['projections']} directions, iso. The panels have their own scale."
        )
        figure = Figure("excess", "The gap to compressed copies and to other pictures", caption, data, layout, "draws")
        yield _named(figure, "compression", net, size)
