"""What a sweep shows: its report's sections, the summary's own keys, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.features.configs import FreezeConfig
from querist.features.freezing import BreakEven
from querist.features.questions import FREEZE_QUESTIONS, WARNING
from querist.features.studies.captures import capture_block, few_examples
from querist.features.tables import FREEZE_TABLES
from querist.results.layout import Layout, Section

__all__ = ["accuracies", "lay_out", "summarise", "warn"]

FEW_CELLS = 5
Rows = list[dict[str, Any]]


def accuracies(cells: pl.DataFrame, targets: Sequence[str], arm: str, k: int, repeats: int) -> np.ndarray:
    """Accuracy of every cell (target, repeat) of an arm and number of blocks, NaN where it diverged or is not there."""
    mine = cells.filter((pl.col("arm") == arm) & (pl.col("k") == k))
    found = {(row["target"], row["repeat"]): row["accuracy"] for row in mine.to_dicts()}
    values = [found.get((target, repeat)) for target in targets for repeat in range(repeats)]
    return np.array([np.nan if value is None else value for value in values])


def lay_out(
    config: FreezeConfig, names: Sequence[str], ks: Sequence[int], drawn: Sequence[Any], passed: bool
) -> Layout:
    """Warning, protocol, how many blocks, what the weights are worth, what the layers hold, rates, captures."""
    have = {figure.name for figure in drawn}
    arms = ", ".join(config.arms)
    protocol = (
        f"Each cell trains a copy of the network on a target with its first k blocks frozen (k = {', '.join(map(str, ks))}), "
        f"{config.repeats} repeats of {config.epochs} epochs, batches of {config.train_batch}, {config.optimizer}. Arms ({arms}) "
        "differ in their initial weights alone: those of a repeat share head, rows and order, and the running statistics of norms "
        "are set by one pass over the target's training rows in every arm (not in pretrained-kept). Frozen blocks stay in "
        "evaluation mode; their values were found equal before and after every training, bit for bit.",
        _rates_told(config),
        "At k = 0 every arm is trained whole, so that initial weights alone are tested. shuffled and moments keep each tensor's "
        "entries or its mean and sd, and lose their places: what pretrained weights gain over them is no matter of scale.",
    )
    accuracy = tuple(f"accuracy.{i}" for i in range(len(names)))
    latent = tuple(name for i in range(len(names)) if (name := f"latent.{i}") in have)
    sections = [
        Section("The protocol", words=protocol, tables=("targets", "blocks")),
        Section(
            "How many blocks can be frozen",
            findings=(("*", "features.freeze-depth"),),
            figures=accuracy,
            tables=("cells",),
        ),
        Section(
            "What the pretrained weights are worth",
            words=(
                "Differences are paired by cell (target, repeat) with t intervals over cells. Layers and numbers of blocks are no "
                "replicates, and nothing is pooled over them.",
            ),
            findings=(("*", "features.reuse"),),
            figures=("effects",),
            tables=("effects",),
        ),
        Section(
            "What the layers hold",
            words=(
                "A_l is the gap between source and target in the trained network; N_l how far training moved the layer on the "
                "target's test examples. Both are sliced Wasserstein distances of order 2 in units of a typical unit's sd, "
                f"{config.projections} directions, beside the distance between two parts of one set.",
            ),
            findings=(("*", "features.capture-health"), ("*", "features.overlapping-ids")),
            figures=latent,
            tables=("latent",),
            open=False,
        ),
        Section("Learning rates", tables=("rates",), open=False),
        Section("Captures", tables=("captured", *(("passed_over",) if passed else ())), open=False),
    ]
    title = "How many blocks can be frozen?"
    return Layout(title, WARNING, tuple(sections), FREEZE_TABLES, FREEZE_QUESTIONS)


def _rates_told(config: FreezeConfig) -> str:
    if len(config.lr) == 1:
        return (
            f"One learning rate ({config.lr[0]:g}) serves all arms: an arm that another rate would suit better is at a "
            "disadvantage. Several (--lr) are chosen among, cell by cell."
        )
    told = ", ".join(f"{rate:g}" for rate in config.lr)
    return (
        f"Of the learning rates {told} each cell takes the one with the best accuracy on {config.validation:.0%} of its training "
        "rows, which were set aside; each was given the same epochs, and the test rows were used once."
    )


def summarise(
    config: FreezeConfig,
    names: Sequence[str],
    ks: Sequence[int],
    cells: pl.DataFrame,
    effects: Rows,
    even: BreakEven | None,
    tables: Mapping[str, pl.DataFrame],
) -> dict[str, Any]:
    """The summary's own keys; `even` is the break-even over all targets."""
    mean = {
        name: {
            arm: {str(k): _mean(accuracies(cells, [name], arm, k, config.repeats)) for k in _ks_of(arm, ks)}
            for arm in config.arms
        }
        for name in names
    }
    return {
        "warning": WARNING,
        "capture": capture_block(tables["captured"], reduction=config.reduce),
        "model": config.model,
        "target": names[0],
        "targets": list(names),
        "arms": list(config.arms),
        "ks": list(ks),
        "repeats": config.repeats,
        "cells": cells.select("target", "arm", "k", "repeat", "accuracy").to_dicts(),
        "mean_accuracy": mean,
        "majority_accuracy": tables["targets"]["majority_accuracy"].mean(),
        "best_k": None if even is None else even.best_k,
        "break_even_k": None if even is None else even.k,
        "break_even": None if even is None else {"k": even.k, "low": even.low, "high": even.high, "n": even.n},
        "frozen_invariant": True,
        "effects": [{key: value for key, value in row.items() if key != "p"} for row in effects],
    }


def _ks_of(arm: str, ks: Sequence[int]) -> Sequence[int]:
    return (0,) if arm == "scratch" else ks


def _mean(values: np.ndarray) -> float | None:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else None


def warn(config: FreezeConfig, cells: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """What a reader must know before the numbers."""
    told = []
    lost = cells.filter(pl.col("status") == "diverged")
    if lost.height:
        row = lost.row(0, named=True)
        told.append(
            f"{lost.height} of {cells.height} cells diverged, the first {row['target']}, {row['arm']}, k={row['k']}, repeat "
            f"{row['repeat']}: {row['reason']}."
        )
    if len(config.lr) == 1:
        told.append(f"One learning rate ({config.lr[0]:g}) for all arms: none was chosen on validation rows.")
    if config.repeats * len(config.target) < 2:
        told.append("One cell for each arm and number of blocks: there are no intervals.")
    elif config.repeats * len(config.target) < FEW_CELLS:
        told.append(
            f"The interval of break-even is a bootstrap over {config.repeats * len(config.target)} cells, and short: of so few, "
            "percentiles leave the truth out more often than they say."
        )
    small = min(int(tables["captured"]["n"].min()), int(cells["n_train"].min()))  # type: ignore[arg-type]
    return told + few_examples(small)
