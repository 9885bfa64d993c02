"""Capture against the same forward passes without it: ResNet20 on 2,000 pictures, 11 layers, data and network open already."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.timing import Ratio, cost, seconds
from querist.features import capture
from querist.sources.data import batches, choose_ids, open_data
from querist.sources.images.transform import Transform
from querist.sources.models import build_module, open_model
from querist.statistics import stream

RESNET20 = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"


def ratios() -> Iterator[Ratio]:
    """The ratio, after the logits have been found equal."""
    noise = stream(0, "benchmarks", "capture").integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
    data = open_data(noise, transform=Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    network, module = open_model(RESNET20), build_module(RESNET20).eval()
    ids = choose_ids(data, None)

    def forward() -> np.ndarray:
        with torch.inference_mode():
            return np.concatenate([module(batch.inputs).numpy() for batch in batches(data, ids, 128)])

    found = capture(network, data, layers="blocks", n=None)
    assert len(found) == 12
    assert np.abs(found["logits"].rows - forward()).max() < 1e-6 * np.abs(forward()).max() + 1e-6
    times = seconds({"forward passes": forward, "ours": lambda: capture(network, data, layers="blocks", n=None)})
    yield cost("ResNet20, 2,000 pictures: capture over forward", times, "forward passes", 1.15)
