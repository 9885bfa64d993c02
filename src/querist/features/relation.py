"""Which images of two captures are compared: independent ones, pairs of one thing, or those that two sets do not share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int

from querist.features.captured import Capture
from querist.statistics import stream

__all__ = ["Relation", "related", "rows_of", "sites_of"]

LEAST_PAIRS = 40
"""Pairs that a comparison of paired images needs: two arms of 20."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Places (in `Capture.ids`) of the images compared, how many images the sets share, and whether they are pairs.

    kind: "independent" (none is shared), "paired" (only the shared ones are compared, labels are swapped within them), or
    "parted" (too few are shared to pair: they are left out of the target).
    """

    kind: str
    shared: int
    source: Int[np.ndarray, "n"]
    target: Int[np.ndarray, "m"]

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray] | None:
        """What `gap_draws` takes as pairs."""
        each = np.arange(len(self.source))
        return (each, each) if self.kind == "paired" else None


def related(source: Capture, target: Capture, paired: str) -> Relation:
    """How two captures stand to each other. paired: "yes" where equal ids are the same thing twice, "no" where they never are,
    "auto" where both come from one source. Sets that share more than half of the smaller one (and 40 images) are paired."""
    one = paired == "yes" or (paired == "auto" and source.source == target.source)
    shared = np.intersect1d(source.ids, target.ids) if one else source.ids[:0]
    everything = np.arange(source.n), np.arange(target.n)
    if not len(shared):
        return Relation("independent", 0, *everything)
    if len(shared) >= max(LEAST_PAIRS, min(source.n, target.n) / 2):
        return Relation("paired", len(shared), np.searchsorted(source.ids, shared), np.searchsorted(target.ids, shared))
    return Relation("parted", len(shared), everything[0], np.flatnonzero(~np.isin(target.ids, shared)))


def sites_of(captures: Mapping[str, Capture], layer: str) -> int:
    """Rows that every image of every set has in this layer: 1, or the places of `sites:k` (fewer where a text is short)."""
    return min(int(np.bincount(one[layer].images, minlength=one.n).min()) for one in captures.values())


def rows_of(capture: Capture, layer: str, sites: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
    """Rows of a layer as (n, d), or (n, sites, d): rows of one image stay together.

    Where images have more rows than `sites`, so many of each are drawn, the same ones in every layer.
    """
    found = capture[layer]
    counts = np.bincount(found.images, minlength=capture.n)
    if counts.max() == 1:
        return found.rows
    if counts.min() == counts.max() == sites:
        return np.asarray(found.rows).reshape(capture.n, sites, -1)
    order = np.lexsort((stream(seed, "sites", capture.n, len(found.images)).random(len(found.images)), found.images))
    start = np.concatenate([[0], np.cumsum(counts)[:-1]])
    chosen = order[start[:, None] + np.arange(sites)]
    return np.asarray(found.rows)[np.sort(chosen, axis=1)] if sites > 1 else np.asarray(found.rows)[chosen[:, 0]]
