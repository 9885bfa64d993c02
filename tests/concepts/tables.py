"""Small concept tables that the tests of the room share."""

from __future__ import annotations

import numpy as np

from querist.concepts import ConceptData


def random_table(n=60, k=8, classes=3, *, seed=0, missing=0.0, density=0.4, **options) -> ConceptData:
    """Independent binary concepts, every class present."""
    rng = np.random.default_rng(seed)
    values = (rng.random((n, k)) < density).astype(float)
    values[rng.random((n, k)) < missing] = np.nan
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return ConceptData(values, labels, **options)


def structured_table(n=400, k=20, classes=8, *, seed=0, flip=0.12) -> ConceptData:
    """Class templates with flipped cells: what an honest annotation looks like."""
    rng = np.random.default_rng(seed)
    templates = rng.random((classes, k)) < 0.35
    labels = np.arange(n) % classes
    values = templates[labels] ^ (rng.random((n, k)) < flip)
    return ConceptData(values.astype(float), labels)
