"""Seeded random matrices whose spectra are known: what the tests, the demo and the docs ask questions of.

All are float32 of shape h x d with unit entry variance where that exists, drawn from `statistics.stream`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from querist.statistics import stream

__all__ = ["gaussian", "inverse_wishart", "low_rank", "pareto_entries", "sample_network", "spiked"]


def gaussian(h: int, d: int, *, seed: int = 0) -> np.ndarray:
    """Independent normal entries: a Marchenko–Pastur bulk and nothing else."""
    return stream(seed, "matrices", "gaussian", h, d).standard_normal((h, d), dtype=np.float32)


def spiked(h: int, d: int, *, strengths: tuple[float, ...] = (1.5,), seed: int = 0) -> np.ndarray:
    """Gaussian noise plus rank-one terms, each `strength` times the detection threshold (h·d)^(1/4)."""
    rng = stream(seed, "matrices", "spiked", h, d)
    noise = rng.standard_normal((h, d))
    left = np.linalg.qr(rng.standard_normal((h, len(strengths))))[0]
    right = np.linalg.qr(rng.standard_normal((d, len(strengths))))[0]
    theta = np.asarray(strengths) * (h * d) ** 0.25
    return (noise + (left * theta) @ right.T).astype(np.float32)


def pareto_entries(h: int, d: int, *, exponent: float = 1.5, seed: int = 0) -> np.ndarray:
    """Symmetric Pareto entries, P(|w| > x) = x^-exponent: the matrix's tail comes from single entries."""
    rng = stream(seed, "matrices", "pareto", h, d)
    sign = rng.integers(0, 2, (h, d)) * 2 - 1
    return (sign * rng.random((h, d)) ** (-1 / exponent)).astype(np.float32)


def inverse_wishart(h: int, d: int, *, freedom: float = 1.5, seed: int = 0) -> np.ndarray:
    """Gaussian columns mixed by the inverse root of a Wishart matrix: a power-law tail made of correlation.

    `freedom` is the ratio of Wishart samples to the shorter side; the closer to 1, the heavier the tail.
    """
    rng = stream(seed, "matrices", "inverse-wishart", h, d)
    n = min(h, d)
    sample = rng.standard_normal((round(freedom * n), n))
    values, vectors = np.linalg.eigh(sample.T @ sample / len(sample))
    root = (vectors / np.sqrt(values)) @ vectors.T
    noise = rng.standard_normal((max(h, d), n)) @ root
    return np.ascontiguousarray(noise if h >= d else noise.T, dtype=np.float32)


def low_rank(h: int, d: int, *, rank: int, seed: int = 0) -> np.ndarray:
    """A product of two Gaussian factors: exactly `rank` directions and no noise."""
    rng = stream(seed, "matrices", "low-rank", h, d)
    return (rng.standard_normal((h, rank)) @ rng.standard_normal((rank, d)) / np.sqrt(rank)).astype(np.float32)


def sample_network(*, side: int = 96, seed: int = 0) -> Mapping[str, np.ndarray]:
    """A state dict of one matrix of each kind, for trying the room out: name to array."""
    return {
        "random.weight": gaussian(side, 2 * side, seed=seed),
        "spiked.weight": spiked(2 * side, side, strengths=(3.0, 2.0), seed=seed),
        "pareto.weight": pareto_entries(side, side, seed=seed),
        "heavy.weight": inverse_wishart(2 * side, side, freedom=1.1, seed=seed),
        "collapsed.weight": low_rank(side, side, rank=side // 3, seed=seed),
        "random.bias": np.zeros(side, dtype=np.float32),
    }
