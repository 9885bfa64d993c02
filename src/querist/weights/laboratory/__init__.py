"""A network small enough to know: a single-index teacher, training by hand, probes, and what theory says of one step."""

from querist.weights.laboratory._probes import (
    SCALES,
    FeatureScores,
    StepStrength,
    alignment,
    alignment_profile,
    entry_histogram,
    features,
    kta,
    refit,
    scores,
    sim_null,
    step_strength,
)
from querist.weights.laboratory._steps import OPTIMIZERS, State, first_direction, gradients, train
from querist.weights.laboratory._teacher import Problem, Sample, device_for, draw_problem
from querist.weights.laboratory._theory import (
    SpikePrediction,
    outlier,
    predict_spike,
    regime_of,
    strength,
    top_triple,
)

__all__ = [
    "OPTIMIZERS",
    "SCALES",
    "FeatureScores",
    "Problem",
    "Sample",
    "SpikePrediction",
    "State",
    "StepStrength",
    "alignment",
    "alignment_profile",
    "device_for",
    "draw_problem",
    "entry_histogram",
    "features",
    "first_direction",
    "gradients",
    "kta",
    "outlier",
    "predict_spike",
    "refit",
    "regime_of",
    "scores",
    "sim_null",
    "step_strength",
    "strength",
    "top_triple",
    "train",
]
