"""A network of a few hundred weights and data of a few pixels: what the studies of the room are tried on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from querist.features.configs import CompareConfig
from querist.features.studies.compare import CompareStudy
from querist.statistics import stream


class TinyNet(nn.Module):
    """Two convolutions with a norm and an activation in place, one functional activation, a linear head."""

    def __init__(self, channels: int = 3, width: int = 5, classes: int = 4):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 2, 1)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, 8, 3, 2, 1)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.relu(self.norm(self.conv1(x))))
        return self.head(torch.tanh(x).mean((2, 3)))


def tiny_net(width: int = 5, seed: int = 0) -> TinyNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyNet(width=width).eval()


class Pixels(nn.Module):
    """Rows that are values already: the argument of its activation is its input."""

    def __init__(self, d: int = 4):
        super().__init__()
        self.same = nn.Linear(d, d, bias=False)
        self.relu = nn.ReLU()
        self.head = nn.Linear(d, 3)
        with torch.no_grad():
            self.same.weight.copy_(torch.eye(d))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.same(x)))


def pictures(n: int = 120, *, shift: float = 0.0, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """Noise of 8 x 8 pixels with labels that colour them."""
    rng = stream(seed, "pictures", n)
    labels = np.arange(n) % 3
    x = rng.standard_normal((n, 3, 8, 8)) + shift
    x[np.arange(n), labels] += 1.0
    return torch.from_numpy(x.astype(np.float32)), labels


def normal(n: int, d: int = 4, *, shift: float = 0.0, seed: int = 0) -> Tensor:
    return torch.from_numpy((stream(seed, "normal", n, d).standard_normal((n, d)) + shift).astype(np.float32))


QUICK = {"n": 60, "projections": 40, "splits": 6, "permutations": 39, "batch_size": 32}


def study() -> CompareStudy:
    return CompareStudy()


def config(**fields) -> CompareConfig:
    """Addresses only, so that any process can open them."""
    given = {
        "model": "tests.features.small:tiny_net",
        "source": "tests.features.small:known",
        "target": ("tests.features.small:new", "digits"),
        "channels": 3,
        "size": (8,),
    }
    return CompareConfig.build(**{**given, **QUICK, **fields})


def known() -> tuple[np.ndarray, np.ndarray]:
    from querist.sources.datasets.pictures import tiny_images

    return tiny_images(90, size=8)


def new() -> tuple[np.ndarray, np.ndarray]:
    from querist.sources.datasets.pictures import tiny_images

    images, labels = tiny_images(80, size=8, seed=5)
    return np.minimum(images.astype(int) + 60, 255).astype(np.uint8), labels


def held_study() -> CompareStudy:
    """Network and data in memory."""
    X, y = pictures(70)
    return CompareStudy({"model": tiny_net(), "source": (X, y), "target-0": pictures(60, shift=1.0, seed=1)})
