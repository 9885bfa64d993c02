"""Experts: E networks of one form, computed together, that turn a row into T tokens of D numbers each."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.effects.encoder import Inputs
from querist.effects.network._architecture import Architecture

__all__ = ["StackedLinear", "experts_of"]


class StackedLinear(nn.Module):
    """E linear layers as one product: [E, n, in] -> [E, n, out]."""

    def __init__(self, experts: int, inputs: int, outputs: int):
        super().__init__()
        bound = 1 / math.sqrt(max(inputs, 1))
        self.weight = nn.Parameter(torch.empty(experts, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(experts, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class StackedNorm(nn.Module):
    """Layer norm over the last axis, with each expert's own scale and shift."""

    def __init__(self, experts: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(experts, 1, width))
        self.bias = nn.Parameter(torch.zeros(experts, 1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


def experts_of(architecture: Architecture, width: int) -> Mlp | Tokens | ResNet1d:
    """The experts that an architecture names, for flat rows of a width: modules with `tokens` and forward(Inputs) -> [n, E, T, D]."""
    return {"mlp": Mlp, "ft": Tokens, "resnet1d": ResNet1d}[architecture.expert](architecture, width)


class Mlp(nn.Module):
    """Residual blocks (norm, linear, GELU, linear) between a first and a last linear layer."""

    def __init__(self, a: Architecture, width: int):
        super().__init__()
        e, h, self.tokens, self.width = a.n_experts, a.hidden, a.n_tokens, a.d_model
        self.first = StackedLinear(e, width, h)
        self.norms = nn.ModuleList(StackedNorm(e, h) for _ in range(a.blocks))
        self.inner = nn.ModuleList(StackedLinear(e, h, h) for _ in range(a.blocks))
        self.outer = nn.ModuleList(StackedLinear(e, h, h) for _ in range(a.blocks))
        self.last = StackedLinear(e, h, self.tokens * self.width)
        self.dropout = nn.Dropout(a.dropout)
        self.experts = e

    def forward(self, inputs: Inputs) -> Float[torch.Tensor, "n E T D"]:
        x = self.first(inputs.flat.expand(self.experts, -1, -1))
        for norm, inner, outer in zip(self.norms, self.inner, self.outer, strict=True):
            x = x + self.dropout(outer(functional.gelu(inner(norm(x)))))
        return self.last(functional.gelu(x)).unflatten(2, (self.tokens, self.width)).transpose(0, 1)


class Tokens(nn.Module):
    """A token per column, then transformer blocks (pre-norm), as the FT-Transformer has them.

    Source: Gorishniy, Rubachev, Khrulkov & Babenko (2021); here without a class token, as the interaction reads all tokens.
    """

    def __init__(self, a: Architecture, width: int):  # a token per column: flat rows are not read
        super().__init__()
        e, d = a.n_experts, a.d_model
        self.experts, self.width, self.heads, self.numbers = e, d, a.n_heads, a.numbers
        self.tokens = a.numbers + len(a.levels)
        bound = 1 / math.sqrt(d)
        self.weight = nn.Parameter(torch.empty(e, 1, a.numbers, d).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(e, 1, self.tokens, d).uniform_(-bound, bound))
        self.absent = nn.Parameter(torch.zeros(e, 1, a.numbers, d))
        starts = torch.tensor([0, *a.levels]).cumsum(0)
        self.starts: torch.Tensor
        self.register_buffer("starts", starts[:-1], persistent=False)
        self.levels = nn.Parameter(torch.empty(e, int(starts[-1]), d).uniform_(-bound, bound))
        self.blocks = nn.ModuleList(_Block(e, d, a.n_heads, a.dropout) for _ in range(2))
        self.norm = StackedNorm(e, d)

    def forward(self, inputs: Inputs) -> Float[torch.Tensor, "n E T D"]:
        n = inputs.numbers.shape[0]
        x = inputs.numbers[..., None] * self.weight + inputs.missing[..., None] * self.absent
        x = x.expand(self.experts, n, self.numbers, self.width)
        if inputs.codes.shape[1]:
            levels = self.levels[:, (inputs.codes + self.starts).reshape(-1)]
            x = torch.cat([x, levels.reshape(self.experts, n, -1, self.width)], dim=2)
        x = (x + self.bias).flatten(1, 2)
        for block in self.blocks:
            x = block(x, n)
        return self.norm(x).unflatten(1, (n, self.tokens)).transpose(0, 1)


class _Block(nn.Module):
    def __init__(self, experts: int, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.drop = heads, dropout
        self.norm, self.norm2 = StackedNorm(experts, width), StackedNorm(experts, width)
        self.qkv = StackedLinear(experts, width, 3 * width)
        self.out = StackedLinear(experts, width, width)
        self.inner, self.outer = StackedLinear(experts, width, 2 * width), StackedLinear(experts, 2 * width, width)

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        e, nt, d = x.shape
        # [3, E·n, heads, T, d/heads]: the experts are further rows to attention
        qkv = self.qkv(self.norm(x)).reshape(e * n, nt // n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.drop if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], dropout_p=dropout)
        x = x + self.out(mixed.transpose(1, 2).reshape(e, nt, d))
        hidden = functional.gelu(self.inner(self.norm2(x)))
        return x + self.outer(functional.dropout(hidden, self.drop, self.training))


class ResNet1d(nn.Module):
    """A one-dimensional ResNet18 over the flat row, its positions as tokens; experts are the groups of each convolution.

    Source: the released code of Zhao et al. (2024). Columns have no order, so neighbours mean nothing: never the default.
    """

    WIDTHS = (16, 32, 64, 128)

    def __init__(self, a: Architecture, width: int):
        super().__init__()
        e, self.experts, self.width = a.n_experts, a.n_experts, a.d_model
        self.stem = nn.Conv1d(e, e * self.WIDTHS[0], 3, padding=1, groups=e, bias=False)
        self.norm = _norm(a, self.WIDTHS[0])
        blocks, before, length = [], self.WIDTHS[0], max(1, width // 2)
        for wide, stride in zip(self.WIDTHS, (1, 2, 2, 2), strict=True):
            blocks += [_Residual(a, before, wide, stride), _Residual(a, wide, wide, 1)]
            before, length = wide, -(-length // stride)
        self.blocks = nn.ModuleList(blocks)
        self.tokens = length
        self.last = StackedLinear(e, before, self.width) if before != self.width else None

    def forward(self, inputs: Inputs) -> Float[torch.Tensor, "n E T D"]:
        x = inputs.flat[:, None].expand(-1, self.experts, -1)
        x = functional.relu(self.norm(self.stem(x)))
        if x.shape[2] > 1:
            x = functional.max_pool1d(x, 2)
        for block in self.blocks:
            x = block(x)
        x = x.unflatten(1, (self.experts, -1)).transpose(2, 3)
        if self.last is None:
            return x
        return self.last(x.transpose(0, 1).flatten(1, 2)).unflatten(1, (x.shape[0], self.tokens)).transpose(0, 1)


class _Residual(nn.Module):
    def __init__(self, a: Architecture, before: int, width: int, stride: int):
        super().__init__()
        e = a.n_experts
        self.one = nn.Conv1d(e * before, e * width, 3, stride=stride, padding=1, groups=e, bias=False)
        self.two = nn.Conv1d(e * width, e * width, 3, padding=1, groups=e, bias=False)
        self.norm1, self.norm2 = _norm(a, width), _norm(a, width)
        self.short = (
            nn.Sequential(
                nn.Conv1d(e * before, e * width, 1, stride=stride, groups=e, bias=False),
                _norm(a, width),
            )
            if stride > 1 or before != width
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.two(functional.relu(self.norm1(self.one(x)))))
        return functional.relu(y + self.short(x))


def _norm(a: Architecture, width: int) -> nn.Module:
    if a.norm == "batch":
        return nn.BatchNorm1d(a.n_experts * width)
    return nn.GroupNorm(a.n_experts, a.n_experts * width)
