"""Normalisation of a layer's rows, fitted on the source alone and applied to every set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from querist.errors import BadOption, ShapeMismatch, TooFewRows, UndefinedMetric
from querist.features.arrays import rows
from querist.features.errors import DimensionMismatch
from querist.features.moments import moments, shrunk
from querist.statistics.arrays import as_array

__all__ = ["CONSTANT", "KINDS", "Normaliser", "fit_normaliser"]

KINDS = ("none", "iso", "unit", "whiten")
CONSTANT = 1e-6
"""Of the largest sd: units below it are constant for `unit`, and would be blown up by their own rounding."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """Shift, scale and the units kept: z ↦ (z − mean)·scale, scale a number, a vector, or a matrix.

    Calling it gives a new array of the rows' own float type.
    """

    kind: str
    mean: Float[np.ndarray, "d"]
    scale: float | Float[np.ndarray, "k"] | Float[np.ndarray, "k k"]
    kept: Bool[np.ndarray, "d"]

    @property
    def dropped(self) -> int:
        """How many units are left out."""
        return int(self.kept.size - np.count_nonzero(self.kept))

    def __call__(self, Z: Any) -> np.ndarray:
        """(n, d) -> (n, k), or (n, sites, d) -> (n, sites, k). Raises DimensionMismatch, NonFinite, ShapeMismatch."""
        flat, lead = flattened(Z, "Z")
        if flat.shape[1] != self.kept.size:
            raise DimensionMismatch(
                "Rows have other units than those the normalisation was fitted on",
                value=f"{flat.shape[1]} and {self.kept.size} units",
                allowed="one layer",
            )
        if self.kind == "none":
            return flat.copy().reshape(*lead, -1)
        centred = (flat if not self.dropped else flat[:, self.kept]) - self.mean[self.kept]
        scaled = centred @ self.scale if np.ndim(self.scale) == 2 else centred * self.scale
        return scaled.astype(flat.dtype, copy=False).reshape(*lead, -1)


def fit_normaliser(source: Any, kind: Literal["none", "iso", "unit", "whiten"] = "iso") -> Normaliser:
    """The normalisation of one layer, from the source's rows only: pooling the sets would hide the shift between them.

    source: (n, d), or (n, sites, d). "none"; "iso" (z − μ)/s with s² = tr Σ/d, so that a distance of .1 is a tenth of a
    typical unit's sd; "unit" each unit by its own sd, units with an sd of at most 1e-6 of the largest dropped and counted;
    "whiten" (z − μ)·Σ^(−½), symmetric (ZCA), Σ shrunk after Ledoit and Wolf. Covariances divide by n − 1.

    Raises TooFewRows below two rows, ShapeMismatch, NonFinite, BadOption, UndefinedMetric for a layer that is constant.
    """
    if kind not in KINDS:
        raise BadOption("No such normalisation", value=kind, allowed=", ".join(KINDS))
    flat, _ = flattened(source, "source")
    if len(flat) < 2:
        raise TooFewRows("A normalisation needs two rows of the source", value=len(flat), allowed="2 or more")
    d = flat.shape[1]
    everything = np.ones(d, dtype=bool)
    if kind == "none":
        return Normaliser(kind, np.zeros(d), 1.0, everything)
    mean = flat.mean(axis=0, dtype=np.float64)
    variance = np.square(flat - mean).sum(axis=0) / (len(flat) - 1)
    largest = float(variance.max())
    if largest <= (8 * np.finfo(np.float64).eps * float(np.abs(flat).max())) ** 2:
        raise UndefinedMetric("The layer is constant over the source: it cannot be scaled")
    if kind == "whiten":
        mean, S = moments(flat, 1)
        values, vectors = np.linalg.eigh(shrunk(flat, S))
        values = np.maximum(values, values[-1] * np.finfo(np.float64).eps * d)
        return Normaliser(kind, mean, (vectors / np.sqrt(values)) @ vectors.T, everything)
    if kind == "iso":
        return Normaliser(kind, mean, float(1 / np.sqrt(variance.mean())), everything)
    kept = variance > CONSTANT**2 * largest
    return Normaliser(kind, mean, 1 / np.sqrt(variance[kept]), kept)


def flattened(Z: Any, name: str) -> tuple[Float[np.ndarray, "rows d"], tuple[int, ...]]:
    """Rows (n·sites, d) of an array (n, d) or (n, sites, d), and its leading axes. Raises as `rows`."""
    if np.ndim(Z) == 3:
        array = as_array(Z)
        if 0 in array.shape:
            raise ShapeMismatch(f"{name} is empty", value=array.shape, allowed="(n, sites, d) with no axis of length 0")
        return rows(array.reshape(-1, array.shape[2]), name), array.shape[:2]
    array = rows(Z, name)
    return array, array.shape[:1]
