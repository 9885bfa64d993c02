"""The column names of WeightWatcher's `details` frame, for people and scripts that come from that tool."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["NAMES", "renamed"]

NAMES = {
    "position": "layer_id",
    "layer_id": "longname",
    "name": "name",
    "kind": "layer_type",
    "status": "status",
    "reason": "warning",
    "N": "M",
    "M": "N",
    "n_values": "num_evals",
    "alpha": "alpha",
    "sigma": "sigma",
    "xmin": "xmin",
    "xmax": "xmax",
    "D": "D",
    "n_tail": "num_pl_spikes",
    "alpha_weighted": "alpha_weighted",
    "log_alpha_norm": "log_alpha_norm",
    "log_norm": "log_norm",
    "log_spectral_norm": "log_spectral_norm",
    "stable_rank": "stable_rank",
    "entropy": "entropy",
    "rank": "matrix_rank",
    "rank_loss": "rank_loss",
    "weak_rank_loss": "weak_rank_loss",
    "sigma_mp": "sigma_mp",
    "mp_softrank": "mp_softrank",
    "n_spikes": "num_spikes",
    "rand_num_spikes": "rand_num_spikes",
    "shuffle_distance": "rand_distance",
    "n_erg": "detX_num",
    "erg_gap": "ERG_gap",
}
"""Our column to theirs, version 0.7.7.

There N is the longer side and M the shorter one, the other way round than here; its Q = N/M is the inverse of our q, which
keeps its name. A column that the tool does not have keeps its name too. Same name, other rule: their num_spikes counts what
lies above a fitted edge and ours what beats both nulls; their sigma_mp and mp_softrank come from a fit by search.
"""


def renamed(columns: Iterable[str]) -> dict[str, str]:
    """Old name to new name for those of these columns that the other tool has under another name.

    >>> renamed(["alpha", "N", "n_tail", "q"])
    {'N': 'M', 'n_tail': 'num_pl_spikes'}
    """
    return {name: NAMES[name] for name in columns if NAMES.get(name, name) != name}
