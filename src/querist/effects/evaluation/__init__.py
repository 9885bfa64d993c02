"""Scores held against outcomes: every number beside random, natural response and single arms, with its interval."""

from querist.effects.evaluation._averages import arms_differ, average_rows
from querist.effects.evaluation._evaluate import Evaluation, compare, evaluate
from querist.effects.evaluation._given import Given, Scored
from querist.effects.evaluation._policies import policy_rows
from querist.effects.evaluation._rankings import calibration_rows, curve_rows, metric_rows, paired_rows

__all__ = [
    "Evaluation",
    "Given",
    "Scored",
    "arms_differ",
    "average_rows",
    "calibration_rows",
    "compare",
    "curve_rows",
    "evaluate",
    "metric_rows",
    "paired_rows",
    "policy_rows",
]
