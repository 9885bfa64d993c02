"""The questions of the room, and the warning that every answer of it opens with."""

from __future__ import annotations

from querist.results.question import Question

__all__ = [
    "CAPTURE_HEALTH",
    "COMPARE_QUESTIONS",
    "CONSISTENCY",
    "CONTRACTION",
    "GAP",
    "GAP_ANY",
    "NETWORK_GAP",
    "OVERLAPPING_IDS",
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
    null="the distance between two halves of the source, at the same number of images",
    rule="No (tested first) where the upper end of the excess is below the margin; yes where p, adjusted over layers and targets by "
    "max-T, is at most the level and the lower end is above 0; else cannot say.",
)
GAP_ANY = Question(
    id="features.gap-any",
    ask="Is there any layer at which the target's law differs from the source's?",
    unit="permutation sd",
    null="the largest standardised distance over all layers under relabelled images",
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
    null="the distance between two halves of the images in the first network",
    rule="No where the rows are equal, or the value is below the margin; yes where p, adjusted over layers by max-T, is at most the "
    "level (labels of the networks swapped within images); else cannot say.",
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
    ask="Do two sets that should be independent hold the same images?",
    unit="images",
    null="0",
    rule="Yes from one shared image on: pairs are then relabelled together. No where none is shared.",
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
