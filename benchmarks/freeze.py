"""Training with frozen blocks, their output kept or run again in every epoch.

Without augmentation a frozen prefix gives the same values in every epoch. With forward cost F of the prefix and cost B of forward
and backward through the rest, E epochs cost E(F + B) without and F + E·B with the cache: at half of the blocks B is about 2.4 F, so
that no cache can go below (F/E + B)/(F + B), about .76 for five epochs. The goal of half the time is for prefixes that are most
of the work: there is a line for k = K/2, held against what is possible, and one for k = K.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from benchmarks.timing import Ratio, cost, seconds
from querist.features.freezing import Held, Plan, find_blocks, initial, train_cell, with_head
from querist.sources.models import build_module
from querist.statistics import stream

RESNET20 = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
ROWS, TESTED, EPOCHS = 256, 32, 5


def ratios() -> Iterator[Ratio]:
    """Time with the cache over the time without, after both have been found to end at the same accuracy and loss."""
    train, test = held("train", ROWS), held("test", TESTED)
    inputs = torch.from_numpy(train.inputs["x"][:3])
    module = build_module(RESNET20)
    blocks = find_blocks(module, inputs, "blocks", None)
    start = with_head(initial(module, "pretrained", repeat=0), blocks.head, inputs, 10, repeat=0)
    plan = Plan(epochs=EPOCHS, batch_size=32, device="cpu")
    for k, target in ((blocks.count // 2 + 1, 0.85), (blocks.count, 0.5)):

        def trained(cache: bool, k: int = k):
            return train_cell(copy.deepcopy(start), blocks, k, train, test, replace(plan, cache=cache))

        one, other = trained(True), trained(False)
        assert one.cached, "the prefix was not kept"
        assert one.accuracy == other.accuracy
        assert one.loss is not None
        assert other.loss is not None
        assert abs(one.loss - other.loss) <= 1e-6 * abs(other.loss)
        times = seconds({"ours": lambda: trained(True), "prefix run again": lambda: trained(False)}, rounds=3)
        what = f"ResNet20, {k} of {blocks.count} blocks frozen, {EPOCHS} epochs: kept prefix over none"
        yield cost(what, times, "prefix run again", target)


def held(name: str, n: int) -> Held:
    """Pictures of noise with ten classes."""
    rng = stream(0, "benchmarks", "freeze", name)
    x = rng.standard_normal((n, 3, 32, 32), dtype=np.float32)
    return Held({"x": x}, np.arange(n) % 10, np.arange(n))
