"""Policies that a model must beat: single arms, random at equal shares, natural response at equal counts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from querist.effects.metrics._order import order
from querist.errors import ShapeMismatch, TooFewRows
from querist.statistics import folds
from querist.statistics.arrays import compact

__all__ = ["best_arm", "best_arm_crossed", "best_arms", "highest", "natural_like", "random_like", "single_arm"]

Policy = Float[np.ndarray, "n arms"]


def single_arm(n: int, arms: int, arm: int) -> Policy:
    """Everybody gets one arm; 0 is control."""
    policy = np.zeros((n, arms))
    policy[:, arm] = 1.0
    return policy


def random_like(policy: Policy) -> Policy:
    """Everybody gets each arm with the share that the policy gives it: what its counts are worth without its choice."""
    return np.tile(policy.mean(axis=0), (len(policy), 1))


def natural_like(policy: Policy, natural: Float[np.ndarray, "n"]) -> Policy:
    """As many treated as under the policy, those with the highest natural response, arms at the policy's shares among treated.

    A tie group at the cut is treated by the fraction that fits. Raises ShapeMismatch.
    """
    if natural.shape != policy.shape[:1]:
        raise ShapeMismatch("One natural response per row", value=natural.shape, allowed=f"({len(policy)},)")
    total = policy[:, 1:].sum()
    treated = highest(natural, float(total))
    mix = policy[:, 1:].sum(axis=0) / total if total > 0 else np.zeros(policy.shape[1] - 1)
    return np.column_stack([1 - treated, treated[:, None] * mix])


def highest(natural: Float[np.ndarray, "n"], total: float) -> Float[np.ndarray, "n"]:
    """The share of each row that is treated where `total` are, the highest first; a tie group at the cut by the fraction that fits."""
    placed = order(natural)
    treated = np.empty(natural.size)
    for _, start, end in placed.pieces():
        fraction = np.clip((total - start) / (end - start), 0.0, 1.0)
        treated[placed.rows[start[0] : end[-1]]] = np.repeat(fraction, end - start)
    return treated


def best_arm(scores: Float[np.ndarray, "n arms"]) -> int:
    """The arm of the largest mean score Γ; the first of equals. To be valued on rows other than these."""
    return int(np.argmax(scores.mean(axis=0)))


def best_arm_crossed(
    scores: Float[np.ndarray, "n arms"], *, cluster: Int[np.ndarray, "n"] | None = None, seed: int = 0
) -> tuple[Policy, tuple[int, int]]:
    """The best single arm chosen on one half of the rows and given to the other, both ways; and the two choices.

    Clusters stay whole. Choosing on the valued rows would flatter the reference. Raises TooFewRows below two units.
    """
    half, chosen = best_arms(scores, cluster=cluster, seed=seed)
    policy = np.zeros(scores.shape)
    policy[half == 1, chosen[0]] = 1.0
    policy[half == 0, chosen[1]] = 1.0
    return policy, chosen


def best_arms(
    scores: Float[np.ndarray, "n arms"], *, cluster: Int[np.ndarray, "n"] | None = None, seed: int = 0
) -> tuple[Int[np.ndarray, "n"], tuple[int, int]]:
    """The half, 0 or 1, of each row, and the best single arm of either; arguments and errors of `best_arm_crossed`."""
    n = len(scores)
    if n < 2:
        raise TooFewRows("Two halves need two rows", value=n, allowed="2 or more")
    half = compact(folds(n, 2, clusters=cluster, seed=seed), 2)
    return half, (best_arm(scores[half == 0]), best_arm(scores[half == 1]))
