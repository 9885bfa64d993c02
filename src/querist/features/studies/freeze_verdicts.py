"""Verdicts of a sweep: what pretrained weights are worth at each number of blocks, and how many can be frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from querist.features.configs import FreezeConfig
from querist.features.freezing import BreakEven
from querist.features.questions import FREEZE_DEPTH, REUSE
from querist.results.finding import Finding, Verdict

__all__ = ["depth_finding", "reuse_finding"]


def depth_finding(config: FreezeConfig, subject: str, even: BreakEven | None, cells: pl.DataFrame) -> Finding:
    """How many blocks can be frozen: yes where the interval is at most a block wide, and there was a choice."""
    lost = _lost(cells.filter(pl.col("arm") == "pretrained"))
    if even is None:
        because = f"No repeat of the pretrained arm has an accuracy for every number of blocks{lost}."
        return Finding(subject, FREEZE_DEPTH.id, None, FREEZE_DEPTH.unit, None, None, None, None, "cannot say", because)
    mean = cells.filter(pl.col("arm") == "pretrained").group_by("k").agg(pl.col("accuracy").mean()).sort("k")
    at = dict(mean.iter_rows())
    points = 100 * config.delta
    because = (
        f"With {_blocks(even.k)} frozen the pretrained network reaches {at[even.k]:.1%} of {cells['n_test'][0]} test examples; the best "
        f"number, {even.best_k}, reaches {at[even.best_k]:.1%}, and no larger number is within {points:g} points of it "
        f"({_cells(even.n)}{lost})"
    )
    verdict: Verdict = "cannot say"
    if even.low is None or even.high is None:
        because += "; one cell has no interval"
    elif len(at) < 2:
        because += "; one number of blocks is no choice"
    else:
        because += f"; resampled cells give {even.low} to {even.high}"
        verdict = "yes" if even.high - even.low <= 1 else "cannot say"
    low, high = (None if end is None else float(end) for end in (even.low, even.high))
    return Finding(
        subject,
        FREEZE_DEPTH.id,
        float(even.k),
        FREEZE_DEPTH.unit,
        low,
        high,
        float(even.best_k),
        None,
        verdict,
        f"{because}.",
    )


def reuse_finding(config: FreezeConfig, subject: str, row: Mapping[str, Any], cells: pl.DataFrame) -> Finding:
    """Pretrained less moments at a number of frozen blocks: yes where it is above 0, no where it is below delta."""
    low, high, estimate = row["low"], row["high"], row["estimate"]
    verdict: Verdict = "cannot say"
    if low is not None and low > 0:
        verdict = "yes"
    elif high is not None and high < config.delta:
        verdict = "no"
    arms = cells.filter(pl.col("arm").is_in(["pretrained", "moments"]))
    means = dict(arms.group_by("arm").agg(pl.col("accuracy").mean()).iter_rows())
    if estimate is None:
        because = f"No pair of cells has two accuracies{_lost(arms)}."
    else:
        because = (
            f"With {_blocks(row['k'])} frozen the pretrained arm reaches {means['pretrained']:.1%}, weights of the same moments "
            f"{means['moments']:.1%}: {100 * estimate:+.1f} points"
        )
        because += (
            f" [{100 * low:.1f}, {100 * high:.1f}]"
            if low is not None and high is not None
            else ", one pair has no interval"
        )
        because += f" ({_cells(row['n'])}{_lost(arms)})."
    return Finding(subject, REUSE.id, estimate, REUSE.unit, low, high, 0.0, row["p"], verdict, because)


def _blocks(k: int) -> str:
    return "nothing" if k == 0 else f"{k} block{'s' if k > 1 else ''}"


def _cells(n: int) -> str:
    return f"{n} cell{'s' if n != 1 else ''}"


def _lost(cells: pl.DataFrame) -> str:
    lost = cells.filter(pl.col("status") == "diverged").height
    return f", {lost} of {cells.height} cells diverged and are left out" if lost else ""
