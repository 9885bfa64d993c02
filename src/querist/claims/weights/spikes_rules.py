"""The rules of the claims about one step: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.weights.rules import MARKS, Interval, interval, number, share

__all__ = ["slopes", "spike_aligned", "spike_predicted", "threshold_scaling"]

EXPONENTS = {"gd": 1.0, "adam": -0.5}
SLOPE_MARGIN, RATIO_MARGIN, SIM_MARGIN = 0.15, 0.1, 0.2


def threshold_scaling(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """The slope of log η_c on log d, seed by seed."""
    found = {optimizer: interval(slopes(tables["thresholds"], optimizer)) for optimizer in size["optimizers"]}
    numbers = [number(f"{name}: slope of log η_c on log d", one, EXPONENTS[name]) for name, one in found.items()]
    numbers += [
        Number(f"{row['optimizer']}: η_c at d={row['d']}", row["observed"], null=row["predicted"], n=row["n"])
        for row in _thresholds(tables["thresholds"])
    ]
    known = {name: one for name, one in found.items() if one is not None}
    missing = [name for name in found if name not in known]
    if missing:
        told = f"No slope was found in two seeds with {MARKS[missing[0]]}."
        return Judgement("cannot say", None, None, None, 0.0, told, numbers=tuple(numbers))
    near, outside = [], []
    for name, one in known.items():
        other = EXPONENTS["adam" if name == "gd" else "gd"]
        near.append(one.within(EXPONENTS[name], SLOPE_MARGIN) and not one.low <= other <= one.high)
        outside.append(one.outside(EXPONENTS[name], SLOPE_MARGIN))
    verdict: ClaimVerdict = "holds" if all(near) else "fails" if any(outside) else "cannot say"
    told = " and ".join(
        f"{one.estimate:.3f} [{one.low:.3f}, {one.high:.3f}] with {MARKS[name]}, where {EXPONENTS[name]:g} is predicted"
        for name, one in known.items()
    )
    worst = max(known, key=lambda name: abs(known[name].estimate - EXPONENTS[name]))
    shift, one = EXPONENTS[worst], known[worst]
    ends = (one.estimate - shift, one.low - shift, one.high - shift)
    because = f"The rate of the first spike goes with d to the power {told}."
    return Judgement(verdict, *ends, 0.0, because, numbers=tuple(numbers))


def slopes(thresholds: pl.DataFrame, optimizer: str) -> list[float]:
    """Per seed the least-squares slope of log η_c on log d; seeds without all thresholds are left out."""
    rows = thresholds.filter(pl.col("optimizer") == optimizer).sort("repeat", "d")
    found = []
    for _, part in rows.group_by("repeat", maintain_order=True):
        if part.height > 1 and part["eta_critical"].null_count() == 0:
            x, y = np.log(part["d"].to_numpy()), np.log(part["eta_critical"].to_numpy())
            found.append(float(np.polyfit(x, y, 1)[0]))
    return found


def _thresholds(thresholds: pl.DataFrame) -> list[dict]:
    grouped = thresholds.drop_nulls("eta_critical").group_by("optimizer", "d")
    observed = pl.col("eta_critical").log().mean().exp().alias("observed")
    return (
        grouped.agg(observed, pl.col("eta_predicted").first().alias("predicted"), n=pl.len())
        .sort("optimizer", "d")
        .to_dicts()
    )


def spike_aligned(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Alignment above the threshold, none below it, and as much as predicted."""
    below, beyond = min(size["multiples"]), max(size["multiples"])
    numbers, holds, fails, told, ratios = [], [], [], [], {}
    for optimizer in size["optimizers"]:
        mine = tables["one_step"].filter(pl.col("optimizer") == optimizer)
        shares = {}
        for multiple in (beyond, below):
            rows = mine.filter(pl.col("multiple") == multiple)
            passed = int((rows["sim"] > rows["sim_null"]).sum())
            shares[multiple] = passed / max(rows.height, 1)
            what = f"{optimizer} at {multiple:g}η_c: share of seeds beyond the .99 quantile"
            numbers.append(number(what, share(passed, rows.height), 0.01))
        rows = mine.filter(pl.col("multiple") == beyond)
        predicted = float(rows["sim_predicted"].mean() or 0.0)  # type: ignore[arg-type]
        one = ratios[optimizer] = (
            interval(rows["sim"].to_numpy() / predicted) if predicted > 0 and rows.height else None
        )
        numbers.append(number(f"{optimizer} at {beyond:g}η_c: |v₁ᵀβ*| over its prediction", one, 1.0))
        numbers.append(number(f"{optimizer} at {beyond:g}η_c: |v₁ᵀβ*|", interval(rows["sim"].to_numpy()), predicted))
        near = one is not None and abs(one.estimate - 1) <= SIM_MARGIN
        holds.append(shares[beyond] >= 0.8 and shares[below] <= 0.2 and near)
        fails.append(shares[beyond] < 0.5 or shares[below] > 0.5 or (one is not None and one.outside(1.0, SIM_MARGIN)))
        ratio = "unknown" if one is None else f"{one.estimate:.3f}"
        told.append(
            f"with {MARKS[optimizer]} it passes the quantile in {100 * shares[beyond]:.3g} % of the seeds at {beyond:g}η_c and in "
            f"{100 * shares[below]:.3g} % at {below:g}η_c, and is {ratio} of its prediction"
        )
    verdict: ClaimVerdict = "holds" if all(holds) else "fails" if any(fails) else "cannot say"
    return _of_worst(verdict, ratios, f"Alignment with the teacher: {'; '.join(told)}.", numbers)


def spike_predicted(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Mean of observed over predicted λ₁."""
    rows = tables["one_step"].filter(pl.col("multiple").is_in(list(size["multiples"])))
    rows = rows.with_columns(ratio=pl.col("lambda1") / pl.col("lambda_predicted"))
    numbers, ratios = [], {}
    for optimizer in size["optimizers"]:
        mine = rows.filter(pl.col("optimizer") == optimizer)
        ratios[optimizer] = interval(mine["ratio"].to_numpy(), mine["repeat"].to_numpy()) if mine.height else None
        numbers.append(number(f"{optimizer}: observed over predicted λ₁", ratios[optimizer], 1.0))
        for multiple in size["multiples"]:
            at = mine.filter(pl.col("multiple") == multiple)["ratio"].to_numpy()
            numbers.append(number(f"{optimizer} at {multiple:g}η_c: observed over predicted λ₁", interval(at), 1.0))
    verdict: ClaimVerdict = "cannot say"
    if all(one is not None and abs(one.estimate - 1.0) <= RATIO_MARGIN for one in ratios.values()):
        verdict = "holds"
    elif any(one is not None and one.outside(1.0, RATIO_MARGIN) for one in ratios.values()):
        verdict = "fails"
    told = " and ".join(
        f"{one.estimate:.3f} [{one.low:.3f}, {one.high:.3f}] with {MARKS[name]}"
        if one
        else f"unknown with {MARKS[name]}"
        for name, one in ratios.items()
    )
    return _of_worst(verdict, ratios, f"Observed over predicted λ₁ is {told} on average.", numbers)


def _of_worst(
    verdict: ClaimVerdict, ratios: Mapping[str, Interval | None], because: str, numbers: list[Number]
) -> Judgement:
    """A judgement whose estimate is the ratio that is farthest from 1."""
    known = [one for one in ratios.values() if one is not None]
    if len(known) < len(ratios):
        return Judgement("cannot say", None, None, None, 1.0, because, numbers=tuple(numbers))
    worst = max(known, key=lambda one: abs(one.estimate - 1))
    return Judgement(verdict, worst.estimate, worst.low, worst.high, 1.0, because, numbers=tuple(numbers))
