"""Wasserstein distances on the line: sorted rows where sizes agree, merged quantile functions where they do not."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from querist.features.arrays import device_rows, line, on_device, order, pair, same_width, weights

__all__ = ["Knots", "cells", "knots", "per_unit_wasserstein", "sorted_distances", "sorted_powers", "wasserstein_1d"]

_CELLS = 1 << 16
"""Numbers worked on at a time, so that a difference and its power stay in the second-level cache."""
_COLUMNS = 16
"""Columns transposed at a time: one cache line of float32; 32 and more take twice as long (10,000 x 512)."""


class Knots(NamedTuple):
    """The pieces on which two empirical quantile functions are both constant: indices into sorted x and y, and widths."""

    x: Int[np.ndarray, "k"]
    y: Int[np.ndarray, "k"]
    width: Float[np.ndarray, "k"]


def knots(n: int, m: int) -> Knots | None:
    """The pieces for n and m equal weights, from whole numbers and so without rounding; None for n = m."""
    if n == m:
        return None
    ends = np.union1d(np.arange(1, n + 1, dtype=np.int64) * m, np.arange(1, m + 1, dtype=np.int64) * n)
    return Knots((ends - 1) // m, (ends - 1) // n, np.diff(ends, prepend=0) / (n * m))


def wasserstein_1d(
    x: ArrayLike, y: ArrayLike, p: float = 2.0, wx: ArrayLike | None = None, wy: ArrayLike | None = None
) -> float:
    """W_p between two weighted samples on the line, in their unit.

    x: (n,), y: (m,), any float or integer type, numpy or torch. wx (n,), wy (m,): weights >= 0, normalised here each by its
    own sum; equal where they are left out. p in [1, inf]: the p-th root of the integral of |F⁻¹ − G⁻¹|^p over (0, 1), exact;
    for p = inf the largest quantile gap. Values of weight 0 are as if absent.

    Raises ShapeMismatch for rows (n, d) and for weights of another length, TooFewRows, NonFinite, BadWeights, BadOption.
    Source: Villani (2009), remark 2.19; float64 throughout.
    """
    p = order(p, infinite=True)
    x, y = line(x, "x"), line(y, "y")
    if wx is None and wy is None:
        both = knots(x.size, y.size)
        return float(sorted_distances(np.sort(x)[None], np.sort(y)[None], p, both)[0])
    (a, _), (b, _) = weights(wx, x.size, "wx"), weights(wy, y.size, "wy")
    (xs, a), (ys, b) = _ordered(x, a), _ordered(y, b)
    return float(sorted_distances(xs[None], ys[None], p, _weighted_knots(a, b))[0])


def _ordered(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    present = weight > 0
    values, weight = values[present], weight[present]
    by = np.argsort(values, kind="stable")
    return values[by], weight[by]


def _weighted_knots(a: np.ndarray, b: np.ndarray) -> Knots:
    ends_x, ends_y = np.cumsum(a), np.cumsum(b)
    ends_x[-1] = ends_y[-1] = 1.0
    ends = np.sort(np.concatenate([ends_x, ends_y]))
    width = np.diff(ends, prepend=0.0)
    # Two ends that are one in exact arithmetic differ by the rounding of their sums: no piece, or p = inf would see it.
    real = width > ends.size * np.finfo(np.float64).eps
    ends, width = ends[real], width[real]
    ix = np.minimum(np.searchsorted(ends_x, ends - width / 2), a.size - 1)
    iy = np.minimum(np.searchsorted(ends_y, ends - width / 2), b.size - 1)
    return Knots(ix, iy, width / width.sum())


def per_unit_wasserstein(X: Any, Y: Any, p: float = 2.0) -> Float[np.ndarray, "d"]:
    """W_p between the laws of each unit, (d,) float64 in the units' own unit.

    X: (n, d), Y: (m, d), numpy or torch of any float or integer type; left as they are. p in [1, inf]. A constant unit gives
    its shift. On CUDA tensors the work is done there.

    Raises ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite, BadOption.
    """
    p = order(p, infinite=True)
    if on_device(X, Y):
        left, right = device_rows(X, "X"), device_rows(Y, "Y")
        same_width(left, right)
        return torch_distances(left.T.contiguous(), right.T.contiguous(), p)
    X, Y = pair(X, Y)
    shared = knots(len(X), len(Y))
    result = np.empty(X.shape[1])
    step = max(_COLUMNS, 1)
    for start in range(0, result.size, step):
        part = slice(start, start + step)
        xs, ys = X[:, part].T.copy(), Y[:, part].T.copy()
        xs.sort(axis=1)
        ys.sort(axis=1)
        result[part] = sorted_distances(xs, ys, p, shared)
    return result


def cells(longest: int) -> int:
    """How many rows of so many numbers to work on at a time."""
    return max(1, _CELLS // max(longest, 1))


def sorted_distances(
    xs: Float[np.ndarray, "k n"], ys: Float[np.ndarray, "k m"], p: float, shared: Knots | None
) -> Float[np.ndarray, "k"]:
    """W_p of each row of ascending values against the same row of the other, float64.

    Differences in the rows' own type, powers and sums in float64, a few rows at a time.
    """
    result = np.empty(len(xs))
    width = None if shared is None else shared.width
    step = cells(xs.shape[1] if shared is None else shared.x.size)
    for start in range(0, len(xs), step):
        part = slice(start, start + step)
        gap = xs[part] - ys[part] if shared is None else xs[part].take(shared.x, 1) - ys[part].take(shared.y, 1)
        result[part] = _norms(gap, p, width)
    return result


def _norms(gap: np.ndarray, p: float, width: np.ndarray | None) -> np.ndarray:
    """(Σ width·|gap|^p)^(1/p) along rows, width 1/k where there is none; `gap` is used up."""
    if p == 1:
        np.abs(gap, out=gap)
        return gap.mean(axis=1, dtype=np.float64) if width is None else gap @ width
    if math.isinf(p):
        return np.abs(gap, out=gap).max(axis=1).astype(np.float64)
    gap = gap.astype(np.float64, copy=False)
    if p == 2:
        squares = np.vecdot(gap, gap) / gap.shape[1] if width is None else (gap * gap) @ width
        return np.sqrt(squares)
    gap = np.abs(gap, out=gap)
    largest = gap.max(axis=1)
    gap /= np.where(largest > 0, largest, 1.0)[:, None]  # powers of at most one: no overflow at any p
    gap **= p
    mean = gap.mean(axis=1) if width is None else gap @ width
    return largest * mean ** (1 / p)


def sorted_powers(
    xs: Float[np.ndarray, "k n"], ys: Float[np.ndarray, "k m"], p: float, shared: Knots | None
) -> Float[np.ndarray, "k"]:
    """W_p^p as `sorted_distances` to the power p, for few enough rows to be done at once; `xs` is used up.

    Called thousands of times on blocks over which a sort takes no longer than a few conversions: at p = 2 the squares of
    float32 rows are added up in float32 over runs of at most 256, and only these sums in float64. That costs 1e-8 of the
    value, below what float32 differences do, and saves a tenth of the time.
    """
    if shared is not None or p not in (1, 2):
        return sorted_distances(xs, ys, p, shared) ** p
    np.subtract(xs, ys, xs)
    if p == 1:
        return np.abs(xs, xs).mean(axis=1, dtype=np.float64)
    run = _run(xs.shape[1]) if xs.dtype == np.float32 else 0
    if run:
        parts = xs.reshape(len(xs), -1, run)
        return np.vecdot(parts, parts).sum(axis=1, dtype=np.float64) / xs.shape[1]
    gap = xs.astype(np.float64, copy=False)
    return np.vecdot(gap, gap) / xs.shape[1]


@functools.lru_cache(maxsize=64)
def _run(n: int) -> int:
    """The longest run of at most 256 that divides n, 0 where all are below 32."""
    return next((run for run in range(min(n, 256), 31, -1) if n % run == 0), 0)


def torch_distances(x: Any, y: Any, p: float) -> Float[np.ndarray, "k"]:
    """W_p of the rows of two tensors (k, n) and (k, m) on their device, sorted there; float64 on the host."""
    import torch

    x, y = x.sort(dim=1).values, y.sort(dim=1).values
    shared = knots(x.shape[1], y.shape[1])
    if shared is None:
        gap = (x - y).abs_().double()
        mean = gap.pow(p).mean(1) if not math.isinf(p) else None
    else:
        ix, iy, width = (torch.from_numpy(part).to(x.device) for part in shared)
        gap = (x[:, ix] - y[:, iy]).abs_().double()
        mean = gap.pow(p) @ width if not math.isinf(p) else None
    result = gap.amax(1) if mean is None else mean.pow(1 / p)
    return result.cpu().numpy()
