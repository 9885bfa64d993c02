"""Singular vectors of the largest singular values, and products with a matrix that is held or read row block by row block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import NonFinite, NumericalFailure
from querist.statistics import torch_seed
from querist.weights.spectrum._esd import BLOCK_BYTES, Blocks
from querist.weights.spectrum._gram import add_gram, cross_gram, gram, largest, power_of_two
from querist.weights.spectrum._krylov import largest_pairs
from querist.weights.spectrum._operator import GramOperator

__all__ = ["ShortSide", "Triplets", "leading", "product", "row_blocks", "short_side", "transposed_product", "triplets"]

_WHOLE_SIDE = 256
"""Up to this side all eigenvectors cost no more than Lanczos for sixteen of them."""
_TOLERANCE = 1e-3
_FAINT = 1e-7
"""Singular values below this share of the largest are lost in the rounding of a float64 Gram matrix."""


@dataclass(frozen=True, slots=True)
class ShortSide:
    """Eigenvalues and eigenvectors of the smaller Gram matrix of W [h, d].

    evals: squared singular values [N], ascending. vectors: float64 [N, K] with orthonormal columns, those of the K largest
    eigenvalues, the largest first: right singular vectors where h >= d, else left ones.
    """

    evals: Float[np.ndarray, "N"]
    vectors: Float[Tensor, "N K"]
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Triplets:
    """The k largest singular triplets: U [h, k], S [k] descending, V [d, k], float64, columns orthonormal."""

    U: Float[Tensor, "h k"]
    S: Float[Tensor, "k"]
    V: Float[Tensor, "d k"]

    def first(self, k: int) -> Triplets:
        """The k largest of them."""
        return Triplets(self.U[:, :k], self.S[:k], self.V[:, :k])

    def spectrum(self, n: int) -> Float[np.ndarray, "n"]:
        """Their squared singular values as the whole spectrum of a matrix of shorter side n: ascending, the others 0."""
        values = self.S.square().flip(0).cpu().numpy()[-n:]
        return np.concatenate([np.zeros(n - len(values)), values])


def row_blocks(W: Tensor | Blocks) -> Iterator[Tensor]:
    """The rows of W in order: at once where it is held, else block by block."""
    if isinstance(W, Tensor):
        yield W
    else:
        yield from W.blocks(BLOCK_BYTES)


def short_side(W: Float[Tensor, "h d"] | Blocks) -> ShortSide:
    """Every eigenvalue and eigenvector of the smaller Gram matrix, by `torch.linalg.eigh` in float64.

    Memory beside W: N²·8 bytes three times, and two row blocks of a streamed W. Raises NonFinite, NumericalFailure.
    """
    h, d = (int(side) for side in W.shape)
    scale, wide = 0.0, False
    for block in row_blocks(W):
        scale, wide = max(scale, largest(block)), wide or block.dtype == torch.float64
    if not math.isfinite(scale):
        raise NonFinite("The matrix holds NaN or infinite entries", value=f"shape {(h, d)}", mend="Leave it out")
    divisor = power_of_two(scale) if wide and scale else 1.0
    try:
        values, vectors = torch.linalg.eigh(_gram(W, h, d, divisor), UPLO="L")
    except torch.linalg.LinAlgError as error:
        raise NumericalFailure(f"the eigenvectors did not converge: {error}") from error
    order = torch.argsort(values, descending=True)  # the order of a routine is never relied upon
    evals = values[order].clamp_min(0).flip(0).cpu().numpy() * divisor * divisor
    return ShortSide(evals, vectors[:, order], (h, d))


def _gram(W: Tensor | Blocks, h: int, d: int, divisor: float) -> Tensor:
    if isinstance(W, Tensor):
        return gram((W if h >= d else W.mT).unsqueeze(0), divisor)[0]
    if h < d:
        return cross_gram(lambda: row_blocks(W), h, divisor)
    out = torch.zeros(d, d, dtype=torch.float64)
    for block in row_blocks(W):
        add_gram(out, block, divisor)
    return out


def triplets(W: Float[Tensor, "h d"] | Blocks, short: ShortSide, k: int) -> Triplets:
    """The k largest triplets of W from its short side; fewer where the singular values are lost in rounding.

    The other side's vectors are W·v/σ (or Wᵀ·u/σ), one pass over W, orthonormalised against what rounding left.
    """
    S = torch.from_numpy(np.sqrt(short.evals[::-1][: short.vectors.shape[1]]).copy())
    k = min(k, int((_FAINT * S[:1] < S).sum()))
    S, near = S[:k], short.vectors[:, :k]
    tall = short.shape[0] >= short.shape[1]
    far = orthonormal((product(W, near) if tall else transposed_product(W, near)) / S)
    return Triplets(far, S, near) if tall else Triplets(near, S, far)


def orthonormal(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Nearly orthonormal columns made so, each on the side it was."""
    Q, R = torch.linalg.qr(columns)
    return Q * torch.where(R.diagonal() < 0, -1.0, 1.0)


def leading(W: Float[Tensor, "h d"] | Blocks, k: int, *, seed: int = 0, layer: str = "") -> Triplets:
    """The k largest triplets of a matrix: from its whole short side if that is small, else by block Lanczos.

    Lanczos works with products in float32 (float64 where W is stored so) to residuals of 1e-3·λ; its start is drawn from
    `torch_seed(seed, "leading", layer)`. Raises NonFinite.
    """
    if min(W.shape) <= _WHOLE_SIDE:
        return triplets(W, short_side(W), k)
    operator = GramOperator(W)
    if operator.scale == 0:
        return triplets(W, ShortSide(np.zeros(operator.n), torch.zeros(operator.n, 0).double(), operator.shape), 0)
    generator = torch.Generator().manual_seed(torch_seed(seed, "leading", layer))
    most = min(operator.n, max(8 * k, operator.n // 2, 512))
    found = largest_pairs(operator, operator.n, k, generator, tolerance=_TOLERANCE, most=most)
    evals = found.values.clamp_min(0).flip(0).numpy() * operator.divisor**2
    return triplets(W, ShortSide(evals, found.vectors, operator.shape), k)


def product(W: Float[Tensor, "h d"] | Blocks, V: Float[Tensor, "d k"]) -> Float[Tensor, "h k"]:
    """W·V in float64, rows of W widened a few at a time."""
    return torch.cat([part @ V for block in row_blocks(W) for part in _widened(block)])


def transposed_product(W: Float[Tensor, "h d"] | Blocks, U: Float[Tensor, "h k"]) -> Float[Tensor, "d k"]:
    """Wᵀ·U in float64, one pass over the rows of W."""
    out = torch.zeros(int(W.shape[1]), U.shape[1], dtype=torch.float64)
    begin = 0
    for block in row_blocks(W):
        for part in _widened(block):
            out += part.T @ U[begin : begin + len(part)]
            begin += len(part)
    return out


def _widened(block: Tensor) -> Iterator[Tensor]:
    step = max(1, (8 << 20) // (8 * block.shape[1]))
    for start in range(0, len(block), step):
        yield block[start : start + step].double()
