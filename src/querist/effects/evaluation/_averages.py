"""Average effects: of each arm on each outcome, in three parts, and whether arms differ at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from querist.effects.design import component_scores
from querist.effects.evaluation._given import Cell, Component, Given, reason_of
from querist.errors import TooFewRows
from querist.statistics import Estimate, holm, mean_interval

__all__ = ["arms_differ", "arms_differ_rows", "average_rows", "covariance_of", "with_holm"]

Row = dict[str, Any]


def average_rows(rows: Given, components: Sequence[Component], *, level: float = 0.95) -> list[Row]:
    """Rows of table `ate`: the mean of effect scores of every component, arm and outcome, Holm over arms and outcomes.

    A null estimate has its reason in `method`.
    """
    found: list[Row] = []
    for component in components:
        for cell in rows.cells:
            psi = component_scores(cell.psi, component, rows.tier_weights)
            for column, arm in enumerate(rows.columns(component)):
                row: Row = {"component": component, "arm": arm, "outcome": cell.name}
                reason = reason_of(cell, component, column)
                value = None if reason else _mean(psi[:, column], cell, level)
                if value is None:
                    row |= dict.fromkeys(("estimate", "se", "low", "high", "p"))
                    row["method"] = f"not estimable: {reason or 'too few rows'}"
                else:
                    row |= {name: getattr(value, name) for name in ("estimate", "se", "low", "high", "p", "method")}
                found.append(row)
    return with_holm(found, ("component",))


def arms_differ(cell: Cell, *, level: float = 0.95) -> tuple[float, int, float, tuple[int, int, Estimate]] | None:
    """Wald statistic of equal totals over arms, its degrees of freedom, chi-square p, and the two arms that differ most.

    None where an arm's effect cannot be told or there is one arm only. The covariance is that of the mean effect scores, summed
    within clusters and centred within blocks as intervals are.
    """
    from scipy.stats import chi2

    psi = cell.psi
    arms = psi.shape[1]
    if arms < 2 or any(cell.reasons):
        return None
    contrasts = psi[:, 1:] - psi[:, :1]
    mean = contrasts.mean(axis=0)
    covariance = covariance_of(list(contrasts.T), cell.dependence)
    statistic = float(mean @ np.linalg.pinv(covariance) @ mean)
    degrees = int(np.linalg.matrix_rank(covariance))
    totals = psi.mean(axis=0)
    low, high = int(np.argmin(totals)), int(np.argmax(totals))
    widest = mean_interval(psi[:, high] - psi[:, low], level=level, **cell.dependence)
    return statistic, degrees, float(chi2.sf(statistic, max(degrees, 1))), (high, low, widest)


def arms_differ_rows(rows: Given, *, level: float = 0.95) -> list[Row]:
    """Rows of table `arms_differ`."""
    found: list[Row] = []
    for cell in rows.cells:
        whole = arms_differ(cell, level=level)
        if whole is None:
            continue
        statistic, degrees, p, (high, low, widest) = whole
        found.append(
            {
                "outcome": cell.name,
                "statistic": statistic,
                "df": degrees,
                "p": p,
                "best": str(rows.arms[high]),
                "worst": str(rows.arms[low]),
                "difference": widest.estimate,
                "low": widest.low,
                "high": widest.high,
            }
        )
    return found


def with_holm(found: list[Row], family: Sequence[str]) -> list[Row]:
    """Add `p_adj` to rows: Holm over those that agree in the columns of `family`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(row[name] for name in family), []).append(row)
    for mine in groups.values():
        for row, p in zip(mine, holm([row["p"] for row in mine]), strict=True):
            row["p_adj"] = None if row["p"] is None else float(p)
    return found


def _mean(values: np.ndarray, cell: Cell, level: float) -> Estimate | None:
    try:
        return mean_interval(values, level=level, **cell.dependence)
    except TooFewRows:
        return None


def covariance_of(columns: Sequence[np.ndarray], dependence: dict[str, Any]) -> np.ndarray:
    """Of the means of columns [m] each, from their intervals' variances: polarised over pairs of columns."""

    def variance(column: np.ndarray) -> float:
        se = mean_interval(column, **dependence).se
        return 0.0 if se is None else se**2

    count = len(columns)
    own = [variance(column) for column in columns]
    found = np.diag(own)
    for i in range(count):
        for j in range(i):
            both = variance(columns[i] + columns[j])
            found[i, j] = found[j, i] = (both - own[i] - own[j]) / 2
    return found
