"""Low-rank pairs without their product: the update s·B·A through the r x r core of two QR decompositions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import ShapeMismatch

__all__ = ["LowRankSVD", "lora_matrix", "lora_svd"]


class LowRankSVD(NamedTuple):
    """Thin SVD of s·B·A: U [h, r], singular values [r] descending, V [d, r]; float64."""

    U: Tensor
    S: Tensor
    V: Tensor


def lora_matrix(A: Float[Tensor, "r d"], B: Float[Tensor, "h r"], scale: float = 1.0) -> Float[Tensor, "r r"]:
    """The core scale·R_B·R_Aᵀ of the update scale·B·A, float64: its singular values are the update's non-zero ones.

    Aᵀ = Q_A R_A and B = Q_B R_B by thin QR in float64, so the h x d product is never formed. Where r exceeds a side the
    core is smaller than r x r. Convolutional pairs [r, in, k…] and [out, r, 1…] are flattened behind their first axis.
    Raises ShapeMismatch where the ranks differ.
    """
    a, b = _factors(A, B)
    return scale * torch.linalg.qr(b, mode="r").R @ torch.linalg.qr(a.T, mode="r").R.T


def lora_svd(A: Float[Tensor, "r d"], B: Float[Tensor, "h r"], scale: float = 1.0) -> LowRankSVD:
    """Singular vectors and values of scale·B·A without forming it: O((h + d)·r²) work, (h + d)·r memory.

    Shapes and errors as for `lora_matrix`.
    """
    a, b = _factors(A, B)
    q_a, r_a = torch.linalg.qr(a.T)
    q_b, r_b = torch.linalg.qr(b)
    u, s, vh = torch.linalg.svd(scale * r_b @ r_a.T, full_matrices=False)
    return LowRankSVD(q_b @ u, s, q_a @ vh.T)


def _factors(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    if A.ndim < 2 or B.ndim < 2:
        raise ShapeMismatch("A low-rank pair has two matrices", value=f"A {tuple(A.shape)}, B {tuple(B.shape)}")
    a, b = A.detach().double().flatten(1), B.detach().double().flatten(1)
    if a.shape[0] != b.shape[1]:
        raise ShapeMismatch(
            "The ranks of a low-rank pair differ",
            value=f"A {tuple(A.shape)}, B {tuple(B.shape)}",
            allowed="A [r, d] and B [h, r]",
        )
    return a, b
