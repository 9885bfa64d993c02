"""What the test of spikes found: numbers of one matrix, beside those of its copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from querist.results.finding import Verdict
from querist.weights.nulls._bulk import MPFit

__all__ = ["Round", "SpikeTest"]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of deflation: spikes found, the edge they passed, and the p-values of the largest of them."""

    n_spikes: int
    edge: float
    p: float | None
    p_rank: float | None


@dataclass(frozen=True, slots=True)
class SpikeTest:
    """What stands out of a spectrum, beside what stands out of its resampled copies. Eigenvalues are unnormalised.

    n_spikes: eigenvalues above `edge`, the largest of `edges` (Tracy-Widom .99; per null the draw that a rank p of .05
    must beat, the largest of 19); None where no null was drawn. n_low, n_high: the count at the .99 and .95 edges.
    n_spikes_tw: above the Tracy-Widom edge alone, never evidence by itself.
    p: one-sided prediction of log λ_max from its draws, Student t; p_rank: (1 + #draws ≥ λ_max)/(1 + draws); both the
    larger over the nulls, None where nothing was drawn for them. Where sign flips already explain λ_max, the shuffle is
    not drawn to the end, and p is at least p_rank. screened: λ_max lies below the .95 Tracy-Widom edge, so that the
    answer is no without a rank test; for a family of tests `p_family` is then 1.
    draws: λ_max of every copy drawn, by null. replicas, fits: whole spectra of the first copies and their fits.
    """

    shape: tuple[int, int]
    nulls: tuple[str, ...]
    lambda_max: float
    n_spikes: int | None
    n_spikes_tw: int
    n_low: int | None
    n_high: int | None
    edge: float
    edges: Mapping[str, float]
    p: float | None
    p_rank: float | None
    p_by_null: Mapping[str, float]
    p_rank_by_null: Mapping[str, float]
    draws: Mapping[str, np.ndarray]
    replicas: Mapping[str, tuple[np.ndarray, ...]]
    fits: Mapping[str, tuple[MPFit, ...]]
    screened: bool
    verdict: Verdict
    reason: str
    rounds: tuple[Round, ...] = field(default=())

    def columns(self) -> dict[str, float | int | None]:
        """What tables of layers say of the test, by column."""
        return {
            "n_spikes": self.n_spikes,
            "n_spikes_tw": self.n_spikes_tw,
            "n_spikes_low": self.n_low,
            "n_spikes_high": self.n_high,
            "spike_edge": self.edge,
            "spike_p": self.p,
            "spike_p_rank": self.p_rank,
        }

    @property
    def p_family(self) -> float | None:
        """p for Benjamini-Hochberg over layers: 1 for a screened layer, which stays in the family."""
        return 1.0 if self.screened and self.nulls else self.p

    @property
    def null_ratios(self) -> Float[np.ndarray, "r"]:
        """λ_max of each wholly drawn shuffled copy over its own .99 Tracy-Widom edge."""
        pairs = zip(self.replicas.get("shuffle", ()), self.fits.get("shuffle", ()), strict=True)
        return np.array([evals[-1] / fit.tw99 for evals, fit in pairs])

    @property
    def null_max_ratio(self) -> float | None:
        """Mean of `null_ratios`: above 1, entries make outliers without correlation. None without a shuffled copy."""
        return float(self.null_ratios.mean()) if len(self.null_ratios) else None

    @property
    def rand_num_spikes(self) -> int | None:
        """Eigenvalues of a shuffled copy above its own .99 edge: the (lower) median over copies."""
        counts = sorted(fit.n_spikes_tw99 for fit in self.fits.get("shuffle", ()))
        return counts[(len(counts) - 1) // 2] if counts else None
