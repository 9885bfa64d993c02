"""What the design of a study gives: propensities, effect scores, randomisation, overlap, power."""

from querist.effects.design._overlap import Overlap, balance_weights, overlap
from querist.effects.design._power import plan
from querist.effects.design._propensity import CLIP, arm_shares, clipped, estimated_propensity, propensities
from querist.effects.design._randomisation import SRM, arm_auc, assignment_units, smd, smd_levels, srm
from querist.effects.design._scores import (
    aipw_scores,
    ate,
    component_scores,
    corrected,
    effect_scores,
    gamma,
    tier_weights_of,
)

__all__ = [
    "CLIP",
    "SRM",
    "Overlap",
    "aipw_scores",
    "arm_auc",
    "arm_shares",
    "assignment_units",
    "ate",
    "balance_weights",
    "clipped",
    "component_scores",
    "corrected",
    "effect_scores",
    "estimated_propensity",
    "gamma",
    "overlap",
    "plan",
    "propensities",
    "smd",
    "smd_levels",
    "srm",
    "tier_weights_of",
]
