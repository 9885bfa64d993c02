"""FARMS: a tail exponent over windows of one aspect ratio, so that layers of different shapes can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch
from querist.weights.fits._powerlaw import HillForm, hill_exponent

__all__ = ["LARGEST_SIDE", "SMALLEST_SIDE", "Farms", "farms"]

SMALLEST_SIDE = 16
LARGEST_SIDE = 2000
BATCH_BYTES = 64 << 20
"""Size of the float64 windows that are held at once."""


@dataclass(frozen=True, eq=False)
class Farms:
    """Hill exponent of the pooled windows; None where their upper half is one value.

    window: (rows, columns) of each; starts: how many starts along rows and columns; n_windows over all matrices; evals: the
    pooled squared singular values, ascending; n_tail of them lie in the tail from xmin on; n_dropped zeros were left out.
    sigma is (alpha − 1)/√n_tail: too small, since windows overlap.
    """

    alpha: float | None
    sigma: float | None
    xmin: float | None
    n_tail: int
    window: tuple[int, int]
    starts: tuple[int, int]
    n_windows: int
    n_dropped: int
    evals: Float[np.ndarray, "n"]


def farms(
    W: Float[Tensor, "h d"] | Float[Tensor, "b h d"] | Float[np.ndarray, "h d"],
    *,
    ratio: float = 1.0,
    side: int | None = None,
    max_starts: int = 15,
    hill: HillForm = "index",
) -> Farms:
    """Hill exponent over windows of side x floor(side·ratio), their squared singular values pooled.

    `side` lies along the shorter axis of W and is min(N, 2000) by default, less where floor(side·ratio) would exceed the longer
    axis. Along each axis at most `max_starts` starts, evenly spaced, the first at 0 and the last so that its window ends at the
    border. W of three axes is a stack whose windows are pooled. Its null is Marchenko-Pastur's at q = min(ratio, 1/ratio), for
    every shape of W. Costs up to 15 eigenvalue problems of the shorter side for a 4:1 matrix. Deterministic.

    Raises BadValues where a window's side is below 16, NonFinite, ShapeMismatch, BadOption.

    Source: Hu et al., "Eigenspectrum analysis of neural networks without aspect ratio bias" (ICML 2025). Ours: starts in a fixed
    number and forced to the border; the public code steps and can miss the last rows and columns.
    """
    if not ratio > 0:
        raise BadOption("The windows' aspect ratio must be positive", value=ratio, allowed="above 0")
    if max_starts < 2:
        raise BadOption("One start cannot reach both borders", value=max_starts, allowed="2 or more")
    whole = torch.as_tensor(W).detach()
    if whole.ndim not in (2, 3):
        raise ShapeMismatch(
            "FARMS takes a matrix or a stack of them", value=tuple(whole.shape), allowed="two or three axes"
        )
    stack = whole if whole.ndim == 3 else whole[None]
    if stack.shape[-2] > stack.shape[-1]:
        stack = stack.mT
    scale = float(stack.abs().max())
    if not math.isfinite(scale):
        raise NonFinite("FARMS takes finite entries", value=f"largest magnitude {scale}")
    short, long = int(stack.shape[-2]), int(stack.shape[-1])
    if side is not None and not SMALLEST_SIDE <= side <= short:
        kind = BadOption if side > short else BadValues
        raise kind(
            "The windows' side does not fit", value=side, allowed=f"{SMALLEST_SIDE} to {short}, the shorter side"
        )
    rows = min(side or min(short, LARGEST_SIDE), math.floor(long / ratio))
    columns = math.floor(rows * ratio)
    if min(rows, columns) < SMALLEST_SIDE:
        raise BadValues(
            "The matrix is too small for windows of one aspect ratio",
            value=f"shape {tuple(whole.shape)}, ratio {ratio:g}: windows of {rows} x {columns}",
            allowed=f"a side of {SMALLEST_SIDE} or more",
            mend="A tail exponent on fewer values means nothing; leave the layer out",
        )
    down, across = starts(short, rows, max_starts), starts(long, columns, max_starts)
    parts = [_spectra(batch, scale) for batch in _batches(stack, rows, columns, down, across)]
    evals = np.sort(np.concatenate(parts)) * (scale * scale)
    n_dropped = int(np.searchsorted(evals, 0.0, side="right"))
    alpha, at, n_tail = hill_exponent(evals[n_dropped:], hill)
    return Farms(
        alpha=alpha,
        sigma=None if alpha is None else (alpha - 1) / math.sqrt(n_tail),
        xmin=None if alpha is None else float(evals[n_dropped + at]),
        n_tail=n_tail,
        window=(rows, columns),
        starts=(len(down), len(across)),
        n_windows=len(down) * len(across) * int(stack.shape[0]),
        n_dropped=n_dropped,
        evals=evals,
    )


def starts(length: int, window: int, most: int) -> list[int]:
    """Evenly spaced starts of windows on an axis, at most `most` of them, the first at 0 and the last at length − window."""
    room = length - window
    count = min(most, room + 1)
    return [0] if count == 1 else [round(i * room / (count - 1)) for i in range(count)]


def _batches(stack: Tensor, rows: int, columns: int, down: list[int], across: list[int]) -> Iterator[Tensor]:
    size = max(1, BATCH_BYTES // (8 * rows * columns))
    corners = [(b, i, j) for b in range(stack.shape[0]) for i in down for j in across]
    for begin in range(0, len(corners), size):
        yield torch.stack([stack[b, i : i + rows, j : j + columns] for b, i, j in corners[begin : begin + size]])


def _spectra(windows: Tensor, scale: float) -> np.ndarray:
    """Squared singular values of a batch of windows, in units of scale²; rounding below zero is zero."""
    w = windows.to(torch.float64) / (scale or 1.0)
    gram = w @ w.mT if w.shape[-2] <= w.shape[-1] else w.mT @ w
    return torch.linalg.eigvalsh(gram).clamp_min_(0).flatten().cpu().numpy()
