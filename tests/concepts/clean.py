"""Clean tables of many shapes, with nothing planted in any: what every detector of the room is calibrated on.

A family draws tables of one law, as many as are asked for: rows of a real table with replacement, or rows of a law written
down here. Two tables of one draw are exchangeable, row by row and class by class, so that whatever tells them apart is a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from querist.concepts import ConceptData
from querist.concepts.readers import registered
from querist.sources.datasets import birds

__all__ = ["BUNDLED", "FAMILIES", "Family", "drawn", "twice"]

Draw = Callable[[np.random.Generator, int], list[ConceptData]]


@dataclass(frozen=True)
class Family:
    """`draw(rng, tables)` gives that many tables of one law. `hard` says what makes the family hard to be right about."""

    name: str
    draw: Draw
    hard: str
    registered: str | None = None

    def __call__(self, rng: np.random.Generator, tables: int = 1) -> list[ConceptData]:
        return self.draw(rng, tables)


def drawn(family: str, run: int, tables: int = 1, *, seed: int = 0) -> list[ConceptData]:
    """Tables of run `run` of a family: the same whoever asks."""
    return FAMILIES[family](np.random.default_rng([seed, run, *family.encode()]), tables)


def twice(data: ConceptData, rng: np.random.Generator, flip: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Each row annotated twice, both times with errors of its own: before and after are exchangeable within a row."""
    known = np.where(np.isnan(data.concepts), 0, data.concepts)
    return tuple(np.abs(known - (rng.random(known.shape) < flip)) for _ in range(2))  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------- real tables


@cache
def _held(name: str) -> ConceptData:
    data = registered(name)
    return (data.part("train") if name == "cub-concepts" else data).changed(split=None, ids=None)


def _bootstraps(data: ConceptData, rng: np.random.Generator, tables: int, n: int) -> list[ConceptData]:
    """Rows with replacement; a class that is not drawn stays a class."""
    return [data.subset(rng.integers(0, data.n, n)) for _ in range(tables)]


def _of_classes(data: ConceptData, codes: np.ndarray) -> ConceptData:
    rows = np.flatnonzero(np.isin(data.codes, codes))
    return ConceptData(data.concepts[rows], data.codes[rows], concept_names=data.concept_names)


def _cub(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    whole = _held("cub-concepts")
    return _bootstraps(whole, rng, tables, whole.n)


def _cub_part(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    whole = _held("cub-concepts")
    part = _of_classes(whole, rng.permutation(whole.n_classes)[:40])
    return _bootstraps(part, rng, tables, part.n)


def _mushroom(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _bootstraps(_held("mushroom"), rng, tables, 600)


def _zoo(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    zoo = _held("zoo")
    return _bootstraps(zoo, rng, tables, zoo.n)


def _renderer(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    made = []
    for _ in range(tables):
        concepts, labels = birds.birds(600, seed=int(rng.integers(2**31)))
        made.append(ConceptData(concepts, labels, concept_names=birds.CONCEPTS, class_names=birds.CLASSES))
    return made


# ---------------------------------------------------------------------------------------------------- laws written down


def _random_labels(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    found = []
    for data in _bootstraps(_held("mushroom"), rng, tables, 1200):
        labels = np.concatenate([np.arange(60), rng.integers(0, 60, data.n - 60)])
        found.append(ConceptData(data.concepts, labels, class_names=range(60)))
    return found


def _one_hot(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    shares = rng.dirichlet(np.ones(4), (60, 6)).cumsum(axis=2)
    made = []
    for _ in range(tables):
        labels = np.concatenate([np.arange(60), rng.integers(0, 60, 1140)])
        value = (rng.random((1200, 6, 1)) > shares[labels]).sum(axis=2).clip(max=3)
        groups = [f"g{group}" for group in range(6) for _ in range(4)]
        made.append(ConceptData(np.eye(4)[value].reshape(1200, 24), labels, class_names=range(60), groups=groups))
    return made


def _templates(
    rng: np.random.Generator, tables: int, sizes: np.ndarray, k: int, *, flip: float, on: float = 0.35, lost: float = 0
) -> list[ConceptData]:
    """Rows around one template per class."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    template = rng.random((len(sizes), k)) < on
    made = []
    for _ in range(tables):
        cells = (template[labels] ^ (rng.random((len(labels), k)) < flip)).astype(float)
        cells[rng.random(cells.shape) < lost] = np.nan
        made.append(ConceptData(cells, labels, class_names=range(len(sizes))))
    return made


def _sizes(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, rng.permutation(np.geomspace(4, 600, 60).round().astype(int)), 24, flip=0.12)


def _tiny(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, rng.integers(2, 7, 60), 24, flip=0.12)


def _ties(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, np.full(60, 20), 4, flip=0.2, on=0.5)


def _rare(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, rng.integers(10, 40, 60), 60, flip=0.01, on=0.01)


def _unknown(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, rng.integers(10, 40, 60), 24, flip=0.12, lost=0.2)


def _uniform(rng: np.random.Generator, tables: int) -> list[ConceptData]:
    return _templates(rng, tables, rng.integers(4, 30, 30), 12, flip=0.01)


FAMILIES = {
    family.name: family
    for family in (
        Family("CUB", _cub, "200 classes of 30 rows, correlated concepts, copies of rows", "cub-concepts"),
        Family("CUB, 40 classes", _cub_part, "the same, other classes in each table", "cub-concepts"),
        Family("mushroom", _mushroom, "two classes, one-hot groups, unknown cells, many equal rows"),
        Family("zoo", _zoo, "seven classes of 4 to 41 rows, most rows equal another"),
        Family("renderer", _renderer, "ten classes of 60 rows"),
        Family("random labels", _random_labels, "mushroom's rows, 60 labels that mean nothing"),
        Family("one-hot groups", _one_hot, "six groups of four exclusive values, 60 classes"),
        Family("sizes 4 to 600", _sizes, "60 classes, from 4 to 600 rows"),
        Family("tiny classes", _tiny, "60 classes of 2 to 6 rows"),
        Family("heavy ties", _ties, "four concepts, 60 classes: 16 profiles in 1,200 rows"),
        Family("rare concepts", _rare, "60 concepts, each on in 2 % of rows"),
        Family("unknown cells", _unknown, "a fifth of the cells is unknown"),
        Family("nearly uniform", _uniform, "classes of almost equal rows"),
    )
}
BUNDLED = tuple(name for name, family in FAMILIES.items() if family.registered is None)
"""Those that need no data beside the checkout."""
