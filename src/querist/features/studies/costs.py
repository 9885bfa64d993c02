"""Rough prices of the units of a comparison, in seconds on one core: only by them are units ordered and pools begun."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from querist.features.captured import Capture
from querist.features.configs import CompareConfig

__all__ = ["capture_seconds", "layer_seconds", "profile_seconds"]

PER_ROW = 1.5e-3
"""Reading a picture and running a network of the size of ResNet20 over it."""
PER_NUMBER = 1.2e-8
"""Gathering, sorting and subtracting one projected value, times log2 of their number."""


def capture_seconds(config: CompareConfig) -> float:
    """One network over one data set."""
    return config.n * PER_ROW


def layer_seconds(config: CompareConfig, captures: Mapping[tuple[str, str], Capture], layer: str) -> float:
    """All gaps of one layer: splits, permutations and the jackknife's, by sorted lines; and the probes."""
    draws = 2 * config.splits + 2 * config.permutations + 200
    lines = config.projections if config.distance == "sliced" else 100
    total = 0.0
    for (net, role), one in captures.items():
        if net == "model" and role != "source" and layer in one.names:
            rows = len(one[layer].rows)
            total += draws * lines * rows * math.log2(max(rows, 2)) * PER_NUMBER
            total += 5 * rows * len(one[layer].mean) * 1e-6 if config.probe else 0.0
    return total


def profile_seconds(config: CompareConfig, captures: Mapping[tuple[str, str], Capture], layers: Sequence[str]) -> float:
    """Evolutions and untested excesses of one network."""
    tested = 2 * config.splits + 2 * config.permutations + 200
    share = 2 * config.splits / tested
    return sum(layer_seconds(config, captures, name) for name in layers) * share
