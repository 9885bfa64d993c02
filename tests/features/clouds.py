"""Rows that anyone can make anew from a formula, and the reference sets made of them."""

from __future__ import annotations

import numpy as np


def cloud(n: int, d: int, k: int) -> np.ndarray:
    """(n, d) float64: the fractional part of sin(12.9898 i + 78.233 j + k)·43758.5453, signed."""
    i, j = np.arange(1, n + 1)[:, None], np.arange(1, d + 1)[None]
    return np.modf(np.sin(12.9898 * i + 78.233 * j + k) * 43758.5453)[0]


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


X = cloud(40, 3, 0)
Y = 1.2 * cloud(40, 3, 7) + [0.3, 0, -0.1]
LABELS = np.arange(60) % 3
F = cloud(60, 5, 3) + 0.8 * np.eye(5)[LABELS]
_soft = softmax(2 * cloud(60, 4, 11)) + 0.6 * np.eye(4)[LABELS]
PROBABILITIES = _soft / _soft.sum(axis=1, keepdims=True)


def gaussian(n: int, d: int, *, seed: int = 0, dtype=np.float64) -> np.ndarray:
    return np.random.default_rng([seed, n, d]).standard_normal((n, d)).astype(dtype)


def rotation(d: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng([seed, d]).standard_normal((d, d)))[0]
