"""The questions of the room, in the order in which an analyst asks them."""

from __future__ import annotations

from querist.results.question import Question

__all__ = [
    "ALLOCATE_QUESTIONS",
    "ANY_EFFECT",
    "ARMS_DIFFER",
    "ARM_HIDDEN",
    "ATTRITION",
    "BEATS_NATURAL",
    "BEATS_SINGLE_ARM",
    "BUDGET",
    "CALIBRATED",
    "CHECK_QUESTIONS",
    "CONTROL_PRESENT",
    "DRIFT",
    "EFFECT_VARIES",
    "EVALUATE_QUESTIONS",
    "FIT_QUESTIONS",
    "FRESH_ROWS",
    "MONITOR_QUESTIONS",
    "OVERLAP",
    "RANDOMISED",
    "STILL_WORKS",
]

_PER_PERSON = "outcome per person"

RANDOMISED = Question(
    id="effects.randomised",
    ask="Were arms given at random, as the design says?",
    unit="AUC",
    null="½: a classifier cannot tell an arm's people from the others; and counts of units at the shares of the design",
    rule="No where the smallest p of the sample ratio and of the arms' AUCs, adjusted by Holm, is below .01; yes where the upper end of "
    "every arm's AUC is below .52; else cannot say. A sample ratio p above .9999 is told: assignment looks blocked.",
    welcome="yes",
)
OVERLAP = Question(
    id="effects.overlap",
    ask="Can the rows of each arm speak for all people?",
    unit="effective rows per row",
    null="1: every person had the same chance of an arm",
    rule="Yes where the smallest effective share of rows is at least .5 and at most 1 % of propensities lie outside [.01, .99]; no where "
    "the share is below .1; else cannot say.",
    welcome="yes",
)
ATTRITION = Question(
    id="effects.attrition",
    ask="Are outcomes missing more often under some arm?",
    unit="share of rows",
    null="0: as often as under control",
    rule="Yes (a problem) where the adjusted p of an arm's difference in missing rows is below .01; no where every interval lies within "
    "±.01; else cannot say.",
    welcome="no",
)
ARM_HIDDEN = Question(
    id="effects.arm-hidden",
    ask="Do predictions stay the same when the arms that people were given are exchanged?",
    unit="largest change of a prediction",
    null="0",
    rule="Yes where predictions before and after exchanging the arms are equal; no where they differ.",
    welcome="yes",
)
ANY_EFFECT = Question(
    id="effects.any-effect",
    ask="Does the arm change the outcome on average?",
    unit=_PER_PERSON,
    null="0",
    rule="Yes where the p, adjusted over arms and outcomes by Holm, is below the level; no where the whole interval lies within ± the "
    "margin times the outcome's standard deviation under control; else cannot say.",
)
ARMS_DIFFER = Question(
    id="effects.arms-differ",
    ask="Do the arms differ in what they change?",
    unit=_PER_PERSON,
    null="0: the two arms that differ most have one effect",
    rule="Yes where the chi-square p of equal effects, adjusted over outcomes by Holm, is below the level; no where the interval of the "
    "widest difference lies within ± the margin; else cannot say.",
)
EFFECT_VARIES = Question(
    id="effects.effect-varies",
    ask="Does the model find people on whom this part of the effect is larger?",
    unit=_PER_PERSON,
    null="0: the mean over random orders",
    rule="Yes where autoc is above 0 and the adjusted p of both autoc and the calibration slope is below the level; no where autoc's "
    "upper end is below a tenth of the average effect's size and the slope's below ½; else cannot say.",
)
BEATS_NATURAL = Question(
    id="effects.beats-natural",
    ask="Does the model rank people better than their natural response does?",
    unit=_PER_PERSON,
    null="0: the Qini of ranking by natural response, on the same people",
    rule="Yes where the paired interval of the difference lies above 0; no where it lies below; else cannot say.",
    welcome="yes",
)
BEATS_SINGLE_ARM = Question(
    id="effects.beats-single-arm",
    ask="Is it worth more to follow the model than to give everybody the best single arm?",
    unit=_PER_PERSON,
    null="0: the best single arm, chosen on one half of the people and valued on the other",
    rule="Yes where the paired interval of the difference in value lies above 0; no where it lies below; else cannot say.",
    welcome="yes",
)
BUDGET = Question(
    id="effects.budget",
    ask="At this budget, is the model's spending worth more than the best single arm at equal spend?",
    unit="value per person",
    null="0: the best single arm at equal spend",
    rule="Yes where the paired interval of the difference lies above 0; no where it lies below; else cannot say.",
    welcome="yes",
)
CALIBRATED = Question(
    id="effects.calibrated",
    ask="Are predicted effects true in size?",
    unit="slope",
    null="1: effects are as large as predicted",
    rule="Yes where the slope's interval covers 1 and its half width is below ½; no where it does not cover 1; else cannot say.",
    welcome="yes",
)
FRESH_ROWS = Question(
    id="effects.fresh-rows",
    ask="Are these people other than those the model was fitted on?",
    unit="share of rows",
    null="the table's own share of repeated rows",
    rule="No where the share of rows seen in the fit lies above the table's own share of repeated rows (binomial, p < .01); yes "
    "where it does not; cannot say where the model kept no rows.",
    welcome="yes",
)
DRIFT = Question(
    id="effects.drift",
    ask="Have features or scores changed since the model was fitted?",
    unit="population stability index",
    null="the .99 quantile of the index between resamples of the earlier table, of the same sizes, for all columns together",
    rule="Yes where the index of any column lies above its null; else no.",
    welcome="no",
)
STILL_WORKS = Question(
    id="effects.still-works",
    ask="Do the people who were selected gain what was predicted?",
    unit=_PER_PERSON,
    null="0: realised less predicted effect",
    rule="Yes where the interval of realised less predicted covers 0 and leaves out half the prediction; no where it lies below 0; else "
    "cannot say.",
    welcome="yes",
)
CONTROL_PRESENT = Question(
    id="effects.control-present",
    ask="Has every segment people under control, so that effects can still be measured?",
    unit="segments",
    null="0 segments without control",
    rule="No where a segment has none; else yes.",
    welcome="yes",
)

CHECK_QUESTIONS = (RANDOMISED, OVERLAP, ATTRITION)
FIT_QUESTIONS = (ARM_HIDDEN, ANY_EFFECT)
EVALUATE_QUESTIONS = (
    FRESH_ROWS,
    ANY_EFFECT,
    ARMS_DIFFER,
    EFFECT_VARIES,
    BEATS_NATURAL,
    BEATS_SINGLE_ARM,
    CALIBRATED,
    ARM_HIDDEN,
)
ALLOCATE_QUESTIONS = (BUDGET,)
MONITOR_QUESTIONS = (DRIFT, STILL_WORKS, CONTROL_PRESENT)
