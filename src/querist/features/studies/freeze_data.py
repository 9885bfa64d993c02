"""The targets of a sweep: where training and test rows come from, which of them each repeat takes, and their classes."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from querist.errors import BadOption, TooFewRows
from querist.features.configs import FreezeConfig
from querist.features.errors import BadLabels
from querist.features.freezing import no_labels, shuffled_blocks
from querist.features.inputs import named
from querist.features.studies.opening import Material
from querist.sources.data import batches, choose_ids, hash_order
from querist.statistics import torch_seed

if TYPE_CHECKING:
    from querist.sources.data import Batch, Data

__all__ = ["LEAST", "Target", "addresses_of", "target_of"]

LEAST = 20
"""Training rows, and images per half of what is measured."""
TESTED = 5
"""One row in so many of a target without test rows of its own is set aside."""


def addresses_of(config: FreezeConfig, held: Container[str] = ()) -> dict[str, str]:
    """Addresses by role: model, source, and `train-i` and `test-i` of each target, without test-i where rows are set aside."""
    found = {"model": config.model} | ({"source": config.source} if config.source else {})
    for i, name in enumerate(config.target):
        bare = (name, None) if f"train-{i}" in held else _parts(name)
        train, test = (name, config.test[i]) if config.test else bare
        found[f"train-{i}"] = train
        if test is not None:
            found[f"test-{i}"] = test
    return found


def _parts(name: str) -> tuple[str, str | None]:
    """Training and test part of a registered data set; other data have no test rows of their own."""
    from querist.sources.address import parse
    from querist.sources.datasets.collections import COLLECTIONS

    address = parse(name)
    parts = COLLECTIONS[address.path].parts if address.kind == "name" and address.path in COLLECTIONS else {}
    if {"train", "test"} <= set(parts) and address.rows is None and address.split in ("", "train"):
        return f"{address.path}#train", f"{address.path}#test"
    return name, None


@dataclass
class Target:
    """One target. `train` and `test` are data, `pool` and `test_ids` the rows that may be trained on, and those tested on."""

    name: str
    train: Data
    test: Data
    pool: np.ndarray
    test_ids: np.ndarray
    config: FreezeConfig

    def train_ids(self, repeat: int) -> np.ndarray:
        """Training rows of a repeat, ascending: the first in an order of its own."""
        order = hash_order(self.pool, torch_seed(self.config.seed, "freeze", "rows", repeat))
        return np.sort(order[: self.config.train_n or len(order)])

    def measured(self) -> np.ndarray:
        """Test rows on which A_l and N_l are measured."""
        return choose_ids(replace(self.test, ids=self.test_ids), self.config.n, seed=self.config.seed)

    def fingerprint(self) -> str:
        """A hash of all rows that any repeat reads."""
        used = [self.train_ids(repeat) for repeat in range(self.config.repeats)]
        digest = hashlib.sha256()
        for data, ids in ((self.train, np.unique(np.concatenate(used))), (self.test, self.test_ids)):
            for batch in _quietly(data, ids):
                digest.update(np.ascontiguousarray(batch.ids).tobytes())
                for name, value in sorted(named(batch.inputs).items()):
                    digest.update(f"{name} {tuple(value.shape[1:])} {value.dtype}\n".encode())
                    digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
                digest.update(np.ascontiguousarray(batch.labels).tobytes() if batch.labels is not None else b"")
        return f"sha256:{digest.hexdigest()}"

    @cached_property
    def test_labels(self) -> np.ndarray:
        """Labels of the test rows that can be read."""
        return _labels(self.test, self.test_ids)

    @cached_property
    def classes(self) -> list[int]:
        """Labels of the training rows, sorted. Raises LabelsNeeded, BadLabels for one that a repeat never trains on."""
        known: set[int] = set()
        for repeat in range(self.config.repeats):
            mine = set(_labels(self.train, self.train_ids(repeat)).tolist())
            known |= mine
            for label in sorted(set(self.test_labels.tolist()) - mine):
                count = int((self.test_labels == label).sum())
                raise BadLabels(
                    f"A class of the test rows of {self.name} is not among the training rows",
                    value=f"class {self._called(label)}, {count} test rows, repeat {repeat}",
                    allowed="every class among the training rows of each repeat",
                    mend="Raise --train-n, or leave the class out",
                )
        if len(known) < 2:
            raise BadLabels(
                f"The training rows of {self.name} have one class",
                value=self._called(min(known)),
                allowed="2 or more",
                mend="Add rows of another class",
            )
        return sorted(known)

    def _called(self, label: int) -> str:
        names = self.train.classes
        return f"{label} ({names[label]})" if names and 0 <= label < len(names) else str(label)

    def check(self) -> None:
        """Raises TooFewRows, and what `classes` raises."""
        trained, measured = len(self.train_ids(0)), len(self.measured())
        if trained < LEAST:
            raise TooFewRows(
                f"Too few training rows of {self.name}",
                value=trained,
                allowed=f"{LEAST} or more",
                mend="Raise --train-n",
            )
        if measured < 2 * LEAST:
            raise TooFewRows(
                f"Too few test rows of {self.name} to measure its layers on, which takes two halves",
                value=measured,
                allowed=f"{2 * LEAST} or more",
                mend="Raise --test-n and --n",
            )
        _ = self.classes


def target_of(config: FreezeConfig, material: Material, i: int) -> Target:
    """The i-th target. Raises BadOption where training and test rows overlap, and what opening data raises."""
    train = material.data(f"train-{i}", config)
    own = f"test-{i}" in material.addresses
    test = material.data(f"test-{i}", config) if own else train
    chosen = choose_ids(test, config.test_n if own else config.test_n or max(1, len(train) // TESTED), seed=config.seed)
    pool = train.ids
    if not own:
        pool = np.setdiff1d(pool, chosen)
    elif train.source == test.source and len(shared := np.intersect1d(pool, chosen)):
        raise BadOption(
            f"{len(shared)} rows of {config.target[i]} would be trained on and tested on",
            value=f"ids {shared[:5].tolist()}",
            allowed="training and test rows apart",
            mend="Name another part of the data in --test",
        )
    if config.block_shuffle:
        train, test = (shuffled_blocks(data, config.block_shuffle, seed=config.seed) for data in (train, test))
    return Target(config.target[i], train, test, pool, chosen, config)


def _labels(data: Data, ids: np.ndarray) -> np.ndarray:
    found: list[np.ndarray] = []
    for batch in _quietly(data, ids):
        if batch.labels is None:
            raise no_labels(data.name)
        found.append(batch.labels)
    return np.concatenate(found)


def _quietly(data: Data, ids: np.ndarray) -> Iterator[Batch]:
    """Batches of these rows; what cannot be read is told when it is read for the work."""
    before = len(data.passed_over)
    yield from batches(data, ids, 256)
    del data.passed_over[before:]
