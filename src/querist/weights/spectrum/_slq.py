"""Large matrices: the largest singular values exactly, the rest of the spectrum by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption
from querist.statistics import torch_seed

__all__ = ["SLQ", "slq"]

ROUNDS = 12
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class SLQ:
    """An approximate spectrum, in squared singular values.

    top: the k largest, ascending, with `top_error` their residual bounds. evals: N pseudo-eigenvalues ascending, the top ones
    exact and the rest quantiles of the quadrature's measure. cdf_error: standard error of the estimated distribution function
    over the probes, at its largest. trace and trace_error: of all eigenvalues that are not among the top, and its standard error.
    """

    top: Float[np.ndarray, "k"]
    top_error: Float[np.ndarray, "k"]
    evals: Float[np.ndarray, "N"]
    cdf_error: float
    trace: float
    trace_error: float


def slq(
    W: Float[Tensor, "h d"], *, k: int = 256, probes: int = 16, steps: int = 128, seed: int = 0, layer: str = ""
) -> SLQ:
    """Approximate the squared singular values of W.

    Top k by subspace iteration with Rayleigh–Ritz on a block of k + 32 vectors (Halko, Martinsson & Tropp 2011), until every
    residual is below 1e-6 of the largest value; the orthogonal rest by `probes` Lanczos runs of `steps` with full
    reorthogonalisation (ghost values appear without), their Gauss quadratures averaged (Ubaru, Chen & Saad 2017). float64
    throughout on W converted block by block. Raises BadOption for k, probes or steps out of range.
    """
    h, d = W.shape
    N = min(h, d)
    if k < 1 or probes < 2 or steps < 2:
        raise BadOption("Lanczos quadrature needs k >= 1, probes >= 2, steps >= 2", value=(k, probes, steps))
    k = min(k, N)
    X = W if h >= d else W.T
    scale = float(X.abs().max()) or 1.0

    def gram(V: Tensor) -> Tensor:
        """XᵀX V / scale², in row blocks of 64 MiB."""
        out = torch.zeros_like(V)
        step = max(1, (64 << 20) // (8 * N))
        for begin in range(0, X.shape[0], step):
            block = X[begin : begin + step].double() / scale
            out += block.T @ (block @ V)
        return out

    generator = torch.Generator().manual_seed(torch_seed(seed, "slq", layer))
    width = min(N, k + 32)
    Q = torch.linalg.qr(torch.randn(N, width, generator=generator, dtype=torch.float64)).Q
    values, residual = torch.zeros(width, dtype=torch.float64), torch.full((width,), math.inf, dtype=torch.float64)
    for _ in range(ROUNDS):
        Q = torch.linalg.qr(gram(torch.linalg.qr(gram(Q)).Q)).Q
        Z = gram(Q)
        values, vectors = torch.linalg.eigh(Q.T @ Z)
        Q, Z = Q @ vectors, Z @ vectors
        residual = torch.linalg.vector_norm(Z - Q * values, dim=0)
        if bool((residual[-k:] <= TOLERANCE * values[-1]).all()):
            break
    top, basis = values[-k:], Q[:, -k:]
    rest = N - k
    if rest == 0:
        evals = np.sort(top.clamp_min(0).numpy()) * scale**2
        return SLQ(evals, residual[-k:].numpy() * scale**2, evals, 0.0, 0.0, 0.0)
    nodes, weights = _quadratures(gram, basis, probes, min(steps, rest), generator)
    return _assembled(top, residual[-k:], nodes, weights, rest, scale)


def _quadratures(gram, basis: Tensor, probes: int, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Gauss nodes and weights [probes, steps] of random directions orthogonal to `basis`, all probes in one block."""
    n = basis.shape[0]
    v = torch.randn(n, probes, generator=generator, dtype=torch.float64)
    v = v - basis @ (basis.T @ v)
    v = v / torch.linalg.vector_norm(v, dim=0)
    known = torch.zeros(probes, steps, n, dtype=torch.float64)
    T = torch.zeros(probes, steps, steps, dtype=torch.float64)
    for j in range(steps):
        known[:, j] = v.T
        w = gram(v)
        w = w - basis @ (basis.T @ w)
        T[:, j, j] = (w * v).sum(dim=0)
        column = w.T.unsqueeze(2)
        for _ in range(2):
            column = column - known[:, : j + 1].mT @ (known[:, : j + 1] @ column)
        w = column.squeeze(2).T
        beta = torch.linalg.vector_norm(w, dim=0)
        if j + 1 < steps:
            T[:, j, j + 1] = T[:, j + 1, j] = beta
            v = w / beta.clamp_min(1e-300)
    nodes, vectors = torch.linalg.eigh(T)
    return nodes, vectors[:, 0, :] ** 2


def _assembled(top: Tensor, residual: Tensor, nodes: Tensor, weights: Tensor, rest: int, scale: float) -> SLQ:
    x = np.maximum(nodes.numpy(), 0.0)
    w = weights.numpy() / weights.numpy().sum(axis=1, keepdims=True)
    probes = len(x)
    traces = rest * (x * w).sum(axis=1)
    grid = np.sort(x.ravel())
    order = np.argsort(x, axis=1)
    per_probe = np.stack(
        [
            np.interp(grid, x[i, order[i]], np.cumsum(w[i, order[i]]) - w[i, order[i]] / 2, left=0.0, right=1.0)
            for i in range(probes)
        ]
    )
    mean = np.maximum.accumulate(per_probe.mean(axis=0))
    spread = per_probe.std(axis=0, ddof=1) / math.sqrt(probes)
    levels = (np.arange(rest) + 0.5) / rest
    below = np.minimum(np.interp(levels, mean, grid), float(top[0]))
    evals = np.concatenate([below, np.sort(top.clamp_min(0).numpy())]) * scale**2
    return SLQ(
        top=np.sort(top.clamp_min(0).numpy()) * scale**2,
        top_error=residual.numpy() * scale**2,
        evals=evals,
        cdf_error=float(spread.max()),
        trace=float(traces.mean()) * scale**2,
        trace_error=float(traces.std(ddof=1) / math.sqrt(probes)) * scale**2,
    )
