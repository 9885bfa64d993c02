"""The empirical spectral density: eigenvalues of the smaller Gram matrix, exact, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, NonFinite, NumericalFailure, ShapeMismatch

__all__ = ["BLOCK_BYTES", "ESD", "Blocks", "Normalise", "esd", "nonfinite"]

Normalise = Literal["none", "max", "trace", "mp"]

BLOCK_BYTES = 64 << 20
"""Size of a float64 row block: two of them bound the memory beside the Gram matrix."""


class Blocks(Protocol):
    """A matrix that is read row block by row block."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(h, d)."""
        ...

    def blocks(self, max_bytes: int) -> Iterator[Tensor]:
        """Row blocks, in order, each of at most max_bytes in its own dtype."""
        ...


@dataclass(frozen=True, slots=True)
class ESD:
    """A spectrum.

    `evals` are the squared singular values, float64, ascending, in the units that `normalise` names; of a stack of
    matrices those of all of them together. `shape` is (h, d) of one matrix, `count` their number, `scale` max|W|, `method`
    how they were computed, `error` the relative error that method has on the largest (small ones: see `esd`).
    """

    evals: Float[np.ndarray, "N"]
    shape: tuple[int, int]
    count: int
    scale: float
    method: str
    error: float
    normalise: Normalise = "none"

    @property
    def N(self) -> int:
        """Shorter side."""
        return min(self.shape)

    @property
    def M(self) -> int:
        """Longer side."""
        return max(self.shape)


def esd(
    W: Float[Tensor, "h d"] | Float[Tensor, "b h d"] | Float[np.ndarray, "h d"] | Blocks,
    *,
    normalise: Normalise = "none",
    precision: Literal["exact", "fast"] = "exact",
) -> ESD:
    """Squared singular values of W, ascending.

    W is a matrix, a stack of matrices of one shape (their eigenvalues are pooled), or an object that hands out row blocks.
    precision "exact": float64 Gram matrix of the smaller side, scaled by max|W|, then `torch.linalg.eigvalsh`; relative error
    1e-15·λ_max/λ, so that even the smallest eigenvalue of a Gaussian 1000 x 1000 matrix is good to 1e-9. "fast": singular
    values in float32, good for tails (2e-6) and useless for ranks.
    normalise: "none"; "max" λ/M; "trace" so that Σλ = N; "mp" λ/(M s²) with s² the mean square of the entries.

    Memory beside W: N²·8 twice, and two row blocks of 64 MiB. Raises NonFinite, ShapeMismatch, BadOption, and
    NumericalFailure where the eigenvalue routine does not converge.
    """
    if normalise not in ("none", "max", "trace", "mp"):
        raise BadOption("No such normalisation", value=normalise, allowed="none, max, trace, mp")
    if precision not in ("exact", "fast"):
        raise BadOption("No such precision", value=precision, allowed="exact, fast")
    if hasattr(W, "blocks") and not isinstance(W, Tensor | np.ndarray):
        shape, count, scale, evals, method = _streamed(W)
    else:
        shape, count, scale, evals, method = _held(torch.as_tensor(W).detach(), precision)
    evals = np.sort(np.maximum(evals, 0.0)) * scale**2
    n, m = min(shape), max(shape)
    total = float(evals.sum())
    if normalise == "max":
        evals = evals / m
    elif (normalise == "trace" and total > 0) or (normalise == "mp" and total > 0):
        evals = evals * (n * count / total)
    return ESD(evals, shape, count, scale, method, 2e-6 if precision == "fast" else 1e-15, normalise)


def nonfinite(W: Tensor | np.ndarray) -> tuple[int, tuple[int, ...] | None]:
    """How many entries are NaN or infinite, and the index of the first one."""
    W = torch.as_tensor(W)
    # The sum of finite entries can overflow, so it only clears a matrix, never condemns it; one pass instead of three.
    if math.isfinite(float(W.sum(dtype=torch.float64 if W.is_floating_point() else None).abs())):
        return 0, None
    bad = ~torch.isfinite(W)
    count = int(bad.sum())
    if count == 0:
        return 0, None
    return count, tuple(int(i) for i in np.unravel_index(int(bad.reshape(-1).int().argmax()), tuple(W.shape)))


def _held(W: Tensor, precision: str) -> tuple[tuple[int, int], int, float, np.ndarray, str]:
    if W.ndim not in (2, 3) or 0 in W.shape:
        raise ShapeMismatch(
            "A spectrum needs a matrix or a stack of matrices",
            value=tuple(W.shape),
            allowed="[h, d] or [b, h, d], no empty side",
        )
    stack = W if W.ndim == 3 else W.unsqueeze(0)
    shape, count = (int(stack.shape[1]), int(stack.shape[2])), len(stack)
    if stack.dtype in (torch.float16, torch.bfloat16):
        stack = stack.float()
    scale = _largest(stack)
    if not math.isfinite(scale):
        raise NonFinite(
            "The matrix holds NaN or infinite entries", value=tuple(W.shape), mend="Mend or leave out the tensor"
        )
    if scale == 0:
        return shape, count, 0.0, np.zeros(count * min(shape)), "zero"
    if precision == "fast":
        values = torch.linalg.svdvals((stack / scale).to(torch.complex64 if stack.is_complex() else torch.float32))
        return shape, count, scale, values.double().square().flatten().cpu().numpy(), "svdvals-float32"
    tall = stack if shape[0] >= shape[1] else stack.transpose(1, 2)
    # float32 squared never leaves float64's range, so only float64 entries are divided before they are squared.
    divisor = scale if stack.dtype in (torch.float64, torch.complex128) else 1.0
    evals = _eigenvalues(_gram(tall, divisor)) / (scale / divisor) ** 2
    return shape, count, scale, evals, "gram-float64"


def _largest(W: Tensor) -> float:
    if W.is_complex():
        return float(W.abs().max())
    low, high = torch.aminmax(W)
    return max(float(high), -float(low)) if math.isfinite(float(low)) else math.inf


def _gram(tall: Tensor, divisor: float) -> Tensor:
    """[b, n, n] float64 Gram matrices of [b, m, n], block of rows by block of rows."""
    b, m, n = tall.shape
    wide = torch.complex128 if tall.is_complex() else torch.float64
    step = max(1, BLOCK_BYTES // (n * (16 if tall.is_complex() else 8)))
    if b * m * n * 8 <= BLOCK_BYTES:
        block = tall.to(wide) if divisor == 1 else tall / divisor
        return torch.matmul(block.mH, block)
    gram = torch.zeros(b, n, n, dtype=wide, device=tall.device)
    for i in range(b):
        for start in range(0, m, step):
            block = tall[i, start : start + step].to(wide)
            block = block if divisor == 1 else block / divisor
            gram[i].addmm_(block.mH, block)
    return gram


def _eigenvalues(gram: Tensor) -> np.ndarray:
    try:
        return torch.linalg.eigvalsh(gram).flatten().cpu().numpy()
    except torch.linalg.LinAlgError as error:
        raise NumericalFailure(f"eigenvalues did not converge: {error}") from error


def _streamed(W: Blocks) -> tuple[tuple[int, int], int, float, np.ndarray, str]:
    """Two passes over row blocks: the scale, then the Gram matrix; each block is dropped before the next is read."""
    h, d = (int(side) for side in W.shape)
    scale = 0.0
    for block in W.blocks(BLOCK_BYTES // 2):
        scale = max(scale, float(block.float().abs().max() if block.dtype != torch.float64 else block.abs().max()))
        if not math.isfinite(scale):
            raise NonFinite(
                "The matrix holds NaN or infinite entries", value=(h, d), mend="Mend or leave out the tensor"
            )
    if scale == 0:
        return (h, d), 1, 0.0, np.zeros(min(h, d)), "zero"
    gram = _streamed_tall(W, d, scale) if h >= d else _streamed_wide(W, h, d, scale)
    return (h, d), 1, scale, _eigenvalues(gram.unsqueeze(0)), "gram-float64-streamed"


def _streamed_tall(W: Blocks, d: int, scale: float) -> Tensor:
    gram = torch.zeros(d, d, dtype=torch.float64)
    for block in W.blocks(BLOCK_BYTES // 2):
        step = max(1, BLOCK_BYTES // (8 * d))
        for start in range(0, len(block), step):
            part = block[start : start + step].double() / scale
            gram.addmm_(part.T, part)
    return gram


def _streamed_wide(W: Blocks, h: int, d: int, scale: float) -> Tensor:
    """W Wᵀ by pairs of row blocks: the inner reading is repeated, once per outer block."""
    gram = torch.zeros(h, h, dtype=torch.float64)
    begin = 0
    for outer in W.blocks(BLOCK_BYTES // 4):
        left = outer.double() / scale
        other = 0
        for inner in W.blocks(BLOCK_BYTES // 4):
            if other > begin:
                break
            right = inner.double() / scale
            product = left @ right.T
            gram[begin : begin + len(left), other : other + len(right)] = product
            gram[other : other + len(right), begin : begin + len(left)] = product.T
            other += len(right)
        begin += len(left)
    return gram
