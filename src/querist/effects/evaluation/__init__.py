"""Scores held against outcomes: every number beside random, natural response and single arms, with its interval."""

from querist.effects.evaluation._averages import arms_differ, arms_differ_rows, average_rows, with_holm
from querist.effects.evaluation._evaluate import Evaluation, compare, evaluate
from querist.effects.evaluation._given import NATURAL, RANDOM, Coded, Component, Given, Scored, given, scored
from querist.effects.evaluation._policies import BEST, multi_arm_rows, policy_rows
from querist.effects.evaluation._rankings import calibration_rows, curve_rows, metric_rows, paired_rows

__all__ = [
    "BEST",
    "NATURAL",
    "RANDOM",
    "Coded",
    "Component",
    "Evaluation",
    "Given",
    "Scored",
    "arms_differ",
    "arms_differ_rows",
    "average_rows",
    "calibration_rows",
    "compare",
    "curve_rows",
    "evaluate",
    "given",
    "metric_rows",
    "multi_arm_rows",
    "paired_rows",
    "policy_rows",
    "scored",
    "with_holm",
]
