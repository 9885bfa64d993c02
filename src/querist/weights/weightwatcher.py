"""The column names of WeightWatcher's `details`, for people who come from that tool."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NAMES", "renamed"]

NAMES = {
    "layer_id": "longname",
    "kind": "layer_type",
    "alpha": "alpha",
    "alpha_weighted": "alpha_weighted",
    "log_alpha_norm": "log_alpha_norm",
    "log_norm": "log_norm",
    "log_spectral_norm": "log_spectral_norm",
    "stable_rank": "stable_rank",
    "entropy": "entropy",
    "rank_loss": "rank_loss",
    "weak_rank_loss": "weak_rank_loss",
    "mp_softrank": "mp_softrank",
    "sigma_mp": "sigma_mp",
    "lambda_plus": "lambda_plus",
    "n_spikes": "num_spikes",
    "rand_num_spikes": "rand_num_spikes",
    "shuffle_distance": "rand_distance",
    "n_tail": "num_pl_spikes",
    "n_values": "num_evals",
    "n_erg": "detX_num",
    "erg_gap": "detX_delta",
    "xmin": "xmin",
    "xmax": "xmax",
    "D": "D",
    "sigma": "sigma",
    "status": "warning",
    "name": "name",
    "N": "N",
    "M": "M",
    "position": "layer_id",
}
"""Our column to theirs. Columns that the other tool does not have keep their names; Q = M/N is its inverse of our q."""


def renamed(columns: Sequence[str]) -> dict[str, str]:
    """Old name to new name for these columns; `longname` is the full layer name there, and `layer_id` a number."""
    return {name: NAMES[name] for name in columns if name in NAMES}
