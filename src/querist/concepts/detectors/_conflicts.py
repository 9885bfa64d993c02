"""Rows with the same concepts and different labels: what no model of the concepts can get right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from querist.concepts.data import ConceptData

__all__ = ["Conflicts", "conflicts"]


@dataclass(frozen=True, slots=True, eq=False)
class Conflicts:
    """Distinct `profiles`, those with several labels, their `rows`, `accuracy_ceiling`, and which rows conflict `mask` [n]."""

    profiles: int
    conflicting_profiles: int
    conflicting_rows: int
    accuracy_ceiling: float
    mask: Bool[np.ndarray, "n"]


def conflicts(data: ConceptData) -> Conflicts:
    """Profiles are compared cell by cell, unknown being a value of its own.

    accuracy_ceiling: (1/n)·Σ over profiles of the largest count of one label; 1 where no profile has two labels.
    """
    cells = np.ascontiguousarray(np.where(np.isnan(data.concepts), -np.inf, data.concepts) + 0.0)
    rows = cells.view(np.dtype((np.void, cells.dtype.itemsize * data.k))).ravel()
    _, profile = np.unique(rows, return_inverse=True)
    profile = profile.reshape(-1)
    pairs, count = np.unique(np.stack([profile, data.codes]), axis=1, return_counts=True)
    profiles = int(profile.max()) + 1
    labels = np.bincount(pairs[0], minlength=profiles)
    largest = np.zeros(profiles, dtype=int)
    np.maximum.at(largest, pairs[0], count)
    mask = labels[profile] > 1
    return Conflicts(profiles, int((labels > 1).sum()), int(mask.sum()), float(largest.sum() / data.n), mask)
