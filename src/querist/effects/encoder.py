"""A row's numbers, missing flags and category codes as one flat vector, for every network of the room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import nn

__all__ = ["Encoder", "Inputs", "Widths", "embedding_width"]

UNKNOWN = 1
"""The code of a level that the fit did not meet."""


class Widths(NamedTuple):
    """What an encoder must know of columns: numbers p; levels of each category, missing and unknown counted; the numbers
    that have missing values in the fit."""

    numbers: int
    levels: tuple[int, ...]
    missing: tuple[int, ...]

    @classmethod
    def of(cls, columns: Any) -> Widths:
        """Those of `sources.rows.Columns`."""
        missing = tuple(k for k, name in enumerate(columns.numbers) if columns.facts[name].missing)
        return cls(len(columns.numbers), tuple(columns.cardinalities), missing)


class Inputs(NamedTuple):
    """A batch: flat [n, width] for dense layers, and the columns themselves for networks with a token per column."""

    flat: Float[torch.Tensor, "n width"]
    numbers: Float[torch.Tensor, "n p"]
    missing: Bool[torch.Tensor, "n p"]
    codes: Int[torch.Tensor, "n q"]


class Encoder(nn.Module):
    """Numbers as they come (z-scores), 0 where missing; a flag per column with missing values in the fit, whose weights in the
    next layer are the learned vector of "missing"; an embedding per category.

    In training a share `unknown` of known levels is replaced by the level "unknown", so that its embedding is learned too.
    """

    nullable: torch.Tensor

    def __init__(self, numbers: int, levels: Sequence[int] = (), missing: Sequence[int] = (), *, unknown: float = 0.01):
        super().__init__()
        self.unknown = unknown
        self.register_buffer("nullable", torch.tensor(list(missing), dtype=torch.long), persistent=False)
        self.embeddings = nn.ModuleList(nn.Embedding(count, embedding_width(count)) for count in levels)
        self.width = numbers + len(missing) + sum(map(embedding_width, levels))

    def forward(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Inputs:
        """Flat vectors of a batch, beside the columns as they are used."""
        numbers = torch.where(missing, torch.zeros_like(numbers), numbers)
        if self.training and self.unknown > 0 and codes.shape[1]:
            drawn = torch.rand(codes.shape, device=codes.device) < self.unknown
            codes = torch.where(drawn & (codes > UNKNOWN), torch.full_like(codes, UNKNOWN), codes)
        parts = [numbers]
        if self.nullable.numel():
            parts.append(missing[:, self.nullable].to(numbers.dtype))
        parts += [embed(codes[:, i]) for i, embed in enumerate(self.embeddings)]
        return Inputs(torch.cat(parts, dim=1) if len(parts) > 1 else numbers, numbers, missing, codes)


def embedding_width(levels: int) -> int:
    """Width of a category's embedding: min(50, ⌈1.6·levels^.56⌉)."""
    return min(50, -int(-1.6 * levels**0.56 // 1))
