"""Activation clustering: do the rows of a class fall into two groups, and which of them belongs elsewhere?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.concepts.detectors._spectral import checked_activations
from querist.errors import BadOption
from querist.statistics import torch_seed

__all__ = ["Clusters", "activation_clusters"]

Rule = Literal["reclassify", "distance", "size"]
DIMENSIONS = 10
LEAST = 10
"""Rows below which a class is not split: two means of fewer rows always look apart."""
SAMPLE = 2000
SMALL = 0.35


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """`cluster` [n]: 0 the larger, 1 the smaller, −1 in classes that are not split. Per class: share of the smaller, silhouette.

    `score` [L 2]: how strange either cluster is under the rule, larger is stranger; `suspect` [L]: the cluster above the rule's
    bound, −1 for none. `flags` [n] are the rows of suspect clusters.
    """

    cluster: Int[np.ndarray, "n"]
    small_share: Float[np.ndarray, "L"]
    silhouette: Float[np.ndarray, "L"]
    score: Float[np.ndarray, "L 2"]
    suspect: Int[np.ndarray, "L"]
    flags: Bool[np.ndarray, "n"]


def activation_clusters(
    activations: Float[np.ndarray, "n d"],
    codes: Int[np.ndarray, "n"],
    *,
    rule: Rule = "reclassify",
    vectors: Float[np.ndarray, "L d"] | None = None,
    silhouette: float = 0.10,
    seed: int = 0,
) -> Clusters:
    """Two means in the leading (at most 10) principal dimensions of each class's activations.

    reclassify: a cluster is left out, nearest class means (in units of the pooled standard deviations) are fitted to the rest,
    and its rows are classed: score = rows that go to one other class over rows that come home, suspect above 1. distance: how
    much farther the cluster's mean lies from the class's trusted vector than the other's, suspect above 1. size: the published
    rule, the smaller cluster where it holds less than 35 % of the class; wrong where poison is most of the class, and so never
    the default. Nothing is suspect where the silhouette is below `silhouette`: one cloud cut in two.

    Raises ShapeMismatch, NonFinite, BadOption. Source: Chen et al. (2018); exclusionary reclassification with class means in
    place of a network trained anew.
    """
    h, codes = checked_activations(activations, codes)
    if rule not in ("reclassify", "distance", "size") or (rule == "distance" and vectors is None):
        raise BadOption("No such rule", value=rule, allowed="reclassify, size, or distance with vectors=")
    classes = int(codes.max(initial=-1)) + 1
    cluster, share = np.full(len(h), -1), np.full(classes, np.nan)
    width, score, suspect = np.full(classes, np.nan), np.full((classes, 2), np.nan), np.full(classes, -1)
    for code in range(classes):
        rows = np.flatnonzero(codes == code)
        if len(rows) < LEAST:
            continue
        split = _split(h[rows], torch_seed(seed, "clusters", code) % 2**32)
        if split is None:
            continue
        cluster[rows], width[code] = split
        share[code] = float((cluster[rows] == 1).mean())
        if rule == "reclassify":
            score[code] = [_reclassified(h, codes, rows[cluster[rows] == c], code, classes) for c in (0, 1)]
            bound = 1.0
        elif rule == "distance":
            assert vectors is not None
            far = [np.linalg.norm(h[rows[cluster[rows] == c]].mean(axis=0) - vectors[code]) for c in (0, 1)]
            score[code] = far[0] / max(far[1], 1e-12), far[1] / max(far[0], 1e-12)
            bound = 1.0
        else:
            score[code] = 0.0, 1 - share[code]
            bound = 1 - SMALL
        if width[code] >= silhouette and score[code].max() > bound:
            suspect[code] = int(score[code].argmax())
    flags = (cluster >= 0) & (cluster == np.where(suspect[codes] >= 0, suspect[codes], -2))
    return Clusters(cluster, share, width, score, suspect, flags)


def _split(rows: np.ndarray, state: int) -> tuple[np.ndarray, float] | None:
    """Clusters, the larger 0, and their silhouette on at most 2,000 rows; None where the rows are all equal."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    centred = rows - rows.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(DIMENSIONS, int((s > 1e-10 * max(float(s[0]), 1e-300)).sum())) if s[0] > 1e-12 else 0
    if not kept:
        return None
    low = u[:, :kept] * s[:kept]
    means: Any = KMeans(n_clusters=2, n_init=cast(Any, 10), random_state=state)
    found = np.asarray(means.fit(low).labels_, dtype=int)
    if len(np.unique(found)) < 2:
        return None
    found = found if found.sum() * 2 <= len(found) else 1 - found
    size = SAMPLE if len(low) > SAMPLE else None
    return found, float(silhouette_score(low, found, sample_size=size, random_state=state))


def _reclassified(h: np.ndarray, codes: np.ndarray, left_out: np.ndarray, code: int, classes: int) -> float:
    kept = np.ones(len(h), dtype=bool)
    kept[left_out] = False
    sizes = np.bincount(codes[kept], minlength=classes)
    means = np.full((classes, h.shape[1]), np.inf)
    for c in np.flatnonzero(sizes):
        means[c] = h[kept & (codes == c)].mean(axis=0)
    residual = h[kept] - means[codes[kept]]
    scale = np.sqrt((residual**2).mean(axis=0)) + 1e-12
    present = np.flatnonzero(sizes)
    distance = (((h[left_out][:, None] - means[present][None]) / scale) ** 2).sum(axis=2)
    votes = np.bincount(present[distance.argmin(axis=1)], minlength=classes)
    elsewhere = np.delete(votes, code).max(initial=0)
    return float(elsewhere / max(int(votes[code]), 0.5))
