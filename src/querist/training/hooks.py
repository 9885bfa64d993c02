"""What a training loop tells those who watch it: the state of the training and the four moments at which it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from querist.errors import BadOption

if TYPE_CHECKING:
    import torch

__all__ = ["Each", "Hook", "Looking", "TrainState", "one_training"]


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
    name: which of several trainings this is, where a verb makes several: "network-0-1" of a cross-fit, a cell of a sweep.
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
    name: str = ""


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


H = TypeVar("H", bound=Hook)


class Each(Hook, Generic[H]):
    """A hook of its own for each of several trainings, made when it starts: for verbs that train more than one network.

    make: `make(state)` returns the hook of the training that `state.name` names and whose network `state.model` is, as in
    `Each(lambda state: querist.weights.Monitor(state.model, out=f"runs/{state.name}"))`. Those that were made are in `hooks`,
    in order, by name; a name that comes again has its number behind it. A training that is resumed goes on with the state of
    its own hook; hooks of trainings that had ended before are not made again.
    """

    def __init__(self, make: Callable[[TrainState], H]):
        self.make = make
        self.hooks: dict[str, H] = {}
        self._current: Hook = Hook()
        self._loaded: dict[str, Any] | None = None

    def on_start(self, state: TrainState) -> None:
        """Make the training's hook, and hand it what a checkpoint kept for it."""
        made = self._current = self.make(state)
        again = sum(name == state.name or name.startswith(f"{state.name} (") for name in self.hooks)
        self.hooks[f"{state.name} ({again + 1})" if again else state.name] = made
        if self._loaded is not None:
            self._current.load_state(self._loaded)
            self._loaded = None
        self._current.on_start(state)

    def on_step(self, state: TrainState) -> None:
        """The current training's."""
        self._current.on_step(state)

    def on_epoch(self, state: TrainState) -> None:
        """The current training's."""
        self._current.on_epoch(state)

    def on_end(self, state: TrainState) -> None:
        """The current training's."""
        self._current.on_end(state)

    def state(self) -> dict[str, Any]:
        """That of the current training's hook."""
        return self._current.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Kept until the training starts and its hook is made."""
        self._loaded = state


def one_training(hook: Hook, seen: int | None, state: TrainState) -> None:
    """Refuse a second training to a hook that has seen step `seen` of a first one: what it keeps would mix the two.

    Raises BadOption.
    """
    if seen is not None and state.step < seen:
        kind = type(hook).__name__
        raise BadOption(
            f"A {kind} watches one training",
            value=f"step {state.step} of {state.name or 'a training'} after step {seen} of another",
            allowed="steps that go forward",
            mend=f"Where several networks are trained, give training.Each(lambda state: {kind}(...)), which makes one for each",
        )


class Looking(Hook):
    """A hook that looks at the network at the start, every so many steps and at the end of one training, in the main process.

    A class gives `_look(state)`, which adds rows with their `step` to `log`. Raises BadOption for `every` below 1.
    """

    def __init__(self, every: int):
        if every < 1:
            raise BadOption("A monitor looks every so many steps", value=every, allowed="1 or more")
        self.every = every
        self.log: list[dict[str, Any]] = []

    def _look(self, state: TrainState) -> None:
        raise NotImplementedError

    def _unseen(self) -> bool:
        """Whether the start of the training has still to be looked at; not where one goes on."""
        return not self.log

    def on_start(self, state: TrainState) -> None:
        """Look once, unless a training goes on. Raises BadOption where another one begins."""
        one_training(self, self.log[-1]["step"] if self.log else None, state)
        if state.is_main and self._unseen():
            self._look(state)

    def on_step(self, state: TrainState) -> None:
        """Look every so many steps."""
        if state.is_main and state.step % self.every == 0:
            self._look(state)

    def on_end(self, state: TrainState) -> None:
        """Look once more, unless this step was looked at."""
        if state.is_main and (not self.log or self.log[-1]["step"] != state.step):
            self._look(state)
