"""A matrix without its leading components."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["without_top"]


def without_top(W: Tensor, edge: float) -> tuple[Tensor, Float[np.ndarray, "N"], tuple[int, int]]:
    """W less every component whose squared singular value exceeds `edge`: matrix, spectrum and shape of what is left.

    W: [h, d] or [count, h, d], not changed; the result is float32 or float64. The components removed leave zeros, which
    are not among the eigenvalues returned (ascending, float64, pooled). The shape returned is that of a matrix of noise
    with as many degrees of freedom: k components less on both sides, k their number per matrix of a stack, rounded down.
    """
    stack = (W if W.ndim == 3 else W.unsqueeze(0)).double()
    X = stack if stack.shape[1] <= stack.shape[2] else stack.transpose(1, 2)
    scale = float(X.abs().max()) or 1.0
    values, vectors = torch.linalg.eigh((X / scale) @ (X / scale).transpose(1, 2))
    values = values.clamp_min(0) * scale**2
    above = values > edge
    # Columns of the components that stay become zero: one product serves matrices with different numbers of spikes.
    spikes = vectors * above.unsqueeze(1)
    left = X - spikes @ (spikes.transpose(1, 2) @ X)
    left = left if stack.shape[1] <= stack.shape[2] else left.transpose(1, 2)
    k = int(above.sum()) // len(stack)
    dtype = W.dtype if W.dtype in (torch.float32, torch.float64) else torch.float32
    kept = np.sort(values[~above].cpu().numpy())
    h, d = stack.shape[1:]
    return left.reshape(W.shape).to(dtype), kept, (h - k, d - k)
