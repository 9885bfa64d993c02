"""The networks of a concept bottleneck model: heads from concepts to classes, stacks of heads, and a small net of pictures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from querist.errors import BadOption, NonFinite, ShapeMismatch
from querist.statistics import torch_seed

__all__ = ["Head", "SmallBackbone", "StackedHeads", "head_widths", "seeded"]


def head_widths(head: str) -> tuple[int, ...]:
    """Hidden widths of a head by name: "linear" has none, "mlp:512" one, "mlp:256,64" two. Raises BadOption."""
    kind, _, sizes = head.partition(":")
    if head == "linear":
        return ()
    try:
        widths = tuple(int(size) for size in (sizes or "512").split(","))
    except ValueError:
        widths = (0,)
    if kind != "mlp" or min(widths) < 1:
        raise BadOption("No such head", value=head, allowed="linear, mlp:512, mlp:256,64")
    return widths


class Head(nn.Module):
    """Linear layers with ReLU between them, from concepts [n k] to class logits [n L]; unknown cells stand at `fill` [k]."""

    fill: torch.Tensor

    def __init__(self, k: int, classes: int, *, head: str = "linear", fill: np.ndarray | None = None):
        super().__init__()
        self.k, self.classes, self.head = k, classes, head
        sizes = (k, *head_widths(head), classes)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        known = np.zeros(k) if fill is None else np.nan_to_num(np.asarray(fill, dtype=float))
        self.register_buffer("fill", torch.as_tensor(known, dtype=torch.float32))

    def features(self, concepts: torch.Tensor) -> torch.Tensor:
        """What enters the last layer: [n, width]."""
        if concepts.ndim != 2 or concepts.shape[1] != self.k:
            raise ShapeMismatch("A head reads its own concepts", value=tuple(concepts.shape), allowed=f"[n {self.k}]")
        x = torch.where(torch.isnan(concepts), self.fill, concepts)
        for layer in list(self.layers)[:-1]:
            x = functional.relu(layer(x))
        return x

    def forward(self, concepts: torch.Tensor) -> torch.Tensor:
        """[n k] -> [n L]. Raises ShapeMismatch."""
        return self.layers[-1](self.features(concepts))


def seeded(network: Any, seed: int, *names: object) -> Any:
    """The network with fresh weights of its linear and convolution layers, uniform in ± 1/√fan_in, from the seed and names."""
    draw = torch.Generator().manual_seed(torch_seed(seed, "initial weights", *names))
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                bound = 1 / float(np.sqrt(part.weight[0].numel()))
                for values in (part.weight, part.bias):
                    if values is not None:
                        values.copy_((torch.rand(values.shape, generator=draw) * 2 - 1) * bound)
    return network


class StackedHeads(nn.Module):
    """Heads of one shape as one network of stacked parameters: [n M k] -> [n M L]. Gradients of heads never mix."""

    fill: torch.Tensor

    def __init__(self, heads: Sequence[Head]):
        super().__init__()
        shapes = {(head.k, head.classes, head.head) for head in heads}
        if len(shapes) != 1:
            raise ShapeMismatch(
                "Stacked heads need one shape", value=str(sorted(shapes)), allowed="one k, L and kind of head"
            )
        self.k, self.classes, self.head = next(iter(shapes))
        depth = len(heads[0].layers)
        self.weight = nn.ParameterList(
            torch.stack([_linear(head, i).weight.detach() for head in heads]) for i in range(depth)
        )
        self.bias = nn.ParameterList(
            torch.stack([_linear(head, i).bias.detach() for head in heads]) for i in range(depth)
        )
        self.register_buffer("fill", torch.stack([head.fill for head in heads]))

    def forward(self, concepts: torch.Tensor) -> torch.Tensor:
        """[n M k] -> [n M L]."""
        x = torch.where(torch.isnan(concepts), self.fill, concepts).transpose(0, 1)
        for i, (weight, bias) in enumerate(zip(self.weight, self.bias, strict=True)):
            x = torch.baddbmm(bias[:, None], functional.relu(x) if i else x, weight.transpose(1, 2))
        return x.transpose(0, 1)

    def unstack(self) -> list[Head]:
        """The heads, each with its own copy of its weights."""
        made = []
        for m in range(len(self.fill)):
            head = Head(self.k, self.classes, head=self.head, fill=self.fill[m].cpu().numpy())
            with torch.no_grad():
                for i in range(len(head.layers)):
                    _linear(head, i).weight.copy_(self.weight[i][m])
                    _linear(head, i).bias.copy_(self.bias[i][m])
            made.append(head.eval())
        return made


class SmallBackbone(nn.Module):
    """Three 3 x 3 convolutions of stride 2 with ReLU, a 4 x 4 average and one linear layer: pictures to concept logits [n k].

    Pictures [n 3 h w]: uint8, or floats in 0 … 1.
    """

    def __init__(self, k: int, *, width: int = 32):
        super().__init__()
        self.k, self.width = k, width
        sizes = (3, width, 2 * width, 4 * width)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in itertools.pairwise(sizes))
        self.last = nn.Linear(4 * width * 16, k)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[n 3 h w] -> [n k]. Raises ShapeMismatch."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ShapeMismatch("Pictures must have three channels", value=tuple(images.shape), allowed="[n 3 h w]")
        x = (images.float() / 255 if images.dtype == torch.uint8 else images) * 4 - 2
        for convolution in self.convolutions:
            x = functional.relu(convolution(x))
        x = x if x.shape[-2:] == (4, 4) else functional.adaptive_avg_pool2d(x, 4)
        return self.last(x.flatten(1))


def _linear(head: Head, i: int) -> nn.Linear:
    layer = head.layers[i]
    assert isinstance(layer, nn.Linear)
    return layer


def all_finite(network: nn.Module, what: str) -> None:
    """Raises NonFinite where a weight is NaN or infinite: a training that broke gives no verdict."""
    for name, values in network.named_parameters():
        if not bool(torch.isfinite(values).all()):
            raise NonFinite(
                f"{what} has weights that are not finite",
                value=name,
                mend="Lower the learning rate, or check the inputs",
            )
