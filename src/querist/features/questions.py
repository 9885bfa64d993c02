"""The questions of the room, and the warning that every answer of it opens with."""

from __future__ import annotations

from querist.results.question import Question

__all__ = [
    "BEST_START",
    "CAPTURE_HEALTH",
    "COMPARE_QUESTIONS",
    "CONSISTENCY",
    "CONTRACTION",
    "FREEZE_DEPTH",
    "FREEZE_QUESTIONS",
    "GAP",
    "GAP_ANY",
    "NETWORK_GAP",
    "OVERLAPPING_IDS",
    "RANK_QUESTIONS",
    "REUSE",
    "SCORE_USEFUL",
    "WARNING",
    "W_PREDICTS_TRANSFER",
]

WARNING = (
    "A small Wasserstein distance does not by itself mean good transfer. Over eleven layers of a ResNet20 trained on CIFAR-10 the "
    "distance to Fashion-MNIST and to MNIST says next to nothing of what a linear probe reaches there (Kendall τ between −.13 and "
    ".13); over its nine blocks depth alone reaches .6 to .8, more than the distance does, and the class logits lie nearest and probe "
    "poorly. So distances stand beside separability, depth and a constant, and never rank networks. Which distance, which layers and "
    "which statistics are our reading of the paper."
)
"""The standing warning: every summary carries it, every report opens with it, no option hides it."""

GAP = Question(
    id="features.gap",
    ask="At this layer, does the target's law differ from the source's?",
    unit="units of z",
    null="the distance between two halves of the source, at the same number of examples",
    rule="No (tested first) where the upper end of the excess is below the margin; yes where p, adjusted over layers and targets by "
    "max-T, is at most the level and the lower end is above 0; else cannot say.",
)
GAP_ANY = Question(
    id="features.gap-any",
    ask="Is there any layer at which the target's law differs from the source's?",
    unit="permutation sd",
    null="the largest standardised distance over all layers under relabelled examples",
    rule="No (tested first) where the upper end of every layer's excess is below the margin; yes where the permutation p of the "
    "largest standardised distance is at most the level; else cannot say.",
)
CONTRACTION = Question(
    id="features.contraction",
    ask="Do the layers bring the target nearer to the source, more than random layers do?",
    unit="log excess per layer",
    null="the same slope in networks of this architecture with random weights",
    rule="Yes where the slope is below 0 for every target and the largest p over targets is at most the level; no where it is at or "
    "above the median of the random networks for every target; fewer than 19 random networks, and all else: cannot say.",
)
CONSISTENCY = Question(
    id="features.consistency",
    ask="Do the layers change source and target alike, more than random layers do?",
    unit="relative change",
    null="the same C in networks of this architecture with random weights; the floor is C between two halves of the source",
    rule="Yes where the largest p of C over targets and both frames is at most the level; no where C is at or above the median of "
    "the random networks in all of them; fewer than 19 random networks, and all else: cannot say.",
)
W_PREDICTS_TRANSFER = Question(
    id="features.w-predicts-transfer",
    ask="Does a small distance go with a good probe, more than depth alone does?",
    unit="Kendall τ",
    null="|τ| of depth and probe accuracy",
    rule="Yes where the interval over cells (target, seed) of −τ(excess, probe) − |τ(depth, probe)| lies above 0; no where it lies "
    "below; layers are no replicates, so one target and seed: cannot say.",
)
NETWORK_GAP = Question(
    id="features.network-gap",
    ask="Did the second network move this layer?",
    unit="units of z",
    null="the distance between two halves of the examples in the first network",
    rule="No where the rows are equal, or the value is below the margin; yes where p, adjusted over layers by max-T, is at most the "
    "level (labels of the networks swapped within examples); else cannot say.",
)
CAPTURE_HEALTH = Question(
    id="features.capture-health",
    ask="Was every layer captured that was asked for?",
    unit="share of layers",
    null="all of them",
    rule="Yes where all were captured; no, with the reasons, where any is missing.",
    welcome="yes",
)
OVERLAPPING_IDS = Question(
    id="features.overlapping-ids",
    ask="Do two sets that should be independent hold the same examples?",
    unit="examples",
    null="0",
    rule="Yes from one shared example on: pairs are then relabelled together. No where none is shared.",
    welcome="no",
)

COMPARE_QUESTIONS = (
    GAP_ANY,
    GAP,
    CONTRACTION,
    CONSISTENCY,
    W_PREDICTS_TRANSFER,
    NETWORK_GAP,
    CAPTURE_HEALTH,
    OVERLAPPING_IDS,
)

SCORE_USEFUL = Question(
    id="features.score-useful",
    ask="Does this score order starting points as training does, better than depth alone?",
    unit="weighted Kendall τ",
    null="the weighted τ of depth",
    rule="Yes where the intervals over cells (target, seed) of the score's τ, and of that less the τ of depth, both lie above 0; no "
    "where one of them lies below; fewer than 6 cells, or no truth: cannot say.",
    welcome="yes",
)
BEST_START = Question(
    id="features.best-start",
    ask="Is the first starting point better than the second?",
    unit="points of accuracy",
    null="0: paired folds of the linear probe",
    rule="Yes where the interval over folds of the first one's lead in probe accuracy lies above 0; no is not used; else cannot say.",
)
REUSE = Question(
    id="features.reuse",
    ask="Do the pretrained weights help beyond the mean and spread of each tensor?",
    unit="accuracy",
    null="0: weights drawn with the same moments, in the same cells",
    rule="Yes where the lower end of pretrained less moments, over cells (target, repeat), is above 0; no where its upper end is "
    "below delta; else cannot say.",
)
FREEZE_DEPTH = Question(
    id="features.freeze-depth",
    ask="How many blocks can be frozen without loss?",
    unit="blocks",
    null="the number of blocks with the best accuracy",
    rule="Yes where the bootstrap interval over cells (target, repeat) of the largest number within delta of the best is at most one "
    "block wide; else cannot say.",
    welcome="yes",
)

RANK_QUESTIONS = (BEST_START, SCORE_USEFUL, CAPTURE_HEALTH, OVERLAPPING_IDS)
FREEZE_QUESTIONS = (FREEZE_DEPTH, REUSE, CAPTURE_HEALTH, OVERLAPPING_IDS)
