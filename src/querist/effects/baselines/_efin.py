"""A network whose arms ask a row's features by attention."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from querist.effects.baselines._layers import Dense, Net, Shape
from querist.effects.baselines._networks import Networks

__all__ = ["EFINLike"]

HEADS = 4


class _EFIN(Net):
    """A token per column; one layer of attention among tokens; then every arm's vector asks the tokens."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        d, columns = shape.width, shape.columns
        # The encoder's flat vector has no use here: tokens are made from the columns themselves.
        self.encoder.embeddings = nn.ModuleList()
        self.weight = nn.Parameter(torch.randn(columns.numbers, d) * 0.5)
        self.bias = nn.Parameter(torch.randn(columns.numbers, d) * 0.1)
        self.gone = nn.Parameter(torch.zeros(columns.numbers, d))
        self.levels = nn.ModuleList(nn.Embedding(count, d) for count in columns.levels)
        for one in self.levels:
            nn.init.normal_(one.weight, std=0.5)  # pyright: ignore[reportArgumentType]
        self.inner, self.mixed = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.wide = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.before, self.after = nn.LayerNorm(d), nn.LayerNorm(d)
        self.arms = nn.Parameter(torch.randn(shape.arms, d) * 0.5)
        self.asked, self.keys = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.natural = nn.Sequential(Dense(d, 3 * d), nn.Linear(3 * d, shape.out))
        self.uplift = nn.Sequential(Dense(d, 3 * d), nn.Linear(3 * d, shape.out))

    def tokens(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """[n, columns, D]."""
        numbers = torch.where(missing, torch.zeros_like(numbers), numbers)
        made = numbers[:, :, None] * self.weight + self.bias + missing[:, :, None].to(numbers.dtype) * self.gone
        if self.levels:
            levels = torch.stack([embed(codes[:, q]) for q, embed in enumerate(self.levels)], dim=1)
            made = torch.cat([made, levels], dim=1)
        return made

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        if self.training and codes.shape[1]:
            drawn = torch.rand(codes.shape, device=codes.device) < self.encoder.unknown
            codes = torch.where(drawn & (codes > 1), torch.ones_like(codes), codes)
        tokens = self.tokens(numbers, missing, codes)
        q, k, v = (_heads(part) for part in self.inner(self.before(tokens)).chunk(3, dim=2))
        tokens = tokens + self.mixed(_joined(functional.scaled_dot_product_attention(q, k, v)))
        return tokens + self.wide(tokens)

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        tokens = self.after(known)
        natural = self.natural(tokens.mean(dim=1))[:, None]
        k, v = (_heads(part) for part in self.keys(tokens).chunk(2, dim=2))
        asked = _heads(self.asked(self.arms)[None]).expand(tokens.shape[0], -1, -1, -1)
        heard = _joined(functional.scaled_dot_product_attention(asked, k, v))
        return torch.cat([natural, natural + self.uplift(heard + self.arms)], dim=1)


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(2, (HEADS, -1)).transpose(1, 2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


class EFINLike(Networks):
    """Attention among a row's columns; each arm's vector then asks them what it adds to the natural response.

    Every row is answered for every arm, so its own arm cannot show. The width is rounded up to a multiple of four heads.

    Source: after Liu et al. (2023), EFIN, without the constraint that hides the arm from the uplift part; several arms and outcomes.
    """

    def _net(self, shape: Shape) -> Net:
        return _EFIN(shape._replace(width=-(-shape.width // HEADS) * HEADS))
