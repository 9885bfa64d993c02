"""Were arms given at random? Counts of assignment units, balance of columns, and whether a classifier can tell arms apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import lengths, matrix
from querist.effects.errors import ClusterMixed, PropensityRange
from querist.errors import BadOption, ShapeMismatch
from querist.statistics import TwoSample, folds, two_sample_auc
from querist.statistics.arrays import as_array, finite
from querist.statistics.arrays import codes as id_codes

__all__ = ["SRM", "arm_auc", "assignment_units", "smd", "smd_levels", "srm"]


@dataclass(frozen=True, slots=True)
class SRM:
    """Chi-square of arm counts against the design: `counts` of units by arm, those `expected`, degrees of freedom, p."""

    chi2: float
    df: int
    p: float
    counts: Int[np.ndarray, "arms"]
    expected: Float[np.ndarray, "arms"]


def assignment_units(
    codes: Int[np.ndarray, "n"], cluster: Any = None, labels: Sequence[Any] | None = None
) -> Int[np.ndarray, "units"]:
    """The arm of every unit that was assigned: of each row, or of each cluster.

    Raises ClusterMixed, with an example and its counts, where the rows of a cluster lie in several arms; LengthMismatch.
    """
    if cluster is None:
        return codes
    lengths(arm=codes, cluster=cluster)
    ids = as_array(cluster)
    unit, count = id_codes(ids, "Clusters")
    arm = np.empty(count, dtype=codes.dtype)
    arm[unit] = codes
    mixed = arm[unit] != codes
    if mixed.any():
        example = unit[np.argmax(mixed)]
        inside, sizes = np.unique(codes[unit == example], return_counts=True)
        named = ", ".join(
            f"{labels[a] if labels is not None else a}: {size}" for a, size in zip(inside, sizes.tolist(), strict=True)
        )
        raise ClusterMixed(
            f"A cluster's rows lie in several arms ({np.unique(unit[mixed]).size} such clusters)",
            value=f"{ids[unit == example][0]} ({named})",
            allowed="one arm per cluster",
            mend="Name the unit that was assigned as the cluster",
        )
    return arm


def srm(units: Int[np.ndarray, "units"], arms: int, shares: Any = None) -> SRM:
    """Sample ratio mismatch: do counts of units fit the shares of the design?

    units: arm of every unit, 0 … arms − 1; shares: of the design, any positive scale, equal where left out. Raises
    PropensityRange for a share that is not positive, ShapeMismatch. Source: Pearson (1900); Fabijan et al. (2019) for the name.
    """
    from scipy.special import chdtrc

    part = np.ones(arms) if shares is None else finite(shares, "shares")
    if part.shape != (arms,):
        raise ShapeMismatch("One share per arm", value=part.shape, allowed=f"({arms},)")
    if (part <= 0).any():
        raise PropensityRange("A design's shares must be positive", value=float(part.min()), allowed="above 0")
    counts = np.bincount(units, minlength=arms)
    expected = counts.sum() * part / part.sum()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    return SRM(chi2, arms - 1, float(chdtrc(arms - 1, chi2)), counts, expected)


def smd(X: Any, codes: Int[np.ndarray, "n"], arms: int) -> Float[np.ndarray, "M columns"]:
    """Standardised mean differences of each arm from control: (mean_m − mean_0)/√((var_m + var_0)/2).

    X: [n, d] numbers; a missing cell (NaN) is left out of its column. Two different constants give infinity, equal ones 0, an arm
    without a value NaN. Raises LengthMismatch. Source: Austin (2009).
    """
    X = np.asarray(as_array(X), dtype=float).reshape(len(X), -1)
    lengths(X=X, arm=codes)
    known = ~np.isnan(X)
    filled = np.where(known, X, 0.0)
    shift = filled.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, X - shift, 0.0)
    count, total, squares = (_by_arm(values, codes, arms) for values in (known.astype(float), filled, filled**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        variance = (squares - count * mean**2) / (count - 1)
    variance = np.where(variance > 1e-18 * (mean**2 + shift**2), variance, 0.0)
    return _standardised(mean, variance, count)


def smd_levels(levels: Int[np.ndarray, "n"], count: int, codes: Int[np.ndarray, "n"], arms: int) -> np.ndarray:
    """Standardised differences [M, count] in the share of each level of a category, variance p(1 − p)."""
    lengths(levels=levels, arm=codes)
    cells = np.bincount(codes * count + levels, minlength=arms * count).reshape(arms, count)
    size = cells.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        share = cells / size
    return _standardised(share, share * (1 - share), np.broadcast_to(size, share.shape))


def _by_arm(values: np.ndarray, codes: np.ndarray, arms: int) -> np.ndarray:
    return np.stack([np.bincount(codes, column, minlength=arms) for column in values.T], axis=1)


def _standardised(mean: np.ndarray, variance: np.ndarray, count: np.ndarray) -> np.ndarray:
    gap = mean[1:] - mean[0]
    scale = np.sqrt((variance[1:] + variance[0]) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(gap == 0, 0.0, gap / scale)
    return np.where((count[1:] > 0) & (count[0] > 0), found, np.nan)


def arm_auc(
    X: Any,
    codes: Int[np.ndarray, "n"],
    arm: int,
    *,
    cluster: Any = None,
    parts: int = 5,
    permutations: int = 199,
    limit: int | None = None,
    seed: int = 0,
) -> TwoSample:
    """Cross-fitted AUC of telling the rows of one arm from all others by their columns; ½ where arms were given at random.

    X: [n, d], finite. cluster: ids of assigned units; p permutes whole clusters. limit: at most about so many rows, whole
    clusters drawn at random. Raises BadOption for an arm without rows, NonFinite, LengthMismatch, TooFewRows.
    """
    X = matrix(X, "X", (None, None))
    n = lengths(X=X, arm=codes, cluster=cluster)
    ids = np.arange(n) if cluster is None else id_codes(cluster, "Clusters")[0]
    if limit is not None and n > limit:
        part = folds(n, -(-n // limit), strata=codes if cluster is None else None, clusters=ids, seed=seed) == 0
        X, codes, ids = X[part], codes[part], ids[part]
    mine = codes == arm
    if not mine.any() or mine.all():
        raise BadOption(
            "An arm to be told apart needs rows, and others beside it", value=arm, allowed="an arm with rows"
        )
    units = None if cluster is None else (ids[~mine], ids[mine])
    return two_sample_auc(X[~mine], X[mine], clusters=units, folds=parts, permutations=permutations, seed=seed)
