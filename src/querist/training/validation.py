"""Validation in eval mode over all processes, and the memory of the best one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, BadValues, NumericalFailure, UnknownName, near
from querist.training.batches import to_device
from querist.training.random_state import kept, seed_all
from querist.training.totals import Totals, faults, means, terms_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from querist.training.accelerate import Workplace
    from querist.training.batches import Batches, Rows
    from querist.training.freezing import Modes
    from querist.training.totals import Loss

    Score = Callable[[nn.Module], Mapping[str, float]]

__all__ = ["Best", "Validation"]


class Validation:
    """Figures of a network on data that it is not trained on.

    Every figure is a mean over all rows; the loss's terms and their sum `total` come first, then those of `metric`, in the
    same form, then those of `score`, which sees the network alone and runs in process 0.
    """

    def __init__(
        self,
        work: Workplace,
        modes: Modes,
        source: Rows | Batches,
        loss: Loss,
        metric: Loss | None = None,
        score: Score | None = None,
        *,
        seed: int = 0,
    ):
        self.work, self.modes, self.source, self.seed = work, modes, source, seed
        self.loss, self.metric, self.score = loss, metric, score
        self._totals = Totals(work)

    def run(self, step: int) -> dict[str, float]:
        """All figures; the random generators draw the same in every validation, and are given back."""
        import torch

        self.work.from_main(buffer for _, buffer in self.modes.model.named_buffers())
        with kept(self.work.device), torch.no_grad():
            seed_all(self.seed, "training", "validation", self.work.rank, device=self.work.device)
            self.modes.evaluate()
            try:
                found = self._means(step)
                scored = self._scored()
            finally:
                self.modes.train()
        if clash := sorted(found.keys() & scored.keys()):
            raise BadValues(
                "Two figures of the validation share a name", value=", ".join(clash), allowed="other names in score"
            )
        return {**found, **scored}

    def _means(self, step: int) -> dict[str, float]:
        local: dict[str, tuple[Any, Any]] = {}
        own: set[str] = set()
        for micro in self.source.epoch(0, 0, self.work.rank, self.work.processes, 1):
            for batch in micro:
                batch = to_device(batch, self.work.device)
                terms = terms_of(self.loss(self.modes.model, batch), self.work.device)
                own.update(terms)
                more = {} if self.metric is None else self.metric(self.modes.model, batch)
                for name, pair in terms_of(more, self.work.device, "The metric").items():
                    if name in own:
                        raise BadValues(
                            "A metric has the name of a term of the loss", value=name, allowed="another name"
                        )
                    terms[name] = pair
                for name, (total, weight) in terms.items():
                    if self.work.device.type != "mps":
                        total, weight = total.double(), weight.double()
                    before = local.get(name)
                    local[name] = (total, weight) if before is None else (before[0] + total, before[1] + weight)
        totals = self._totals.over(local) or {}
        if wrong := faults(totals):
            raise NumericalFailure(f"The validation after step {step} is not finite: {'; '.join(wrong)}")
        found = means(totals)
        # A process without rows does not know which names are the loss's: it is told by the others.
        terms = {name for text in self.work.gather_text("\n".join(sorted(own))) for name in text.split("\n")}
        parts = [value for name, value in found.items() if name in terms]
        return {"total": sum(parts), **found} if parts else found

    def _scored(self) -> dict[str, float]:
        import json

        if self.score is None:
            return {}
        said = ""
        if self.work.is_main:
            figures = {name: float(value) for name, value in self.score(self.modes.model).items()}
            said = json.dumps(figures)
        return json.loads(self.work.gather_text(said)[0])


class Best:
    """The best validation so far, its weights, and how many validations have passed without a better one."""

    def __init__(self, *, monitor: str, mode: str, patience: int | None, min_delta: float, restore: bool):
        if mode not in ("min", "max"):
            raise BadOption("A monitored figure is to be small or large", value=mode, allowed="min, max")
        if patience is not None and patience < 1:
            raise BadOption("The patience is a number of validations", value=patience, allowed="patience >= 1, or None")
        if not 0 <= min_delta < math.inf:
            raise BadOption("The least improvement is out of range", value=min_delta, allowed="min_delta >= 0")
        self.monitor, self.mode, self.patience, self.min_delta, self.restore = (
            monitor,
            mode,
            patience,
            min_delta,
            restore,
        )
        self.value: float | None = None
        self.step = self.epoch = self.bad = 0
        self.weights: dict[str, torch.Tensor] | None = None

    @property
    def exhausted(self) -> bool:
        """Whether training ends for want of improvement."""
        return self.patience is not None and self.bad >= self.patience

    def validated(self, metrics: Mapping[str, float], step: int, epoch: int, model: nn.Module) -> float:
        """Take note of a validation; returns the monitored figure. Raises UnknownName, NumericalFailure."""
        if self.monitor not in metrics:
            raise UnknownName(
                "The validation has no such figure", value=self.monitor, allowed=near(self.monitor, metrics, 8)
            )
        value = metrics[self.monitor]
        if not math.isfinite(value):
            raise NumericalFailure(f"The monitored figure {self.monitor} is {value} after step {step}")
        sign = 1.0 if self.mode == "min" else -1.0
        if self.value is None or sign * value < sign * self.value - self.min_delta:
            self.value, self.step, self.epoch, self.bad = value, step, epoch, 0
            if self.restore:
                self.weights = {name: one.detach().to("cpu", copy=True) for name, one in tensors_of(model).items()}
        else:
            self.bad += 1
        return value

    def put_back(self, model: nn.Module) -> None:
        """Give the network its best weights, where they are kept."""
        if self.weights is not None:
            copy_into(model, self.weights)

    def describe(self) -> dict[str, Any]:
        """What a resumed training must find again."""
        names = ("monitor", "mode", "patience", "min_delta", "restore")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {name: getattr(self, name) for name in ("value", "step", "epoch", "bad", "weights")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        for name, value in state.items():
            setattr(self, name, value)


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer once, also the buffers that a state dict leaves out."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def copy_into(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Overwrite every parameter and buffer in place."""
    import torch

    with torch.no_grad():
        for name, one in tensors_of(model).items():
            one.copy_(tensors[name])
