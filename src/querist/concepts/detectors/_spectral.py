"""Spectral signatures: rows that stand out along the leading direction of their class's activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.concepts.triggers import floor_count
from querist.errors import BadOption, NonFinite, ShapeMismatch

__all__ = ["Centre", "Signature", "checked_activations", "signature_flags", "signature_threshold", "spectral_signature"]

Centre = Literal["class", "reference", "trimmed"]
TRIM = 0.25
"""Share cut at each end of every unit for the trimmed centre: poison moves it only where it is more than a quarter."""
REMOVED = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """`score` [n]: (h·v)² over its median in the class; `projection` [n]: h·v. `leading` [L]: the first direction's share."""

    score: Float[np.ndarray, "n"]
    projection: Float[np.ndarray, "n"]
    leading: Float[np.ndarray, "L"]


def spectral_signature(
    activations: Float[np.ndarray, "n d"],
    codes: Int[np.ndarray, "n"],
    *,
    centre: Centre = "class",
    reference: tuple[np.ndarray, np.ndarray] | None = None,
) -> Signature:
    """Scores of activations entering the last linear layer, class by class (codes 0 … L − 1; NaN in classes of one row).

    centre: "class" the mean, as published; "trimmed" the mean of the middle half of every unit; "reference" the mean of trusted
    activations of the class, given as (rows, codes). Where poison is most of a class its own mean lies in the poison, and the
    published rule points at the honest rows: then only the reference centre has them apart.

    Raises ShapeMismatch, NonFinite, BadOption. Source: Tran, Li & Madry (2018), algorithm 1. Deviation: scores are divided by
    the class's median, so that one threshold serves classes of any scale; order within a class is unchanged.
    """
    h, codes = checked_activations(activations, codes)
    if centre not in ("class", "reference", "trimmed") or (centre == "reference") != (reference is not None):
        raise BadOption(
            "No such centre", value=centre, allowed="class, trimmed, or reference with reference=(rows, codes)"
        )
    classes = int(codes.max(initial=-1)) + 1
    score, projection = np.full(len(h), np.nan), np.full(len(h), np.nan)
    leading = np.full(classes, np.nan)
    for code in range(classes):
        rows = np.flatnonzero(codes == code)
        middle = _centre(h[rows], code, centre, reference)
        if len(rows) < 2 or middle is None:
            continue
        centred = h[rows] - middle
        direction, leading[code] = _leading(centred)
        projection[rows] = centred @ direction
        square = projection[rows] ** 2
        score[rows] = square / max(float(np.median(square)), np.finfo(float).tiny)
    return Signature(score, projection, leading)


def checked_activations(
    activations: Float[np.ndarray, "n d"], codes: Int[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n"]]:
    """Both as arrays. Raises ShapeMismatch, NonFinite."""
    h, codes = np.asarray(activations, dtype=float), np.asarray(codes)
    if h.ndim != 2 or codes.shape != h.shape[:1]:
        raise ShapeMismatch(
            "Activations and codes do not match", value=f"{h.shape}, {codes.shape}", allowed="[n d], [n]"
        )
    if not np.isfinite(h).all():
        raise NonFinite(
            "Activations must be finite", value=int((~np.isfinite(h)).sum()), mend="Check learning rate and inputs"
        )
    return h, codes


def signature_threshold(clean: Float[np.ndarray, "m"], *, false_alarms: float = 0.01) -> float:
    """The (1 − false_alarms) quantile of scores of clean resamples. Raises BadOption where there are too few to have one."""
    scores = np.asarray(clean, dtype=float)
    scores = scores[~np.isnan(scores)]
    if not 0 < false_alarms < 1 or len(scores) * false_alarms < 1:
        raise BadOption(
            "A threshold needs clean scores beyond it",
            value=f"{len(scores)} scores, {false_alarms:g}",
            allowed="1/scores or more",
        )
    return float(np.quantile(scores, 1 - false_alarms, method="higher"))


def signature_flags(
    score: Float[np.ndarray, "n"], codes: Int[np.ndarray, "n"], *, epsilon: float, threshold: float
) -> Bool[np.ndarray, "n"]:
    """At most ⌊1.5·ε·n_t⌋ rows of each class, the highest scores, and only those above the threshold.

    The published rule removes that many whether or not anything is wrong; `threshold` is fixed on clean resamples beforehand.
    """
    if not 0 < epsilon <= 1:
        raise BadOption("A share of poison lies outside its range", value=epsilon, allowed="0 < epsilon <= 1")
    flags = np.zeros(len(score), dtype=bool)
    for code in np.unique(codes):
        rows = np.flatnonzero((codes == code) & ~np.isnan(score))
        most = floor_count(REMOVED * epsilon, int((codes == code).sum()))
        highest = rows[np.argsort(-score[rows], kind="stable")][:most]
        flags[highest] = score[highest] > threshold
    return flags


def _centre(
    rows: np.ndarray, code: int, centre: Centre, reference: tuple[np.ndarray, np.ndarray] | None
) -> Float[np.ndarray, "d"] | None:
    if not len(rows):
        return None
    if centre == "class":
        return rows.mean(axis=0)
    if centre == "trimmed":
        from scipy.stats import trim_mean

        return trim_mean(rows, TRIM, axis=0)
    assert reference is not None
    trusted = np.asarray(reference[0], dtype=float)[np.asarray(reference[1]) == code]
    return trusted.mean(axis=0) if len(trusted) else None


def _leading(centred: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "d"], float]:
    """Top right singular vector, its largest entry positive, and its share of Σσ²: from the smaller Gram matrix."""
    n, d = centred.shape
    values, vectors = np.linalg.eigh(centred @ centred.T if n < d else centred.T @ centred)
    total = float(values.clip(0).sum())
    direction = centred.T @ vectors[:, -1] if n < d else vectors[:, -1]
    norm = float(np.linalg.norm(direction))
    if norm <= 0 or total <= 0:
        return np.zeros(d), np.nan
    direction = direction / norm
    return direction * np.sign(direction[np.abs(direction).argmax()]), float(values[-1] / total)
