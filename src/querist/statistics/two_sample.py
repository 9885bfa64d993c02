"""Can a classifier tell two samples apart? A cross-fitted AUC with its permutation null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.statistics.arrays import finite
from querist.statistics.association import column_pair_sums
from querist.statistics.folds import folds as split
from querist.statistics.permutation import snap
from querist.statistics.ranks import rank_p
from querist.statistics.relabelling import relabeller, unit_ids
from querist.statistics.streams import stream
from querist.statistics.two_sample_interval import Fold, auc_interval, even, prepare

__all__ = ["TwoSample", "two_sample_auc"]

CELLS = 1 << 20
"""Scores held at a time: 8 MiB an array."""


@dataclass(frozen=True, slots=True)
class TwoSample:
    """AUC of cross-fitted scores (½ where the samples cannot be told apart), its 95 % interval, p, and the score of each row.

    The interval is that of the expected AUC over draws of data of this size, fits and folds included: what a repetition of the
    whole study would find on average, not the AUC of the best direction.
    Scores are those of a's rows, then b's; within a fold they are on one scale, larger for rows that look like b's.
    """

    auc: float
    low: float
    high: float
    p: float
    scores: Float[np.ndarray, "n+m"]


def two_sample_auc(
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters: tuple[ArrayLike, ArrayLike] | None = None,
    pairs: bool | tuple[ArrayLike, ArrayLike] | None = None,
    folds: int = 5,
    ridge: float = 1.0,
    permutations: int = 999,
    seed: int = 0,
) -> TwoSample:
    """Cross-fitted ridge discriminant of two samples [n, p] and [m, p], scored by the AUC of held-out rows.

    Columns are standardised on the training rows; the direction is (S + ridge·p/n·I)⁻¹(mean_b − mean_a), S their covariance.
    clusters, pairs: as in `permutation_test`; rows of a cluster or pair stay in one fold. The AUC is the mean of the folds'
    AUCs weighted by their pairs. p relabels (rows, whole clusters, swaps within pairs) and fits anew; folds and covariances do
    not depend on labels, so a block of relabellings is one matrix product.

    The interval is for the mean of that AUC over draws of data of this size; it holds the variance of the fits as well as
    that of the held-out rows (see `auc_interval`). Measured on 60 to 800 rows of 5 to 40 columns, normal, heavy-tailed
    (t₃), correlated or clustered, with no, weak or strong shifts: 95 % intervals hold it in .93 to .98 of draws. Whether the
    samples differ at all is for p to say.

    Raises ShapeMismatch, TooFewRows, NonFinite, BadOption. Source: classifier two-sample tests, Lopez-Paz & Oquab (2017).
    """
    x, y = finite(a, "a"), finite(b, "b")
    n, m = len(x), len(y)
    if min(n, m) < 2:
        raise TooFewRows("Two samples need two rows each", value=f"{n} and {m}", allowed="2 or more")
    x, y = x.reshape(n, -1), y.reshape(m, -1)
    if x.shape[1] != y.shape[1]:
        raise ShapeMismatch(
            "The samples have different columns", value=f"{x.shape[1]} and {y.shape[1]}", mend="Measure both alike"
        )
    if not ridge > 0:
        raise BadOption("The ridge must be positive", value=ridge, allowed="ridge > 0")
    if permutations < 1:
        raise BadOption("A permutation test needs permutations", value=permutations, allowed="1 or more")
    draw = relabeller(n, m, clusters=clusters, pairs=pairs)
    unit, _ = unit_ids(n, m, clusters, pairs)
    # Strata would leak the observed labels into the folds, so permuted labels would not be exchangeable with them.
    fold = split(n + m, folds, clusters=unit, seed=seed)
    rows = np.concatenate([x, y])
    fits = [prepare(rows, fold == f, ridge) for f in range(folds)]
    second = np.arange(n + m) >= n
    scores = np.empty(n + m)
    for fit in fits:
        scores[fit.held] = fit.scores(second[~fit.held, None])[:, 0]
    value = float(_aucs(fits, second[:, None])[0])
    null, rng = np.empty(permutations), stream(seed, "two-sample permutations")
    block = max(1, CELLS // (n + m))
    for start in range(0, permutations, block):
        stop = min(start + block, permutations)
        null[start:stop] = _aucs(fits, np.stack([draw(rng) for _ in range(start, stop)], axis=1))
    paired = pairs is not None and pairs is not False
    low, high = auc_interval(fits, rows, second, unit, value, paired=paired, seed=seed)
    return TwoSample(value, low, high, rank_p(value, snap(value, null)), scores)


def _aucs(fits: Sequence[Fold], labels: Bool[np.ndarray, "n+m B"]) -> Float[np.ndarray, "B"]:
    """Mean over folds weighted by their pairs: scores of different fits are not on one scale. ½ where there is no pair."""
    above, pairs = np.zeros(labels.shape[1]), np.zeros(labels.shape[1])
    for fit in fits:
        part = column_pair_sums(even(fit.scores(labels[~fit.held])), labels[fit.held])
        above, pairs = above + part[0], pairs + part[1]
    return np.where(pairs > 0, above / np.maximum(pairs, 1), 0.5)
