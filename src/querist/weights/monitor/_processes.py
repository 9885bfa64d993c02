"""Several processes, one monitor: who works, and how all come to the same decision."""

from __future__ import annotations

import torch
from torch import distributed, nn

from querist.weights.monitor._pace import Event

__all__ = ["agreed", "is_first"]

_WORDS: tuple[Event | None, ...] = (None, "whole", "top")


def is_first() -> bool:
    """Whether this is the process of rank 0, or the only one."""
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def agreed(decided: Event | None, model: nn.Module) -> Event | None:
    """Rank 0's decision, in every process: gathering a tensor takes all of them, and their clocks differ."""
    told = torch.tensor([_WORDS.index(decided)], device=next(model.parameters()).device)
    distributed.broadcast(told, src=0)
    return _WORDS[int(told.item())]
