"""Which columns a model's predictions rest on: how far each moves them, and where the queries of arms look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from querist.effects.configs import FitConfig
from querist.effects.netrows import batches_of
from querist.effects.parts import Effects
from querist.effects.sample import Sample
from querist.sources.rows import Encoded
from querist.statistics import stream

__all__ = ["BATCH", "attention", "importance", "predicted_effects"]

Row = dict[str, Any]
BATCH = 16_384
"""Rows that are predicted at a time."""
PEOPLE = 2_000
"""Rows on which columns are shuffled between people, and over which attention is meaned."""


def predicted_effects(model: Any, encoded: Encoded) -> Effects:
    """The model's effects on rows that are encoded already."""
    n = len(encoded)
    found = [model._parts(encoded[slice(start, start + BATCH)]) for start in range(0, n, BATCH)]
    natural, total = (np.concatenate([np.asarray(part[i], dtype=float) for part in found]) for i in (0, 1))
    return model._effects(natural, total, None)


def importance(config: FitConfig, model: Any, sample: Sample) -> Iterator[Row]:
    """How far predictions move when one column is shuffled between people: total effects, and increments."""
    encoded = _some(config, sample)
    before = predicted_effects(model, encoded)
    order = stream(config.seed, "effects", "importance", "order").permutation(len(encoded))
    for name in sample.columns.names:
        changed = predicted_effects(model, _shuffled(sample, encoded, name, order))
        for part in ("total", "incremental"):
            moved = getattr(changed, part) - getattr(before, part)
            size = np.sqrt((moved**2).mean(axis=0))
            for m, arm in enumerate(model.arms_):
                for k, outcome in enumerate(model.outcomes_):
                    value = float(size[m, k]) if np.isfinite(size[m, k]) else None
                    yield {"feature": name, "arm": str(arm), "outcome": outcome, "part": part, "moved": value}


def attention(config: FitConfig, model: Any, sample: Sample) -> Iterator[Row]:
    """Where the query of each arm looks among columns, mean over people, heads and networks; only experts "ft" have a token per column.

    With one arm it is the query of "treated". Equal shares, 1/columns, are what queries begin with that ask nothing.
    """
    architecture = getattr(model, "architecture_", None)
    if architecture is None or architecture.expert != "ft" or not architecture.interaction:
        return
    encoded = _some(config, sample)
    found = []
    with torch.no_grad():
        for net in (one for members in model.networks_ for one in members):
            each = torch.cat([net.attention(*batch) for batch in batches_of(encoded, 512)])
            found.append(each.double().mean(0).numpy())
    shares = np.mean(found, axis=0)  # [K, M, T]
    names = (*encoded.number_names, *encoded.category_names)
    for k, outcome in enumerate(model.outcomes_):
        for m, arm in enumerate(model.arms_):
            for t, name in enumerate(names):
                yield {"feature": name, "arm": str(arm), "outcome": outcome, "share": float(shares[k, m, t])}


def _some(config: FitConfig, sample: Sample) -> Encoded:
    """Up to `PEOPLE` rows of the fit, drawn with the seed."""
    drawn = np.sort(stream(config.seed, "effects", "importance").permutation(sample.n)[:PEOPLE])
    return sample.encoded[drawn]


def _shuffled(sample: Sample, encoded: Encoded, name: str, order: np.ndarray) -> Encoded:
    if name in sample.columns.categories:
        j, codes = list(sample.columns.categories).index(name), encoded.codes.copy()
        codes[:, j] = codes[order, j]
        return replace(encoded, codes=codes)
    j = list(sample.columns.numbers).index(name)
    numbers, missing = encoded.numbers.copy(), encoded.missing.copy()
    numbers[:, j], missing[:, j] = numbers[order, j], missing[order, j]
    return replace(encoded, numbers=numbers, missing=missing)
