"""Where a largest eigenvalue stands among draws from a null: edges, predicted p, and the verdict of both nulls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from querist.results.finding import Verdict
from querist.statistics import rank_p
from querist.weights.nulls._replicas import KINDS

__all__ = ["LEVEL", "predicted_edge", "predicted_p", "rank_edge", "spike_verdict", "tied_rank_p"]

LEVEL = 0.05
# Copies are drawn in float32: values closer than this are equal. Sign flips of a permutation matrix change nothing, and
# without it rounding would tell whether the original is the largest.
TIE = 1e-5


def tied_rank_p(top: float, draws: Float[np.ndarray, "b"], tie: float = TIE) -> float:
    """Rank p of top; draws below it by no more than the share `tie` count against it."""
    return rank_p(top * (1 - tie), draws)


def rank_edge(draws: Float[np.ndarray, "b"], tie: float = TIE) -> float:
    """What must be passed for a rank p of at most .05: the largest of 19 draws, the fifth largest of 99."""
    place = max(1, math.floor(LEVEL * (len(draws) + 1) + 1e-9))
    return float(np.sort(draws)[-place]) / (1 - tie)


def predicted_p(top: float, draws: Float[np.ndarray, "b"], tie: float = TIE) -> float:
    """P(one more draw >= top), its logarithm normal with the mean and spread of the draws': Student t, b − 1 degrees.

    draws: at least two, positive. Without any spread beyond `tie` it is the rank p.
    """
    from scipy.special import stdtr

    mean, error = _prediction(draws)
    if error <= tie:
        return tied_rank_p(top, draws, tie)
    return float(stdtr(len(draws) - 1, (mean - math.log(top)) / error))


def predicted_edge(draws: Float[np.ndarray, "b"], level: float) -> float:
    """The value that one more draw exceeds with probability `level`, by the same prediction."""
    from scipy.special import stdtrit

    mean, error = _prediction(draws)
    return math.exp(mean + error * float(stdtrit(len(draws) - 1, 1 - level)))


def _prediction(draws: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of one more draw of log λ_max."""
    logs = np.log(draws)
    return float(logs.mean()), float(logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))


def spike_verdict(
    nulls: Sequence[str], rank: Mapping[str, float], *, screened: bool, n_spikes: int
) -> tuple[Verdict, str]:
    """The verdict on one matrix alone (no adjustment over layers), and why.

    nulls: those that were asked for; rank: rank p of each that was drawn to the end; screened: below the .95
    Tracy-Widom edge; n_spikes: eigenvalues beyond every edge.
    """
    if not nulls:
        return "cannot say", "no resampling null was drawn, and the Tracy-Widom edge alone is no evidence"
    if screened:
        return "no", "the largest eigenvalue does not pass the .95 Tracy-Widom edge"
    if not rank:
        return "cannot say", "no rank test was asked for"
    if rank.get("signflip", 0.0) > LEVEL:
        return "no", "copies with random signs reach it: the scales of rows, columns or entries explain it"
    if rank.get("shuffle", 0.0) > LEVEL:
        return "no", "shuffled copies reach it: the distribution of the entries explains it"
    if not n_spikes:
        return "no", "no eigenvalue passes the .99 Tracy-Widom edge"
    if len(nulls) < len(KINDS):
        other = next(kind for kind in KINDS if kind not in nulls)
        return "cannot say", f"only the null {nulls[0]} was drawn; a spike must pass {other} too"
    return "yes", "it passes the Tracy-Widom edge, shuffled copies and copies with random signs"
