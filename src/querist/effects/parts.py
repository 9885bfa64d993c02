"""An effect in three parts: natural response, base effect, increments; and how base and increments are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics.arrays import finite

__all__ = ["Effects", "compose", "decompose", "retier", "tier_of"]

Tier = Literal["mean", "reference"]


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of M arms on K outcomes for n people, in outcome per person (probability points for outcomes of 0 and 1).

    natural [n, K]: without treatment; base [n, K]: of being treated at all; incremental [n, M, K]: what each arm adds;
    total = base + incremental; tier_weights [M] sum to 1, and weighted increments to 0 for every person and outcome. spread
    [n, M, K]: sd of total over the members of an ensemble (not a confidence interval), None without one.
    """

    natural: Float[np.ndarray, "n K"]
    base: Float[np.ndarray, "n K"]
    incremental: Float[np.ndarray, "n M K"]
    tier_weights: Float[np.ndarray, "M"]
    spread: Float[np.ndarray, "n M K"] | None = None

    @property
    def total(self) -> Float[np.ndarray, "n M K"]:
        """Effect of each arm against no treatment."""
        return self.base[:, None] + self.incremental

    @property
    def response(self) -> Float[np.ndarray, "n M+1 K"]:
        """Mean outcome under control, then under each arm."""
        return np.concatenate([self.natural[:, None], self.natural[:, None] + self.total], axis=1)


def decompose(
    natural: Any, total: Any, *, tier_weights: Any = None, spread: Float[np.ndarray, "n M K"] | None = None
) -> Effects:
    """Parts of total effects [n, M, K] beside natural responses [n, K]: base = Σ_m w_m·total_m, incremental = total − base.

    The parts are on the scale of the mean outcome whatever link a model has: differences of inverse links would not cancel.
    tier_weights: [M] with sum 1, equal where left out. Raises ShapeMismatch, NonFinite, BadValues.
    """
    natural, total = finite(natural, "natural"), finite(total, "total")
    if total.ndim != 3 or natural.shape != (total.shape[0], total.shape[2]):
        raise ShapeMismatch(
            "Parts have other shapes",
            value=f"natural {natural.shape}, total {total.shape}",
            allowed="natural (n, K), total (n, M, K)",
        )
    w = _weights(tier_weights, total.shape[1])
    base = np.einsum("nmk,m->nk", total, w)
    return Effects(natural, base, total - base[:, None], w, spread)


def compose(response: Any, *, tier_weights: Any = None) -> Effects:
    """Parts of mean outcomes [n, M + 1, K], control first. Raises as `decompose`."""
    response = finite(response, "response")
    if response.ndim != 3 or response.shape[1] < 2:
        raise ShapeMismatch(
            "Responses have another shape", value=response.shape, allowed="(n, M + 1, K), M of at least 1"
        )
    return decompose(response[:, 0], response[:, 1:] - response[:, :1], tier_weights=tier_weights)


def tier_of(arms: int, tier: Tier, *, reference_arm: int = 0, tier_weights: Any = None) -> Float[np.ndarray, "M"]:
    """Tier weights: those given (equal where left out) for "mean", 1 on one arm for "reference".

    reference_arm: its number among the M arms, from 0. Raises BadOption, ShapeMismatch, BadValues.
    """
    if tier == "mean":
        return _weights(tier_weights, arms)
    if tier != "reference":
        raise BadOption("No such tier", value=tier, allowed="mean, reference")
    if tier_weights is not None:
        raise BadOption("A reference tier has no weights", value="tier_weights", allowed='tier="mean"')
    if not 0 <= reference_arm < arms:
        raise BadOption("No such reference arm", value=reference_arm, allowed=f"0 to {arms - 1}")
    return np.eye(arms)[reference_arm]


def retier(effects: Effects, *, tier: Tier, reference_arm: int = 0, tier_weights: Any = None) -> Effects:
    """The same effects with base and increments told apart by another rule; total never changes. Arguments of `tier_of`."""
    w = tier_of(effects.incremental.shape[1], tier, reference_arm=reference_arm, tier_weights=tier_weights)
    return decompose(effects.natural, effects.total, tier_weights=w, spread=effects.spread)


def _weights(tier_weights: Any, arms: int) -> np.ndarray:
    w = np.full(arms, 1 / arms) if tier_weights is None else finite(tier_weights, "tier_weights")
    if w.shape != (arms,):
        raise ShapeMismatch("One tier weight per arm", value=w.shape, allowed=f"({arms},)")
    if (w < 0).any() or abs(w.sum() - 1) > 1e-9:
        raise BadValues("Tier weights must be shares", value=w.tolist(), allowed="0 or more, with sum 1")
    return w
