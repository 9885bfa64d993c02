"""Pictures and clouds of points that need no file: scikit-learn's digits, drawn shapes, Gaussian pairs and clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["clusters", "digits", "tiny_images"]


def digits() -> tuple[UInt8[np.ndarray, "n 8 8 1"], Int[np.ndarray, "n"]]:
    """scikit-learn's digits, their 17 levels spread over 0..255."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    images = np.rint(np.asarray(found["images"]) * (255 / 16)).astype(np.uint8)
    return images[..., None], np.asarray(found["target"], dtype=np.int64)


def tiny_images(
    n: int = 2000, *, size: int = 16, channels: int = 3, seed: int = 0
) -> tuple[UInt8[np.ndarray, "n s s c"], Int[np.ndarray, "n"]]:
    """Pictures of a disc, a square, a cross or stripes (labels 0 to 3, in turn) of a random colour, place and noise."""
    if n < 1 or size < 8 or channels not in (1, 3):
        raise BadOption(
            "Tiny images need n >= 1, size >= 8 and 1 or 3 channels", value=f"n={n}, size={size}, channels={channels}"
        )
    rng = stream(seed, "tiny-images", n, size, channels)
    labels = np.arange(n) % 4
    y, x = np.mgrid[:size, :size]
    centre = rng.uniform(0.35, 0.65, (n, 2, 1, 1)) * size
    radius = rng.uniform(0.2, 0.3, (n, 1, 1)) * size
    dy, dx = np.abs(y - centre[:, 0]), np.abs(x - centre[:, 1])
    shapes = np.stack(
        [
            dy**2 + dx**2 < radius**2,
            np.maximum(dy, dx) < radius,
            (np.minimum(dy, dx) < radius / 3) & (np.maximum(dy, dx) < radius * 1.3),
            ((x + y) // 3 % 2 == 0) & (np.maximum(dy, dx) < radius * 1.2),
        ]
    )[labels, np.arange(n)]
    ink, paper = rng.uniform(120, 255, (n, 1, 1, channels)), rng.uniform(0, 110, (n, 1, 1, channels))
    picture = np.where(shapes[..., None], ink, paper) + rng.normal(0, 8, (n, size, size, channels))
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8), labels.astype(np.int64)


def clusters(
    images: int, sites: int, d: int, *, correlation: float = 0.5, seed: int = 0
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n"]]:
    """Rows of N(0, I_d) in clusters: `sites` rows an image, whose coordinates correlate; and the image of each row."""
    if not 0 <= correlation <= 1:
        raise BadOption("A correlation is between 0 and 1", value=correlation)
    rng = stream(seed, "clusters", images, sites, d)
    shared = np.repeat(rng.standard_normal((images, d)), sites, axis=0)
    rows = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.standard_normal((images * sites, d))
    return rows, np.repeat(np.arange(images), sites)
