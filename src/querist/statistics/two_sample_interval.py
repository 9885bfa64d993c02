"""The interval of a cross-fitted AUC: the variance of the test rows, and that of the directions fitted on the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.statistics.streams import stream

__all__ = ["Fold", "auc_interval", "even", "prepare"]

CELLS = 1 << 20
"""Pairs of units held at a time: 8 MiB an array."""
MOST = 2048
"""Held-out rows of a sample in a fold beyond which the slope of the AUC is taken from so many of them at random."""
WIDTH = 0.25 * 1.06
"""Of the density of score differences, in Silverman's units: a quarter, since smoothing flattens the slope at the optimum."""
RANKS = 3 / math.pi
"""Share of a normal shift's information that ranks keep; so much of the variance of a direction reaches the AUC."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What of one fold does not depend on labels: held [n] says which rows are tested, the others are trained on.

    mean, sd: of the training rows [p]. root: [p, r], whose product with its transpose inverts S + shrink·I, S the covariance
    of the standardised training rows. train, test: standardised rows times root.
    """

    held: Bool[np.ndarray, "n"]
    mean: Float[np.ndarray, "p"]
    sd: Float[np.ndarray, "p"]
    root: Float[np.ndarray, "p r"]
    shrink: float
    train: Float[np.ndarray, "t r"]
    test: Float[np.ndarray, "h r"]

    def scores(self, labels: Bool[np.ndarray, "t B"]) -> Float[np.ndarray, "h B"]:
        """Scores of the held-out rows, one column per labelling of the training rows; 0 where these hold one sample only."""
        count, size = labels.sum(axis=0), len(labels)
        both = (count > 0) & (count < size)
        total = self.train.T @ labels.astype(float)  # the columns of train sum to 0: the first sample's sum is −total
        scale = np.where(both, size / np.maximum(count * (size - count), 1), 0.0)  # 1/count + 1/(size − count)
        return self.test @ (total * scale)


def prepare(rows: Float[np.ndarray, "n p"], held: Bool[np.ndarray, "n"], ridge: float) -> Fold:
    """Standardise, decompose and project the rows of one fold."""
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
    return Fold(held, mean, sd, root, ridge * p / size, train @ root, test @ root)


def even(scores: np.ndarray) -> np.ndarray:
    """Scores as whole numbers up to 2^36: equal rows, whose scores differ in the last bits of a product, tie again."""
    largest = np.abs(scores).max(axis=0, initial=0.0)
    return np.rint(scores * (2.0**36 / np.where(largest > 0, largest, 1.0)))


class _Tested(NamedTuple):
    """One fold with both samples in it: scores of the held-out rows, the direction, and labels."""

    fold: Fold
    direction: np.ndarray
    trained: np.ndarray
    """Which training rows are of the second sample."""
    tested: np.ndarray
    scores: np.ndarray


def auc_interval(
    folds: Sequence[Fold],
    rows: Float[np.ndarray, "n p"],
    second: Bool[np.ndarray, "n"],
    unit: Int[np.ndarray, "n"],
    auc: float,
    *,
    paired: bool,
    seed: int,
) -> tuple[float, float]:
    """The 95 % interval of E[auc] over draws of data of this size and kind. unit: independent units; paired: they hold both samples.

    The variance has two parts. N is that of the held-out units, the fits given: from their placements, less what a sample
    variance of placements counts twice in small folds. The fits add to it, since every unit is tested once and trained on in the
    other folds. Let φ be the separation of the held-out samples along the directions over that of the training samples: 0 where
    directions are noise, 1 where they are known. Of independent, equally spread noise in n units the variances are, in units of
    N, φ(2 − φ)² that is linear in the noise and 2(1 − φ) that is a product of two folds' noise. With φ near 0 their sum is
    taken. With φ near 1 the linear part is that of the units' whole influence, through means, covariances and scales of
    the training rows, which also knows heavy tails and correlated columns. Between, the two are weighted 1 − φ and φ.

    Limits are Student t on the log-odds scale, so that they stay within (0, 1); an AUC of exactly 0 or 1 has the bound of as many
    equal draws as the smaller sample has units.

    Source: the placements of DeLong, DeLong & Clarke-Pearson (1988); Efron & Stein (1981) for what influence values make
    of a product; the split of the variance by φ is ours.
    """
    label, units = np.unique(unit, return_inverse=True)[1].reshape(-1), int(np.unique(unit).size)
    tested = _tested(folds, second)
    pairs = sum(int(part.tested.sum()) * int((~part.tested).sum()) for part in tested)
    if not pairs:
        return 0.0, 1.0
    own, bias = _placements(tested, label, units, auc, pairs)
    whole = own + _through_fits(tested, rows, label, units, pairs, seed)
    sample = np.zeros(units, dtype=bool) if paired else _any(label, second, units)
    counted, everything = _variance(own, sample), _variance(whole, sample)
    test = max(counted - bias, 0.0)
    inside = sum(_weight(part) * float(part.direction @ part.direction) for part in tested)
    outside = sum(_weight(part) * _separation(part) for part in tested)
    known = min(max(outside / inside, 0.0), 1.0) if inside > 0 else 0.0
    noise = 2 * (1 - known)
    weak = test * (1 + RANKS * (known * (2 - known) ** 2 + noise - 1))
    variance = max((1 - known) * weak + known * (everything - bias - noise * test), test / 2)
    degrees = units - (1 if paired else 2)
    fewest = min(np.unique(label[second]).size, np.unique(label[~second]).size)
    return _limits(auc, math.sqrt(variance), degrees, int(fewest))


def _tested(folds: Sequence[Fold], second: np.ndarray) -> list[_Tested]:
    found = []
    for fold in folds:
        trained, tested = second[~fold.held], second[fold.held]
        if tested.any() and not tested.all() and trained.any() and not trained.all():
            direction = fold.train[trained].mean(axis=0) - fold.train[~trained].mean(axis=0)
            scores = even(fold.scores(trained[:, None]))[:, 0]
            found.append(_Tested(fold, direction, trained, tested, scores))
    return found


def _weight(part: _Tested) -> int:
    return int(part.tested.sum()) * int((~part.tested).sum())


def _separation(part: _Tested) -> float:
    """Difference of the held-out means along the direction."""
    test = part.fold.test
    return float((test[part.tested].mean(axis=0) - test[~part.tested].mean(axis=0)) @ part.direction)


def _any(label: np.ndarray, second: np.ndarray, units: int) -> np.ndarray:
    """Which sample a unit is of."""
    found = np.zeros(units, dtype=bool)
    found[label] = second
    return found


def _variance(influence: np.ndarray, sample: np.ndarray) -> float:
    """Of the sum of independent units' influences, each sample about its own mean."""
    total = 0.0
    for which in (False, True):
        mine = influence[sample == which]
        if mine.size > 1:
            total += mine.size / (mine.size - 1) * float(((mine - mine.mean()) ** 2).sum())
    return total


def _placements(
    tested: Sequence[_Tested], label: np.ndarray, units: int, auc: float, pairs: int
) -> tuple[np.ndarray, float]:
    """Influence of each unit as a held-out one, and by how much the sum of their squares is too large.

    A fold's AUC is a mean over pairs: the sample variance of the means over one side holds that of single pairs over the other
    side's number, once for each side. The true variance holds it once.
    """
    influence, twice = np.zeros(units), 0.0
    for part in tested:
        mine, y = label[part.fold.held], part.tested
        b, a = part.scores[y], part.scores[~y]
        below = _less(b, a)
        above = a.size and b.size - _less(a, b)
        influence += np.bincount(mine[y], (below - auc * a.size) / pairs, minlength=units)
        influence += np.bincount(mine[~y], (above - auc * b.size) / pairs, minlength=units)
        of_a, of_b = np.unique(mine[~y], return_inverse=True), np.unique(mine[y], return_inverse=True)
        u, v = of_b[0].size, of_a[0].size
        if min(u, v) < 2 or b.size * a.size > CELLS:  # beyond a thousand rows a side it is below a thousandth
            continue
        pair = (b[:, None] > a) + 0.5 * (b[:, None] == a)
        summed = np.zeros((u, v))
        np.add.at(summed, (of_b[1].reshape(-1)[:, None], of_a[1].reshape(-1)), pair)
        left = summed - summed.mean(axis=0) - summed.mean(axis=1, keepdims=True) + summed.mean()
        twice += float((left**2).sum()) * u * v / ((u - 1) * (v - 1))
    return influence, twice / pairs**2


def _less(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How many of the others lie below each value, equal ones counted by half."""
    ordered = np.sort(others)
    return (np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")) / 2


def _through_fits(
    tested: Sequence[_Tested], rows: np.ndarray, label: np.ndarray, units: int, pairs: int, seed: int
) -> np.ndarray:
    """Influence of each unit through the directions: the slope of the AUC in them, times how the unit moves them."""
    influence = np.zeros(units)
    for number, part in enumerate(tested):
        fold, y = part.fold, part.trained
        slope = _slope(part, stream(seed, "two-sample slope", number)) / pairs
        if not slope.any():
            continue
        pull = np.empty(len(y))
        for which, sign in ((True, 1.0), (False, -1.0)):
            mine = fold.train[y == which] @ slope
            pull[y == which] = sign * (mine - mine.mean()) / mine.size
        # The covariance gains xxᵀ − S of a row, its diagonal (which the ridge scales with) x² − 1.
        standard = (rows[~fold.held] - fold.mean) / fold.sd
        ridge = fold.shrink * (((standard**2 - 1) * (fold.root @ part.direction)) @ (fold.root @ slope))
        moved = (fold.train @ slope) * (fold.train @ part.direction) + ridge
        pull -= (moved - moved.mean()) / len(y)
        influence += np.bincount(label[~fold.held], pull, minlength=units)
    return influence


def _slope(part: _Tested, rng: np.random.Generator) -> Float[np.ndarray, "r"]:
    """Gradient of the number of ordered pairs in the direction: the rows' differences where their scores are about equal."""
    b, a = (np.flatnonzero(part.tested == which) for which in (True, False))
    share = 1.0
    if max(b.size, a.size) > MOST:
        whole = b.size * a.size
        b, a = (rng.permutation(side)[:MOST] for side in (b, a))
        share = whole / (b.size * a.size)
    of_b, of_a = (part.fold.test[side] @ part.direction for side in (b, a))
    spread = math.sqrt((_deviation(of_b) ** 2 + _deviation(of_a) ** 2) / 2)
    width = WIDTH * spread * math.sqrt(2) * (b.size * a.size / (b.size + a.size)) ** -0.2
    if not width > 0:
        return np.zeros(part.direction.size)
    weight = np.exp(-0.5 * ((of_b[:, None] - of_a) / width) ** 2) * (share / (width * math.sqrt(2 * math.pi)))
    return weight.sum(axis=1) @ part.fold.test[b] - weight.sum(axis=0) @ part.fold.test[a]


def _deviation(values: np.ndarray) -> float:
    """From the quartiles, which single rows do not move; from the square mean where half of the values are equal."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high - low) / 1.349 or float(values.std())


def _limits(auc: float, se: float, degrees: int, fewest: int) -> tuple[float, float]:
    from scipy.special import expit, logit, stdtrit

    if auc in (0.0, 1.0):
        bound = 0.025 ** (1 / fewest)
        return (bound, 1.0) if auc else (0.0, 1 - bound)
    half = float(stdtrit(max(degrees, 1), 0.975)) * se / (auc * (1 - auc))
    if half == 0:
        return auc, auc
    return float(expit(logit(auc) - half)), float(expit(logit(auc) + half))
