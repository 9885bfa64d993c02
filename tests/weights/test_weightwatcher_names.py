"""Column names of the other tool: each is a column of its details frame, and what is turned round there is turned here."""

from __future__ import annotations

from querist.weights.tables import LAYERS
from querist.weights.weightwatcher import NAMES, renamed

OURS = [column.name for column in LAYERS.columns]
THEIRS = {
    "layer_id",
    "name",
    "D",
    "ERG_gap",
    "M",
    "N",
    "Q",
    "alpha",
    "alpha_weighted",
    "detX_num",
    "entropy",
    "has_esd",
    "lambda_max",
    "layer_type",
    "log_alpha_norm",
    "log_norm",
    "log_spectral_norm",
    "longname",
    "matrix_rank",
    "mp_softrank",
    "norm",
    "num_ERG_spikes",
    "num_evals",
    "num_fingers",
    "num_pl_spikes",
    "num_spikes",
    "num_traps",
    "rand_distance",
    "rand_num_spikes",
    "rand_sigma_mp",
    "rank_loss",
    "rf",
    "sigma",
    "sigma_mp",
    "spectral_norm",
    "stable_rank",
    "status",
    "sv_max",
    "sv_min",
    "warning",
    "weak_rank_loss",
    "ww_maxdist",
    "ww_softrank",
    "xmax",
    "xmin",
}
"""Columns of its details frame, version 0.7.7, with randomize, mp_fit and detX switched on."""


def test_every_name_is_theirs_and_every_column_ours():
    assert set(NAMES.values()) <= THEIRS
    assert set(NAMES) <= set(OURS)


def test_no_two_columns_get_one_name():
    after = [NAMES.get(name, name) for name in OURS]
    assert len(after) == len(set(after))
    assert renamed(OURS).keys() == {name for name in OURS if NAMES.get(name, name) != name}


def test_what_is_the_other_way_round():
    assert renamed(["N", "M"]) == {"N": "M", "M": "N"}
    assert renamed(["layer_id", "position"]) == {"layer_id": "longname", "position": "layer_id"}
    assert renamed(["q", "seconds", "alpha"]) == {}
