"""Networks and data with something wrong in them, by address."""

from __future__ import annotations

import numpy as np
import torch
from tests.features.small import Pixels, TinyNet, known, normal, tiny_net
from torch import Tensor, nn


def infinite() -> Pixels:
    """A layer whose values are not finite."""
    net = Pixels()
    with torch.no_grad():
        net.same.weight[0, 0] = float("inf")
    return net


def constant() -> Pixels:
    """A unit that is 0 whatever comes."""
    net = Pixels()
    with torch.no_grad():
        net.same.weight[2] = 0
    return net


def wide() -> TinyNet:
    return tiny_net(width=7)


class Idle(nn.Module):
    """An activation that is never called, and one that is called on nothing."""

    def __init__(self):
        super().__init__()
        self.body, self.unused, self.nothing = Pixels(), nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        self.nothing(x[:, :0])
        return self.body(x)


def idle() -> Idle:
    return Idle().eval()


def rows() -> Tensor:
    return normal(60)


def other_rows() -> Tensor:
    return normal(60, shift=1.0, seed=1)


def holed() -> Tensor:
    x = normal(60, seed=1)
    x[17, 2] = float("nan")
    return x


def few() -> Tensor:
    return normal(12)


def none() -> Tensor:
    return normal(60)[:0]


def unlabelled() -> np.ndarray:
    return known()[0]


def rare() -> tuple[np.ndarray, np.ndarray]:
    """A class of four pictures among the ninety."""
    x, labels = known()
    return x, np.where(np.arange(len(labels)) < 4, 3, labels % 3)


class Remembers(nn.Module):
    """A network that is another one each time it runs: its values cannot be read without changing its output."""

    def __init__(self):
        super().__init__()
        self.state = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state + 1
        return torch.relu(x) + self.state
