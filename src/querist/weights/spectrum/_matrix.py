"""The layer matrix: what of a tensor is one matrix (or a stack that is pooled), read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from querist.sources.tensors.ref import TensorRef

__all__ = ["LayerMatrix", "Recipe"]

Recipe = Callable[[tuple[Tensor, ...]], Tensor]
"""Whole tensors to one matrix [h, d] or stack [count, h, d]. A module-level function or a small frozen dataclass."""


@dataclass(frozen=True, slots=True)
class LayerMatrix:
    """One row of a scan.

    layer_id: the tensor's name and, where a tensor holds several matrices, `:part`. `tensor_shape` is that of the tensor in
    the source, `shape` (h, d) of one matrix, `count` how many are pooled. `rows` is the range of axis 0 that holds this
    matrix where it is a plain slice of rows, so that nothing else is read; otherwise `recipe` makes it from whole tensors.
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
    recipe: Recipe | None = None
    eigenvalues: bool = True
    """False where the stack must be taken as it is (complex operator matrices are not resampled entry by entry)."""

    @property
    def streams(self) -> bool:
        """Whether `blocks` reads row blocks without the whole tensor."""
        return self.recipe is None and self.count == 1

    def load(self) -> Tensor:
        """The matrix [h, d], or the stack [count, h, d]. Do not change it: it may be shared memory."""
        if self.recipe is not None:
            return self.recipe(tuple(ref.load() for ref in self.refs))
        ref = self.refs[0]
        start, stop = self.rows or (0, ref.shape[0])
        whole = ref.load() if (start, stop) == (0, ref.shape[0]) else ref.rows(start, stop)
        return whole.reshape(self.shape)

    def blocks(self, max_bytes: int) -> Iterator[Tensor]:
        """Row blocks of at most max_bytes each, in order, read one at a time where the source allows."""
        h, d = self.shape
        if not self.streams:
            matrix = self.load()
            step = max(1, max_bytes // (d * matrix.element_size()))
            for begin in range(0, h, step):
                yield matrix[begin : begin + step]
            return
        ref = self.refs[0]
        start, stop = self.rows or (0, ref.shape[0])
        per_row = max(1, h // max(stop - start, 1))  # rows of the matrix in one index of axis 0
        width = d * per_row * 8
        step = max(1, max_bytes // width)
        for begin in range(start, stop, step):
            part = ref.rows(begin, min(begin + step, stop)).reshape(-1, d)
            # One index of axis 0 can be a whole matrix (an expert): it is read at once and handed out in pieces.
            yield from part.split(max(1, max_bytes // (8 * d)))
