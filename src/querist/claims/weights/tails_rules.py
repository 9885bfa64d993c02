"""The rules of the claims about heavy tails: pure functions of their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.weights.rules import Interval, above, interval, number, places, share, spearman

__all__ = ["Run", "runs_of", "tail_from_spike", "tail_generalises", "tail_without_noise"]

SHARE = 0.8
"""Eight of ten seeds, four of five runs."""
SCALES = ("formula", "repo")


# ------------------------------------------------------------------------------------------------ tail-without-noise


def tail_without_noise(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Bulk and Hill's exponent on one side, the likelihood of a power law on the other."""
    bound = float(np.quantile(tables["hill_null"]["alpha_hill"].to_numpy(), 0.01))
    last = tables["trajectories"].filter(pl.col("last") & (pl.col("scan") == ""))
    numbers = [Number("Hill, .01 quantile of untrained matrices", bound, n=tables["hill_null"].height)]
    moved, heavy, shares, told = {}, {}, {}, []
    for optimizer, rates in size["rates"].items():
        top = max(rates)
        rows = last.filter((pl.col("optimizer") == optimizer) & (pl.col("eta") == top)).to_dicts()
        bulk = [row["bulk"] == "yes" for row in rows]
        hill = [row["alpha_hill"] is not None and row["alpha_hill"] < bound for row in rows]
        both = [one and other for one, other in zip(bulk, hill, strict=True)]
        law = [one and bool(row["power_law"]) for one, row in zip(both, rows, strict=True)]
        moved[optimizer], heavy[optimizer] = _often(both, size.seeds), _often(law, size.seeds)
        shares[optimizer] = share(sum(law), size.seeds)
        told.append(
            f"{sum(both)} of {size.seeds} seeds with {places([optimizer])}, where it is a power law in {sum(law)}"
        )
        where = f"{optimizer} at {top:g}"
        for what, flags in (
            ("bulk departs", bulk),
            ("Hill below the quantile", hill),
            ("both", both),
            ("and a power law", law),
        ):
            numbers.append(number(f"{where}: share of seeds, {what}", share(sum(flags), size.seeds), SHARE))
        exponents = [row["alpha_hill"] for row in rows if row["alpha_hill"] is not None]
        tail = [row["n_tail"] for row in rows if row["n_tail"] is not None]
        numbers.append(number(f"{where}: Hill", interval(exponents), bound))
        numbers.append(
            Number(f"{where}: eigenvalues in the fitted tail, median", float(np.median(tail)) if tail else None)
        )
    numbers += _by_rate(last, size)
    found = min(shares.values(), key=lambda one: one.estimate)
    verdict, why = _noise_verdict(moved, heavy)
    because = f"{why}: at the largest rate the bulk moves in {'; in '.join(told)}."
    return Judgement(verdict, found.estimate, found.low, found.high, SHARE, because, numbers=tuple(numbers))


def _often(flags: Sequence[bool], seeds: int) -> bool:
    return sum(flags) >= math.ceil(SHARE * seeds - 1e-9)


def _noise_verdict(moved: Mapping[str, bool], heavy: Mapping[str, bool]) -> tuple[ClaimVerdict, str]:
    if all(moved.values()) and all(heavy.values()):
        return "holds", "Power-law tails arise by the full batch"
    if all(moved.values()):
        return "cannot say", "Bulk deformed, tail not proven a power law"
    if any(moved.values()):
        names = [name for name, one in moved.items() if one]
        return "cannot say", f"The bulk moves with {places(names)} only"
    return "fails", "The bulk stays random by the full batch"


def _by_rate(last: pl.DataFrame, size: Size) -> list[Number]:
    """Hill's exponent at the rates that the rule does not look at."""
    found = []
    for optimizer, rates in size["rates"].items():
        for eta in sorted(rates)[:-1]:
            rows = last.filter((pl.col("optimizer") == optimizer) & (pl.col("eta") == eta))
            found.append(number(f"{optimizer} at {eta:g}: Hill", interval(rows["alpha_hill"].drop_nulls())))
    return found


# --------------------------------------------------------------------------------------------------- tail-from-spike


class Run:
    """One run that ends in a tail: its first spike, the step of its departure, and where its updates worked in between."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]):
        self.repeat = rows[0]["repeat"]
        self.optimizer, self.eta = rows[0]["optimizer"], rows[0]["eta"]
        after = [row for row in rows if row["step"] > 0]
        self.spike = next((row["step"] for row in after if row["spikes"] == "yes"), None)
        self.departure = after[-1]["step"]
        for row in reversed(after):
            if row["bulk"] != "yes":
                break
            self.departure = row["step"]
        self.spike_first = self.spike is not None and self.spike < self.departure
        between = [
            (row["step"], _excess(row))
            for row in after
            if self.spike_first and self.spike <= row["step"] <= self.departure and row.get("mass_left") is not None
        ]
        self.steps = np.array([step for step, _ in between], dtype=float)
        self.excess = np.array([value for _, value in between], dtype=float)

    @property
    def slope(self) -> float | None:
        """Change of the share per step, None below two steps."""
        return float(np.polyfit(self.steps, self.excess, 1)[0]) if self.steps.size > 1 else None


def _excess(row: Mapping[str, Any]) -> float:
    """Share of the update's energy in the bulk's directions beyond its null, left and right averaged."""
    return (row["mass_left"] - row["mass_left_null"] + row["mass_right"] - row["mass_right_null"]) / 2


def runs_of(trajectories: pl.DataFrame) -> list[Run]:
    """The runs of the base setting whose bulk departs at their last step."""
    base = trajectories.filter(pl.col("scan") == "").sort("optimizer", "eta", "repeat", "step")
    grouped = base.group_by(["optimizer", "eta", "repeat"], maintain_order=True)
    parts = [part.to_dicts() for _, part in grouped]
    return [Run(rows) for rows in parts if rows[-1]["last"] and rows[-1]["bulk"] == "yes"]


def tail_from_spike(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Order of spike and departure, and the energy of the updates in the bulk."""
    found = runs_of(tables["trajectories"])
    numbers = [Number("runs that end in a tail", float(len(found)))]
    if not found:
        return Judgement("cannot say", None, None, None, SHARE, "No run ends in a tail.", numbers=tuple(numbers))
    first = interval([run.spike_first for run in found], [run.repeat for run in found])
    at_once = sum(not run.spike_first and run.departure == 1 for run in found)
    inside = [run for run in found if run.excess.size]
    excess = interval([run.excess.mean() for run in inside], [run.repeat for run in inside])
    sloped = [(run.slope, run.repeat) for run in inside if run.slope is not None]
    slope = interval([s for s, _ in sloped], [r for _, r in sloped])
    numbers += [
        number("share of runs with the spike first", first, SHARE),
        Number("runs that jump at the first step", float(at_once)),
        number("energy of the update in the bulk beyond its null", excess, 0.0),
        number("its change per step", slope, 0.0),
    ]
    for optimizer in dict.fromkeys(run.optimizer for run in found):
        mine = [run for run in found if run.optimizer == optimizer]
        flags, seeds = [run.spike_first for run in mine], [run.repeat for run in mine]
        numbers.append(number(f"{optimizer}: share of runs with the spike first", interval(flags, seeds), SHARE))
    observed = float(np.mean([run.spike_first for run in found]))
    parts = [above(excess, 0.0), above(slope, 0.0)]
    verdict: ClaimVerdict = "cannot say"
    if observed >= SHARE and all(part is True for part in parts):
        verdict = "holds"
    elif above(first, SHARE) is False or any(part is False for part in parts):
        verdict = "fails"
    because = (
        f"Of {len(found)} runs that end in a tail, {100 * observed:.3g} % have the spike first and {at_once} jump at the first step; "
        f"the share of the update's energy in the bulk less its null is {_told(excess)} and changes by {_told(slope)} per step."
    )
    low, high = (None, None) if first is None else (first.low, first.high)
    return Judgement(verdict, observed, low, high, SHARE, because, numbers=tuple(numbers))


def _told(found: Interval | None) -> str:
    return "(too few seeds)" if found is None else f"{found.estimate:.2g} [{found.low:.2g}, {found.high:.2g}]"


# -------------------------------------------------------------------------------------------------- tail-generalises


def tail_generalises(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Correlation of exponent and loss over rates, within seed, on both feature scales."""
    last = tables["trajectories"].filter(pl.col("last") & pl.col("finite"))
    found = {scale: interval(correlations(last.filter(pl.col("scan") == ""), scale)) for scale in SCALES}
    numbers = [number(f"Spearman's ρ, features {scale}", found[scale], 0.0) for scale in SCALES]
    for optimizer in size["rates"]:
        mine = last.filter((pl.col("scan") == "") & (pl.col("optimizer") == optimizer))
        numbers += [number(f"{optimizer}: ρ, features {s}", interval(correlations(mine, s)), 0.0) for s in SCALES]
    for scan in last["scan"].unique(maintain_order=True).sort().to_list():
        if scan:
            mine = last.filter(pl.col("scan") == scan)
            numbers += [number(f"{scan}: ρ, features {s}", interval(correlations(mine, s)), 0.0) for s in SCALES]
    sides = {scale: above(found[scale], 0.0) for scale in SCALES}
    told = " and ".join(f"{_told(found[scale])} with features {scale}" for scale in SCALES)
    verdict: ClaimVerdict = "cannot say"
    if all(side is True for side in sides.values()):
        verdict, why = "holds", "Heavier tails go with lower loss on both feature scales"
    elif all(side is False for side in sides.values()):
        verdict, why = "fails", "Heavier tails go with higher loss on both feature scales"
    else:
        words = {True: "lower loss", False: "higher loss", None: "neither"}
        why = "; ".join(f"on features {scale} heavier tails go with {words[side]}" for scale, side in sides.items())
        why = why[0].upper() + why[1:]
    main = found["formula"]
    estimate = None if main is None else main.estimate
    low, high = (None, None) if main is None else (main.low, main.high)
    because = f"{why}: Spearman's ρ of exponent and test loss over rates is {told}."
    return Judgement(verdict, estimate, low, high, 0.0, because, numbers=tuple(numbers))


def correlations(last: pl.DataFrame, scale: str) -> list[float]:
    """Per seed the mean over optimisers of Spearman's correlation between Hill's exponent and the loss over rates."""
    values = []
    for _, rows in last.sort("repeat", "optimizer", "eta").group_by("repeat", maintain_order=True):
        each = [
            spearman(part["alpha_hill"].to_numpy(), part[f"refit_test_{scale}"].to_numpy())
            for _, part in rows.group_by("optimizer", maintain_order=True)
        ]
        known = [value for value in each if value is not None]
        if known:
            values.append(float(np.mean(known)))
    return values
