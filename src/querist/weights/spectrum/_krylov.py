"""The largest eigenvalues of a symmetric operator: block Lanczos with full reorthogonalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Ritz", "largest_pairs", "refined"]

BLOCK = 16
"""Vectors a step: W is read once for all of them, and a cluster of that many equal eigenvalues is found whole."""
_GROWTH = 1.1
"""Convergence is looked at each time the basis has grown by this."""


@dataclass(frozen=True, slots=True)
class Ritz:
    """Eigenpairs, values descending: values [k], vectors [n, k], residual ‖Av − θv‖ [k], and the dimension that was built."""

    values: Tensor
    vectors: Tensor
    residual: Tensor
    dimension: int


def largest_pairs(
    apply: Callable[[Tensor], Tensor],
    n: int,
    k: int,
    generator: torch.Generator,
    *,
    tolerance: float,
    most: int,
    start: Float[Tensor, "n b"] | None = None,
    extra: int = 0,
) -> Ritz:
    """The k largest eigenpairs of the positive operator `apply` on R^n, to residuals of `tolerance`·θ.

    The basis grows by 16 vectors a step, to at most `most`; what has not converged then comes with the residual it has.
    `start`: where to begin, filled up to 16 vectors by random ones. `extra`: so many pairs more are returned, as far as they
    have converged by then. New vectors are made orthogonal to all others twice (ghost values appear without), and a
    direction that is exhausted is replaced by a random one, so that multiple eigenvalues and low ranks are found in full.
    """
    most = min(n, max(most, k + extra))
    given = torch.empty(n, 0, dtype=torch.float64) if start is None else start.double()[:, :most]
    basis = torch.zeros(most, n, dtype=torch.float64)  # rows are vectors: a growing prefix stays contiguous
    T = torch.zeros(most, most, dtype=torch.float64)
    fresh = torch.randn(n, max(0, min(BLOCK, most) - given.shape[1]), generator=generator, dtype=torch.float64)
    block, done, next_check, last = torch.linalg.qr(torch.cat([given, fresh], dim=1)).Q, 0, k + extra, None
    while True:
        b = block.shape[1]
        basis[done : done + b] = block.T
        known = basis[: done + b]
        Y = apply(block)
        C = known @ Y
        T[: done + b, done : done + b] = C
        T[done : done + b, : done + b] = C.T
        T[done : done + b, done : done + b] = (C[done:] + C[done:].T) / 2
        Y = Y - known.T @ C
        Y = Y - known.T @ (known @ Y)
        done += b
        if done >= next_check or done == most:
            values = torch.linalg.eigvalsh(T[:done, :done]).flip(0)[:k]
            # Values rise as the square of their residuals: only where they have settled are vectors worth their price.
            settled = last is not None and bool((values - last <= tolerance * values.abs()).all())
            if settled or done == most:
                values, S = torch.linalg.eigh(T[:done, :done])
                values, S = values.flip(0)[: k + extra], S.flip(1)[:, : k + extra]
                residual = torch.linalg.vector_norm(Y @ S[done - b : done], dim=0)
                small = residual <= tolerance * values.clamp_min(1e-14 * float(values[0]))
                if done == most or bool(small[:k].all()):
                    return Ritz(values, known.T @ S, residual, done)
            last, next_check = values[:k], int(done * _GROWTH) + 1
        block = _next_block(Y, known, min(BLOCK, most - done), generator, float(T.diagonal().abs().max()))


def _next_block(Y: Tensor, known: Tensor, width: int, generator: torch.Generator, size: float) -> Tensor:
    """Orthonormal vectors that span Y, orthogonal to the rows of `known`; random ones where Y has fewer directions."""
    Q, R = torch.linalg.qr(Y)
    length = R.diagonal().abs()
    if width == Y.shape[1] and float(length.min()) > 1e-3 * size:
        return Q  # dividing by such lengths undoes no orthogonality
    spent = length <= 1e-13 * size
    if bool(spent.any()):
        Q[:, spent] = torch.randn(len(Q), int(spent.sum()), generator=generator, dtype=torch.float64)
    Q = Q[:, :width]
    for _ in range(2):
        Q = torch.linalg.qr(Q - known.T @ (known @ Q)).Q
    return Q


def refined(apply: Callable[[Tensor], Tensor], vectors: Float[Tensor, "n k"]) -> Ritz:
    """Rayleigh–Ritz on given vectors with an exact product: errors of the values are the squares of the vectors' errors."""
    Q = torch.linalg.qr(vectors).Q
    Z = apply(Q)
    H = Q.T @ Z
    values, S = torch.linalg.eigh((H + H.T) / 2)
    values, S = values.flip(0), S.flip(1)
    V = Q @ S
    residual = torch.linalg.vector_norm(Z @ S - V * values, dim=0)
    return Ritz(values, V, residual, V.shape[1])
