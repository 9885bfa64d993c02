"""Propensities: known, the arms' shares, or estimated by a cross-fitted multinomial regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import lengths, matrix
from querist.effects.errors import LengthMismatch, PropensityRange
from querist.errors import BadOption, ShapeMismatch, UnknownName, near
from querist.statistics import folds as split
from querist.statistics.arrays import finite, weights_of

__all__ = ["CLIP", "arm_shares", "clipped", "estimated_propensity", "propensities"]

CLIP = (0.01, 0.99)
"""Estimated propensities are held inside; `overlap` tells which share of rows would lie outside."""


def arm_shares(codes: Int[np.ndarray, "n"], arms: int, weight: Any = None) -> Float[np.ndarray, "arms"]:
    """Share of (weighted) rows in each of `arms` arms, control included."""
    counts = np.bincount(codes, None if weight is None else weights_of(weight, codes.size), minlength=arms)
    return counts / counts.sum()


def propensities(propensity: Any, labels: Sequence[Any], codes: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n arms"]:
    """P(A = m | x) of each row, columns in the order of `labels` (control first), as a read-only view where it is constant.

    propensity: "share" (of these rows); a mapping from every label to its probability; one probability per label; an array
    [n, arms]; with two arms also [n] or one number, the probability of the second. Values must be those of the design: they are
    not clipped. Raises PropensityRange for a value not in (0, 1) or rows that do not sum to 1, UnknownName, ShapeMismatch,
    LengthMismatch.
    """
    n, arms = codes.size, len(labels)
    if isinstance(propensity, str):
        if propensity != "share":
            raise BadOption(
                "No such propensity",
                value=propensity,
                allowed='"share", a mapping from arm to probability, or an array',
            )
        return np.broadcast_to(arm_shares(codes, arms), (n, arms))
    if isinstance(propensity, Mapping):
        for label in (*propensity, *labels):
            if label not in labels or label not in propensity:
                fault = "is no arm" if label not in labels else "has no propensity"
                raise UnknownName(
                    f"An arm {fault}", value=label, allowed=near(str(label), map(str, labels), max(5, arms))
                )
        e = np.array([propensity[label] for label in labels], dtype=float)
    else:
        e = finite(propensity, "propensity")
    if arms == 2 and e.ndim == 0:
        e = np.array([1 - float(e), float(e)])
    elif arms == 2 and e.ndim == 1 and (e.size == n != 2):
        e = np.column_stack([1 - e, e])
    if e.ndim == 1 and e.size == arms:
        return np.broadcast_to(_checked(e[None])[0], (n, arms))
    if e.ndim != 2 or e.shape[1] != arms:
        raise ShapeMismatch(
            "propensity has another shape", value=e.shape, allowed=f"({n}, {arms}), columns in the order {list(labels)}"
        )
    if len(e) != n:
        raise LengthMismatch("propensity has other rows", value=f"{len(e)}", allowed=f"{n}")
    return _checked(e)


def _checked(e: np.ndarray) -> np.ndarray:
    outside = ~((e > 0) & (e < 1))
    if outside.any():
        row, arm = np.argwhere(outside)[0]
        raise PropensityRange(
            "A propensity lies outside its range",
            value=f"{e[row, arm]:.6g} at row {row}, arm {arm}",
            allowed="0 < e < 1",
            mend="Leave out rows that could only get one arm",
        )
    wrong = np.abs(e.sum(axis=1) - 1) > 1e-6
    if wrong.any():
        row = int(np.argmax(wrong))
        raise PropensityRange(
            "The propensities of a row must sum to 1", value=f"{e[row].sum():.6g} at row {row}", allowed="1"
        )
    return e


def estimated_propensity(
    X: Any,
    codes: Int[np.ndarray, "n"],
    arms: int,
    *,
    folds: int = 5,
    cluster: Any = None,
    ridge: float = 1.0,
    clip: tuple[float, float] | None = CLIP,
    seed: int = 0,
) -> Float[np.ndarray, "n arms"]:
    """P(A = m | x) from a multinomial logistic regression on standardised columns that never saw the row's fold.

    X: [n, d]. Clusters stay whole. Estimates are clipped to [.01, .99] and scaled to sum to 1; clip=None leaves them as they are,
    which is what `overlap` must see. ridge: inverse of scikit-learn's C. Raises NonFinite, ShapeMismatch, TooFewRows, BadOption
    where a fold's training rows miss an arm.
    """
    from sklearn.linear_model import LogisticRegression

    X = matrix(X, "X", (None, None))
    lengths(X=X, arm=codes)
    fold = split(codes.size, folds, strata=codes if cluster is None else None, clusters=cluster, seed=seed)
    e = np.empty((codes.size, arms))
    for number in range(folds):
        held = fold == number
        train = X[~held]
        if np.unique(codes[~held]).size < arms:
            raise BadOption("A fold's training rows miss an arm", value=f"fold {number}", mend="Use fewer folds")
        centre, scale = train.mean(axis=0), train.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(centre), scale, np.inf)
        model = LogisticRegression(C=1 / ridge, max_iter=500, tol=1e-6)
        model.fit((train - centre) / scale, codes[~held])
        e[held] = model.predict_proba((X[held] - centre) / scale)
    # Without clipping too an estimate may have underflown to 0, of which there is no weight.
    return clipped(e, clip or (np.finfo(float).tiny, 1.0))


def clipped(e: Float[np.ndarray, "n arms"], limits: tuple[float, float] = CLIP) -> Float[np.ndarray, "n arms"]:
    """Propensities held inside limits and scaled to sum to 1 again."""
    e = np.clip(e, *limits)
    return e / e.sum(axis=1, keepdims=True)
