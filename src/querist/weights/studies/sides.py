"""Reading one pair of a comparison: the two matrices, and their difference as a matrix, as row blocks or as factors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from querist.weights.configs import CompareConfig
from querist.weights.delta import Difference, Factors, MatrixPair, stacked, subtracted
from querist.weights.spectrum import Blocks, LayerMatrix
from querist.weights.studies.measure import STREAM_BYTES

__all__ = ["Sides", "View", "sides"]


@dataclass(frozen=True)
class View:
    """How a matrix out x (in·k…) becomes the entries whose spectrum is taken, as the options ask for."""

    matrix: LayerMatrix
    kernel: tuple[int, ...]

    @property
    def flat(self) -> bool:
        """Whether the spectrum is that of the matrix itself."""
        return self.matrix.conv in ("", "flatten")

    def entries(self, flat: Tensor) -> Tensor:
        """The entries in the shape that a spectrum is taken of: [h, d], a stack of kernel positions, or a kernel."""
        if self.flat:
            return flat
        if self.matrix.conv == "operator":
            return flat.reshape(self.kernel)
        count, h, d = self.kernel
        return flat.reshape(h, d, count).permute(2, 0, 1).contiguous()

    def spectrum(self, flat: Tensor) -> np.ndarray:
        """Eigenvalues of the view, ascending."""
        return self.matrix.spectrum(self.entries(flat))


@dataclass(frozen=True)
class Sides:
    """base and tuned as matrices out x (in·k…). Their difference is `delta`, or, where only factors of it were stored, `low`.

    streamed: nothing is held; all three are read in row blocks.
    """

    base: Tensor | Blocks
    tuned: Tensor | Blocks
    delta: Tensor | Blocks | None
    low: Factors | None
    view: View

    @property
    def streamed(self) -> bool:
        """Whether the matrices are read in row blocks."""
        return not isinstance(self.base, Tensor)


def sides(pair: MatrixPair, config: CompareConfig) -> Sides:
    """Read a pair: one tensor of each source, or row blocks where they are large and no null needs them whole."""
    base, tuned = pair.base, pair.tuned
    assert base is not None
    before, after = [one.factors() for one in pair.base_low], [one.factors() for one in pair.tuned_low]
    low = stacked([*after, *before], [1.0] * len(after) + [-1.0] * len(before))
    large = 4 * math.prod(base.shape) > STREAM_BYTES
    if tuned is not None and low is None and base.streams and tuned.streams and large and not config.nulls:
        return Sides(base, tuned, Difference(base, tuned), None, View(base, base.shape))
    flat, kernel = _flat(base)
    view = View(base, kernel)
    other = flat if tuned is None else _flat(tuned)[0]
    delta = None if tuned is None else subtracted(other, flat)
    if low is not None and (delta is None or not bool(delta.any())):
        return Sides(_plus(flat, before), _plus(other, after), None, low, view)
    if low is not None:
        flat, other = _plus(flat, before), _plus(other, after)
        delta = subtracted(other, flat)
    return Sides(flat, other, delta, None, view)


def _flat(matrix: LayerMatrix) -> tuple[Tensor, tuple[int, ...]]:
    """A matrix as out x (in·k…), and the shape of the entries that its view resamples."""
    entries = matrix.entries()
    kernel = tuple(entries.shape)
    if matrix.conv == "operator":
        return entries.flatten(1), kernel
    if matrix.conv == "slices":
        return entries.permute(1, 2, 0).flatten(1), kernel
    return entries, kernel


def _plus(flat: Tensor, terms: list[Factors]) -> Tensor:
    for term in terms:
        wide = flat if flat.dtype == torch.float64 else flat.float()
        flat = wide + term.product().reshape(flat.shape).to(wide.dtype)
    return flat
