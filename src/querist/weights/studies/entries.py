"""The entries of a matrix beside normal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import polars as pl
import torch
from torch import Tensor

from querist.weights.tables import ENTRIES

__all__ = ["EDGES", "entry_rows", "entry_shares"]

EDGES = np.linspace(-6.0, 6.0, 61)
SAMPLED = 1 << 14
"""Entries that are counted: a share is then off by less than .4 % of all, and counting costs under a hundredth of a spectrum."""

_NORMAL = np.diff([0.0, *(0.5 * math.erfc(-edge / math.sqrt(2)) for edge in EDGES[1:-1]), 1.0])


def entry_shares(W: Tensor) -> np.ndarray | None:
    """Share of W's entries in each of 60 bins of entry over root mean square, the outermost holding all beyond; None for zeros.

    Of more than 16 384 entries every k-th is counted, k having no factor in common with the last side, so that every column
    is met.
    """
    flat = W.detach().reshape(-1)
    step = max(1, flat.numel() // SAMPLED)
    while math.gcd(step, W.shape[-1]) > 1:
        step += 1
    counted = flat[::step].float().cpu()
    size = float(counted.double().square().mean().sqrt())
    if not size > 0:
        return None
    low, high = float(EDGES[0]), float(EDGES[-1])
    counts = torch.histc((counted / size).clamp_(low, high), bins=EDGES.size - 1, min=low, max=high)
    return counts.double().numpy() / counted.numel()


def entry_rows(shares: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """Rows of the table `entries`: layer to its shares."""
    bins, layers = EDGES.size - 1, len(shares)
    return pl.DataFrame(
        {
            "layer_id": [layer for layer in shares for _ in range(bins)],
            "left": np.tile(EDGES[:-1], layers),
            "right": np.tile(EDGES[1:], layers),
            "share": np.concatenate([np.empty(0), *shares.values()]),
            "normal": np.tile(_NORMAL, layers),
        },
        schema=ENTRIES.schema(),
    )
