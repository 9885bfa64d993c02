"""What repetitions of a comparison say together: a finding is theirs only where all of them agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from querist.features.configs import CompareConfig
from querist.features.tables import SPREAD
from querist.results.finding import Finding, Verdict

__all__ = ["MEASURED", "spread", "together"]

WORDS: tuple[Verdict, ...] = ("yes", "no", "cannot say")
MEASURED = ("raw", "null_mean", "excess", "probe_accuracy")


def together(findings: Sequence[Sequence[Finding]]) -> list[Finding]:
    """One finding for each that the first repetition has, over all repetitions that have it.

    Repetitions are of one network and mostly one set of images, so they are no independent tests. A verdict stands where all of
    them give it, else it is cannot say; p is the largest, the interval reaches over all intervals, the estimate is the
    mean. A claim that every one of several level-α tests must reject has level α (intersection-union), so nothing is adjusted.
    """
    if len(findings) == 1:
        return list(findings[0])
    others = [{(one.question, one.subject): one for one in some} for some in findings[1:]]
    joined = []
    for first in findings[0]:
        key = (first.question, first.subject)
        joined.append(_joined([first, *(some[key] for some in others if key in some)], len(findings)))
    return joined


def _joined(found: Sequence[Finding], repeats: int) -> Finding:
    verdicts: list[Verdict] = [one.verdict for one in found]
    agreed = len(set(verdicts)) == 1 and len(found) == repeats
    verdict: Verdict = verdicts[0] if agreed else "cannot say"
    estimates = [one.estimate for one in found if one.estimate is not None]
    counted = ", ".join(f"{word} in {n}" for word in WORDS if (n := verdicts.count(word)))
    told = f"Of {repeats} repetitions: {counted}"
    if estimates:
        told += f", {min(estimates):.3g} to {max(estimates):.3g} {found[0].unit}"
    if len(found) < repeats:
        told += f"; it was not measured in {repeats - len(found)}"
    return replace(
        found[0],
        estimate=sum(estimates) / len(estimates) if estimates else None,
        low=_end(min, [one.low for one in found]),
        high=_end(max, [one.high for one in found]),
        p=_end(max, [one.p for one in found]),
        verdict=verdict,
        because=f"{told}. The first: {found[0].because}",
    )


def _end(choose: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None


def spread(config: CompareConfig, gaps: pl.DataFrame) -> pl.DataFrame:
    """Mean, sd and range over repetitions of every layer's numbers; empty for one repetition."""
    if config.repeats == 1 or not gaps.height:
        return SPREAD.frame([])
    yes = (pl.col("p_adj") <= config.level) & (pl.col("low") > 0) & (pl.col("high") >= config.margin)
    columns = [
        value
        for name in MEASURED
        for value in (
            pl.col(name).mean(),
            pl.col(name).std().alias(f"{name}_sd"),
            pl.col(name).min().alias(f"{name}_min"),
            pl.col(name).max().alias(f"{name}_max"),
        )
    ]
    grouped = gaps.group_by("target", "layer", "index", maintain_order=True)
    found = grouped.agg(*columns, pl.col("p_adj").max(), yes.sum().cast(pl.Int64).alias("yes"), pl.len().alias("n"))
    return SPREAD.frame(found.with_columns(pl.col("n").cast(pl.Int64)))
