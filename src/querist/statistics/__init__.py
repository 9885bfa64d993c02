"""One implementation of every statistic that more than one room needs; numpy only, scipy inside functions."""

from __future__ import annotations

from querist.statistics.streams import stream, torch_seed

__all__ = ["stream", "torch_seed"]
