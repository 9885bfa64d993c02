"""Layers that stand side by side as one, and the shape of what a network is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional

from querist.effects.encoder import Encoder, Widths

__all__ = ["Dense", "Mix", "Net", "Shape", "Stacked", "Tower"]


class Shape(NamedTuple):
    """What a network takes and gives: columns, arms M, latents of each outcome, and its own width."""

    columns: Widths
    arms: int
    latents: tuple[int, ...]
    width: int

    @property
    def out(self) -> int:
        """L, latents of all outcomes."""
        return sum(self.latents)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self._asdict(), "columns": self.columns._asdict()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Shape:
        """What `to_json` gave."""
        c = value["columns"]
        widths = Widths(int(c["numbers"]), tuple(c["levels"]), tuple(c["missing"]))
        return cls(widths, int(value["arms"]), tuple(value["latents"]), int(value["width"]))


class Net(nn.Module):
    """A network of this folder: represent(numbers, missing, codes) -> whatever `latents` turns into [n, M + 1, L]."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(*shape.columns)

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """What is known of a row before arms are looked at."""
        raise NotImplementedError

    def latents(self, known: torch.Tensor) -> Float[torch.Tensor, "n M+1 L"]:
        """Latent responses under every arm, control first."""
        raise NotImplementedError

    def forward(
        self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor
    ) -> Float[torch.Tensor, "n M+1 L"]:
        """Latent responses of rows; there is no input for the arm that a row was given."""
        return self.latents(self.represent(numbers, missing, codes))


class Dense(nn.Sequential):
    """Linear layers, each followed by ELU."""

    def __init__(self, *widths: int):
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ELU()]
        super().__init__(*layers)


class Stacked(nn.Module):
    """G linear layers at once: [n, in] or [G, n, in] to [G, n, out]."""

    def __init__(self, groups: int, before: int, after: int):
        super().__init__()
        bound = before**-0.5
        self.weight = nn.Parameter(torch.empty(groups, before, after).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(groups, 1, after).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> Float[torch.Tensor, "G n out"]:
        """All layers on rows of their own, or all on the same rows."""
        if x.ndim == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)

    def each(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Layer g on rows of its own, part g [n_g, in]."""
        layers = zip(parts, self.bias.unbind(0), self.weight.unbind(0), strict=True)
        return [torch.addmm(bias, x, weight) for x, bias, weight in layers]


class Tower(nn.Module):
    """G stacks of layers at once, ELU between them and, unless `last`, after them."""

    def __init__(self, groups: int, *widths: int, last: bool = False):
        super().__init__()
        self.layers = nn.ModuleList(Stacked(groups, a, b) for a, b in pairwise(widths))
        self.groups, self.last = groups, last

    def forward(self, x: torch.Tensor) -> Float[torch.Tensor, "G n out"]:
        """See `Stacked`."""
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if not self._ends(number):
                x = functional.elu(x)
        return x

    def own(self, x: Float[torch.Tensor, "n in"], group: Int[torch.Tensor, "n"]) -> Float[torch.Tensor, "n out"]:
        """Each row through the stack of its group alone: what training looks at, for the price of one stack."""
        placed = torch.argsort(group, stable=True)
        sizes = torch.bincount(group, minlength=self.groups).tolist()
        parts: Sequence[torch.Tensor] = x.index_select(0, placed).split(sizes)
        for number, layer in enumerate(self.layers):
            parts = layer.each(parts)  # pyright: ignore[reportCallIssue]
            if not self._ends(number):
                parts = [functional.elu(part) for part in parts]
        return torch.cat(list(parts))[torch.argsort(placed)]

    def _ends(self, number: int) -> bool:
        """Whether a layer's values are the tower's, without ELU."""
        return self.last and number == len(self.layers) - 1


class Mix(nn.Module):
    """G gates over E experts: a linear layer of the input, softmax, and the experts' mean with these shares."""

    def __init__(self, groups: int, experts: int, before: int):
        super().__init__()
        self.groups, self.experts = groups, experts
        self.linear = nn.Linear(before, groups * experts)

    def forward(
        self, given: Float[torch.Tensor, "n in"], said: Float[torch.Tensor, "E n h"]
    ) -> Float[torch.Tensor, "G n h"]:
        """What each gate makes of the experts."""
        shares = torch.softmax(self.linear(given).unflatten(1, (self.groups, self.experts)), dim=2)
        return torch.einsum("nge,enh->gnh", shares, said)
