"""Distances between every two layers of two captures that need no matching of their units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import UndefinedMetric
from querist.features.distances import cka, deviations
from querist.features.normalise import flattened
from querist.features.profile._evolution import quantiles

__all__ = ["LayerMatrix", "layer_matrix"]


@dataclass(frozen=True, slots=True)
class LayerMatrix:
    """Layer by layer: distance between spectra, W_2 of pooled values, and CKA (None where the images are not the same).

    Rows are the layers of the first set, columns those of the second; NaN where a value is undefined.
    """

    spectrum: Float[np.ndarray, "L M"]
    pooled: Float[np.ndarray, "L M"]
    cka: Float[np.ndarray, "L M"] | None


def layer_matrix(first: Mapping[str, Any], second: Mapping[str, Any], *, same_images: bool = False) -> LayerMatrix:
    """All pairs of layers of two sets; first, second: mappings from layer to rows (n, d) or (n, sites, d), standardised already.

    spectrum: (Σ(√λ_i − √μ_i)²)^½ of covariance eigenvalues, each spectrum scaled to the sum 1, so that layers of other widths
    compare: 0 for one shape, √2 at most. pooled: W_2 of all values, over units and images. cka: linear, unbiased, of
    the same images in the same order, each the mean of its places.

    Raises ShapeMismatch, NonFinite, TooFewRows below two rows. Source: the scaling is ours; CKA of Kornblith et al. (2019).
    """
    sides = [{name: flattened(rows, name)[0] for name, rows in side.items()} for side in (first, second)]
    shapes = [[_shape(rows) for rows in side.values()] for side in sides]
    lines = [[quantiles(rows) for rows in side.values()] for side in sides]
    spectrum = np.array([[_apart(a, b) for b in shapes[1]] for a in shapes[0]])
    pooled = np.array([[float(np.sqrt(np.mean((a - b) ** 2))) for b in lines[1]] for a in lines[0]])
    alike = None
    if same_images:
        means = [[_means(rows) for rows in side.values()] for side in (first, second)]
        alike = np.array([[_cka(a, b) for b in means[1]] for a in means[0]])
    return LayerMatrix(spectrum, pooled, alike)


def _means(rows: Any) -> np.ndarray:
    array = np.asarray(rows)
    return array.mean(axis=1) if array.ndim == 3 else array


def _shape(rows: np.ndarray) -> np.ndarray:
    """Standard deviations along the axes of the covariance, descending, their squares adding to 1."""
    found = deviations(rows, 1)
    length = float(np.linalg.norm(found))
    return found / length if length > 0 else np.full(1, np.nan)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    size = max(a.size, b.size)
    return float(np.linalg.norm(np.pad(a, (0, size - a.size)) - np.pad(b, (0, size - b.size))))


def _cka(a: np.ndarray, b: np.ndarray) -> float:
    try:
        return cka(a, b)
    except UndefinedMetric:
        return float("nan")
