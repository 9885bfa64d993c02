"""How well labelled rows may be told apart from features, without training a network: scores, probe, nulls, agreement."""

from querist.features.scores._agreement import Agreement, agreement
from querist.features.scores._gbc import gbc, gbc_of
from querist.features.scores._h_score import h_score, h_score_of
from querist.features.scores._leep import leep, nce, nleep, nleep_of
from querist.features.scores._logme import logme, logme_of
from querist.features.scores._null import ScoreNull, permuted
from querist.features.scores._probe import Probe, probe
from querist.features.scores._transrate import transrate, transrate_of

__all__ = [
    "Agreement",
    "Probe",
    "ScoreNull",
    "agreement",
    "gbc",
    "gbc_of",
    "h_score",
    "h_score_of",
    "leep",
    "logme",
    "logme_of",
    "nce",
    "nleep",
    "nleep_of",
    "permuted",
    "probe",
    "transrate",
    "transrate_of",
]
