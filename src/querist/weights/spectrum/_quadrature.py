"""Stochastic Lanczos quadrature: the distribution of an operator's eigenvalues from random directions, with error bars."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["density_of", "distribution_of", "quadratures"]

Array = np.ndarray
_PROBE_BYTES = 128 << 20


def quadratures(
    apply: Callable[[Tensor], Tensor],
    top: Float[Tensor, "n k"],
    probes: int,
    steps: int,
    generator: torch.Generator,
) -> tuple[Float[Array, "probes steps"], Float[Array, "probes steps"]]:
    """Gauss nodes (ascending) and weights (summing to 1) of random directions orthogonal to the columns of `top`."""
    n = len(top)
    starts = torch.randn(n, probes, generator=generator, dtype=torch.float64)
    group = max(1, min(probes, _PROBE_BYTES // (8 * n * steps)))
    parts = [_lanczos(apply, top, starts[:, i : i + group], steps) for i in range(0, probes, group)]
    nodes, vectors = torch.linalg.eigh(torch.cat(parts))
    weights = vectors[:, 0, :] ** 2
    return nodes.clamp_min(0).numpy(), (weights / weights.sum(dim=1, keepdim=True)).numpy()


def _lanczos(apply: Callable[[Tensor], Tensor], top: Tensor, v: Tensor, steps: int) -> Float[Tensor, "p steps steps"]:
    """Tridiagonal matrices of one Lanczos run for each column of v, in the complement of `top`."""
    p = v.shape[1]
    known = torch.zeros(p, steps, len(v), dtype=torch.float64)
    T = torch.zeros(p, steps, steps, dtype=torch.float64)
    for _ in range(2):
        v = v - top @ (top.T @ v)
    v = v / torch.linalg.vector_norm(v, dim=0).clamp_min(1e-300)
    previous = v
    for j in range(steps):
        known[:, j] = v.T
        w = apply(v)
        w = w - top @ (top.T @ w)
        T[:, j, j] = (w * v).sum(dim=0)
        if j + 1 == steps:
            break
        w = w - v * T[:, j, j] - (previous * T[:, j, j - 1] if j else 0.0)
        before = torch.linalg.vector_norm(w, dim=0)
        w = _orthogonal(w, known[:, : j + 1], top)
        if bool((torch.linalg.vector_norm(w, dim=0) < 0.7 * before).any()):  # twice is enough, once as a rule
            w = _orthogonal(w, known[:, : j + 1], top)
        beta = torch.linalg.vector_norm(w, dim=0)
        # A direction that is exhausted decouples: what follows has no weight in the quadrature.
        beta = torch.where(beta > 1e-13 * T.abs().amax(dim=(1, 2)), beta, torch.zeros_like(beta))
        T[:, j, j + 1] = T[:, j + 1, j] = beta
        previous, v = v, torch.where(beta > 0, w / beta.clamp_min(1e-300), torch.zeros_like(w))
    return T


def _orthogonal(w: Tensor, known: Float[Tensor, "p j n"], top: Tensor) -> Tensor:
    column = w.T.unsqueeze(2)
    w = (column - known.mT @ (known @ column)).squeeze(2).T
    return w - top @ (top.T @ w)


def distribution_of(nodes: Array, weights: Array, x: Array, cap: float) -> tuple[Array, Array]:
    """Mean over probes of the distribution function at x, and the half-width of its 95 % interval. No value exceeds cap."""
    rows = np.stack([_interpolated(a, w, x, cap) for a, w in zip(nodes, weights, strict=True)])
    unknown = np.stack([_unresolved(a, w, x) for a, w in zip(nodes, weights, strict=True)])
    return rows.mean(axis=0), _half_width(rows) + unknown.mean(axis=0)


def density_of(nodes: Array, weights: Array, edges: Array, cap: float) -> tuple[Array, Array]:
    """Mean over probes of the share in each bin, and the half-width of its 95 % interval."""
    rows = np.stack([np.diff(_interpolated(a, w, edges, cap)) for a, w in zip(nodes, weights, strict=True)])
    unknown = np.stack([_unresolved(a, w, edges) for a, w in zip(nodes, weights, strict=True)]).mean(axis=0)
    return rows.mean(axis=0), _half_width(rows) + unknown[1:] + unknown[:-1]


def _interpolated(nodes: Array, weights: Array, x: Array, cap: float) -> Array:
    """Half the weight of a node lies below it; between nodes a straight line, and half a step beyond the outermost."""
    middle = np.cumsum(weights) - weights / 2
    below, above = (nodes[1] - nodes[0], nodes[-1] - nodes[-2]) if nodes.size > 1 else (0.0, 0.0)
    first, last = max(0.0, nodes[0] - below / 2), max(nodes[-1], min(cap, nodes[-1] + above / 2))
    ends = np.concatenate([[first], nodes, [last]])
    return np.interp(x, ends, np.concatenate([[0.0], middle, [1.0]]), left=0.0, right=1.0)


def _unresolved(nodes: Array, weights: Array, x: Array) -> Array:
    """Half the weight of the nodes around x: how far the distribution may lie from the line between them."""
    padded = np.concatenate([[0.0], weights, [0.0]])
    at = np.searchsorted(nodes, x, side="right")
    return (padded[at] + padded[at + 1]) / 2


def _half_width(rows: Array) -> Array:
    """Half-width of the 95 % interval of a mean over probes."""
    return _t975(len(rows) - 1) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))


def _t975(freedom: int) -> float:
    """The .975 quantile of Student's t: a table up to 3, beyond it the expansion in 1/freedom, good to .02."""
    if freedom <= 3:
        return (12.7062, 4.3027, 3.1824)[freedom - 1]
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
