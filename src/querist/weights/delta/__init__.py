"""What tuning changed: matching the matrices of two sources, their differences, and where these lie in the base."""

from querist.weights.delta._aligned import Energy, Side, energy, random_angles, side_overlap, span_p, span_quantile
from querist.weights.delta._lowrank import Adapter, Factors, LowRank, stacked
from querist.weights.delta._match import Matched, MatrixPair, Unmatched, match
from querist.weights.delta._matrices import Difference, Remainder, frobenius, inner, subtracted
from querist.weights.delta._names import REPLACED, common_names, plain_name, renamed, with_shared_hints
from querist.weights.delta._rounding import Stored, faint_edge, rounding, stored
from querist.weights.delta._spikes import Beyond, beyond, factor_replicas

__all__ = [
    "REPLACED",
    "Adapter",
    "Beyond",
    "Difference",
    "Energy",
    "Factors",
    "LowRank",
    "Matched",
    "MatrixPair",
    "Remainder",
    "Side",
    "Stored",
    "Unmatched",
    "beyond",
    "common_names",
    "energy",
    "factor_replicas",
    "faint_edge",
    "frobenius",
    "inner",
    "match",
    "plain_name",
    "random_angles",
    "renamed",
    "rounding",
    "side_overlap",
    "span_p",
    "span_quantile",
    "stacked",
    "stored",
    "subtracted",
    "with_shared_hints",
]
