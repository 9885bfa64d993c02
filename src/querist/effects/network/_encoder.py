"""A row's numbers, missing flags and category codes as one flat vector."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import nn

from querist.effects.network._architecture import Architecture, embedding_width

__all__ = ["Encoder", "Inputs"]

UNKNOWN = 1


class Inputs(NamedTuple):
    """A batch: flat [n, width] for dense experts and gates, and the columns themselves for experts with a token per column."""

    flat: Float[torch.Tensor, "n width"]
    numbers: Float[torch.Tensor, "n p"]
    missing: Bool[torch.Tensor, "n p"]
    codes: Int[torch.Tensor, "n q"]


class Encoder(nn.Module):
    """Numbers as they come (z-scores), 0 where missing; a flag per column with missing values in the fit, whose weights in the
    next layer are the learned vector of "missing"; an embedding per category.

    In training a share `unknown` of known levels is replaced by the level "unknown", so that its embedding is learned too.
    """

    def __init__(self, architecture: Architecture):
        super().__init__()
        self.unknown = architecture.unknown
        self.nullable: torch.Tensor
        self.register_buffer("nullable", torch.tensor(architecture.missing, dtype=torch.long), persistent=False)
        self.embeddings = nn.ModuleList(nn.Embedding(count, embedding_width(count)) for count in architecture.levels)
        self.width = architecture.width

    def forward(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Inputs:
        numbers = torch.where(missing, torch.zeros_like(numbers), numbers)
        if self.training and self.unknown > 0 and codes.shape[1]:
            drawn = torch.rand(codes.shape, device=codes.device) < self.unknown
            codes = torch.where(drawn & (codes > UNKNOWN), torch.full_like(codes, UNKNOWN), codes)
        parts = [numbers]
        if self.nullable.numel():
            parts.append(missing[:, self.nullable].to(numbers.dtype))
        parts += [embed(codes[:, i]) for i, embed in enumerate(self.embeddings)]
        return Inputs(torch.cat(parts, dim=1) if len(parts) > 1 else numbers, numbers, missing, codes)
