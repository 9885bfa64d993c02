"""What a refit learns from: doubly robust scores of base and increments, beside what networks said of people they never saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.network._gaussian import WORK, Blocks, slices
from querist.errors import TooFewRows
from querist.statistics.arrays import numbered
from querist.statistics.moments import Moments

__all__ = ["SPREAD", "Evidence", "Pair", "Rows", "Scores", "evidence", "mean_of", "noise", "taken"]

Rows = Callable[[Any], Float[np.ndarray, "r p"]]
"""Columns of some rows (a slice, or numbers) in float64: made block by block, as all of them may be twice the table."""

Pair = Callable[[Any], tuple[Float[np.ndarray, "r C"], Float[np.ndarray, "r C"]]]
"""Scores of some rows, and what the networks said of them."""

SPREAD = 1e-3
"""Least sd of what the networks say of people, in sd of the outcome: below it standardised columns would show how rows were rounded."""


class Scores(NamedTuple):
    """Scores of base [r, K] and increments [r, M, K] (NaN where the outcome is missing), and both as the networks said them."""

    psi_base: Float[np.ndarray, "r K"]
    psi_increments: Float[np.ndarray, "r M K"]
    base: Float[np.ndarray, "r K"]
    increments: Float[np.ndarray, "r M K"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Out-of-fold total effects of the networks [n, M, K]; error [n, K]: by how much the outcome under a row's own arm lies above what
    the networks said, over that arm's chance (NaN where it is missing); arms [n] (0 control); encoded columns x (of them p), sd of
    each outcome [K], what can be estimated [M, K], tier weights of each outcome [M, K], weights [n] with mean 1 (None where all
    are alike), clusters (0 … G − 1). Scores and parts follow from these and are made for the rows that are asked for."""

    total: Float[np.ndarray, "n M K"]
    error: Float[np.ndarray, "n K"]
    arm: Int[np.ndarray, "n"]
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
        return len(self.total)

    def scores(self, rows: Any = slice(None)) -> Scores:
        """Scores and parts of some rows, a slice or numbers, in float64."""
        said, arm = self.total[rows].astype(float), self.arm[rows]
        sign = (arm[:, None] == np.arange(1, said.shape[1] + 1)).astype(float) - (arm == 0)[:, None]
        psi = said + sign[:, :, None] * self.error[rows].astype(float)[:, None]
        base, psi_base = (np.einsum("nmk,mk->nk", one, self.tier_weights) for one in (said, psi))
        return Scores(psi_base, psi - psi_base[:, None], base, said - base[:, None])

    def seen(self, outcome: int) -> Int[np.ndarray, "r"] | None:
        """Numbers of the rows whose outcome is known, None for all. Raises TooFewRows."""
        known = np.isfinite(self.error[:, outcome])
        if known.all():
            return None
        rows = np.flatnonzero(known)
        if len(rows) < 4:
            raise TooFewRows("An outcome has too few rows to shrink by", value=len(rows), allowed="4 or more")
        return rows

    def blocks(self, made: Rows, rows: Int[np.ndarray, "r"] | None) -> Blocks:
        """What `made` gives of the rows that `seen` told of."""
        if rows is None:
            return Blocks(self.n, made)
        return Blocks(len(rows), lambda part: made(rows[part]))


def evidence(
    x: Float[np.ndarray, "n p"] | Rows,
    response: Float[np.ndarray, "n M+1 K"] | Rows,
    codes: Int[np.ndarray, "n"],
    y: Float[np.ndarray, "n K"] | Rows,
    propensity: Float[np.ndarray, "n M+1"],
    tier_weights: Float[np.ndarray, "M"],
    *,
    estimable: Bool[np.ndarray, "M K"] | None = None,
    weight: Float[np.ndarray, "n"] | None = None,
    cluster: Any = None,
    dtype: Any = float,
    parts: Iterable[Any] | None = None,
) -> Evidence:
    """Evidence from out-of-fold mean outcomes, arms (0 control), outcomes with NaN where missing, and P(A = m | x).

    x, response, y: those of all rows, or what gives those of some: no more than a block of them is then held. dtype: in which total
    effects and errors are kept; float32 rounds each by 6e-8 of itself, and halves what is held of a person. parts: all rows in turn, as
    slices or numbers, where it matters which are asked for together.
    """
    answers, outcome, columns = (_by_rows(one) for one in (response, y, x))
    n, arms, outcomes = len(codes), len(tier_weights) + 1, outcome(slice(0, 0)).shape[1]
    known = np.ones((arms - 1, outcomes), dtype=bool) if estimable is None else estimable
    w = tier_weights[:, None] * known
    w = w / np.where(w.sum(0) > 0, w.sum(0), 1.0)
    total, error = np.empty((n, arms - 1, outcomes), dtype=dtype), np.empty((n, outcomes), dtype=dtype)
    # Rows of an arm that does not carry an outcome are left out of it: the others' chances are those among the arms that do.
    carried = np.concatenate([np.ones((1, outcomes)), known])
    control = [Moments(1) for _ in range(outcomes)]
    for part in slices(n, arms * outcomes, WORK * arms * outcomes) if parts is None else parts:
        said, arm, own = answers(part).astype(float, copy=False), codes[part], outcome(part)
        rows = np.arange(len(arm))
        among = propensity[part] @ carried
        total[part] = said[:, 1:] - said[:, :1]
        error[part] = (own - said[rows, arm]) * among / propensity[part][rows, arm][:, None]
        for k, one in enumerate(control):
            values = own[arm == 0, k]
            one.update(values[np.isfinite(values)])
    sd = np.array([np.sqrt(one.m2[0] / one.n[0]) if one.n[0] else 0.0 for one in control])
    alike = weight is None or not len(weight) or weight.min() == weight.max()
    return Evidence(
        total,
        error,
        codes,
        columns,
        columns(slice(0, 0)).shape[1],
        np.where(sd > 0, sd, 1.0),
        known,
        w,
        None if alike or weight is None else weight / weight.mean(),
        None if cluster is None else numbered(np.asarray(cluster))[1],
    )


def _by_rows(values: Any) -> Rows:
    made: Any = values if callable(values) else lambda rows: np.asarray(values[rows], dtype=float)
    return made


def mean_of(values: Blocks, weight: np.ndarray | None = None) -> Float[np.ndarray, "C"]:
    """Weighted mean of columns that are given block by block."""
    total: Any = 0.0
    for part in values.slices():
        total = total + (values(part).sum(axis=0) if weight is None else weight[part] @ values(part))
    return np.asarray(total) / (values.n if weight is None else weight.sum())


def noise(
    deviation: Float[np.ndarray, "n C"] | Blocks, weight: np.ndarray | None = None, cluster: np.ndarray | None = None
) -> Float[np.ndarray, "C"]:
    """Variance of one row's score, such that it over n is that of their mean: sums in clusters first, G/(G − 1).

    cluster: 0 … G − 1; those without a row do not count.
    """
    values = deviation if isinstance(deviation, Blocks) else Blocks.of(deviation)
    groups, found = values.n, np.zeros(values.width)

    def scaled(part: slice) -> Float[np.ndarray, "r C"]:
        return values(part) if weight is None else values(part) * weight[part][:, None]

    if cluster is None:
        for part in values.slices():
            one = scaled(part)
            found += np.einsum("nc,nc->c", one, one)
    else:
        groups = int((np.bincount(cluster) > 0).sum())
        for c in range(values.width):  # of one column at a time the sums of all clusters are held
            sums = np.zeros(int(cluster.max()) + 1)
            for part in values.slices():
                np.add.at(sums, cluster[part], scaled(part)[:, c])
            found[c] = sums @ sums
    found *= groups / max(groups - 1, 1) / (values.n if weight is None else float(weight.sum()))
    return np.where(found > 0, found, np.finfo(float).tiny)


def taken(values: np.ndarray | None, rows: np.ndarray | None) -> np.ndarray | None:
    """Values of these rows, where there are values and not all rows are meant."""
    return values if values is None or rows is None else values[rows]
