"""Distances between the laws of two sets of rows, and the kernel alignment of two views of one set."""

from querist.features.distances._cka import cka
from querist.features.distances._directions import Directions, chunks, random_directions
from querist.features.distances._distance import Distance, Plan
from querist.features.distances._exact import exact_wasserstein
from querist.features.distances._gaussian import deviations, gaussian_w2, gaussian_w2_moments, spectrum_distance
from querist.features.distances._max_sliced import max_sliced_wasserstein
from querist.features.distances._one_dim import (
    knots,
    per_unit_wasserstein,
    sorted_distances,
    sorted_powers,
    wasserstein_1d,
)
from querist.features.distances._otdd import otdd
from querist.features.distances._sinkhorn import rough_divergence, sinkhorn_divergence
from querist.features.distances._sliced import block_error, project, sliced_wasserstein

__all__ = [
    "Directions",
    "Distance",
    "Plan",
    "block_error",
    "chunks",
    "cka",
    "deviations",
    "exact_wasserstein",
    "gaussian_w2",
    "gaussian_w2_moments",
    "knots",
    "max_sliced_wasserstein",
    "otdd",
    "per_unit_wasserstein",
    "project",
    "random_directions",
    "rough_divergence",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "sorted_distances",
    "sorted_powers",
    "spectrum_distance",
    "wasserstein_1d",
]
