"""The exact search for the start of a power-law tail, without trying every start in full."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["Candidates", "Starts", "all_distances", "exponents", "search"]

QUANTILES = 24
CELLS = 16_384
"""Entries of the matrix in which a batch of starts is judged: small enough for the second-level cache."""
WIDEN = 1.1
"""Starts whose D is within this factor of the smallest one widen the exponent's interval."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Every possible start of the tail: one per distinct value, its index, tail size and exponent."""

    logs: Float[np.ndarray, "n"]
    first: np.ndarray
    index: np.ndarray
    size: np.ndarray
    alpha: Float[np.ndarray, "c"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Starts that were judged in full, in ascending order of xmin: what a D curve is drawn from."""

    xmin: Float[np.ndarray, "c"]
    alpha: Float[np.ndarray, "c"]
    D: Float[np.ndarray, "c"]
    n_tail: np.ndarray


def exponents(x: Float[np.ndarray, "n"], min_tail: int) -> Starts:
    """All starts of ascending positive x with at least `min_tail` values, with α = 1 + m/Σ ln(x_j/x_i) from suffix sums, O(n)."""
    n = x.size
    logs = np.log(x)
    fresh = np.empty(n, dtype=bool)
    fresh[0] = True
    np.not_equal(x[1:], x[:-1], out=fresh[1:])
    first = np.maximum.accumulate(np.where(fresh, np.arange(n), 0))
    index = np.flatnonzero(fresh[: max(n - min_tail + 1, 0)])
    size = n - index
    above = np.cumsum(logs[::-1])[::-1][index] - size * logs[index]
    kept = above > 0
    index, size, above = index[kept], size[kept], above[kept]
    return Starts(logs, first, index, size, 1.0 + size / above)


def search(starts: Starts, allowed: np.ndarray | None = None) -> tuple[int, float, np.ndarray, np.ndarray]:
    """Position in `starts` of the smallest D, that D, and (position, D) of every start judged in full.

    Each D is first bounded from below by its value at 24 tail quantiles; starts are then judged in full in the order of
    their bounds, until the bound exceeds 1.1 times the smallest D found. Equal to judging every start: the smallest D, and
    among equal ones the smallest start.

    Source: the criterion is that of Clauset, Shalizi & Newman (2009), section 3.3; the pruning is ours.
    """
    positions = np.arange(starts.index.size) if allowed is None else np.flatnonzero(allowed)
    bound = _bounds(starts, positions)
    order = np.argsort(bound, kind="stable")
    n = starts.logs.size
    step = max(4, min(64, CELLS // n))
    judged: list[np.ndarray] = []
    distances: list[np.ndarray] = []
    best = math.inf
    for begin in range(0, order.size, step):
        if bound[order[begin]] > WIDEN * best + 1e-12:
            break
        batch = np.sort(positions[order[begin : begin + step]])
        values = _distances(starts, batch)
        judged.append(batch)
        distances.append(values)
        best = min(best, float(values.min()))
    where, D = np.concatenate(judged), np.concatenate(distances)
    winner = int(where[best == D].min())
    return winner, best, where, D


def all_distances(starts: Starts, positions: np.ndarray) -> np.ndarray:
    """D of these starts, in full."""
    step = max(1, min(64, CELLS // starts.logs.size))
    parts = [_distances(starts, positions[i : i + step]) for i in range(0, positions.size, step)]
    return np.concatenate(parts) if parts else np.empty(0)


_FRACTIONS = np.linspace(0.0, 1.0, QUANTILES)


def _bounds(starts: Starts, positions: np.ndarray) -> np.ndarray:
    index, size = starts.index[positions], starts.size[positions]
    steps = (_FRACTIONS[None, :] * (size[:, None] - 1)).astype(np.int64)
    at = index[:, None] + steps
    below = (starts.first[at] - index[:, None]) / size[:, None]
    ratio = starts.logs[at] - starts.logs[index][:, None]
    ratio *= 1.0 - starts.alpha[positions][:, None]
    model = -np.expm1(ratio)
    return np.abs(model - below).max(axis=1)


def _distances(starts: Starts, positions: np.ndarray) -> np.ndarray:
    """max over the tail of |1 − (x_j/x_i)^(1−α) − #{tail < x_j}/m|, for a batch of starts in ascending order."""
    index, size = starts.index[positions], starts.size[positions]
    begin = int(index.min())
    logs, first = starts.logs[begin:], starts.first[begin:]
    gaps = logs[None, :] - starts.logs[index][:, None]
    inside = gaps >= 0
    gaps *= 1.0 - starts.alpha[positions][:, None]
    np.minimum(gaps, 0.0, out=gaps)
    model = np.expm1(gaps, out=gaps)
    model += (first[None, :] - index[:, None]) / size[:, None]
    np.abs(model, out=model)
    model *= inside
    return model.max(axis=1)
