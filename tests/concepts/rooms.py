"""Small tables, models and settings that the tests of the room's commands share; importable by other processes."""

from __future__ import annotations

import numpy as np

from querist.concepts import ConceptData

QUICK = {"epochs": 6, "head": "mlp:16", "permutations": 99}


def animals(
    n: int = 240, k: int = 12, classes: int = 6, *, seed: int = 0, split: bool = True, **options
) -> ConceptData:
    """Class templates with flipped cells, as an honest annotation looks; two thirds train."""
    rng = np.random.default_rng(seed)
    templates = np.random.default_rng(7).random((classes, k)) < 0.4
    labels = np.arange(n) % classes
    values = templates[labels] ^ (rng.random((n, k)) < 0.1)
    parts = np.where(np.arange(n) < 2 * n // 3, "train", "test") if split else None
    return ConceptData(
        values.astype(float),
        np.array([f"kind {label}" for label in labels]),
        split=parts,
        ids=[f"r{i}" for i in range(n)],
        concept_names=[f"has {word}" for word in WORDS[:k]],
        **options,
    )


WORDS = (
    "fur",
    "feathers",
    "eggs",
    "milk",
    "wings",
    "fins",
    "teeth",
    "spine",
    "lungs",
    "venom",
    "tail",
    "hooves",
    "stripes",
    "crest",
)


def class_level(classes: int = 6, copies: int = 8) -> ConceptData:
    """All rows of a class equal, one edited."""
    templates = np.random.default_rng(3).random((classes, 10)) < 0.5
    labels = np.repeat(np.arange(classes), copies)
    values = templates[labels].astype(float)
    values[5, :3] = 1 - values[5, :3]
    return ConceptData(values, labels)
