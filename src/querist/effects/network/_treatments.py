"""Treatments ask, users answer: queries of arms, their interaction with a user's tokens, and what is read from it."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.effects.network._architecture import Architecture

__all__ = ["Branch", "Interaction", "PoolAndConcat"]

FEW = 8
"""Tokens per query up to which tokens are projected before they are pooled: many small products of whole tokens are slower (14 ms
against 53 for 8,192 users of 8 tokens and 8 arms on one core)."""

BOUND = 1 << 25
"""Numbers of pooled tokens that are held at once when nothing is differentiated; arms are taken in runs below it."""


class Interaction(nn.Module):
    """Multi-head attention with treatments as queries, user tokens as keys and values.

    Queries are the same for every row, so they are folded into the key matrix: scores are one product of the tokens with
    [D, heads·queries]. Where there are many tokens to a query they are pooled by their softmax first and projected afterwards,
    once per query and not once per token. The result is that of plain attention; a bias of the keys would cancel in the
    softmax and is left out.

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
        """Attention [B, T, Q·r·heads] of tokens [B, T, D] and queries [Q, r, d], in the order Q, r, heads."""
        h, w = self.heads, self.width // self.heads
        asked = self.query(queries).flatten(0, 1).unflatten(1, (h, w)).transpose(0, 1)
        folded = (asked @ self.key.weight.unflatten(0, (h, w))).transpose(0, 1).flatten(0, 1) / math.sqrt(w)
        return torch.softmax(tokens @ folded.T, dim=1)

    def pooled(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "BQr W"]:
        """Values of the pooled tokens, heads side by side, without their bias and before the output projection."""
        h, w = self.heads, self.width // self.heads
        shares = self.dropout(self.weights(tokens, queries))
        if tokens.shape[1] <= FEW * shares.shape[2] // h:
            values = (tokens.flatten(0, 1) @ self.value.weight.T).view(*tokens.shape[:2], h, w)
            return torch.einsum("btqh,bthw->bqhw", shares.unflatten(2, (-1, h)), values).reshape(-1, self.width)
        own = torch.bmm(shares.transpose(1, 2), tokens).view(-1, h, tokens.shape[2])  # [B·Q·r, heads, D]
        values = torch.bmm(own.transpose(0, 1), self.value.weight.unflatten(0, (h, w)).transpose(1, 2))
        return values.transpose(0, 1).reshape(-1, self.width)

    def after(self) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Weight (None for none) and bias of what follows `pooled`."""
        if self.output is None:
            return None, self.value.bias
        return self.output.weight, self.output(self.value.bias)

    def forward(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "B Q r W"]:
        weight, bias = self.after()
        mixed = self.pooled(tokens, queries)
        mixed = mixed + bias if weight is None else torch.addmm(bias, mixed, weight.T)
        return mixed.view(tokens.shape[0], *queries.shape[:2], self.width)


class PoolAndConcat(nn.Module):
    """The ablation without attention: a linear layer of the tokens' mean beside the query."""

    def __init__(self, query: int, token: int, width: int):
        super().__init__()
        self.token = nn.Linear(token, width)
        self.query = nn.Linear(query, width, bias=False)

    def pooled(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "BQ W"]:
        """The layer's output."""
        user, arm = self.token(tokens.mean(1)), self.query(queries.flatten(1))
        return (user[:, None] + arm).flatten(0, 1)

    def after(self) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Nothing follows."""
        return None, torch.zeros_like(self.token.bias)

    def forward(self, tokens: torch.Tensor, queries: torch.Tensor) -> Float[torch.Tensor, "B Q 1 W"]:
        return self.pooled(tokens, queries).view(tokens.shape[0], len(queries), 1, -1)


class Enhancer(nn.Module):
    """Linear, GELU, linear; twice as wide inside."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.last = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.last(functional.gelu(self.first(z)))


class Branch(nn.Module):
    """From tokens to one number per query and latent: interaction, enhancer, mean over a query's tokens, a head per latent.

    Linear layers in a row are multiplied first: the interaction's output with the enhancer's first layer, its second layer with
    the heads. What is left per arm is one product with the hidden width. Queries are given in `forward`: an arm more is one
    row of embeddings more, and nothing else.
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
        self.enhancer = Enhancer(width) if a.enhancer else None
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
        enter, leave = self._folded()
        found = []
        for part in asked.split(self._run(flat.shape[0], flat.shape[2], len(asked))):
            z = self.mixer.pooled(flat, part)
            if enter is not None:
                z = functional.gelu(torch.addmm(enter[1], z, enter[0].T))
            # Every head reads every outcome: cheaper than to part them.
            said = torch.addmm(leave[1], z, leave[0].T).view(n, outcomes, len(part), -1, len(self.bias))
            said = said.squeeze(3) if said.shape[3] == 1 else said.mean(3)
            found.append(_own(said, of))
        return torch.cat(found, dim=1) if len(found) > 1 else found[0]

    def _folded(self) -> tuple[tuple[torch.Tensor, torch.Tensor] | None, tuple[torch.Tensor, torch.Tensor]]:
        """Weights and biases before and after the enhancer's GELU; None before where there is no enhancer."""
        weight, bias = self.mixer.after()
        if self.enhancer is None:
            head = self.weight if weight is None else self.weight @ weight
            return None, (head, self.weight @ bias + self.bias)
        first, last = self.enhancer.first, self.enhancer.last
        enter = (first.weight if weight is None else first.weight @ weight, first.weight @ bias + first.bias)
        return enter, (self.weight @ last.weight, self.weight @ last.bias + self.bias)

    def _run(self, rows: int, width: int, arms: int) -> int:
        """Arms taken at once."""
        if torch.is_grad_enabled() or torch.compiler.is_exporting():
            return arms
        heads = self.mixer.heads if isinstance(self.mixer, Interaction) else 1
        return max(1, min(arms, BOUND // max(1, rows * heads * self.per_query[0] * max(width, self.width))))


def _own(said: Float[torch.Tensor, "n K Q L"], of: torch.Tensor | None) -> Float[torch.Tensor, "n Q L"]:
    """Each latent from its outcome."""
    if of is None:
        return said.diagonal(dim1=1, dim2=3)
    index = of.view(1, 1, 1, -1).expand(said.shape[0], 1, said.shape[2], -1)
    return said.gather(1, index).squeeze(1)
