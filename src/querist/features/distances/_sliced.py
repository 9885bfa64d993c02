"""Sliced Wasserstein distance: the mean over directions of distances between projections."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.features.arrays import counted, device_rows, on_device, order, pair, same_width
from querist.features.distances._directions import FEW, Directions, chunks, given_directions, random_directions
from querist.features.distances._distance import Distance
from querist.features.distances._one_dim import knots, sorted_distances, torch_distances

__all__ = ["block_error", "few_projections", "project", "projected_distances", "root_mean", "sliced_wasserstein"]


def sliced_wasserstein(
    X: Any, Y: Any, p: float = 2.0, projections: int = 500, directions: Any = None, seed: int = 0
) -> Distance:
    """SW_p = (E_θ W_p^p(θ·x, θ·y))^(1/p), θ uniform on the sphere, in the unit of the rows.

    X: (n, d), Y: (m, d), numpy or torch, any float or integer type; left as they are. directions (P, d): these in place of
    `projections` random ones, rows normalised here. The value holds for the directions drawn (`seed` fixes them); `mc_se` is
    what other directions would change: sd between orthogonal blocks over √blocks, by the delta method for the root.
    `w2_scale` = d·SW_2² compares with W_2², of which it is a lower bound in the mean over directions. On CUDA tensors the
    work is done there.

    Cost: O(P·n·d + P·n·log n). Float32 rows are projected and sorted in float32, powers and sums in float64.
    Raises ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite, BadOption, BadValues.

    Source: Rabin et al. (2012); orthogonal blocks as in Rowland et al. (2019).
    """
    p = order(p)
    on_gpu = on_device(X, Y)
    if on_gpu:
        X, Y = device_rows(X, "X"), device_rows(Y, "Y")
        same_width(X, Y)
    else:
        X, Y = pair(X, Y)
    n, m, d = len(X), len(Y), int(X.shape[1])
    if directions is None:
        drawn = random_directions(d, counted(projections, "The number of projections"), seed)
    else:
        drawn = given_directions(directions, d)
    each = projected_distances(X, Y, drawn, p)
    value, mc_se = root_mean(each, drawn.block, p)
    mc_se = 0.0 if d == 1 else mc_se
    return Distance(
        value=value,
        power=value**p,
        p=p,
        mc_se=mc_se,
        n=n,
        m=m,
        d=d,
        method="sliced" + (" on the device" if on_gpu else ""),
        warnings=few_projections(len(each), d),
        w2_scale=d * value**2 if p == 2 else None,
    )


def few_projections(projections: int, d: int) -> tuple[str, ...]:
    """The warning that goes with fewer than 30 directions, unless one is all there is."""
    if d == 1 or projections >= FEW:
        return ()
    return (
        f"Only {projections} projections: the Monte Carlo error is large and itself poorly known; {FEW} or more tell.",
    )


def projected_distances(X: Any, Y: Any, drawn: Directions, p: float) -> Float[np.ndarray, "P"]:
    """W_p of the projections onto each direction, float64; X and Y numpy arrays or CUDA tensors of one float type."""
    device = hasattr(X, "detach")
    shared = knots(len(X), len(Y))
    result = np.empty(len(drawn.vectors))
    for part in chunks(len(result), max(len(X), len(Y)), X.element_size() if device else X.itemsize):
        if device:
            result[part] = _on_the_device(X, Y, drawn.vectors[part], p)
            continue
        xs = project(X, drawn.vectors[part])
        ys = project(Y, drawn.vectors[part])
        xs.sort(axis=1)
        ys.sort(axis=1)
        result[part] = sorted_distances(xs, ys, p, shared)
    return result


def project(X: Float[np.ndarray, "n d"], vectors: Float[np.ndarray, "P d"]) -> Float[np.ndarray, "P n"]:
    """θ·x for every direction and row, a contiguous row per direction, in the rows' own type."""
    return np.ascontiguousarray(vectors.astype(X.dtype, copy=False) @ X.T)


def _on_the_device(X: Any, Y: Any, vectors: np.ndarray, p: float) -> np.ndarray:
    import torch

    theta = torch.from_numpy(np.array(vectors)).to(X.device, torch.promote_types(X.dtype, Y.dtype))
    return torch_distances(theta @ X.T.to(theta.dtype), theta @ Y.T.to(theta.dtype), p)


def root_mean(each: Float[np.ndarray, "P"], block: Int[np.ndarray, "P"], p: float) -> tuple[float, float | None]:
    """(mean each^p)^(1/p) and its Monte Carlo standard error."""
    largest = float(each.max(initial=0.0))
    if largest == 0:
        return 0.0, 0.0
    powers = (each / largest) ** p
    mean = float(powers.mean())
    error = block_error(powers, block)
    slope = mean ** (1 / p - 1) / p  # of the root: the delta method
    return largest * mean ** (1 / p), None if error is None else largest * slope * error


def block_error(values: Float[np.ndarray, "P"], block: Int[np.ndarray, "P"]) -> float | None:
    """Standard error of the mean of values whose blocks are independent; None for one block, which cannot tell."""
    sums = np.bincount(block, values - values.mean())
    count = sums.size
    if count < 2:
        return None
    return math.sqrt(count / (count - 1) * float(sums @ sums)) / values.size
