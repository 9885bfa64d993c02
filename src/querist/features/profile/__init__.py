"""Profiles over layers: gaps beside their nulls, evolution from layer to layer, contraction and consistency."""

from querist.features.profile._consistency import (
    Consistency,
    ConsistencyRow,
    NetProfile,
    consistency,
    judged,
    net_profile,
)
from querist.features.profile._evolution import evolution
from querist.features.profile._gap import (
    Gap,
    GapDraws,
    gap,
    gap_draws,
    gaps,
    largest_gap,
)
from querist.features.profile._matrix import LayerMatrix, layer_matrix
from querist.features.profile._measures import DISTANCES, Measure, measure
from querist.features.profile._network import NetworkGap, network_gap
from querist.features.profile._splits import LEAST, Split, arm_size, splits
from querist.features.profile._statistics import Association, association, change, concordance, slope
from querist.features.profile._untested import Untested, untested, untested_move

__all__ = [
    "DISTANCES",
    "LEAST",
    "Association",
    "Consistency",
    "ConsistencyRow",
    "Gap",
    "GapDraws",
    "LayerMatrix",
    "Measure",
    "NetProfile",
    "NetworkGap",
    "Split",
    "Untested",
    "arm_size",
    "association",
    "change",
    "concordance",
    "consistency",
    "evolution",
    "gap",
    "gap_draws",
    "gaps",
    "judged",
    "largest_gap",
    "layer_matrix",
    "measure",
    "net_profile",
    "network_gap",
    "slope",
    "splits",
    "untested",
    "untested_move",
]
