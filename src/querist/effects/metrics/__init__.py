"""How well a score ranks people by effect, how true its predictions are, and what a policy is worth."""

from querist.effects.metrics._calibration import Calibration, CalibrationBins, calibration
from querist.effects.metrics._histogram import ScoreHistogram
from querist.effects.metrics._named import Curve, auuc, gain_curve, numbers, qini
from querist.effects.metrics._order import Ranked, order, ranked
from querist.effects.metrics._policy import policy_difference, policy_value, policy_values_of
from querist.effects.metrics._rate import rate, rate_difference, rate_values_of
from querist.effects.metrics._references import (
    best_arm,
    best_arm_crossed,
    best_arms,
    highest,
    natural_like,
    random_like,
    single_arm,
)
from querist.effects.metrics._replicates import Replicates, replicates
from querist.effects.metrics._shares import UpliftBins, uplift_at_k, uplift_bins, weighted_average_uplift
from querist.effects.metrics._top import top_values

__all__ = [
    "Calibration",
    "CalibrationBins",
    "Curve",
    "Ranked",
    "Replicates",
    "ScoreHistogram",
    "UpliftBins",
    "auuc",
    "best_arm",
    "best_arm_crossed",
    "best_arms",
    "calibration",
    "gain_curve",
    "highest",
    "natural_like",
    "numbers",
    "order",
    "policy_difference",
    "policy_value",
    "policy_values_of",
    "qini",
    "random_like",
    "ranked",
    "rate",
    "rate_difference",
    "rate_values_of",
    "replicates",
    "single_arm",
    "top_values",
    "uplift_at_k",
    "uplift_bins",
    "weighted_average_uplift",
]
