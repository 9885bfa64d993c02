"""WᵀW of the shorter side as a product with vectors: never formed, W read block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import NonFinite, ShapeMismatch
from querist.weights.spectrum._esd import BLOCK_BYTES, Blocks, as_matrix, nonfinite
from querist.weights.spectrum._gram import largest, power_of_two

__all__ = ["GramOperator"]

_CHUNK_BYTES = 8 << 20
"""A block is multiplied twice in a row; 8 MiB of it are still in cache the second time."""
_SAFE = 1e9
"""Entries within 1e±9 can be squared and summed in float32 as they are."""


class GramOperator:
    """V ↦ (W/divisor)ᵀ(W/divisor)·V of the shorter side, for a matrix in memory or in row blocks.

    `n` is the shorter side, `scale` max|W|, `total` ‖W/divisor‖_F². Products are made in float32 where W is stored in 32
    bits or fewer, and in float64 with `exact=True`. A streamed matrix is read once a product, a wide one twice. Raises
    ShapeMismatch for a stack, NonFinite.
    """

    def __init__(self, W: Tensor | np.ndarray | Blocks):
        self.source: Any = as_matrix(W) if isinstance(W, Tensor | np.ndarray) else W
        if len(self.source.shape) != 2:
            raise ShapeMismatch("One matrix is needed", value=tuple(self.source.shape), allowed="[h, d]")
        if isinstance(self.source, Tensor) and not self.source.is_floating_point():
            self.source = self.source.double()
        h, d = (int(side) for side in self.source.shape)
        self.shape, self.n, self.wide, scale = (h, d), min(h, d), False, 0.0
        for _, block in self._rows():
            scale = max(scale, largest(block))
            self.wide = self.wide or block.dtype == torch.float64
        if not math.isfinite(scale):
            count, index = nonfinite(W)
            where = ", ".join(map(str, index or ()))
            raise NonFinite(f"{count} entries are NaN or infinite, the first at ({where})", value=f"shape {(h, d)}")
        self.scale = scale
        self.divisor = 1.0 if scale == 0 or 1 / _SAFE < scale < _SAFE else power_of_two(scale)
        self.total = 0.0
        for _, block in self._rows():
            for part in self._parts(block, torch.float64):
                self.total += float(part.square().sum())

    def __call__(self, V: Float[Tensor, "n b"], *, exact: bool = False) -> Float[Tensor, "n b"]:
        """The product with V, float64 whatever the arithmetic inside."""
        dtype = torch.float64 if exact or self.wide else torch.float32
        narrow = V.to(dtype)
        h, d = self.shape
        if h >= d:
            out = torch.zeros_like(V)
            for _, block in self._rows():
                for part in self._parts(block, dtype):
                    out += part.T @ (part @ narrow)
            return out
        if isinstance(self.source, Tensor):
            out = torch.zeros_like(V)
            step = max(1, _CHUNK_BYTES // (h * dtype.itemsize))
            for start in range(0, d, step):
                part = self._part(self.source[:, start : start + step], dtype)
                out += part @ (part.T @ narrow)
            return out
        inner = torch.zeros(d, V.shape[1], dtype=dtype)
        for begin, block in self._rows():
            inner += self._part(block, dtype).T @ narrow[begin : begin + len(block)]
        return torch.cat([self._part(block, dtype) @ inner for _, block in self._rows()]).double()

    def _rows(self) -> Iterator[tuple[int, Tensor]]:
        if isinstance(self.source, Tensor):
            yield 0, self.source
            return
        begin = 0
        for block in self.source.blocks(BLOCK_BYTES):
            yield begin, block
            begin += len(block)

    def _parts(self, block: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
        step = max(1, _CHUNK_BYTES // (self.shape[1] * dtype.itemsize))
        for start in range(0, len(block), step):
            yield self._part(block[start : start + step], dtype)

    def _part(self, block: Tensor, dtype: torch.dtype) -> Tensor:
        return block.to(dtype) if self.divisor == 1 else (block.double() / self.divisor).to(dtype)
