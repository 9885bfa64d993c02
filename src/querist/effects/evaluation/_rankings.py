"""Rankings judged: every number of every convention, calibration, curves, and scores against each other on the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.design import component_scores
from querist.effects.evaluation._averages import Row, with_holm
from querist.effects.evaluation._given import NATURAL, RANDOM, Cell, Component, Given, Scored, reason_of
from querist.effects.metrics import calibration, numbers, ranked, rate, rate_difference, replicates, top_values
from querist.effects.words import between
from querist.errors import TooFewRows, UndefinedMetric
from querist.statistics import Estimate, mean_interval

__all__ = ["calibration_rows", "curve_rows", "metric_rows", "paired_rows"]

LIBRARY = ("sklift", "causalml")
WEIGHTINGS = ("qini", "autoc")
SHARES = np.linspace(0.0, 1.0, 51)


def ranked_by(scores: Mapping[str, Scored]) -> list[str]:
    """Names of the rankings: each score, then the two references that there are."""
    stated = any(score.natural is not None for score in scores.values())
    return [*scores, *([NATURAL] if stated else []), RANDOM]


def ranking(
    name: str, scores: Mapping[str, Scored], rows: Given, component: Component, cell: Cell
) -> Float[np.ndarray, "m columns"]:
    """A ranking's columns for a component on an outcome's rows, as views where that can be.

    Natural response is that of the first score that states one; a random order's expectation is that of a constant.
    """
    columns = len(rows.columns(component))
    if name == RANDOM:
        return np.broadcast_to(0.0, (cell.y.size, columns))
    if name == NATURAL:
        natural = next(score.natural for score in scores.values() if score.natural is not None)
        return np.broadcast_to(natural[cell.rows, cell.k][:, None], (cell.y.size, columns))
    return scores[name].component(component, cell.k, rows.tier_weights)[cell.rows]


def metric_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    components: Sequence[Component],
    conventions: Sequence[str],
    k: Sequence[float] = (),
    bootstrap: int = 200,
    level: float = 0.95,
) -> list[Row]:
    """Rows of table `metrics`. `rate` numbers have t intervals from influence values and p against 0, Holm over arms and outcomes;
    library conventions percentile intervals from resampled weights and no p. What has no value has its reason.

    Library conventions compare two groups of rows: an arm and control for totals, all treated and control for the base; the
    increment of an arm over the others is not what they measure.
    """
    found: list[Row] = []
    for component in components:
        for cell in rows.cells:
            psi = component_scores(cell.psi, component, rows.tier_weights)
            for name in ranked_by(scores):
                columns = ranking(name, scores, rows, component, cell)
                for column, arm in enumerate(rows.columns(component)):
                    at: Row = {"score": name, "component": component, "arm": arm, "outcome": cell.name}
                    reason = reason_of(cell, component, column, columns[:, column])
                    if "rate" in conventions:
                        found += _rate_rows(at, psi[:, column], columns[:, column], cell, reason, level)
                    wanted = [convention for convention in conventions if convention in LIBRARY]
                    if wanted or k:
                        found += _library_rows(
                            at, columns[:, column], cell, column, wanted, tuple(k), bootstrap, reason, rows.seed, level
                        )
    return with_holm(found, ("score", "component", "metric", "convention"))


def paired_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    components: Sequence[Component],
    pairs: Sequence[tuple[str, str]] | None = None,
    level: float = 0.95,
) -> list[Row]:
    """Rows of table `paired`: rate numbers of one score less another's on the same rows, from paired influence values."""
    found: list[Row] = []
    for component in components:
        for cell in rows.cells:
            psi = component_scores(cell.psi, component, rows.tier_weights)
            names = ranked_by(scores)[:-1]
            wanted = itertools.combinations(names, 2) if pairs is None else pairs
            for (a, b), metric in itertools.product(list(wanted), WEIGHTINGS):
                if a not in names or b not in names:
                    continue
                one, other = (ranking(name, scores, rows, component, cell) for name in (a, b))
                for column, arm in enumerate(rows.columns(component)):
                    row: Row = {
                        "a": a,
                        "b": b,
                        "component": component,
                        "arm": arm,
                        "outcome": cell.name,
                        "metric": metric,
                    }
                    row |= dict.fromkeys(("difference", "low", "high", "p"))
                    if not any(reason_of(cell, component, column, each[:, column]) for each in (one, other)):
                        value = rate_difference(
                            psi[:, column],
                            one[:, column],
                            other[:, column],
                            weighting=metric,
                            level=level,
                            **cell.dependence,
                        )
                        row |= {"difference": value.estimate, "low": value.low, "high": value.high, "p": value.p}
                    found.append(row)
    return found


def calibration_rows(
    scores: Mapping[str, Scored], rows: Given, *, components: Sequence[Component], bins: int = 10, level: float = 0.95
) -> tuple[list[Row], list[Row]]:
    """Rows of tables `calibration` and `calibration_bins`, for the scores that predict effects in the outcome's unit."""
    lines: list[Row] = []
    parts: list[Row] = []
    for component in components:
        for cell in rows.cells:
            psi = component_scores(cell.psi, component, rows.tier_weights)
            for name, score in scores.items():
                if not score.effects:
                    continue
                predicted = score.component(component, cell.k, rows.tier_weights)[cell.rows]
                for column, arm in enumerate(rows.columns(component)):
                    at: Row = {"score": name, "component": component, "arm": arm, "outcome": cell.name}
                    line, bin_rows = _calibrated(
                        at, psi[:, column], predicted[:, column], cell, column, component, bins, level
                    )
                    lines.append(line)
                    parts += bin_rows
    return lines, parts


def curve_rows(
    scores: Mapping[str, Scored], rows: Given, *, component: Component = "total", level: float = 0.95
) -> list[Row]:
    """Rows of table `curves`: effect gained per person when the best share is treated, at 51 shares, with pointwise bands.

    The value at a share u is the mean over all people of ψ among the best u, ties averaged; `line` is what a random choice of the
    same size gains, u times the average effect.
    """
    found: list[Row] = []
    for cell in rows.cells:
        psi = component_scores(cell.psi, component, rows.tier_weights)
        for name in ranked_by(scores)[:-1]:
            columns = ranking(name, scores, rows, component, cell)
            for column, arm in enumerate(rows.columns(component)):
                if reason_of(cell, component, column, columns[:, column]) is not None:
                    continue
                at: Row = {"score": name, "component": component, "arm": arm, "outcome": cell.name}
                found += _curve(at, psi[:, column], columns[:, column], cell, level)
    return found


def _rate_rows(
    at: Row, psi: np.ndarray, score: np.ndarray, cell: Cell, reason: str | None, level: float
) -> Iterator[Row]:
    for metric in WEIGHTINGS:
        value: Estimate | None = None
        why = reason
        if reason is None:
            try:
                value = rate(psi, score, weighting=metric, level=level, **cell.dependence)
            except TooFewRows as error:
                why = str(error)
        yield _row(at, metric, "rate", value, cell, null=0.0, reason=why)


def _library_rows(
    at: Row,
    score: np.ndarray,
    cell: Cell,
    column: int,
    conventions: Sequence[str],
    k: tuple[float, ...],
    bootstrap: int,
    reason: str | None,
    seed: int,
    level: float,
) -> Iterator[Row]:
    """Numbers of the two groups' rows from one sort, with intervals from one set of resampled weights."""
    names = [
        f"{convention} {metric}{raw}"
        for convention in conventions
        for metric in ("qini", "auuc")
        for raw in ("", " raw")
    ]
    cuts = [f"uplift@{share:g}" for share in k]
    if at["component"] == "incremental":
        reason = reason or "the convention compares a group with control; an increment is over the other arms"
    found: dict[str, float | UndefinedMetric] = {}
    drawn = None
    if reason is None:
        mine: Any = slice(None)  # what is all is not copied
        if at["component"] != "base" and cell.psi.shape[1] > 1:
            mine = (cell.arm == 0) | (cell.arm == column + 1)
        ordered = ranked(cell.y[mine], cell.arm[mine] > 0, score[mine])
        found = numbers(ordered, k)
        alike = bool(np.ptp(score[mine]) == 0) if score.size else True
        if bootstrap and not alike:
            cluster = None if cell.cluster is None else cell.cluster[mine]
            drawn = replicates(ordered, names=(*names, *cuts), count=bootstrap, cluster=cluster, seed=seed)
    settled = _zero_covered(cell, at["component"], column, level) if reason is None else None
    for name in (*names, *cuts):
        convention, _, metric = name.partition(" ") if name in names else ("overall", "", name)
        number = found.get(name)
        why = str(number) if isinstance(number, UndefinedMetric) else reason
        if why is None and convention == "causalml" and not metric.endswith("raw") and settled:
            why, number = settled, None
        value = None
        if why is None and isinstance(number, float):
            value = Estimate(number, None, None, None, None, None, cell.arm.size, "constant score")
            if drawn is not None:
                value = drawn.interval(name, level=level)
        null = None if convention == "overall" or name in ("causalml auuc", "causalml auuc raw") else 0.0
        yield _row(at, metric, convention, value, cell, null=null, reason=why)


def _zero_covered(cell: Cell, component: str, column: int, level: float) -> str | None:
    """Numbers divided by the average effect say nothing where that may be 0."""
    psi = cell.psi.mean(axis=1) if component == "base" else cell.psi[:, column]
    value = mean_interval(psi, level=level, **cell.dependence)
    if value.low is not None and value.high is not None and value.low <= 0 <= value.high:
        return f"divided by an average effect whose interval{between(value.low, value.high)} covers 0"
    return None


def _row(
    at: Row, metric: str, convention: str, value: Estimate | None, cell: Cell, *, null: float | None, reason: str | None
) -> Row:
    arms = np.bincount(cell.arm)
    numbers_of = {
        name: None if value is None else getattr(value, name) for name in ("estimate", "se", "low", "high", "p")
    }
    return {
        **at,
        "metric": metric,
        "convention": convention,
        **numbers_of,
        "null": null,
        "n": int(cell.arm.size),
        "n_treated": int(arms[1:].sum()),
        "n_control": int(arms[0]) if arms.size else 0,
        "reason": reason,
    }


def _calibrated(
    at: Row,
    psi: np.ndarray,
    predicted: np.ndarray,
    cell: Cell,
    column: int,
    component: Component,
    bins: int,
    level: float,
) -> tuple[Row, list[Row]]:
    row = at | dict.fromkeys(("intercept", "slope", "slope_low", "slope_high", "p", "error", "reason"))
    reason = reason_of(cell, component, column, predicted)
    if reason is not None:
        return row | {"reason": reason}, []
    try:
        line = calibration(psi, predicted, bins=min(bins, psi.size), level=level, **cell.dependence)
    except (UndefinedMetric, TooFewRows) as error:
        return row | {"reason": str(error)}, []
    row |= {
        "intercept": line.intercept.estimate,
        "slope": line.slope.estimate,
        "slope_low": line.slope.low,
        "slope_high": line.slope.high,
        "p": line.slope.p,
        "error": line.error,
    }
    found = line.bins
    parts = [
        at
        | {
            "bin": number,
            "n": int(found.n[number]),
            "predicted": float(found.predicted[number]),
            "effect": float(found.effect[number]),
            "low": _float(found.low[number]),
            "high": _float(found.high[number]),
        }
        for number in range(found.n.size)
    ]
    return row, parts


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _curve(at: Row, psi: np.ndarray, score: np.ndarray, cell: Cell, level: float) -> Iterator[Row]:
    average = float(psi.mean())
    for share, band in zip(SHARES, top_values(psi, score, SHARES, level=level, **cell.dependence), strict=True):
        low, high = (None, None) if band.se is None or share == 0 else (band.low, band.high)
        yield at | {"share": float(share), "gain": band.estimate, "low": low, "high": high, "line": share * average}
