"""Alarms over a whole training in which nothing happens, and how soon something that does happen is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from querist.weights.monitor import Memory, Plan, dense, look, watched

LOOKS, H, D = 10, 60, 40


def entries(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "t3":
        return rng.standard_t(3, (H, D))
    return rng.standard_normal((H, D))


def train(kind: str, seed: int, planted: float = 0.0) -> list[tuple[int, str]]:
    """Two layers whose entries are drawn anew by a tenth at each look; (look, kind) of every alarm.

    planted: strength of a direction in the first layer from the sixth look on, over what leaves the bulk.
    """
    rng = np.random.default_rng([seed, len(kind)])
    net = nn.Sequential(nn.Linear(D, H, bias=False), nn.Linear(D, H, bias=False))
    scales = (
        torch.from_numpy(np.geomspace(0.5, 2, H)).float().unsqueeze(1) if kind == "row-scaled" else torch.ones(H, 1)
    )
    values = [entries(kind, rng) for _ in net]
    u, v = (rng.standard_normal(n) for n in (H, D))
    spike = planted * (H * D) ** 0.25 * np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v))
    made, _ = watched(net, ["*"])
    memory = [Memory() for _ in made]
    told = []
    for event in range(1, LOOKS + 1):
        with torch.no_grad():
            for i, one in enumerate(net):
                fresh = rng.random((H, D)) < 0.1
                values[i] = np.where(fresh, entries(kind, rng), values[i])
                extra = spike if planted and i == 0 and event >= 6 else 0.0
                one.weight.copy_(torch.from_numpy(values[i] + extra).float() * scales)
            for matrix, known in zip(made, memory, strict=True):
                plan = Plan(event, event, True, 4, len(made), 0, lambda: True)
                told += [(event, alarm.kind) for alarm in look(dense(matrix), matrix, known, plan).alarms]
    return told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "t3", "row-scaled"])
def test_a_training_in_which_nothing_happens_raises_an_alarm_once_in_twenty_at_most(kind):
    runs = 200
    false = sum(bool(train(kind, seed)) for seed in range(runs))
    # The .99 point of Binomial(200, .05) is 18.
    assert false <= 18, f"{false} of {runs}"


@pytest.mark.slow
def test_a_direction_of_twice_the_threshold_is_told_at_its_first_look():
    runs = 60
    prompt = sum((6, "spike-born") in train("gaussian", seed, planted=2.0) for seed in range(runs))
    assert prompt >= 0.9 * runs
