"""What a training loop tells those who watch it: the state of the training and the four moments at which it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Hook", "TrainState"]


@dataclass(slots=True)
class TrainState:
    """What a hook sees of a training.

    Parameters
    ----------
    model: the network itself, not the wrapper that distributes it. A hook changes neither its weights and gradients nor
        its train or eval mode, and draws from no global random generator.
    optimizer: the torch optimiser; its `param_groups` hold the learning rates of the step that was last taken. None
        where a foreign trainer has none to show.
    step: optimiser steps done, 1 after the first one.
    epoch: passes over the data that were completed before the current one; on_epoch shows the number just completed.
    losses: terms of the last step, each its sum divided by its weight, over all processes.
    metrics: figures of the last validation, empty before the first one.
    is_main: whether this process is the one that writes files. Hooks are called in every process.
    device: where the network's parameters are.
    stop: a hook may set it; training ends after the current step, in every process.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None = None
    step: int = 0
    epoch: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    is_main: bool = True
    device: torch.device | None = None
    stop: bool = False


class Hook:
    """Watches a training. Override what you need; every method does nothing here.

    Hooks are called in the order in which they were given, in every process. What `state` returns is kept in the
    checkpoint and handed to `load_state` before `on_start` when a training is resumed.
    """

    def on_start(self, state: TrainState) -> None:
        """Before the first step, and again, after `load_state`, where a training goes on from a checkpoint."""

    def on_step(self, state: TrainState) -> None:
        """After every optimiser step."""

    def on_epoch(self, state: TrainState) -> None:
        """After every pass over the data and the validation that follows it."""

    def on_end(self, state: TrainState) -> None:
        """Once, when training has ended; the best weights are restored by then where that was asked for."""

    def state(self) -> dict[str, Any]:
        """Plain JSON values, tensors, and lists or dicts of them: all that is needed to go on after a restart."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned; tensors arrive on the CPU."""
