"""What a refit learns from: doubly robust scores of base and increments, beside what networks said of people they never saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.network._gaussian import slices
from querist.errors import TooFewRows

__all__ = ["SPREAD", "Evidence", "Rows", "evidence", "noise", "observed", "taken"]

Rows = Callable[[Any], Float[np.ndarray, "r p"]]
"""Columns of some rows (a slice, or numbers) in float64: made block by block, as all of them may be twice the table."""

SPREAD = 1e-3
"""Least sd of what the networks say of people, in sd of the outcome: below it standardised columns would show how rows were rounded."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Scores of base [n, K] and increments [n, M, K] (NaN where the outcome is missing), out-of-fold base [n, K] and increments
    [n, M, K] of the networks, encoded columns x (of them p), sd of each outcome [K], what can be estimated [M, K], tier weights of
    each outcome [M, K], weights [n] with mean 1, clusters."""

    psi_base: Float[np.ndarray, "n K"]
    psi_increments: Float[np.ndarray, "n M K"]
    base: Float[np.ndarray, "n K"]
    increments: Float[np.ndarray, "n M K"]
    x: Rows
    p: int
    sd: Float[np.ndarray, "K"]
    estimable: Bool[np.ndarray, "M K"]
    tier_weights: Float[np.ndarray, "M K"]
    weight: Float[np.ndarray, "n"] | None = None
    cluster: Int[np.ndarray, "n"] | None = None

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.base)


def evidence(
    x: Float[np.ndarray, "n p"] | Rows,
    response: Float[np.ndarray, "n M+1 K"] | Rows,
    codes: Int[np.ndarray, "n"],
    y: Float[np.ndarray, "n K"],
    propensity: Float[np.ndarray, "n M+1"],
    tier_weights: Float[np.ndarray, "M"],
    *,
    estimable: Bool[np.ndarray, "M K"] | None = None,
    weight: Float[np.ndarray, "n"] | None = None,
    cluster: Any = None,
) -> Evidence:
    """Scores and parts from out-of-fold mean outcomes, arms (0 control), outcomes with NaN where missing, and P(A = m | x).

    x, response: those of all rows, or what gives those of some: no more than a block of them is then held.
    """
    (n, outcomes), arms = y.shape, len(tier_weights) + 1
    answers: Rows = response if callable(response) else lambda rows: response[rows]
    known = np.ones((arms - 1, outcomes), dtype=bool) if estimable is None else estimable
    w = tier_weights[:, None] * known
    w = w / np.where(w.sum(0) > 0, w.sum(0), 1.0)
    psi_base, base = np.empty((n, outcomes)), np.empty((n, outcomes))
    psi_increments, increments = np.empty((n, arms - 1, outcomes)), np.empty((n, arms - 1, outcomes))
    # Rows of an arm that does not carry an outcome are left out of it: the others' chances are those among the arms that do.
    carried = np.concatenate([np.ones((1, outcomes)), known])
    for part in slices(n, arms * outcomes):
        said, arm, own = answers(part), codes[part], y[part]
        rows = np.arange(len(arm))
        gamma = said.astype(float)
        among = propensity[part] @ carried
        gamma[rows, arm] += (own - said[rows, arm]) * among / propensity[part][rows, arm][:, None]
        gamma[np.isnan(own)[:, None].repeat(arms, 1)] = np.nan
        for scores, into_base, into in ((gamma, psi_base, psi_increments), (said, base, increments)):
            total = scores[:, 1:] - scores[:, :1].astype(float)
            into_base[part] = np.einsum("nmk,mk->nk", total, w)
            into[part] = total - into_base[part][:, None]
    control = y[codes == 0]
    sd = np.array([np.nanstd(one) if np.isfinite(one).any() else 0.0 for one in control.T])
    columns: Rows = x if callable(x) else lambda rows: np.asarray(x[rows], dtype=float)
    return Evidence(
        psi_base,
        psi_increments,
        base,
        increments,
        columns,
        columns(slice(0, 0)).shape[1],
        np.where(sd > 0, sd, 1.0),
        known,
        w,
        None if weight is None else weight / weight.mean(),
        None if cluster is None else np.unique(cluster, return_inverse=True)[1].reshape(-1),
    )


def noise(
    deviation: Float[np.ndarray, "n C"], weight: np.ndarray | None = None, cluster: np.ndarray | None = None
) -> Float[np.ndarray, "C"]:
    """Variance of one row's score, such that it over n is that of their mean: sums in clusters first, G/(G − 1)."""
    n = len(deviation)
    scaled = deviation if weight is None else deviation * weight[:, None]
    groups = n
    if cluster is not None:
        _, label = np.unique(cluster, return_inverse=True)
        groups = int(label.max()) + 1
        scaled = np.stack([np.bincount(label, one, minlength=groups) for one in scaled.T], axis=1)
    total = n if weight is None else float(weight.sum())
    found = np.einsum("nc,nc->c", scaled, scaled) * groups / max(groups - 1, 1) / total
    return np.where(found > 0, found, np.finfo(float).tiny)


def observed(y: Float[np.ndarray, "n C"]) -> tuple[Float[np.ndarray, "r C"], Int[np.ndarray, "r"] | None]:
    """Columns of one outcome without missing rows, and those rows' numbers, None for all. Raises TooFewRows."""
    seen = np.isfinite(y[:, 0])
    if seen.all():
        return y, None
    rows = np.flatnonzero(seen)
    if len(rows) < 4:
        raise TooFewRows("An outcome has too few rows to shrink by", value=len(rows), allowed="4 or more")
    return y[rows], rows


def taken(values: np.ndarray | None, rows: np.ndarray | None) -> np.ndarray | None:
    """Values of these rows, where there are values and not all rows are meant."""
    return values if values is None or rows is None else values[rows]
