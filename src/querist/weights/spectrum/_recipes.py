"""From whole tensors to matrices: convolutions, composed weights, slices of fused tensors. All picklable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from querist.weights.spectrum._lora import lora_matrix

__all__ = ["Composed", "Flatten", "LoraProduct", "Operator", "Slices", "Sub"]


@dataclass(frozen=True, slots=True)
class Flatten:
    """A convolution [out, in, k…] (or transposed [in, out, k…]) as out x (in·k…); `group` of `groups` where grouped."""

    transposed: bool = False
    group: int = 0
    groups: int = 1

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        kernel = _oriented(tensors[0], self)
        return kernel.reshape(kernel.shape[0], -1)


@dataclass(frozen=True, slots=True)
class Slices:
    """One out x in matrix per kernel position: [k…, out, in]."""

    transposed: bool = False
    group: int = 0
    groups: int = 1

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        kernel = _oriented(tensors[0], self)
        return kernel.flatten(2).permute(2, 0, 1).contiguous()


@dataclass(frozen=True, slots=True)
class Operator:
    """The circular convolution on a grid: one complex out x in matrix per frequency, [prod(grid), out, in].

    Its singular values, all frequencies together, are those of the whole operator. Source: Sedghi, Gupta & Long (2019).
    """

    grid: tuple[int, ...]
    transposed: bool = False
    group: int = 0
    groups: int = 1

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        kernel = _oriented(tensors[0], self)
        axes = tuple(range(2, kernel.ndim))
        # A kernel longer than the grid wraps around, as the circular operator does.
        folded = kernel.double()
        for axis, size in zip(axes, self.grid, strict=True):
            folded = _wrapped(folded, axis, size)
        return torch.fft.fftn(folded, s=self.grid, dim=axes).flatten(2).permute(2, 0, 1).contiguous()


def _wrapped(kernel: Tensor, axis: int, size: int) -> Tensor:
    if kernel.shape[axis] <= size:
        return kernel
    parts = kernel.split(size, dim=axis)
    out = torch.zeros_like(parts[0])
    for part in parts:
        out.narrow(axis, 0, part.shape[axis]).add_(part)
    return out


def _oriented(kernel: Tensor, rule: Flatten | Slices | Operator) -> Tensor:
    """[out, in, k…] of one group."""
    if rule.transposed:
        inputs = kernel.shape[0] // rule.groups
        return kernel[rule.group * inputs : (rule.group + 1) * inputs].transpose(0, 1)
    outputs = kernel.shape[0] // rule.groups
    return kernel[rule.group * outputs : (rule.group + 1) * outputs]


@dataclass(frozen=True, slots=True)
class Sub:
    """One matrix inside a tensor: index the leading axes, then a range along the axis that stacks parts."""

    lead: tuple[int, ...] = ()
    axis: int = 0
    start: int = 0
    stop: int | None = None

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        tensor = tensors[0]
        for index in self.lead:
            tensor = tensor[index]
        stop = tensor.shape[self.axis] if self.stop is None else self.stop
        return tensor.narrow(self.axis, self.start, stop - self.start).reshape(-1, tensor.shape[-1])


@dataclass(frozen=True, slots=True)
class Composed:
    """Weight normalisation: g·v/‖v‖, the norm over every axis but `dim` (over all of them where dim is None)."""

    dim: int | None = 0
    then: Flatten | Slices | Operator | Sub | None = None

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        g, v = (tensor.double() for tensor in tensors)
        if self.dim is None:
            weight = v * (g / v.norm())
        else:
            axes = tuple(axis for axis in range(v.ndim) if axis != self.dim % v.ndim)
            weight = v * (g / torch.linalg.vector_norm(v, dim=axes, keepdim=True))
        weight = weight.to(tensors[1].dtype)
        return self.then((weight,)) if self.then is not None else weight.reshape(weight.shape[0], -1)


@dataclass(frozen=True, slots=True)
class LoraProduct:
    """A low-rank pair as the r x r core of its update: the same singular values as scale·B·A, which is never formed."""

    scale: float = 1.0

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        a, b = tensors
        return lora_matrix(a, b, self.scale)
