"""Low-rank pairs without their product."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import ShapeMismatch

__all__ = ["lora_matrix"]


def lora_matrix(A: Float[Tensor, "r d"], B: Float[Tensor, "h r"], scale: float = 1.0) -> Float[Tensor, "r r"]:
    """The core R_B·R_Aᵀ·scale of the update scale·B·A: its singular values are the update's non-zero ones.

    A = (Q_A R_A)ᵀ and B = Q_B R_B by thin QR in float64, so the h x d product is never formed. Convolutional pairs are
    flattened behind their first axis. Raises ShapeMismatch where the ranks differ.
    """
    a, b = A.reshape(A.shape[0], -1).double(), B.reshape(B.shape[0], -1).double()
    if a.shape[0] != b.shape[1]:
        raise ShapeMismatch("The ranks of a low-rank pair differ", value=f"A {tuple(A.shape)}, B {tuple(B.shape)}")
    right = torch.linalg.qr(a.T, mode="r").R
    left = torch.linalg.qr(b, mode="r").R
    return left @ right.T * scale
