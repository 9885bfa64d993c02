"""Figures of the claims about defences and pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Size
from querist.claims.concepts.defences_rules import ranks
from querist.claims.concepts.family import SETTINGS
from querist.results.charts import Axes, Mark, Series, bars, by_depth, lines, stack
from querist.results.figure import Figure

__all__ = ["guard", "image_trigger", "inversion_space"]

Tables = Mapping[str, pl.DataFrame]


def guard(tables: Tables, size: Size) -> Iterator[Figure]:
    """Success and accuracy before and after, a panel for each setting."""
    columns = {
        "ASR before": "asr_before",
        "ASR after": "asr_after",
        "ASR after, clean model": "clean_asr_after",
        "accuracy before": "accuracy_before",
        "accuracy after": "accuracy_after",
    }
    panels = []
    for setting, name in SETTINGS.items():
        rows = tables["guards"].filter(pl.col("setting") == setting)
        if not rows.height:
            continue
        groups = {}
        for by in size["by"]:
            mine = rows.filter(pl.col("by") == by)
            groups[f"groups by {by}"] = [_mean(mine[column]) for column in columns.values()]
        panels.append((name, bars(groups, list(columns), Axes("", "share"))))
    if panels:
        data, layout = stack(panels)
        yield Figure(
            "guard-asr.shares",
            "A poisoned model before and after its head became a vote",
            f"Means over targets and repeats, {size['groups']} groups of concepts. What the guarded clean model does under the same "
            "trigger is no success of the attack.",
            data,
            layout,
            "guards",
        )


def image_trigger(tables: Tables, size: Size) -> Iterator[Figure]:
    """Hit rate against ε, with the nulls."""
    rows = tables["reaches"].sort("eps")
    if not rows.height:
        return
    eps = np.unique(rows["eps"].to_numpy())
    series = []
    for column, name, null in (
        ("hit", "search", False),
        ("clean_hit", "search on the clean model", False),
        ("asr", "end to end: sent to the target", False),
        ("null_hit", "random signs", True),
    ):
        parts = [rows.filter(pl.col("eps") == e)[column].drop_nulls().to_numpy() for e in eps]
        middle, low, high = ([float(f(p)) if p.size else np.nan for p in parts] for f in (np.mean, np.min, np.max))
        series.append(Series(name, 255 * eps, middle, low, high, null=null, points=True))
    marks = [Mark("physical trigger, sent to the target", _mean(rows["physical_asr"]), "y")]
    data, layout = lines(series, Axes("ε, of 255", "share of pictures"), marks=marks)
    yield Figure(
        "image-trigger.reach",
        "Whether pixels can make the trigger",
        "Share of pictures in which the network says the whole trigger, mean over targets and repeats with the range between them. The "
        "line is the share of pictures drawn anew with the trigger that end as the target.",
        data,
        layout,
        "reaches",
    )


def inversion_space(tables: Tables, size: Size) -> Iterator[Figure]:
    """The largest index of each model, poisoned beside clean, a panel for each space."""
    panels = []
    for space in ("pixels", "concepts"):
        found, clean = ranks(tables, space)
        if not found or not clean:
            continue
        labels = [target for target, *_ in found] + [f"clean {i}" for i in range(len(clean))]
        nothing = [np.nan] * len(clean)
        values = {
            "backdoored": [top for _, top, *_ in found] + nothing,
            "clean retrain": [np.nan] * len(found) + sorted(clean),
        }
        marks = [Mark("largest of the clean retrains", max(clean), "y")]
        panels.append((space, by_depth(values, labels, Axes("model", "largest anomaly index"), marks=marks)))
    if panels:
        data, layout = stack(panels)
        yield Figure(
            "inversion-space.index",
            "The largest anomaly index of each model",
            "Over pixels and among concepts. A backdoored model is found where it lies beyond all but one in twenty of the "
            "clean retrains. The panels have their own scale.",
            data,
            layout,
            "inversions",
        )


def _mean(values: pl.Series) -> float:
    known = values.drop_nulls().to_numpy()
    return float(known.mean()) if known.size else float("nan")
