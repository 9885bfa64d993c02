"""Can poisoned rows be told apart from honest ones? A classifier's AUC, a kernel distance, and the shift of each concept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.concepts.triggers import Poisoned
from querist.errors import ShapeMismatch, TooFewRows
from querist.statistics import rank_p, stream, two_sample_auc
from querist.statistics.arrays import to_numpy

__all__ = ["Stealth", "hamming", "kernel_mmd", "stealth_of", "two_sample"]

MMD_ROWS = 1000
"""Rows of each side that the kernel distance takes: its Gram matrix grows with the square of them."""


@dataclass(frozen=True, slots=True)
class Stealth:
    """Two sets of rows compared. `auc` [`low`, `high`] with `p`; unbiased `mmd2` with `p_mmd` on `mmd_rows` rows a side.

    `shift_mean` and `shift_max`: mean and largest |difference of a concept's means|, `shift` [k] signed (b − a).
    """

    n_a: int
    n_b: int
    auc: float
    low: float
    high: float
    p: float
    mmd2: float
    p_mmd: float
    mmd_rows: int
    shift_mean: float
    shift_max: float
    shift: Float[np.ndarray, "k"]


def two_sample(
    a: Any, b: Any, *, paired: bool = False, permutations: int = 999, mmd_rows: int = MMD_ROWS, seed: int = 0
) -> Stealth:
    """Two tables of the same concepts, [n k] and [m k]; unknown cells stand at the pooled mean of their concept.

    paired: row i of both is one row before and after; both lie in one fold, and labels are swapped within pairs.
    Raises ShapeMismatch, TooFewRows. The AUC is `statistics.two_sample_auc`, whose ridge is fixed in advance.
    """
    x, y = to_numpy(a), to_numpy(b)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ShapeMismatch(
            "Both tables need the same concepts", value=f"{x.shape} and {y.shape}", allowed="[n k], [m k]"
        )
    means = [_means(part) for part in (x, y)]
    pooled = np.nan_to_num(_means(np.concatenate([x, y])))
    x, y = (np.where(np.isnan(part), pooled, part) for part in (x, y))
    found = two_sample_auc(x, y, pairs=paired or None, permutations=permutations, seed=seed)
    rng = stream(seed, "mmd rows")
    kept_x = np.sort(rng.permutation(len(x))[:mmd_rows])
    kept_y = kept_x if paired else np.sort(rng.permutation(len(y))[:mmd_rows])
    mmd2, p_mmd = kernel_mmd(x[kept_x], y[kept_y], paired=paired, permutations=permutations, seed=seed)
    shift = means[1] - means[0]
    return Stealth(
        len(x),
        len(y),
        found.auc,
        found.low,
        found.high,
        found.p,
        mmd2,
        p_mmd,
        max(len(kept_x), len(kept_y)),
        float(np.nanmean(np.abs(shift))),
        float(np.nanmax(np.abs(shift))),
        shift,
    )


def stealth_of(poisoned: Poisoned, before: Any, *, permutations: int = 999, seed: int = 0) -> dict[str, Stealth | str]:
    """The three comparisons of an assessment copy with its table `before` [n k]; a reason in place of one without rows.

    "label": poisoned rows and the other rows of their new label; "origin": relabelled rows and the untouched rows of their old
    classes; "table": the whole table before and after, paired.
    """
    data, mask = poisoned.data, poisoned.mask
    moved = mask & (poisoned.old_codes != poisoned.target)
    sets = {
        "label": (data.concepts[~mask & (data.codes == poisoned.target)], data.concepts[mask]),
        "origin": (
            data.concepts[~mask & np.isin(poisoned.old_codes, poisoned.old_codes[moved])],
            data.concepts[moved],
        ),
        "table": (to_numpy(before), data.concepts),
    }
    found: dict[str, Stealth | str] = {}
    for name, (a, b) in sets.items():
        try:
            found[name] = two_sample(a, b, paired=name == "table", permutations=permutations, seed=seed)
        except TooFewRows:
            why = "no honest row of the target is left" if name == "label" and not len(a) else "two of each are needed"
            found[name] = f"{why}: {len(a)} rows against {len(b)}"
    return found


def hamming(x: Float[np.ndarray, "n k"], y: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "n m"]:
    """‖x − y‖² of every pair: on values 0 and 1 the number of concepts that differ."""
    square = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None] - 2 * (x @ y.T)
    return np.maximum(square, 0)


def kernel_mmd(
    x: Float[np.ndarray, "n k"],
    y: Float[np.ndarray, "m k"],
    *,
    paired: bool = False,
    permutations: int = 999,
    seed: int = 0,
) -> tuple[float, float]:
    """Unbiased MMD² and its permutation p, kernel exp(−h/(2·median h)), h the Hamming distance, median over pooled pairs.

    h is a squared Euclidean distance, so the kernel is the Gaussian one and positive definite (exp(−h²) would not be). All
    permutations are one product with the Gram matrix. Source: Gretton et al. (2012), equation 3.
    """
    n, m = len(x), len(y)
    if min(n, m) < 2:
        raise TooFewRows("A kernel distance needs two rows each", value=f"{n} and {m}", allowed="2 or more")
    rows = np.concatenate([x, y])
    distance = hamming(rows, rows)
    upper = distance[np.triu_indices(n + m, 1)]
    median = float(np.median(upper)) or float(upper.mean()) or 1.0
    gram = np.exp(-distance / (2 * median))
    np.fill_diagonal(gram, 0.0)
    second = np.arange(n + m) >= n
    rng = stream(seed, "mmd permutations")
    labels = np.empty((n + m, permutations + 1), dtype=bool)
    labels[:, 0] = second
    for b in range(1, permutations + 1):
        if paired:
            labels[:, b] = second ^ np.tile(rng.random(n) < 0.5, 2)
        else:
            labels[:, b] = rng.permutation(second)
    inside = labels.astype(float)
    product = gram @ inside
    whole = gram.sum()
    yy = (inside * product).sum(axis=0)
    xy = product.sum(axis=0) - yy
    xx = whole - yy - 2 * xy
    values = xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)
    tie = 1e-12 * max(1.0, float(np.abs(values).max()))
    null = np.where(np.abs(values[1:] - values[0]) <= tie, values[0], values[1:])
    return float(values[0]), rank_p(float(values[0]), null)


def _means(rows: np.ndarray) -> np.ndarray:
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, rows, 0).sum(axis=0) / np.maximum(count, 1), np.nan)
