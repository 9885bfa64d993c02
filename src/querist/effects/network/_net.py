"""The network: users are encoded once, then every treatment asks; three parts on the scale of each outcome's link.

Source: Zhao et al. (2024), "Multi-Treatment Multi-Task Uplift Modeling for Enhancing User Growth", arXiv 2408.12803. Ours are the
centring of increments, the head per outcome in each branch, and arms that never enter as inputs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import nn

from querist.effects.encoder import Encoder
from querist.effects.network._architecture import Architecture
from querist.effects.network._experts import experts_of
from querist.effects.network._treatments import Branch, Interaction

__all__ = ["Network", "Parts"]


class Parts(NamedTuple):
    """Latent parts: natural [n, L], base [n, L], increments [n, M, L] that cancel under the tier's weights."""

    natural: torch.Tensor
    base: torch.Tensor
    increments: torch.Tensor


class Network(nn.Module):
    """Encoder, experts, a gate per outcome, a natural head, and two branches of treatments.

    forward(numbers [n, p], missing [n, p], codes [n, q]) -> latent responses [n, M + 1, L], control first. There is no input for
    the arm that a row was given.
    """

    def __init__(self, architecture: Architecture):
        super().__init__()
        a = self.architecture = architecture
        self.at_once: int | None = None  # rows that are asked for at a time, once that is known
        self.encoder = Encoder(a.numbers, a.levels, a.missing, unknown=a.unknown)
        self.experts = experts_of(a, self.encoder.width)
        self.gates = nn.Linear(self.encoder.width, a.outcomes * a.n_experts)
        latents, bound = sum(a.latents), 1 / math.sqrt(a.d_model)
        self.natural_weight = nn.Parameter(torch.empty(latents, a.d_model).uniform_(-bound, bound))
        self.natural_bias = nn.Parameter(torch.zeros(latents))
        asked = a.query_tokens or a.d_model
        self.flat = a.tier == "none"
        if not self.flat:
            self.treated = nn.Parameter(torch.randn(1, asked) / math.sqrt(asked))
            self.base = Branch(a)
        # With one arm the base effect is the whole effect.
        if self.flat or a.arms > 1:
            self.arms = nn.Embedding(a.arms, asked, _weight=torch.randn(a.arms, asked) / math.sqrt(asked))
            self.secondary = Branch(a)
        outcome = torch.repeat_interleave(torch.arange(a.outcomes), torch.tensor(a.latents))
        self.outcome: torch.Tensor
        self.tier_weights: torch.Tensor
        self.register_buffer("outcome", outcome, persistent=False)
        self.register_buffer("tier_weights", torch.tensor(a.tier_weights, dtype=torch.float64), persistent=False)

    # ------------------------------------------------------------------------------------------------------- users

    def tokens(
        self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor
    ) -> Float[torch.Tensor, "n K T D"]:
        """What the experts say of a user, mixed by each outcome's gate."""
        a = self.architecture
        inputs = self.encoder(numbers, missing, codes)
        said = self.experts(inputs)
        shares = torch.softmax(self.gates(inputs.flat).unflatten(1, (a.outcomes, a.n_experts)), dim=2)
        return torch.bmm(shares, said.flatten(2)).unflatten(2, said.shape[2:])

    def shares(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Float[torch.Tensor, "n K E"]:
        """Shares of the experts in each outcome."""
        a = self.architecture
        flat = self.encoder(numbers, missing, codes).flat
        return torch.softmax(self.gates(flat).unflatten(1, (a.outcomes, a.n_experts)), dim=2)

    @property
    def _of(self) -> torch.Tensor | None:
        return None if len(self.outcome) == self.architecture.outcomes else self.outcome

    # ------------------------------------------------------------------------------------------------------- parts

    def parts(self, tokens: Float[torch.Tensor, "n K T D"]) -> Parts:
        """The latent parts of users given as tokens."""
        pooled = tokens.mean(2)
        pooled = pooled if self._of is None else pooled.index_select(1, self.outcome)
        natural = torch.einsum("nld,ld->nl", pooled, self.natural_weight) + self.natural_bias
        n, latents = natural.shape
        if self.flat:
            return Parts(natural, torch.zeros_like(natural), self.secondary(tokens, self.arms.weight, self._of))
        base = self.base(tokens, self.treated, self._of)[:, 0]
        if self.architecture.arms == 1:
            return Parts(natural, base, natural.new_zeros(n, 1, latents))
        own = self.secondary(tokens, self.arms.weight, self._of)
        # Weights of a reference tier are 1 on its arm: one rule centres both.
        own = own - torch.einsum("nml,m->nl", own, self.tier_weights.to(own.dtype))[:, None]
        return Parts(natural, base, own)

    def forward(
        self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor
    ) -> Float[torch.Tensor, "n M+1 L"]:
        return _together(self.parts(self.tokens(numbers, missing, codes)))

    def precise(
        self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor
    ) -> Float[torch.Tensor, "n M+1 L"]:
        """The same in float64, parts added up in it: a small effect beside a large response keeps its digits, so that how rows are
        batched cannot be seen in their difference."""
        return _together(Parts(*(part.double() for part in self.parts(self.tokens(numbers, missing, codes)))))

    def observed(
        self, tokens: Float[torch.Tensor, "n K T D"], arm: torch.Tensor
    ) -> tuple[Float[torch.Tensor, "n L"], Parts]:
        """Latent responses under the arm that each row was given (0 control, 1 … M), for the loss alone, and all parts.

        With `detach_natural` treated rows teach nothing to the natural part.
        """
        parts = self.parts(tokens)
        treated = arm > 0
        natural = parts.natural
        if self.architecture.detach_natural:
            natural = torch.where(treated[:, None], natural.detach(), natural)
        rows = torch.arange(len(arm), device=arm.device)
        effect = parts.base + parts.increments[rows, (arm - 1).clamp(min=0)]
        return natural + torch.where(treated[:, None], effect, torch.zeros_like(effect)), parts

    def attention(
        self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor
    ) -> Float[torch.Tensor, "n K M T"]:
        """How much each arm looks at each token (with "ft" a column), meaned over heads and a query's tokens; sums to 1 over T."""
        tokens = self.tokens(numbers, missing, codes)
        branch = self.secondary if hasattr(self, "secondary") else self.base
        queries = self.arms.weight if hasattr(self, "secondary") else self.treated
        assert isinstance(branch.mixer, Interaction)
        flat, asked = branch.ready(tokens.flatten(0, 1), queries)
        found = branch.mixer.weights(flat, asked)  # [n·K, T, M·r·heads]
        found = found.unflatten(2, (len(asked), -1)).mean(3)
        return found.transpose(1, 2).unflatten(0, tokens.shape[:2])


def _together(parts: Parts) -> Float[torch.Tensor, "n M+1 L"]:
    natural, base, increments = parts
    return torch.cat([natural[:, None], (natural + base)[:, None] + increments], dim=1)
