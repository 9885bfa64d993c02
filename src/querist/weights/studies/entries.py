"""The entries of a matrix beside normal ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor, histc

__all__ = ["EDGES", "entry_histogram"]

EDGES = np.linspace(-6.0, 6.0, 61)


def entry_histogram(layer: str, W: Tensor) -> list[dict[str, Any]]:
    """Histogram of entries over their standard deviation, the outermost bins holding all beyond."""
    flat = W.detach().float().reshape(-1)
    sd = float(flat.std()) if flat.numel() > 1 else 0.0
    if not sd > 0:
        return []
    scaled = (flat / sd).clamp_(EDGES[0], EDGES[-1])
    counts = histc(scaled, bins=len(EDGES) - 1, min=EDGES[0], max=EDGES[-1]).numpy()
    cdf = np.array([0.5 * math.erfc(-edge / math.sqrt(2)) for edge in EDGES])
    cdf[0], cdf[-1] = 0.0, 1.0
    shares = counts / flat.numel()
    return [
        {"layer_id": layer, "left": left, "right": right, "share": float(share), "normal": float(normal)}
        for left, right, share, normal in zip(
            EDGES[:-1].tolist(), EDGES[1:].tolist(), shares, np.diff(cdf), strict=True
        )
    ]
