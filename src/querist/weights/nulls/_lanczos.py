"""The largest eigenvalue of W Wᵀ, without the others: batched Lanczos in float32."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, NonFinite, ShapeMismatch

__all__ = ["TOLERANCE", "default_steps", "edge_scale", "scaled", "top_eigenvalue", "top_eigenvalues"]

# One Gram product costs as much as N/22 passes over W (measured: 141 against 13 GFlop/s on one core, float32).
_GRAM_PASSES = 22
# Error allowed, in σ_J: an observed value known exactly meets replicas that Lanczos can only underestimate. Values
# this close count as ties in the rank test.
TOLERANCE = 0.03
_CHECK_EVERY = 4
# Relative size below which what is left of a new direction is float32 rounding (eps 1.2e-7).
_NOISE = 1e-6


def edge_scale(N: int, M: int) -> float:
    """Johnstone's σ_J/μ: how far, relative to itself, the largest eigenvalue of an N x M noise matrix strays."""
    N, M = min(N, M), max(N, M)
    if M < 2:
        return math.sqrt(2.0)
    a, b = math.sqrt(M - 1), math.sqrt(N)
    return (1 / a + 1 / b) ** (1 / 3) / (a + b)


def default_steps(N: int) -> int:
    """Lanczos steps before the first look at the error: 24 up to N=512, 30 at 1000; never more than N.

    With fewer the estimate itself can be fooled by a start vector that barely meets the top direction: 12 steps at N=16
    once stopped a quarter of σ_J short.
    """
    return min(N, max(24, math.ceil(3 * N ** (1 / 3))))


def top_eigenvalues(
    W: Float[Tensor, "b h d"],
    start: Float[Tensor, "b n"],
    *,
    steps: int | None = None,
) -> Float[np.ndarray, "b"]:
    """Largest eigenvalue of each W Wᵀ, float64 [b], from below.

    W: [b, h, d] on any device, computed in float32. start: [b, min(h, d)], one vector per matrix, any scale. steps: a
    fixed number; None goes on from `default_steps` until the estimated error is below .03 σ_J. W must be scaled so that
    its squares neither overflow nor vanish (max|W| near 1).

    Full reorthogonalisation, twice per step: with one pass in float32 the basis is lost (1536x384: λ_max wrong by 1e4
    σ_J).
    """
    b, h, d = W.shape
    X = W.float() if h <= d else W.float().transpose(1, 2)
    N, M = X.shape[1:]
    if tuple(start.shape) != (b, N):
        raise ShapeMismatch("One start vector per matrix is needed", value=tuple(start.shape), allowed=f"({b}, {N})")
    if steps is not None and steps < 1:
        raise BadOption("Lanczos needs at least one step", value=steps, allowed="steps >= 1")
    fixed = None if steps is None else min(steps, N)
    first = fixed or default_steps(N)
    last = fixed or min(N, 8 * first)
    by_gram = N / _GRAM_PASSES + first * N / (2 * M) < first
    v = start.to(W.device, torch.float32)
    if b == 1:  # without the price of batched calls: a third of the time at N=384
        X, v = X[0], v[0]
    operator = X @ X.mT if by_gram else X
    basis = torch.empty(*v.shape[:-1], last, N, dtype=torch.float32, device=W.device)
    v = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    tolerance = TOLERANCE * edge_scale(N, M)
    alphas, betas = [], []
    ceiling = torch.zeros_like(v[..., :1])
    for done in range(1, last + 1):
        basis[..., done - 1, :] = v
        known = basis[..., :done, :]
        w = _times(operator, v) if by_gram else _times(operator, _times(operator.mT, v))
        parts, w = _project_out(known, w)
        _, w = _project_out(known, w)
        beta = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        alphas.append(parts[..., -1:])
        betas.append(beta)
        if done == last or (done >= first and (done - first) % _CHECK_EVERY == 0):
            values, errors = _ritz(torch.cat(alphas, -1).view(b, done), torch.cat(betas, -1).view(b, done))
            if done == last or np.all(errors <= tolerance * values):
                return values
        # Rounding noise means the space is exhausted: continuing with it would find the same values again, coupled to
        # each other. The zeros that a null vector appends to T leave the largest value as it is.
        ceiling = torch.maximum(ceiling, torch.maximum(parts[..., -1:], beta))
        alive = beta > _NOISE * ceiling
        v = torch.where(alive, w / torch.where(alive, beta, 1.0), 0.0)
        betas[-1] = torch.where(alive, beta, 0.0)
    raise AssertionError("unreachable: the last step returns")


def _times(A: Tensor, v: Tensor) -> Tensor:
    return torch.mv(A, v) if v.ndim == 1 else torch.bmm(A, v.unsqueeze(2)).squeeze(2)


def _project_out(rows: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Components of w along orthonormal rows, and w without them."""
    if w.ndim == 1:
        parts = torch.mv(rows, w)
        return parts, torch.addmv(w, rows.mT, parts, alpha=-1)
    parts = torch.bmm(rows, w.unsqueeze(2))
    return parts.squeeze(2), torch.baddbmm(w.unsqueeze(2), rows.mT, parts, alpha=-1).squeeze(2)


def _ritz(alphas: Tensor, betas: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Largest Ritz value of each tridiagonal matrix and the estimate r²/gap of how far below the true one it lies."""
    a, b = alphas.double().cpu().numpy(), betas.double().cpu().numpy()
    k = a.shape[1]
    T = np.zeros((len(a), k, k))
    i = np.arange(k)
    T[:, i, i] = a
    T[:, i[1:], i[:-1]] = b[:, :-1]
    values, vectors = np.linalg.eigh(T)
    top = values[:, -1]
    residual = b[:, -1] * np.abs(vectors[:, -1, -1])
    gap = top - values[:, -2] if k > 1 else top
    return top, np.minimum(residual, residual**2 / np.maximum(gap, 1e-300))


def top_eigenvalue(
    W: Float[Tensor, "h d"] | Float[Tensor, "count h d"], *, steps: int | None = None, rng: np.random.Generator
) -> float:
    """Largest squared singular value of W ([h, d]), or of all its matrices ([count, h, d]); unnormalised.

    Within .1 σ_J (Johnstone's scale of the edge) from below, at a few per cent of the price of the whole spectrum. rng
    draws the start vectors. Raises NonFinite for NaN or infinite entries.

    Source: Lanczos with full reorthogonalisation; the number of steps and the stop are ours.
    """
    W = torch.as_tensor(W).detach()
    if W.ndim not in (2, 3) or 0 in W.shape:
        raise ShapeMismatch(
            "Lanczos needs a matrix or a stack of matrices", value=tuple(W.shape), allowed="[h, d] or [count, h, d]"
        )
    stack = W if W.ndim == 3 else W.unsqueeze(0)
    scale = float(stack.abs().max())
    if not math.isfinite(scale):
        raise NonFinite("The matrix holds NaN or infinite entries", mend="Mend or leave out the tensor")
    if scale == 0:
        return 0.0
    start = rng.standard_normal((len(stack), min(W.shape[-2:])), dtype=np.float32)
    return float(top_eigenvalues(scaled(stack, scale), torch.from_numpy(start), steps=steps).max()) * scale**2


def scaled(W: Tensor, scale: float) -> Tensor:
    """W/scale in float32, neither rounded in a shorter format nor overflowing from a longer one."""
    return (W / scale).float() if W.dtype == torch.float64 else W.float() / scale
