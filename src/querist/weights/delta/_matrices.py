"""Differences and sums of two matrices that are read row block by row block, at most two blocks of each at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from querist.weights.spectrum import Blocks, row_blocks

__all__ = ["Difference", "Remainder", "frobenius", "inner", "subtracted"]


def subtracted(tuned: Float[Tensor, "..."], base: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """TUNED − BASE in float32, in float64 where one of them is stored so.

    Numbers of 16 bits and of float32 within a factor of two of each other are subtracted without any rounding.
    """
    wide = torch.float64 if torch.float64 in (tuned.dtype, base.dtype) else torch.float32
    return tuned.to(wide) - base.to(wide)


@dataclass(frozen=True)
class Difference:
    """TUNED − BASE of one shape [h, d] as row blocks, nothing held."""

    base: Blocks
    tuned: Blocks

    @property
    def shape(self) -> tuple[int, ...]:
        """(h, d)."""
        return self.base.shape

    def blocks(self, max_bytes: int) -> Iterator[Tensor]:
        """Row blocks of at most max_bytes, in order."""
        half = max(1, max_bytes // 2)
        for base, tuned in _together(self.base.blocks(half), self.tuned.blocks(half)):
            yield subtracted(tuned, base)


@dataclass(frozen=True)
class Remainder:
    """D − factor·W of one shape [h, d] as row blocks, nothing held beside D and W."""

    D: Tensor | Blocks
    W: Tensor | Blocks
    factor: float

    @property
    def shape(self) -> tuple[int, ...]:
        """(h, d)."""
        return tuple(self.D.shape)

    def blocks(self, max_bytes: int) -> Iterator[Tensor]:
        """Row blocks, in order."""
        for one, other in _together(row_blocks(self.D), row_blocks(self.W)):
            step = max(1, max_bytes // (8 * one.shape[1]))
            for part, share in zip(one.split(step), other.split(step), strict=True):
                yield part - self.factor * share.to(part.dtype)


def _together(first: Iterator[Tensor], second: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of two matrices in blocks of equal height, whatever the heights in which they come."""
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        rows = min(len(one), len(other))
        yield one[:rows], other[:rows]
        one = one[rows:] if rows < len(one) else next(first, None)
        other = other[rows:] if rows < len(other) else next(second, None)


def frobenius(W: Float[Tensor, "h d"] | Blocks) -> float:
    """‖W‖_F, summed in float64."""
    total = 0.0
    for block in row_blocks(W):
        step = max(1, (4 << 20) // max(1, block.shape[-1]))
        total += sum(float(part.double().square().sum()) for part in block.split(step))
    return total**0.5


def inner(W: Float[Tensor, "h d"] | Blocks, D: Float[Tensor, "h d"] | Blocks) -> float:
    """⟨W, D⟩_F, summed in float64."""
    total = 0.0
    for one, other in _together(row_blocks(W), row_blocks(D)):
        step = max(1, (4 << 20) // max(1, one.shape[-1]))
        pieces = zip(one.split(step), other.split(step), strict=True)
        total += sum(float((a.double() * b.double()).sum()) for a, b in pieces)
    return total
