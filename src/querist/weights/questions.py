"""The questions of the room: from them come the report's words, the docs and the gates."""

from __future__ import annotations

from querist.results.question import Question

__all__ = [
    "ADVICE",
    "ALIGNED",
    "BULK",
    "CHANGED",
    "COLLAPSE",
    "COMPARE_QUESTIONS",
    "CRAFT_QUESTIONS",
    "DAMAGED",
    "HEAVY_TAIL",
    "MONITOR_QUESTIONS",
    "PREDICT_QUESTIONS",
    "REGIME",
    "SCAN_QUESTIONS",
    "SPIKES",
    "TRAINED",
    "TRAPS",
]

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
REGIME = Question(
    id="weights.regime",
    ask="Is the step strong enough to put an eigenvalue outside the bulk?",
    unit="θ_e over threshold",
    null="1: the strength at which an outlier appears, (hd)^(1/4)",
    rule="Yes where the effective strength θ_e less 15 % (what finite size was seen to do) exceeds the threshold; no where "
    "θ_e and 15 % stay below it; else cannot say. The sentence names the regime: random, spike, or heavy, where the update "
    "is at least half as large as the weights.",
)

MONITOR_QUESTIONS = (REGIME, SPIKES, BULK, COLLAPSE, DAMAGED)
SCAN_QUESTIONS = (TRAINED, SPIKES, BULK, HEAVY_TAIL, COLLAPSE, DAMAGED, TRAPS, ADVICE)
CRAFT_QUESTIONS = (REGIME, SPIKES, BULK, HEAVY_TAIL)
PREDICT_QUESTIONS = (REGIME,)

CHANGED = Question(
    id="weights.changed",
    ask="Did tuning change this matrix, beyond what storing it can do?",
    unit="‖ΔW‖/‖W‖",
    null="eps·‖W‖ of the number format, the most that rounding both copies can make; for directions of ΔW, copies of it "
    "with shuffled entries and with random signs (of a low-rank update: of its factors)",
    rule="No where no entry differs, and where ΔW is no larger than rounding can make; yes above that. A change below "
    "rounding is a yes only where its directions stand out of every copy at p ≤ .01, adjusted over layers: rounding "
    "errors are independent. `because` says how many directions stand out.",
)
ALIGNED = Question(
    id="weights.aligned",
    ask="Does the change lie along the leading directions of its matrix?",
    unit="overlap",
    null="k/side, the overlap of random directions; low and high are its .005 and .995 quantiles",
    rule="Yes where random directions (Beta law, both sides, adjusted over layers) and copies of ΔW with random signs "
    "both give as much with p ≤ .01; no where p > .05, where copies with random signs reach it (the scales of rows and "
    "columns explain it), and where it is gone without the share of W itself in ΔW (W shrank or was replaced). Without a "
    "change beyond rounding: cannot say.",
)

COMPARE_QUESTIONS = (CHANGED, ALIGNED)
