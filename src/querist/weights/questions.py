"""The questions of the room: from them come the report's words, the docs and the gates."""

from __future__ import annotations

from querist.results.question import Question

__all__ = ["ADVICE", "BULK", "COLLAPSE", "DAMAGED", "HEAVY_TAIL", "SCAN_QUESTIONS", "SPIKES", "TRAINED", "TRAPS"]

TRAINED = Question(
    id="weights.trained",
    ask="Did training leave anything in this matrix?",
    unit="distance",
    null="the distance between two shuffled copies of the same matrix",
    rule="Yes where the spectrum is farther from its shuffled copies than any two copies are from each other, its whole "
    "interval beyond the largest of these distances (three copies or more), or where spikes or bulk say yes; no where all "
    "three lie inside their nulls; fewer than 16 eigenvalues: cannot say.",
    welcome="yes",
)
SPIKES = Question(
    id="weights.spikes",
    ask="Are there directions that noise of this size could not make?",
    unit="count",
    null="0; the edge is the largest of the Tracy–Widom edge and the maxima of shuffled and sign-flipped copies",
    rule="Yes where λ_max beats both resampling nulls by rank (p ≤ .05) and the predicted p, adjusted over layers by "
    "Benjamini–Hochberg, is at most .05. Beyond shuffles but not beyond sign flips is no: the row or column scales "
    "explain it.",
)
BULK = Question(
    id="weights.bulk",
    ask="Does the bulk of the spectrum depart from the Marchenko–Pastur law?",
    unit="N·KS",
    null="the same statistic of Gaussian matrices of this shape, and of sign-flipped copies",
    rule="Yes where p < .01 and the statistic exceeds that of every sign-flipped copy (two or more) and is not one more of "
    "them (p ≤ .025 by their mean and spread); no where p > .05; else cannot say.",
)
HEAVY_TAIL = Question(
    id="weights.heavy-tail",
    ask="Is the tail of the spectrum a power law?",
    unit="exponent",
    null="the exponent that the same fit gives on the Marchenko–Pastur law and on shuffled copies",
    rule="Yes where the bulk is rejected and a power law on at least 50 eigenvalues beats the exponential and is not "
    "beaten by the lognormal; no where the bulk is accepted; short tails, other xmins that fit as well, or an equal lognormal: cannot say.",
)
COLLAPSE = Question(
    id="weights.collapse",
    ask="Has the matrix lost rank?",
    unit="share of N",
    null="0",
    rule="Yes above .1; no below .01; else cannot say.",
    welcome="no",
)
DAMAGED = Question(
    id="weights.damaged",
    ask="Does it hold NaN or infinite entries?",
    unit="entries",
    null="0",
    rule="Yes from one entry on.",
    welcome="no",
)
TRAPS = Question(
    id="weights.traps",
    ask="Do single extreme entries make outliers, rather than correlation?",
    unit="ratio",
    null="1: a shuffled copy's largest eigenvalue at its own fitted edge, mean over copies",
    rule="Yes where every shuffled copy has an eigenvalue beyond its own .99 Tracy–Widom edge; no where none has.",
    welcome="no",
)
ADVICE = Question(
    id="weights.advice",
    ask="Which learning rate or sparsity does the layer's tail suggest?",
    unit="multiplier or share",
    null="1 (learning rate) or the uniform target (sparsity)",
    rule="Yes where the layer's exponent differs from its null and the advice from the uniform choice; where the "
    "exponent equals its null the layer is left alone: cannot say.",
)

SCAN_QUESTIONS = (TRAINED, SPIKES, BULK, HEAVY_TAIL, COLLAPSE, DAMAGED, TRAPS, ADVICE)
