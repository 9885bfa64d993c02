"""When the truth is known: how well scores, flags and a named pattern find it, beside the share that is poisoned at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from querist.concepts.triggers import Trigger
from querist.errors import ShapeMismatch
from querist.statistics import auc

__all__ = ["Detection", "evaluate"]


@dataclass(frozen=True, slots=True)
class Detection:
    """Fractions; None where there is nothing to divide by. `base_rate`: share of poisoned rows, the precision of chance.

    tpr_at_fpr1, tpr_at_fpr5: share of poisoned rows above the score that at most 1 % or 5 % of honest rows exceed. Triggers are
    compared by (concept, value).
    """

    auc: float | None
    tpr_at_fpr1: float | None
    tpr_at_fpr5: float | None
    flagged: int
    base_rate: float
    precision: float | None
    recall: float | None
    trigger_precision: float | None
    trigger_recall: float | None


def evaluate(
    scores: Float[np.ndarray, "n"],
    flags: Bool[np.ndarray, "n"],
    truth: Bool[np.ndarray, "n"],
    *,
    pattern: Trigger | None = None,
    trigger: Trigger | None = None,
) -> Detection:
    """Scores are larger where more suspicious; rows without a score (NaN) rank below all others. Raises ShapeMismatch."""
    scores, flags, truth = np.asarray(scores, dtype=float), np.asarray(flags, dtype=bool), np.asarray(truth, dtype=bool)
    if not scores.shape == flags.shape == truth.shape or scores.ndim != 1:
        raise ShapeMismatch(
            "Scores, flags and truth need one entry per row",
            value=f"{scores.shape}, {flags.shape}, {truth.shape}",
            allowed="[n]",
        )
    both = bool(truth.any() and not truth.all())
    known = scores[~np.isnan(scores)]
    filled = np.where(np.isnan(scores), (known.min() - 1) if known.size else 0.0, scores)
    hits = int((flags & truth).sum())
    found = set() if pattern is None else set(zip(pattern.index, pattern.values, strict=True))
    planted = set() if trigger is None else set(zip(trigger.index, trigger.values, strict=True))
    return Detection(
        auc=auc(filled, truth) if both else None,
        tpr_at_fpr1=_tpr(filled, truth, 0.01) if both else None,
        tpr_at_fpr5=_tpr(filled, truth, 0.05) if both else None,
        flagged=int(flags.sum()),
        base_rate=float(truth.mean()) if truth.size else 0.0,
        precision=hits / int(flags.sum()) if flags.any() else None,
        recall=hits / int(truth.sum()) if truth.any() else None,
        trigger_precision=len(found & planted) / len(found) if found and planted else None,
        trigger_recall=len(found & planted) / len(planted) if planted else None,
    )


def _tpr(scores: np.ndarray, truth: np.ndarray, most: float) -> float:
    """Share of poisoned rows above the least cut that at most `most` of the honest rows exceed."""
    honest = np.sort(scores[~truth])[::-1]
    cut = honest[int(np.floor(most * len(honest) + 1e-9))]
    return float((scores[truth] > cut).mean())
