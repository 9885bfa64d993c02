"""Treatments ask, users answer: queries of arms, their interaction with a user's tokens, and what is read from it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.effects.network._architecture import Architecture

__all__ = ["Branch", "Interaction", "PoolAndConcat"]

BOUND = 1 << 25
"""Numbers of pooled tokens that are held at once when nothing is differentiated; arms are taken in runs below it."""


class Interaction(nn.Module):
    """Multi-head attention with treatments as queries, user tokens as keys and values.

    Queries are the same for every row, so they are folded into the key matrix: scores are one product of the tokens with
    [D, heads·queries]; tokens are pooled by their softmax first and projected afterwards, once per query and not once per token.
    The result is that of plain attention; a bias of the keys would cancel in the softmax and is left out.

    Source: Zhao et al. (2024), section 3; the folding is ours.
    """

    def __init__(self, query: int, token: int, width: int, heads: int, *, project: bool = True, dropout: float = 0.0):
        super().__init__()
        self.heads, self.width = heads, width
        self.query = nn.Linear(query, width)
        self.key = nn.Linear(token, width, bias=False)
        self.value = nn.Linear(token, width)
        self.output = nn.Linear(width, width) if project else None
        self.dropout = nn.Dropout(dropout)

    def weights(self, tokens: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """Attention [B, T, heads·Q·r] of tokens [B, T, D] and queries [Q, r, d], in the order heads, Q, r."""
        h, w = self.heads, self.width // self.heads
        asked = self.query(queries).flatten(0, 1).unflatten(1, (h, w)).transpose(0, 1)
        folded = (asked @ self.key.weight.unflatten(0, (h, w))).flatten(0, 1) / math.sqrt(w)
        return torch.softmax(tokens @ folded.T, dim=1)

    def forward(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "B Q r W"]:
        h, w = self.heads, self.width // self.heads
        shares = self.dropout(self.weights(tokens, queries))
        pooled = torch.bmm(shares.transpose(1, 2), tokens)  # [B, heads·Q·r, D]
        per_head = pooled.unflatten(1, (h, -1)).transpose(0, 1).flatten(1, 2)
        values = torch.bmm(per_head, self.value.weight.unflatten(0, (h, w)).transpose(1, 2))  # [heads, B·Q·r, w]
        mixed = values.transpose(0, 1).flatten(1) + self.value.bias
        mixed = self.output(mixed) if self.output is not None else mixed
        return mixed.reshape(len(tokens), *queries.shape[:2], self.width)


class PoolAndConcat(nn.Module):
    """The ablation without attention: a linear layer of the tokens' mean beside the query."""

    def __init__(self, query: int, token: int, width: int):
        super().__init__()
        self.token = nn.Linear(token, width)
        self.query = nn.Linear(query, width, bias=False)

    def forward(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "B Q 1 W"]:
        user, arm = self.token(tokens.mean(1)), self.query(queries.flatten(1))
        return (user[:, None] + arm)[:, :, None]


class Branch(nn.Module):
    """From tokens to one number per query and latent: interaction, enhancer, mean over a query's tokens, a head per latent.

    Queries are given in `forward`: an arm more is one row of embeddings more, and nothing else.
    """

    def __init__(self, a: Architecture):
        super().__init__()
        width, r = a.attention or a.d_model, a.query_tokens or 1
        each = 1 if a.query_tokens else a.d_model
        self.unit_length, self.per_query = a.unit_length, (r, each)
        self.mixer = (
            Interaction(each, a.d_model, width, a.n_heads, project=a.project, dropout=a.dropout)
            if a.interaction
            else PoolAndConcat(r * each, a.d_model, width)
        )
        self.enhancer = (
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            if a.enhancer
            else nn.Identity()
        )
        latents, bound = sum(a.latents), 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(latents, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(latents))
        self.width = width

    def ready(self, tokens: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [B, T, D] and queries [Q, r, d] as the interaction takes them."""
        if self.unit_length:
            tokens, queries = functional.normalize(tokens, dim=-1), functional.normalize(queries, dim=-1)
        return tokens, queries.reshape(len(queries), *self.per_query)

    def forward(
        self, tokens: Float[torch.Tensor, "n K T D"], queries: Float[torch.Tensor, "Q dq"], of: torch.Tensor | None
    ) -> Float[torch.Tensor, "n Q L"]:
        """Tokens of each outcome; `of`: the outcome of each latent, None where they are the same."""
        n, outcomes = tokens.shape[:2]
        flat, asked = self.ready(tokens.flatten(0, 1), queries)
        found = []
        for part in asked.split(self._run(len(flat), flat.shape[2], len(asked))):
            z = self.enhancer(self.mixer(flat, part)).mean(2).unflatten(0, (n, outcomes))  # [n, K, Q, W]
            z = z if of is None else z.index_select(1, of)
            found.append(torch.einsum("nlqw,lw->nql", z, self.weight))
        return (torch.cat(found, dim=1) if len(found) > 1 else found[0]) + self.bias

    def _run(self, rows: int, width: int, arms: int) -> int:
        """Arms taken at once."""
        if torch.is_grad_enabled() or torch.compiler.is_exporting():
            return arms
        heads = self.mixer.heads if isinstance(self.mixer, Interaction) else 1
        return max(1, min(arms, BOUND // max(1, rows * heads * self.per_query[0] * max(width, self.width))))
