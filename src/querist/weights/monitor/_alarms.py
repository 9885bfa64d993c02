"""Alarms: what a training should be told of at once, each beyond its null at a level shared out over the whole training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.weights.nulls import (
    LEVEL,
    MPFit,
    SpikeTest,
    johnstone,
    predicted_edge,
    predicted_p,
    tied_rank_p,
    tw1_sf,
    tw_edge,
)

__all__ = ["KINDS", "Alarm", "Known", "bulk_departs", "level_at", "spikes_beyond", "tracy_widom_p"]

KINDS = ("non-finite", "rank-drop", "spike-born", "bulk-departs")
SMALLEST = 1e-11
"""Levels are not shared out further: the tables of the laws end there. Over 100 layers and 10⁵ looks it adds 2·10⁻⁴."""
RANK_STEPS = (0.01, 0.1)
"""Shares of lost rank at which an alarm is raised: where `weights.collapse` ceases to be a no, and where it becomes a yes."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something happened to a layer between the last look and this one.

    kind: "non-finite" (value: entries), "rank-drop" (share of lost rank), "spike-born" (the smallest eigenvalue that is
    beyond its null now and had none there), "bulk-departs" (N·KS). null: what it exceeded; p, level: where there is a
    test, its p and the level that this look had. because: one sentence.
    """

    step: int
    layer: str
    kind: str
    value: float
    null: float
    p: float | None
    level: float | None
    because: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.layer}: {self.kind}. {self.because}"

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, as the table of alarms names them."""
        row = asdict(self)
        row["layer_id"] = row.pop("layer")
        return row


@dataclass(slots=True)
class Known:
    """What is already known of a layer, so that it is told once: None before the first whole look."""

    spikes: int | None = None
    departed: bool | None = None
    rank_step: int | None = None
    nonfinite: bool = False
    ks_refuted: float = 0.0
    top_refuted: float = 0.0

    def state(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Known:
        """What `state` returned."""
        return cls(**state)


def level_at(event: int, layers: int, level: float = LEVEL) -> float:
    """The level of each test at the event of this number (the first one, 1, raises no alarm).

    level/(2·layers·e·(e − 1)), whose sum over all later events is level/(2·layers): over a training of any length, all
    layers and both tests together, a network in which nothing happens raises an alarm with probability `level` at most. It
    holds for events that are left out as well. Bonferroni, as tests of one layer at two steps are nearly the same test.
    """
    return max(level / (2 * max(layers, 1) * event * max(event - 1, 1)), SMALLEST)


def tracy_widom_p(top: float, fit: MPFit, shape: tuple[int, int]) -> float:
    """P(λ_max of noise of this size and scale >= top)."""
    centre, scale = johnstone(*shape)
    return float(tw1_sf((top / fit.sigma2 - centre) / scale))


def spikes_beyond(
    evals: Float[np.ndarray, "N"], test: SpikeTest, fit: MPFit, level: float
) -> tuple[int, float, float | None]:
    """Eigenvalues that pass every null at this level: how many, the edge they passed, and p of the largest.

    The edge is the largest of those of the rank test, the Tracy–Widom quantile and both predictions from resampled
    copies. 0 where the test of this matrix alone is not a yes.
    """
    if test.verdict != "yes" or test.p is None:
        return 0, math.inf, test.p
    p = max(test.p, tracy_widom_p(float(evals[-1]), fit, test.shape))
    low, high = sorted(test.shape)
    edges = [test.edge, tw_edge(low, high, 1 - level, fit.sigma2)]
    edges += [predicted_edge(draws, level) for draws in test.draws.values()]
    edge = max(edges)
    return int(np.count_nonzero(evals > edge)), edge, p


def bulk_departs(ks: float, table_p: float, copies: Float[np.ndarray, "b"], level: float) -> tuple[bool, float]:
    """Whether a bulk departs from the law at this level, and p: the larger of the table's and the copies' prediction.

    copies: the same statistic of sign-flipped copies, at least 19.
    """
    p = max(table_p, predicted_p(ks, copies))
    return bool(p <= level and tied_rank_p(ks, copies) <= LEVEL), p
