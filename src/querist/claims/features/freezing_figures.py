"""Figures of the claims about frozen layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from querist.claims.claim import Size
from querist.claims.features.freezing_rules import cells_of
from querist.results.charts import Axes, Mark, Series, by_depth, lines, scatter
from querist.results.figure import Figure

__all__ = ["frozen_layers", "not_weight_statistics", "w_predicts"]

Tables = Mapping[str, pl.DataFrame]


def frozen_layers(tables: Tables, size: Size) -> Iterator[Figure]:
    """Accuracy against the number of frozen blocks, a line per arm, a figure per target."""
    from querist.features.studies.freeze_present import accuracies

    for i, target in enumerate(size["freeze_targets"]):
        series = []
        for arm in size["arms"]:
            parts = [_finite(accuracies(tables["cells"], [target], arm, k, size.seeds)) for k in size["ks"]]
            middle, low, high = ([float(f(p)) if p.size else np.nan for p in parts] for f in (np.mean, np.min, np.max))
            series.append(Series(arm, list(size["ks"]), middle, low, high, points=True))
        data, layout = lines(series, Axes("frozen blocks", "test accuracy"))
        layout["xaxis"] |= {"tickvals": list(size["ks"])}
        place = f"-{i + 1}" if len(size["freeze_targets"]) > 1 else ""
        yield Figure(
            f"frozen-layers.accuracy{place}",
            f"Accuracy on {target} by frozen blocks",
            f"Mean over {size.seeds} seeds with the range between them; {size['train_n']} training images, {size['epochs']} epochs.",
            data,
            layout,
            "cells",
        )


def not_weight_statistics(tables: Tables, size: Size) -> Iterator[Figure]:
    """What pretrained weights lead each arm by, in every cell."""
    from querist.features.studies.freeze_present import accuracies

    labels, groups = [], {f"seed {repeat}": [] for repeat in range(size.seeds)}
    for k in size["ks"]:
        for arm in size["arms"][1:]:
            for target in size["freeze_targets"]:
                first, other = (
                    accuracies(tables["cells"], [target], name, k, size.seeds) for name in ("pretrained", arm)
                )
                labels.append(f"k={k}, {arm}" + (f", {target}" if len(size["freeze_targets"]) > 1 else ""))
                for repeat, value in enumerate((first - other).tolist()):
                    groups[f"seed {repeat}"].append(value)
    axes = Axes("frozen blocks and arm", "pretrained less the arm, test accuracy")
    data, layout = by_depth(groups, labels, axes, marks=[Mark("no lead", 0.0, "y")])
    yield Figure(
        "not-weight-statistics.leads",
        "What pretrained weights lead weights of the same statistics by",
        "A point per cell. shuffled keeps every tensor's entries and loses their places; moments keeps its mean and spread.",
        data,
        layout,
        "cells",
    )


def w_predicts(tables: Tables, size: Size) -> Iterator[Figure]:
    """Probe accuracy against excess, a point per block."""
    groups = {
        f"{target}, seed {repeat}": (excess, accuracy, names)
        for target, repeat, excess, accuracy, names in cells_of(tables, size)
    }
    if groups:
        data, layout = scatter(groups, Axes("excess, units of z", "probe accuracy"))
        yield Figure(
            "w-predicts.blocks",
            "Does a small distance go with a good probe?",
            "A point per block and cell. Were the distance a guide, points would fall from left to right within every cell.",
            data,
            layout,
            "probes",
        )


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]
