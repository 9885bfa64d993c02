"""Distances between the laws of two sets of rows, and the kernel alignment of two views of one set."""

from querist.features.distances._cka import cka
from querist.features.distances._directions import Directions, random_directions
from querist.features.distances._distance import Distance, Plan
from querist.features.distances._exact import exact_wasserstein
from querist.features.distances._gaussian import gaussian_w2, gaussian_w2_moments, spectrum_distance
from querist.features.distances._max_sliced import max_sliced_wasserstein
from querist.features.distances._one_dim import per_unit_wasserstein, wasserstein_1d
from querist.features.distances._otdd import otdd
from querist.features.distances._sinkhorn import sinkhorn_divergence
from querist.features.distances._sliced import sliced_wasserstein

__all__ = [
    "Directions",
    "Distance",
    "Plan",
    "cka",
    "exact_wasserstein",
    "gaussian_w2",
    "gaussian_w2_moments",
    "max_sliced_wasserstein",
    "otdd",
    "per_unit_wasserstein",
    "random_directions",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "spectrum_distance",
    "wasserstein_1d",
]
