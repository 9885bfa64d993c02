"""How much the rows of one arm can say about all people: effective sizes and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from querist.effects.design._propensity import CLIP
from querist.errors import BadOption

__all__ = ["Overlap", "balance_weights", "overlap"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """By arm, control first: rows `n`, effective size `ess` of their weights 1/e, the largest weight, and the share of *all* rows
    whose propensity for the arm lies outside [.01, .99]."""

    n: Int[np.ndarray, "arms"]
    ess: Float[np.ndarray, "arms"]
    max_weight: Float[np.ndarray, "arms"]
    clipped_share: Float[np.ndarray, "arms"]

    @property
    def ess_share(self) -> Float[np.ndarray, "arms"]:
        """Effective size over rows: 1 where an arm was given with one probability, NaN for an arm without rows."""
        return np.divide(self.ess, self.n, out=np.full(self.ess.shape, np.nan), where=self.n > 0)


def overlap(e: Float[np.ndarray, "n arms"], codes: Int[np.ndarray, "n"]) -> Overlap:
    """ESS_m = (Σ 1/e)²/Σ 1/e² over arm m's rows; e [n, arms], not clipped before. Source: Kish (1965)."""
    arms = e.shape[1]
    weight = 1 / e[np.arange(codes.size), codes]
    total = np.bincount(codes, weight, minlength=arms)
    squares = np.bincount(codes, weight**2, minlength=arms)
    largest = np.zeros(arms)
    np.maximum.at(largest, codes, weight)
    ess = np.divide(total**2, squares, out=np.zeros(arms), where=squares > 0)
    outside = ((e < CLIP[0]) | (e > CLIP[1])).mean(axis=0)
    return Overlap(np.bincount(codes, minlength=arms), ess, largest, outside)


def balance_weights(
    e: Float[np.ndarray, "n arms"], codes: Int[np.ndarray, "n"], kind: Literal["ipw", "overlap"]
) -> Float[np.ndarray, "n"]:
    """Weights that make arms alike, with mean 1: "ipw" 1/e_A (all people), "overlap" h/e_A with h = 1/Σ_m 1/e_m (people who could
    have got any arm). Raises BadOption. Source: Li & Li (2019), generalised overlap weights."""
    if kind not in ("ipw", "overlap"):
        raise BadOption("No such weighting", value=kind, allowed="ipw, overlap")
    weight = 1 / e[np.arange(codes.size), codes]
    if kind == "overlap":
        weight = weight / (1 / e).sum(axis=1)
    return weight / weight.mean()
