"""One implementation of every statistic that more than one room needs; numpy only, scipy inside functions."""

from __future__ import annotations

from querist.statistics.multiplicity import benjamini_hochberg, holm, max_t
from querist.statistics.ranks import rank_p
from querist.statistics.streams import stream, torch_seed

__all__ = ["benjamini_hochberg", "holm", "max_t", "rank_p", "stream", "torch_seed"]
