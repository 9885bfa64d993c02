"""Networks with blocks and data of a few pixels: what frozen blocks and rankings are tried on, also in other processes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from querist.features.configs import FreezeConfig, RankConfig
from querist.features.studies.freeze import FreezeStudy
from querist.features.studies.rank import RankStudy
from querist.training import Hook


class Block(nn.Module):
    """A convolution, a norm, and a sum."""

    def __init__(self, width: int):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn(self.conv(x)))


class Blocky(nn.Module):
    """A stem, two stages of two blocks, a head."""

    def __init__(self, width: int = 5, classes: int = 4, channels: int = 3):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)
        self.stage1 = nn.Sequential(Block(width), Block(width))
        self.stage2 = nn.Sequential(Block(width), Block(width))
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(self.stage2(self.stage1(x)).mean((2, 3)))


def blocky(width: int = 5, seed: int = 0, channels: int = 3) -> Blocky:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Blocky(width, channels=channels).eval()


class Skipping(Blocky):
    """What comes behind the blocks looks at the stem as well."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc((self.stage2(self.stage1(x)) + x).mean((2, 3)))


class Placed(nn.Module):
    """Tokens with places that the network itself holds, in blocks that return tuples."""

    class Layer(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.mix, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, None]:
            mean = (x * mask[..., None]).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
            return self.norm(x + torch.tanh(self.mix(x + mean))), None

    def __init__(self, width: int = 6, words: int = 11, length: int = 7):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.place = nn.Parameter(torch.randn(length, width))
        self.late = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList([self.Layer(width) for _ in range(3)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.words(input_ids) + self.place[: input_ids.shape[1]]
        for layer in self.layers:
            x, _ = layer(x, attention_mask.float())
        return x + self.late


def texts(n: int = 60, seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 11, (n, 7), generator=draw)
    mask = (torch.arange(7)[None] < torch.randint(3, 8, (n, 1), generator=draw)).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": (ids[:, 0] > 5).long()}


class Moving(nn.Module):
    """A block whose values change whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1  # pyright: ignore[reportOperatorIssue, reportAttributeAccessIssue]
        return torch.relu(self.conv(x) + self.calls)


class Restless(nn.Module):
    """Frozen, and not at rest."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Moving(), Moving()])
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


class Keen(nn.BatchNorm2d):
    """A norm that stays in training mode whatever it is told."""

    def train(self, mode: bool = True) -> Keen:
        return super().train(True)


def pictures(n: int = 120, seed: int = 0, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    from querist.sources.datasets.pictures import tiny_images

    images, labels = tiny_images(n, size=8, seed=seed)
    return images, labels % classes


def coloured(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise whose colour tells its class."""
    rng = np.random.default_rng([seed, n])
    labels = np.arange(n) % 3
    x = rng.standard_normal((n, 3, 8, 8))
    x[np.arange(n), labels] += 1.0
    return x.astype(np.float32), labels


def known() -> tuple[np.ndarray, np.ndarray]:
    return pictures(90)


def new() -> tuple[np.ndarray, np.ndarray]:
    return pictures(130, seed=3)


class Epochs(Hook):
    """Counts what it is shown."""

    def __init__(self) -> None:
        self.epochs, self.parameters = 0, set()

    def on_epoch(self, state) -> None:
        self.epochs += 1
        self.parameters = {name for name, _ in state.model.named_parameters()}


HERE = "tests.features.blocks"
QUICK = {"n": 40, "epochs": 1, "repeats": 2, "lr": 1e-3, "projections": 8, "splits": 3, "train_n": 40, "test_n": 44}


def freeze_config(**fields) -> FreezeConfig:
    """Addresses only, so that any process can open them."""
    given = {"model": f"{HERE}:blocky", "target": (f"{HERE}:new",), "source": f"{HERE}:known"}
    return FreezeConfig.build(**{**given, **QUICK, "arms": ("pretrained", "moments"), "ks": "0,2", **fields})


def freeze_study() -> FreezeStudy:
    return FreezeStudy()


def held_freeze() -> FreezeStudy:
    """Network and data in memory."""
    return FreezeStudy({"model": blocky(), "train-0": new(), "test-0": pictures(50, seed=9)})


def rank_config(**fields) -> RankConfig:
    given = {"models": (f"{HERE}:blocky", f"{HERE}:blocky?width=4"), "target": f"{HERE}:new", "source": f"{HERE}:known"}
    return RankConfig.build(**{**given, "n": 60, "permutations": 9, "projections": 8, "splits": 3, **fields})


def rank_study() -> RankStudy:
    return RankStudy()


def held_rank() -> RankStudy:
    return RankStudy({"model-0": blocky(), "target": new()})
