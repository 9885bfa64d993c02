"""FARMS: a tail exponent over submatrices of one aspect ratio, so that layers of different shapes can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, BadValues
from querist.weights.fits._powerlaw import hill_exponent

__all__ = ["Farms", "farms"]

SMALLEST = 16
BATCH_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Farms:
    """Hill exponent of the pooled windows, how many windows, their shape, and how many eigenvalues were pooled."""

    alpha: float | None
    n_windows: int
    window: tuple[int, int]
    n_values: int


def farms(
    W: Float[Tensor, "h d"], *, ratio: float = 1.0, side: int | None = None, largest: int = 2000, max_starts: int = 15
) -> Farms:
    """Hill exponent over windows of `side` x floor(side·ratio), their squared singular values pooled.

    side defaults to min(N, largest). At most `max_starts` starts per axis, evenly spaced, the last window always at the
    border (the public code can miss it, and then never sees the last rows). Raises BadValues where a side is below 16.

    Source: Hu et al., "Eigenspectrum analysis without aspect ratio bias" (ICML 2025); the starts are ours.
    """
    h, d = W.shape
    if ratio <= 0:
        raise BadOption("The windows' aspect ratio must be positive", value=ratio, allowed="ratio > 0")
    rows = min(side or min(h, d, largest), h)
    columns = min(max(1, int(rows * ratio)), d)
    if min(rows, columns) < SMALLEST:
        raise BadValues(
            "The matrix is too small for windows of one aspect ratio",
            value=(h, d),
            allowed=f"a side of at least {SMALLEST}",
        )
    corners = [(i, j) for i in _starts(h, rows, max_starts) for j in _starts(d, columns, max_starts)]
    small = min(rows, columns)
    batch = max(1, BATCH_BYTES // (8 * rows * columns))
    pooled = []
    for begin in range(0, len(corners), batch):
        windows = torch.stack([W[i : i + rows, j : j + columns].double() for i, j in corners[begin : begin + batch]])
        gram = windows @ windows.mT if rows <= columns else windows.mT @ windows
        pooled.append(torch.linalg.eigvalsh(gram).flatten())
    values = np.sort(torch.cat(pooled).clamp_min(0).cpu().numpy())
    positive = values[values > 0]
    alpha = hill_exponent(positive)[0] if positive.size > 1 else None
    return Farms(alpha, len(corners), (rows, columns), small * len(corners))


def _starts(length: int, window: int, most: int) -> list[int]:
    """Even starts of about half-overlapping windows, the first at 0 and the last at the border."""
    room = length - window
    count = min(most, 1 + -(-2 * room // window)) if room else 1
    return sorted({round(i * room / (count - 1)) for i in range(count)}) if count > 1 else [0]
