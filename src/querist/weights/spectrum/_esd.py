"""The empirical spectral density: eigenvalues of the smaller Gram matrix, exact, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, BadValues, NonFinite, NumericalFailure, ShapeMismatch
from querist.weights.spectrum._gram import add_gram, cross_gram, gram, largest, power_of_two

__all__ = ["BLOCK_BYTES", "ESD", "Blocks", "Normalise", "as_matrix", "esd", "nonfinite", "pooled_pieces"]

Normalise = Literal["none", "max", "trace", "mp"]

BLOCK_BYTES = 64 << 20
"""The most of a streamed matrix that is held at a time, in the source's own format; two such blocks for a wide one."""

_FAST_ERROR = 2e-6


class Blocks(Protocol):
    """A matrix that is read row block by row block.

    A `LayerMatrix` is one. Of an object that also has `load() -> Tensor` whatever fits in the memory that the eigenvalue
    routine needs anyway is read whole; `count` (matrices in a stack), `pieces` (of a
    convolution operator) and `low_rank` (load() gives the core, the other eigenvalues are exactly 0) are heeded where present.
    """

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
    matrices those of all of them together. `shape` is (h, d) of one matrix, `count` their number, `scale` max|W|,
    `method` how they were computed ("gram-float64", "gram-float64-streamed", "svdvals-float32: ranks masked",
    "low-rank-core", "zero"), `error` the relative error of the largest (for small ones see `esd`).
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
    variance: float | None = None,
) -> ESD:
    """Squared singular values of W, ascending.

    W is a matrix [h, d], a stack [b, h, d] of one shape (its eigenvalues are pooled), or an object that hands out row
    blocks. It is not changed.

    precision "exact": float64 Gram matrix of the smaller side, then `torch.linalg.eigvalsh`. The absolute error is about
    1e-16·λ_max on every eigenvalue, so the smallest one of a Gaussian 1000 x 1000 matrix is good to 1e-9 (a float32 Gram
    matrix: 41 %). "fast": singular values in float32, good for tails (2e-6) and useless for ranks, which is what `method`
    then says; it needs the matrix whole.

    normalise: "none"; "max" λ/M; "trace" so that Σλ = N; "mp" λ/(M s²), s² being `variance` where given (such as that of
    a fitted bulk), else the mean square of the entries.

    Memory beside W: N²·8 bytes twice. A streamed W adds at most the larger of N²·8 bytes and two blocks of 64 MiB,
    released before the eigenvalues are computed. Raises NonFinite, ShapeMismatch, BadOption; BadValues where λ leaves
    float64's range; NumericalFailure where the eigenvalue routine does not converge.

    Source: Gram route as in any LAPACK-based package; the half product, exact scaling by a power of two and the bound on
    memory are ours.
    """
    _check(normalise, precision, variance)
    if isinstance(W, Tensor | np.ndarray):
        found = _held(as_matrix(W), precision)
    elif getattr(W, "low_rank", False):
        found = _low_rank(W)
    elif (pieces := _pieces(W)) is not None:
        return _rescaled(pooled_pieces(pieces, W.shape, precision), normalise, variance)
    elif precision == "fast" or _read_whole(W):
        found = _held(as_matrix(W.load()), precision)  # type: ignore[attr-defined]
    else:
        found = _streamed(W)
    return _rescaled(_finished(found), normalise, variance)


def _check(normalise: str, precision: str, variance: float | None) -> None:
    if normalise not in ("none", "max", "trace", "mp"):
        raise BadOption("No such normalisation", value=normalise, allowed="none, max, trace, mp")
    if precision not in ("exact", "fast"):
        raise BadOption("No such precision", value=precision, allowed="exact, fast")
    if variance is not None and not (normalise == "mp" and 0 < variance < math.inf):
        raise BadOption("`variance` is the entry variance of normalise=mp", value=variance, allowed="a positive number")


@dataclass(frozen=True, slots=True)
class _Found:
    """Eigenvalues before they are sorted and scaled: those of W/divisor."""

    shape: tuple[int, int]
    count: int
    scale: float
    divisor: float
    evals: np.ndarray
    method: str


def pooled_pieces(
    pieces: Iterator[tuple[Tensor, Tensor]], shape: tuple[int, ...], precision: Literal["exact", "fast"] = "exact"
) -> ESD:
    """Unnormalised spectrum of a stack that comes piece by piece, each matrix with its multiplicity."""
    parts, scale, method = [np.empty(0)], 0.0, "zero"
    for stack, weight in pieces:
        found = _held(stack, precision)
        values = np.repeat(found.evals.reshape(len(stack), -1), weight.numpy(), axis=0)
        parts.append(_finished(replace(found, evals=values.ravel())).evals)
        scale, method = max(scale, found.scale), found.method if found.scale else method
    evals = np.sort(np.concatenate(parts))
    h, d = (int(side) for side in shape)
    return ESD(evals, (h, d), evals.size // min(h, d), scale, method, _error(method))


def _pieces(W: Blocks) -> Iterator[tuple[Tensor, Tensor]] | None:
    return W.pieces() if hasattr(W, "pieces") else None  # type: ignore[attr-defined]


def _error(method: str) -> float:
    return _FAST_ERROR if method.startswith("svdvals") else 4 * float(np.finfo(np.float64).eps)


def _finished(found: _Found) -> ESD:
    # Sorting is never left to a routine: one that returns its values in another order must change nothing.
    evals = np.sort(np.maximum(found.evals, 0.0))
    with np.errstate(over="ignore", under="ignore"):
        evals = evals * found.divisor * found.divisor
    if found.scale > 0 and not (np.finfo(np.float64).tiny <= evals[-1] < np.inf):
        raise BadValues(
            "The squared singular values leave the range of float64",
            value=f"max|W| = {found.scale:.3g}",
            mend="Multiply the matrix by a constant that brings its entries near 1",
        )
    return ESD(evals, found.shape, found.count, found.scale, found.method, _error(found.method))


def _rescaled(spectrum: ESD, normalise: Normalise, variance: float | None) -> ESD:
    n, m = spectrum.N, spectrum.M
    evals, total = spectrum.evals, float(spectrum.evals.sum())
    if normalise == "max":
        evals = evals / m
    elif normalise == "mp" and variance is not None:
        evals = evals / (m * variance)
    elif normalise != "none" and total > 0:
        evals = evals * (n * spectrum.count / total)  # the mean square of the entries is total / (count·N·M)
    return replace(spectrum, evals=evals, normalise=normalise)


def as_matrix(W: Tensor | np.ndarray) -> Tensor:
    """W as a detached tensor that shares its memory where torch can take it. Raises ShapeMismatch unless 2-D or 3-D."""
    if isinstance(W, np.ndarray):
        array = W.astype(W.dtype.newbyteorder("="), copy=False)
        if any(step < 0 or step % array.itemsize for step in array.strides) or not array.flags.writeable:
            array = array.copy()
        W = torch.from_numpy(array)
    if W.ndim not in (2, 3) or 0 in W.shape:
        raise ShapeMismatch(
            "A spectrum needs a matrix or a stack of matrices",
            value=tuple(W.shape),
            allowed="[h, d] or [b, h, d], no empty side",
        )
    return W.detach()


def nonfinite(W: Tensor | np.ndarray | Blocks) -> tuple[int, tuple[int, ...] | None]:
    """How many entries are NaN or infinite, and the index of the first one (None where there is none)."""
    if isinstance(W, Tensor | np.ndarray):
        return _nonfinite(torch.as_tensor(W))
    count, first, begin = 0, None, 0
    for block in W.blocks(BLOCK_BYTES):
        more, index = _nonfinite(block)
        if first is None and index is not None:
            # Whatever comes in pieces is a matrix: a stack is handed out as matrices, one below the other.
            first = (begin + index[0], *index[1:])
        count += more
        begin += len(block)
    return count, first


def _nonfinite(W: Tensor) -> tuple[int, tuple[int, ...] | None]:
    if not (W.is_floating_point() or W.is_complex()) or not W.numel():
        return 0, None
    if W.dtype.itemsize == 1:
        W = W.float()
    if math.isfinite(largest(W)):  # one pass instead of the three below
        return 0, None
    bad = ~torch.isfinite(W)
    first = int(bad.reshape(-1).to(torch.uint8).argmax())
    return int(bad.sum()), tuple(int(i) for i in np.unravel_index(first, tuple(W.shape)))


def _held(W: Tensor, precision: str) -> _Found:
    stack = W if W.ndim == 3 else W.unsqueeze(0)
    if not (stack.is_floating_point() or stack.is_complex()):
        stack = stack.double()
    elif stack.dtype.itemsize == 1:
        stack = stack.float()
    shape, count = (int(stack.shape[1]), int(stack.shape[2])), len(stack)
    scale = largest(stack)
    if not math.isfinite(scale):
        raise _damaged(W)
    if scale == 0:
        return _zero(shape, count)
    divisor = _divisor(stack.dtype, scale)
    if precision == "fast":
        narrow = torch.complex64 if stack.is_complex() else torch.float32
        divisor = power_of_two(scale)
        values = torch.linalg.svdvals((stack.double() if stack.element_size() == 8 else stack).div(divisor).to(narrow))
        evals = values.double().square().flatten().cpu().numpy()
        return _Found(shape, count, scale, divisor, evals, "svdvals-float32: ranks masked")
    tall = stack if shape[0] >= shape[1] else stack.mT
    step = max(1, BLOCK_BYTES // (min(shape) ** 2 * 16))
    if count <= step:
        grams = gram(tall, divisor)
        del W, stack, tall  # what was read for this call is freed before the routine takes its own N²·8 bytes
        return _Found(shape, count, scale, divisor, _eigenvalues(grams), "gram-float64")
    parts = [_eigenvalues(gram(tall[i : i + step], divisor)) for i in range(0, count, step)]
    return _Found(shape, count, scale, divisor, np.concatenate(parts), "gram-float64")


def _divisor(dtype: torch.dtype, scale: float) -> float:
    """1 where squares cannot leave float64's range: float32 and shorter formats end at 3e38."""
    return power_of_two(scale) if dtype in (torch.float64, torch.complex128) else 1.0


def _zero(shape: tuple[int, int], count: int) -> _Found:
    return _Found(shape, count, 0.0, 1.0, np.zeros(count * min(shape)), "zero")


def _damaged(W: Tensor | Blocks) -> NonFinite:
    count, index = nonfinite(W)
    where = ", ".join(map(str, index or ()))
    return NonFinite(
        f"{count} entries are NaN or infinite, the first at ({where})",
        value=f"shape {tuple(W.shape)}",
        mend="Mend the matrix or leave it out",
    )


def _eigenvalues(grams: Tensor) -> np.ndarray:
    """Eigenvalues of [b, n, n] from their lower triangles, flat."""
    try:
        return torch.linalg.eigvalsh(grams, UPLO="L").flatten().cpu().numpy()
    except torch.linalg.LinAlgError as error:
        raise NumericalFailure(f"the eigenvalues did not converge: {error}") from error


def _low_rank(W: Blocks) -> _Found:
    """A matrix known by its r x r core: r singular values, the others zero."""
    core = W.load().double()  # type: ignore[attr-defined]
    scale = largest(core)
    if not math.isfinite(scale):
        raise _damaged(core)
    h, d = (int(side) for side in W.shape)
    if scale == 0:
        return _zero((h, d), 1)
    divisor = power_of_two(scale)
    values = torch.linalg.svdvals(core / divisor).square().numpy()
    zeros = np.zeros(min(h, d) - len(values))
    return _Found((h, d), 1, scale, divisor, np.concatenate([zeros, values]), "low-rank-core")


def _read_whole(W: Blocks) -> bool:
    """Whether W is read at once: it cannot be streamed, or is no larger than what the eigenvalue routine needs later."""
    if not hasattr(W, "load"):
        return False
    if not getattr(W, "streams", True) or getattr(W, "count", 1) > 1:
        return True
    h, d = W.shape
    item = 8 if getattr(W, "dtype", "") == "float64" else 4
    return item * h * d <= max(8 * min(h, d) ** 2, BLOCK_BYTES)


def _streamed(W: Blocks) -> _Found:
    """One pass over row blocks (a wide matrix: over pairs of them), each dropped before the next is read."""
    h, d = (int(side) for side in W.shape)
    scale, wide = 0.0, False
    if h < d or _first_dtype(W) == torch.float64:
        for block in W.blocks(BLOCK_BYTES):
            scale, wide = max(scale, largest(block)), block.dtype == torch.float64
    divisor = power_of_two(scale) if wide and math.isfinite(scale) else 1.0
    if h < d:
        out = cross_gram(lambda: W.blocks(BLOCK_BYTES), h, divisor) if math.isfinite(scale) else None
    else:
        out = torch.zeros(d, d, dtype=torch.float64)
        for block in W.blocks(BLOCK_BYTES):
            scale = max(scale, largest(block))
            if not math.isfinite(scale):
                break
            add_gram(out, block, divisor)
    if out is None or not math.isfinite(scale):
        raise _damaged(W)
    if scale == 0:
        return _zero((h, d), 1)
    return _Found((h, d), 1, scale, divisor, _eigenvalues(out.unsqueeze(0)), "gram-float64-streamed")


def _first_dtype(W: Blocks) -> torch.dtype:
    return next(iter(W.blocks(1 << 12))).dtype
