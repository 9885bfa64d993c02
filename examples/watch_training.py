"""Watch what training does to the weights of a small convolutional network on Fashion-MNIST.

    python examples/watch_training.py [--epochs 3] [--lr 0.002] [--out runs/watch-fashion]

While it runs, open the page in the folder, or follow it from another shell: querist weights watch runs/watch-fashion
The pictures are read from the folder that QUERIST_DATA names, or from what `querist data fetch` has put into the cache.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

from querist.errors import BadInput
from querist.sources.datasets.registry import locate
from querist.training import fit
from querist.weights import Monitor


def read(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures [n, 1, 28, 28] in [0, 1] and labels [n] of one part, "train" or "t10k"."""
    data = {}
    for what, header in (("images", 16), ("labels", 8)):
        with gzip.open(locate(f"fashion-mnist-{part}-{what}")) as file:
            data[what] = torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=header).copy())
    return data["images"].view(-1, 1, 28, 28).float() / 255, data["labels"].long()


def network() -> nn.Module:
    """Two convolutions and two linear layers, 230 000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(),
        nn.Conv2d(32, 64, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 160), nn.ReLU(),
        nn.Linear(160, 10),
    )  # fmt: skip


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict:
    """Cross entropy as a sum over rows and their number, and the share that is right."""
    scores, rows = model(batch[0]), torch.tensor(float(len(batch[1])), device=batch[1].device)
    return {"cross-entropy": (nn.functional.cross_entropy(scores, batch[1], reduction="sum"), rows)}


def accuracy(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict:
    """Pictures of which the label is found."""
    right = (model(batch[0]).argmax(1) == batch[1]).float().sum()
    return {"accuracy": (right, torch.tensor(float(len(batch[1])), device=batch[1].device))}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--epochs", type=int, default=3)
    words.add_argument("--lr", type=float, default=2e-3)
    words.add_argument("--out", type=Path, default=Path("runs/watch-fashion"))
    given = words.parse_args()
    torch.manual_seed(0)
    model = network()
    monitor = Monitor(model, every=25, full_every=4, max_overhead=0.1, out=given.out, on_alarm=print)
    found = fit(
        model, loss, read("train"), batch_size=128, epochs=given.epochs, lr=given.lr, optimizer="adam",
        validation=read("t10k"), metric=accuracy, hooks=[monitor],
    )  # fmt: skip
    print(monitor.result())
    print(
        f"accuracy {found.metrics['accuracy']:.3f}, training waited {100 * (monitor.overhead or 0):.1f} % of its time"
    )
    print(f"the last look and the page took {monitor.closing:.2f} s after it")


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        raise SystemExit(f"{error}") from None
