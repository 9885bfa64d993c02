"""Can a classifier tell two samples apart? A cross-fitted AUC with its permutation null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.statistics.arrays import finite
from querist.statistics.association import column_pair_sums, pair_sums
from querist.statistics.draws import resample_weights
from querist.statistics.folds import folds as split
from querist.statistics.permutation import snap
from querist.statistics.ranks import rank_p
from querist.statistics.relabelling import relabeller, unit_ids
from querist.statistics.streams import stream, torch_seed

__all__ = ["TwoSample", "two_sample_auc"]

CELLS = 1 << 20
"""Scores held at a time: 8 MiB an array."""
RESAMPLES = 1000

Fit = Callable[[Bool[np.ndarray, "train B"]], Float[np.ndarray, "held B"]]


@dataclass(frozen=True, slots=True)
class TwoSample:
    """AUC of cross-fitted scores (½ where the samples cannot be told apart), its 95 % interval, p, and the score of each row.

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
    not depend on labels, so a block of relabellings is one matrix product. The interval resamples
    units of each sample (pairs together) with their held-out scores. It does not contain the variance of the fits: near ½ it
    is too short (it holds ½ in .84 to .89 of null samples, nominal .95), so whether samples differ is for p to say. With few
    units a fold it is too wide (1.12 times at 12 a side and fold; .975 covered).

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
    fits = [(fold == f, _prepare(rows, fold == f, ridge)) for f in range(folds)]
    second = np.arange(n + m) >= n
    scores = np.empty(n + m)
    for held, fit in fits:
        scores[held] = fit(second[~held, None])[:, 0]
    value = float(_aucs(fits, second[:, None])[0])
    null, rng = np.empty(permutations), stream(seed, "two-sample permutations")
    block = max(1, CELLS // (n + m))
    for start in range(0, permutations, block):
        stop = min(start + block, permutations)
        null[start:stop] = _aucs(fits, np.stack([draw(rng) for _ in range(start, stop)], axis=1))
    paired = pairs is not None and pairs is not False
    low, high = _interval(scores, second, fold, unit, paired, seed)
    return TwoSample(value, low, high, rank_p(value, snap(value, null)), scores)


def _prepare(rows: np.ndarray, held: np.ndarray, ridge: float) -> Fit:
    """Everything of one fold that does not depend on labels; then scores of its held-out rows, one column per labelling."""
    train, test = rows[~held], rows[held]
    mean, sd = train.mean(axis=0), train.std(axis=0)
    sd = np.where(sd > 1e-12 * np.abs(mean), sd, np.inf)  # constant but for rounding: no direction
    train, test = (train - mean) / sd, (test - mean) / sd
    size, p = train.shape
    # The total covariance takes the pooled one's place: both give the same direction (Fisher), and it needs no labels.
    if p <= size:
        values, vectors = np.linalg.eigh(train.T @ train / size)
    else:  # directions outside the span of the training rows have no weight: the smaller matrix holds all eigenvalues
        values, left = np.linalg.eigh(train @ train.T / size)
        kept = values > 1e-10 * max(float(values[-1]), 1e-300)
        values, vectors = values[kept], train.T @ (left[:, kept] / np.sqrt(size * values[kept]))
    root = vectors / np.sqrt(np.maximum(values, 0) + ridge * p / size)
    train, test = train @ root, test @ root

    def scores(labels: np.ndarray) -> np.ndarray:
        count = labels.sum(axis=0)
        both = (count > 0) & (count < size)
        total = train.T @ labels.astype(float)  # the columns of train sum to 0: the first sample's sum is −total
        scale = np.where(both, size / np.maximum(count * (size - count), 1), 0.0)  # 1/count + 1/(size − count)
        return test @ (total * scale)

    return scores


def _aucs(fits: list[tuple[np.ndarray, Fit]], labels: Bool[np.ndarray, "n+m B"]) -> Float[np.ndarray, "B"]:
    """Mean over folds weighted by their pairs: scores of different fits are not on one scale. ½ where there is no pair."""
    above, pairs = np.zeros(labels.shape[1]), np.zeros(labels.shape[1])
    for held, fit in fits:
        part = column_pair_sums(_even(fit(labels[~held])), labels[held])
        above, pairs = above + part[0], pairs + part[1]
    return np.where(pairs > 0, above / np.maximum(pairs, 1), 0.5)


def _even(scores: np.ndarray) -> np.ndarray:
    """Scores as whole numbers up to 2^36: equal rows, whose scores differ in the last bits of a product, tie again."""
    largest = np.abs(scores).max(axis=0, initial=0.0)
    return np.rint(scores * (2.0**36 / np.where(largest > 0, largest, 1.0)))


def _interval(
    scores: np.ndarray, second: np.ndarray, fold: np.ndarray, unit: Int[np.ndarray, "n+m"], paired: bool, seed: int
) -> tuple[float, float]:
    samples = (np.arange(scores.size),) if paired else (np.flatnonzero(~second), np.flatnonzero(second))
    draws = [
        resample_weights(
            rows.size,
            RESAMPLES,
            kind="multinomial",
            cluster=unit[rows],
            seed=torch_seed(seed, "two-sample interval", i),
        )
        for i, rows in enumerate(samples)
    ]
    block = max(1, CELLS // scores.size)
    values = []
    for start in range(0, RESAMPLES, block):
        count = min(block, RESAMPLES - start)
        weight = np.empty((scores.size, count))
        for rows, drawn in zip(samples, draws, strict=True):
            weight[rows] = np.stack([next(drawn) for _ in range(count)], axis=1)
        above, pairs = np.zeros(count), np.zeros(count)
        for f in np.unique(fold):
            held = np.flatnonzero(fold == f)
            mine, b = weight[held], second[held, None]
            part = pair_sums(_even(scores[held, None])[:, 0], mine * b, mine * ~b)
            above, pairs = above + part[0], pairs + part[1]
        values.append(np.where(pairs > 0, above / np.maximum(pairs, 1), 0.5))
    low, high = np.quantile(np.concatenate(values), [0.025, 0.975])
    return float(low), float(high)
