"""How the bundled Fashion-MNIST subset was drawn: so many of each class, seeded, in the order of the whole set."""

from __future__ import annotations

import numpy as np

from querist.statistics import stream

__all__ = ["TEST", "TRAIN", "stratified_rows"]

TRAIN, TEST = 2000, 1000
"""Pictures of the bundled subset: keys `x_train, y_train` and `x_test, y_test`."""


def stratified_rows(labels: np.ndarray, n: int, *, part: str, seed: int = 0) -> np.ndarray:
    """Sorted indices of `n` rows, the same number of each class: int [n].

    `part` ("train", "test") names the draw, so the two are independent. n must be a multiple of the number of classes.
    """
    classes = np.unique(labels)
    rng = stream(seed, "fashion-mnist-small", part)
    chosen = [rng.permutation(np.flatnonzero(labels == c))[: n // len(classes)] for c in classes]
    return np.sort(np.concatenate(chosen))
