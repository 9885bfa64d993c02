"""The largest singular triplets of a matrix that was looked at before: block power iteration from where it stood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from querist.weights.spectrum import GramOperator, largest_pairs

__all__ = ["TOLERANCE", "Triplets", "top_triplets"]

TOLERANCE = 1e-4
"""Residual ‖AᵀAv − σ²v‖ of each pair, relative to σ²: values are then right to about 1e-8, spikes' directions to 1e-4."""
_EXTRA = 8
"""Directions carried beyond k: what converges is governed by the gap to the first one left out."""
_DENSE = 192
"""Up to this side all pairs of the Gram matrix cost less than an iteration (192: 3 ms)."""
_SWEEPS = 6
_GAIN = 0.5
"""A sweep that does not at least halve the worst residual is not worth repeating: a Krylov space is faster."""
_LEAST = 1e-7
"""A singular value below this share of the largest is rounding: of float32's entries, or of float64's Gram matrix."""
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Triplets:
    """The k largest singular triplets of W [h, d].

    sigma [k] descending; left [h, k] and right [d, k] orthonormal columns, float64 on the CPU; of a matrix of rank r (values
    above 1e-7 of the largest) only the first r. total: ‖W‖_F². block [n, k + 8] spans where the next search begins (n the
    shorter side). method: "dense", "warm" (power iteration), "krylov" (from nothing) or "warm-krylov". products: with W, in
    blocks.
    """

    sigma: Float[Tensor, "k"]
    left: Float[Tensor, "h k"]
    right: Float[Tensor, "d k"]
    total: float
    block: Float[Tensor, "n b"]
    method: str
    products: int

    @property
    def rank(self) -> int:
        """How many triplets there are."""
        return len(self.sigma)


def top_triplets(
    W: Float[Tensor, "h d"],
    k: int,
    generator: torch.Generator,
    *,
    start: Float[Tensor, "n b"] | None = None,
    tolerance: float = TOLERANCE,
) -> Triplets:
    """The k largest singular triplets of W, of fewer where its rank is smaller, to residuals of `tolerance`.

    start: `block` of the triplets of a matrix near W; without it the search begins from random directions drawn from
    `generator` (on the CPU). Power iteration goes on while a sweep halves the residual; a bulk without gaps is then left to
    block Krylov, which takes over from where the sweeps ended. Products in float32 where W is stored in 32 bits or
    fewer, the last one in float64. W is not changed and may lie on any device. Raises NonFinite, ShapeMismatch.

    Source: subspace iteration with Rayleigh–Ritz (Golub & Van Loan, section 8.2); block Lanczos (Golub & Underwood 1977).
    The hand-over between them is ours.
    """
    operator = GramOperator(W)
    n, k = operator.n, min(k, operator.n)
    counted = _Counted(operator)
    if operator.scale == 0:
        h, d = operator.shape
        none = torch.zeros(0, dtype=torch.float64)
        return Triplets(none, none.new_zeros(h, 0), none.new_zeros(d, 0), 0.0, none.new_zeros(n, 0), "dense", 0)
    if n <= _DENSE:
        _, S = torch.linalg.eigh(_symmetric(counted(torch.eye(n, dtype=torch.float64), exact=True)))
        vectors, method = S.flip(1)[:, : k + _EXTRA], "dense"
    elif start is not None and start.shape[0] == n and start.shape[1] >= k:
        vectors, method = _swept(counted, start.double(), k, tolerance), "warm"
        if vectors.shape[1] == 0:
            vectors, method = _krylov(counted, n, k, generator, tolerance, counted.last), "warm-krylov"
    else:
        vectors, method = _krylov(counted, n, k, generator, tolerance, None), "krylov"
    return _both_sides(operator, W, vectors, k, method, counted.products + 1)


class _Counted:
    """The operator with a count of its products; vectors stay on the CPU, where the small algebra is done."""

    def __init__(self, operator: GramOperator):
        self.operator, self.products = operator, 0
        self.device = operator.source.device
        self.last: Tensor | None = None

    def __call__(self, V: Tensor, *, exact: bool = False) -> Tensor:
        self.products += 1
        return self.operator(V.to(self.device), exact=exact).cpu()


def _swept(apply: _Counted, start: Tensor, k: int, tolerance: float) -> Tensor:
    """Ritz vectors of the block once its first k have converged; none (and the block left in `apply.last`) where they do not."""
    Q, worst = torch.linalg.qr(start).Q, torch.inf
    for _ in range(_SWEEPS):
        Z = apply(Q)
        values, S = torch.linalg.eigh(_symmetric(Q.T @ Z))
        values, S = values.flip(0), S.flip(1)
        V, Z = Q @ S, Z @ S
        residual = torch.linalg.vector_norm(Z - V * values, dim=0)[:k]
        # Values at the level of rounding belong to a rank that is spent: no residual is small beside them.
        now = float((residual / values[:k].clamp_min(1e-10 * float(values[0]))).max())
        if now <= tolerance:
            return V
        if now > _GAIN * worst:
            apply.last = V
            break
        worst, apply.last = now, V
        Q = torch.linalg.qr(Z).Q
    return start.new_zeros(len(start), 0)


def _krylov(
    apply: Callable[[Tensor], Tensor],
    n: int,
    k: int,
    generator: torch.Generator,
    tolerance: float,
    start: Tensor | None,
) -> Tensor:
    extra = min(_EXTRA, n - k)
    return largest_pairs(apply, n, k, generator, tolerance=tolerance, most=n, start=start, extra=extra).vectors


def _both_sides(operator: GramOperator, W: Tensor, vectors: Tensor, k: int, method: str, products: int) -> Triplets:
    """Left and right vectors by one product in float64 and a small SVD: exact Rayleigh–Ritz on the longer side."""
    block = torch.linalg.qr(vectors).Q
    long = _product(W, block, operator)
    Q, R = torch.linalg.qr(long)
    P, sigma, T = torch.linalg.svd(R, full_matrices=False)
    rank = min(k, int((sigma > _LEAST * sigma[0]).sum()))
    ends = Q @ P[:, :rank], block @ T.T[:, :rank]
    left, right = ends if operator.shape[0] >= operator.shape[1] else ends[::-1]
    total = operator.total * operator.divisor**2
    return Triplets(
        sigma[:rank] * operator.divisor, left.contiguous(), right.contiguous(), total, block @ T.T, method, products
    )


def _product(W: Tensor, block: Tensor, operator: GramOperator) -> Tensor:
    """(W/divisor)·block over the shorter side, row blocks widened one at a time."""
    h, d = operator.shape
    tall = W if h >= d else W.T
    V = block.to(W.device)
    step = max(1, _CHUNK_BYTES // (8 * tall.shape[1]))
    parts = [(tall[i : i + step].double() / operator.divisor) @ V for i in range(0, tall.shape[0], step)]
    return torch.cat(parts).cpu()


def _symmetric(H: Tensor) -> Tensor:
    return (H + H.T) / 2
