"""One implementation of every statistic that more than one room needs; numpy only, scipy inside functions."""

from __future__ import annotations

from querist.statistics.association import auc, kendall, weighted_kendall
from querist.statistics.draws import resample_weights
from querist.statistics.estimate import Estimate
from querist.statistics.folds import folds
from querist.statistics.histogram import Histogram
from querist.statistics.intervals import mean_interval, paired_t, wilson
from querist.statistics.moments import Moments
from querist.statistics.multiplicity import benjamini_hochberg, holm, max_t
from querist.statistics.permutation import PermutationResult, permutation_test
from querist.statistics.ranks import rank_p
from querist.statistics.resampling import bootstrap, jackknife
from querist.statistics.streams import stream, torch_seed
from querist.statistics.two_sample import TwoSample, two_sample_auc
from querist.statistics.verdicts import verdict

__all__ = [
    "Estimate",
    "Histogram",
    "Moments",
    "PermutationResult",
    "TwoSample",
    "auc",
    "benjamini_hochberg",
    "bootstrap",
    "folds",
    "holm",
    "jackknife",
    "kendall",
    "max_t",
    "mean_interval",
    "paired_t",
    "permutation_test",
    "rank_p",
    "resample_weights",
    "stream",
    "torch_seed",
    "two_sample_auc",
    "verdict",
    "weighted_kendall",
    "wilson",
]
