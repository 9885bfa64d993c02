"""The answer of every distance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Distance", "Plan"]


class Plan(NamedTuple):
    """A transport plan: pairs (row of X, row of Y) that carry mass, and the mass of each, which sums to one."""

    pairs: Int[np.ndarray, "k 2"]
    mass: Float[np.ndarray, "k"]


@dataclass(frozen=True, slots=True)
class Distance:
    """A distance between two laws of which n and m rows in d units were seen.

    value: in the unit of the rows. power: value**p, what is averaged and subtracted. mc_se: Monte Carlo standard error of
    `value` over random directions, None where nothing was sampled or one block cannot tell. method: what was computed.
    warnings: sentences that go wherever the number goes.

    Some methods add: w2_scale = d·SW₂² (on the scale of W₂²); n_used, the most rows of either set that entered where a
    subsample was drawn or could have been; direction, a unit vector; plan.
    """

    value: float
    power: float
    p: float
    mc_se: float | None
    n: int
    m: int
    d: int
    method: str
    warnings: tuple[str, ...] = ()
    w2_scale: float | None = None
    n_used: int | None = None
    direction: Float[np.ndarray, "d"] | None = field(default=None, compare=False, repr=False)
    plan: Plan | None = field(default=None, compare=False, repr=False)

    def __float__(self) -> float:
        return self.value
