"""What a layer's row can only say once all layers are known: adjusted p values, and the phase that agrees with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from querist.statistics import benjamini_hochberg
from querist.weights.studies.verdicts import LEVEL, spike_verdict

__all__ = ["adjusted", "settled", "spikes_adjusted"]

SPIKED = ("bleeding-out", "bulk+spikes")
"""Phases that claim an eigenvalue beyond the nulls."""


def settled(layers: pl.DataFrame, nulls: Sequence[str]) -> pl.DataFrame:
    """The rows with `spike_p_adj` and `spike_verdict`, and no phase that claims a spike where the verdict is not yes.

    Such a phase was found on the layer alone. It stays where the evidence points, is no longer decided, and its reason says
    what the family took away. nulls: those that the run drew.
    """
    layers = _adjusted(layers)
    rows = layers.to_dicts()
    verdicts = [None if row["status"] in ("nonfinite", "failed") else spike_verdict(row, nulls) for row in rows]
    decided, reasons = layers["phase_decided"].to_list(), layers["phase_reason"].to_list()
    for i, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
        if row["phase"] in SPIKED and decided[i] and verdict != "yes":
            decided[i] = False
            reasons[i] = f"{reasons[i]}, but {_why(row['spike_p_adj'])}"
    return layers.with_columns(
        pl.Series("spike_verdict", verdicts, dtype=pl.String),
        pl.Series("phase_decided", decided, dtype=pl.Boolean),
        pl.Series("phase_reason", reasons, dtype=pl.String),
    )


def _why(p: float | None) -> str:
    if p is not None and p > LEVEL:
        return f"not beyond chance among all layers of the run (adjusted p {p:.2g})"
    return "the test of spikes does not say yes"


def adjusted(p: Sequence[float | None]) -> list[float | None]:
    """Benjamini–Hochberg over what was tested; what was not stays null and is not counted."""
    return [None if math.isnan(value) else float(value) for value in benjamini_hochberg(list(p))]


def spikes_adjusted(tested: Sequence[tuple[float | None, int | None]]) -> list[float | None]:
    """The same for the spikes of layers, each (spike_p, n_spikes).

    A layer below the .95 Tracy–Widom edge was not resampled: it stays in the family with p = 1, or the adjustment would be
    made over the interesting layers only.
    """
    return adjusted([1.0 if p is None and count is not None else p for p, count in tested])


def _adjusted(layers: pl.DataFrame) -> pl.DataFrame:
    p = spikes_adjusted(list(layers.select("spike_p", "n_spikes").iter_rows()))
    return layers.with_columns(pl.Series("spike_p_adj", p, dtype=pl.Float64))
