"""From whole tensors to matrices: convolutions, composed weights, parts of fused tensors. All picklable, all pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from querist.weights.spectrum._lora import lora_matrix

__all__ = ["Composed", "Flatten", "Interleaved", "LoraProduct", "Operator", "Slices", "Sub"]

_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A convolution's weight: [out, in, k…], transposed [in, out, k…]; `group` of `groups` where grouped."""

    transposed: bool = False
    group: int = 0
    groups: int = 1

    def kernel(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "out in *k"]:
        """The weight of one group, outputs first."""
        weight = tensors[0]
        size = weight.shape[0] // self.groups
        part = weight[self.group * size : (self.group + 1) * size]
        return part.transpose(0, 1) if self.transposed else part


@dataclass(frozen=True, slots=True)
class Flatten(_Kernel):
    """out x (in·k…)."""

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "out in*k"]:
        return self.kernel(tensors).flatten(1)


@dataclass(frozen=True, slots=True)
class Slices(_Kernel):
    """One out x in matrix per kernel position: [k…, out, in]."""

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "k out in"]:
        return self.kernel(tensors).flatten(2).permute(2, 0, 1).contiguous()


@dataclass(frozen=True, slots=True)
class Operator(_Kernel):
    """The circular convolution on a grid: one complex out x in matrix per frequency.

    Together their singular values are those of the whole prod(grid)·out x prod(grid)·in operator. Its stride is taken as
    1. A kernel longer than the grid wraps around, as the operator does.

    Source: Sedghi, Gupta & Long, "The singular values of convolutional layers" (ICLR 2019). We form the frequencies by one
    product with the kernel's few positions, a bounded number at a time, and only one of each conjugate pair.
    """

    grid: tuple[int, ...] = ()

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "f out in"]:
        """All frequencies, axis 0 in the order of the grid: prod(grid)·out·in complex numbers."""
        return _transform(self.kernel(tensors), self.grid, _frequencies(self.grid))

    def pieces(self, kernel: Float[Tensor, "out in *k"]) -> Iterator[tuple[Tensor, Tensor]]:
        """Stacks of frequencies with the multiplicity of each: 2 for those whose conjugate is left out, else 1."""
        index = _frequencies(self.grid)
        sides = torch.tensor(self.grid)
        steps = torch.tensor([math.prod(self.grid[i + 1 :]) for i in range(len(self.grid))])
        own, other = (index * steps).sum(1), ((-index % sides) * steps).sum(1)
        index, weight = index[own <= other], 1 + (own < other).long()[own <= other]
        step = max(1, _PIECE_BYTES // (16 * kernel.shape[0] * kernel.shape[1]))
        for start in range(0, len(index), step):
            yield _transform(kernel, self.grid, index[start : start + step]), weight[start : start + step]


def _frequencies(grid: tuple[int, ...]) -> Tensor:
    return torch.cartesian_prod(*(torch.arange(side) for side in grid)).reshape(-1, len(grid))


def _transform(kernel: Tensor, grid: tuple[int, ...], index: Tensor) -> Tensor:
    """Σ_x kernel[…, x]·exp(−2πi Σ_a f_a x_a/n_a) for each frequency f."""
    positions = torch.cartesian_prod(*(torch.arange(side) for side in kernel.shape[2:])).reshape(-1, len(grid))
    turns = torch.zeros(len(index), len(positions), dtype=torch.float64)
    for axis, side in enumerate(grid):
        # Whole numbers modulo the grid before they become angles: exact however large f·x is.
        turns += ((index[:, axis : axis + 1] * positions[:, axis]) % side).double() / side
    angle = -2 * math.pi * turns
    flat = kernel.double().flatten(2).flatten(0, 1).T
    shape = (len(index), *kernel.shape[:2])
    return torch.complex((torch.cos(angle) @ flat).reshape(shape), (torch.sin(angle) @ flat).reshape(shape))


@dataclass(frozen=True, slots=True)
class Sub:
    """One matrix inside a tensor: index the leading axes, then a range along the axis that stacks parts."""

    lead: tuple[int, ...] = ()
    axis: int = 0
    start: int = 0
    stop: int | None = None

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "h d"]:
        matrix = tensors[0][self.lead] if self.lead else tensors[0]
        stop = matrix.shape[self.axis] if self.stop is None else self.stop
        return matrix.narrow(self.axis, self.start, stop - self.start)


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Rows stacked as `groups` times (`each` heads of equal size): heads start to stop of every group."""

    groups: int
    each: int
    start: int
    stop: int

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "h d"]:
        weight = tensors[0]
        heads = weight.reshape(self.groups, self.each, -1, weight.shape[-1])
        return heads[:, self.start : self.stop].reshape(-1, weight.shape[-1])


@dataclass(frozen=True, slots=True)
class Composed:
    """Weight normalisation of (g, v): g·v/‖v‖, the norm over every axis but `dim` (over all where dim is None), in v's dtype."""

    dim: int | None = 0
    then: Any = None

    def weight(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """The composed tensor."""
        g, v = (tensor.double() for tensor in tensors)
        if self.dim is None:
            norm = v.norm()
        else:
            axes = tuple(axis for axis in range(v.ndim) if axis != self.dim % v.ndim)
            norm = torch.linalg.vector_norm(v, dim=axes, keepdim=True)
            g = g.reshape(norm.shape)
        return (v * (g / norm)).to(tensors[1].dtype)

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        weight = self.weight(tensors)
        return weight if self.then is None else self.then((weight,))

    def kernel(self, tensors: tuple[Tensor, ...]) -> Tensor:
        """The composed kernel of a convolution."""
        return self.then.kernel((self.weight(tensors),))

    def pieces(self, kernel: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Frequencies of a convolution operator."""
        return self.then.pieces(kernel)


@dataclass(frozen=True, slots=True)
class LoraProduct:
    """A low-rank pair (A, B), or (A, B, alpha), as the core of its update; `scale` where there is no alpha tensor."""

    scale: float = 1.0

    def __call__(self, tensors: tuple[Tensor, ...]) -> Float[Tensor, "r r"]:
        a, b, *alpha = tensors
        return lora_matrix(a, b, float(alpha[0]) / a.shape[0] if alpha else self.scale)
