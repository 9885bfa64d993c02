"""The layer matrix: what of a tensor is one matrix (or a stack that is pooled), read when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from querist.sources.tensors.ref import TensorRef
from querist.weights.spectrum._esd import esd, pooled_pieces

__all__ = ["LayerMatrix", "Recipe"]

Recipe = Callable[[tuple[Tensor, ...]], Tensor]
"""Whole tensors to one matrix [h, d] or stack [count, h, d]: one of the small frozen dataclasses of `_recipes`."""


@dataclass(frozen=True, slots=True)
class LayerMatrix:
    """One row of a scan: picklable where its refs are, and nothing is read before `load` or `blocks`.

    layer_id: the tensor's name and, where a tensor holds several matrices, `:part`; unique within a source. `tensor_shape`
    is that of the tensor in the source, `shape` (h, d) of one matrix, `count` how many are pooled. `rows` is the range of
    axis 0 that holds this matrix where it is a plain slice of rows, so that nothing else is read; otherwise `recipe` makes
    it from whole tensors. `zeros` counts eigenvalues that are exactly 0 by construction: a low-rank pair has
    min(h, d) - r of them, and `load` gives its r x r core. `scale` is the factor lora_alpha/r it was composed with.
    """

    layer_id: str
    name: str
    kind: str
    part: str
    tensor_shape: tuple[int, ...]
    shape: tuple[int, int]
    dtype: str
    refs: tuple[TensorRef, ...]
    aliases: tuple[str, ...] = ()
    count: int = 1
    conv: str = ""
    rows: tuple[int, int] | None = None
    recipe: Any = None
    zeros: int = 0
    scale: float = 1.0

    @property
    def streams(self) -> bool:
        """Whether `blocks` reads row blocks without the whole tensor."""
        return self.recipe is None and self.count == 1

    @property
    def low_rank(self) -> bool:
        """Whether this is a pair known by its core."""
        return self.kind == "lora"

    @property
    def resampled(self) -> bool:
        """Whether copies with resampled entries are a null of it: not of a low-rank pair, whose core has no free entries."""
        return not self.low_rank

    @property
    def independent(self) -> int:
        """How many independent matrices noise in the tensor would make of these `count`.

        All, but for a convolution operator: its matrices, one a frequency, are combinations of the kernel's few positions.
        """
        return min(self.count, math.prod(self.tensor_shape[2:])) if self.conv == "operator" else self.count

    def load(self) -> Float[Tensor, "h d"] | Float[Tensor, "count h d"]:
        """The matrix [h, d], or the stack [count, h, d]; of an operator complex. Do not change it: it may be shared memory."""
        if self.recipe is not None:
            return self.recipe(tuple(ref.load() for ref in self.refs))
        ref = self.refs[0]
        start, stop = self.rows or (0, ref.shape[0])
        whole = ref.load() if (start, stop) == (0, ref.shape[0]) else ref.rows(start, stop)
        return whole.reshape(self.shape)

    def entries(self) -> Tensor:
        """The numbers that a null resamples, all together: the kernel [out, in, k…] of an operator, else `load()`."""
        if self.conv == "operator":
            return self.recipe.kernel(tuple(ref.load() for ref in self.refs))
        return self.load()

    def spectrum(self, entries: Tensor, *, precision: Literal["exact", "fast"] = "exact") -> Float[np.ndarray, "N"]:
        """Eigenvalues, ascending, of the matrix with these entries (such as a resampled copy of `entries()`)."""
        if self.conv == "operator":
            return pooled_pieces(self.recipe.pieces(entries), self.shape, precision).evals
        return esd(entries, precision=precision).evals

    def pieces(self) -> Iterator[tuple[Tensor, Tensor]] | None:
        """Of a convolution operator: stacks of its matrices and the multiplicity of each. None for any other."""
        return self.recipe.pieces(self.entries()) if self.conv == "operator" else None

    def blocks(self, max_bytes: int) -> Iterator[Float[Tensor, "b d"]]:
        """Row blocks of at most max_bytes each, in order, read one at a time where the source allows.

        Of a stack the rows of all its matrices, one below the other.
        """
        h, d = self.shape
        if self.streams:
            ref = self.refs[0]
            start, stop = self.rows or (0, ref.shape[0])
            width = h * d // max(stop - start, 1) * (8 if self.dtype == "float64" else 4)
            step = max(1, max_bytes // max(width, 1))
            read = (ref.rows(begin, min(begin + step, stop)).reshape(-1, d) for begin in range(start, stop, step))
        else:
            matrix = self.load()
            read = iter((matrix.reshape(-1, matrix.shape[-1]),))
        for block in read:
            # One index of axis 0 can be a whole matrix (an expert): it is read at once and handed out in pieces.
            yield from block.split(max(1, max_bytes // (block.shape[1] * block.element_size())))
