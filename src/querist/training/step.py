"""One optimiser step: forward and backward over micro-batches and processes, as if all rows were one batch.

Each term is divided by its weight over all rows of the step. Gradients are summed over processes once per step, after
the last micro-batch, by the loop itself and not by DistributedDataParallel: a process may have no rows, a parameter no
gradient, and the loss may call any method of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from querist.errors import BadValues, NumericalFailure
from querist.training.batches import to_device
from querist.training.random_state import kept
from querist.training.totals import Totals, faults, terms_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from querist.training.accelerate import Workplace
    from querist.training.freezing import Modes
    from querist.training.totals import Loss, Terms

    Weights = Callable[[Any], Mapping[str, torch.Tensor | float]]

__all__ = ["Step"]


class Step:
    """Takes the steps of a training."""

    def __init__(
        self,
        work: Workplace,
        modes: Modes,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        *,
        accumulate: int = 1,
        weights: Weights | None = None,
        clip: float | None = None,
    ):
        self.work, self.modes, self.loss, self.weights = work, modes, loss, weights
        self.accumulate, self.clip = accumulate, clip
        self.optimizer = optimizer
        held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        # In the network's order: the processes sum gradients in one order.
        self.parameters: list[nn.Parameter] = [one for one in modes.model.parameters() if one in held]
        self._totals, self._weights = Totals(work), Totals(work)

    def take(self, micro: Sequence[Any] | None, step: int) -> dict[str, tuple[float, float]] | None:
        """One step on this process's micro-batches; None says that it has no more data in this epoch.

        Returns each term's sum and weight over all processes, or None where none of them has data. `step` is the number of
        this step, for errors. Raises NumericalFailure for a loss that is not finite, naming step and term; BadValues for
        a loss of another form, for negative weights and for a loss without gradients.
        """
        active = micro is not None
        self.work.from_main(self.modes.model.buffers())
        batches = [to_device(batch, self.work.device) for batch in micro or ()]
        found = self._one(batches, active, step) if self.accumulate == 1 else self._many(batches, active, step)
        if found is None:
            return None
        live = self.work.sum_gradients(self.parameters)
        if not live and any(weight > 0 for _, weight in found.values()):
            raise BadValues(
                "The loss does not depend on any trainable parameter",
                value=", ".join(found),
                allowed="sums that were computed from the network's output, with gradients",
            )
        if self.clip is not None and live:
            norm = self.work.clip(self.parameters, self.clip)
            if not math.isfinite(norm) and not self.work.scales:
                raise NumericalFailure(f"The norm of the gradient is {norm} at step {step}; its terms are finite")
        if live:
            self.work.step()
        self.optimizer.zero_grad(set_to_none=True)
        return found

    def _terms(self, batch: Any) -> Terms:
        return terms_of(self.loss(self.modes.model, batch), self.work.device)

    def _one(self, batches: list[Any], active: bool, step: int) -> dict[str, tuple[float, float]] | None:
        terms = self._terms(batches[0]) if batches else {}
        found = self._checked(self._totals.over(terms, active), step)
        if found is not None:
            self.work.backward(_objective(terms, {name: weight for name, (_, weight) in found.items()}))
        return found

    def _many(self, batches: list[Any], active: bool, step: int) -> dict[str, tuple[float, float]] | None:
        ahead = self._checked(self._weights.over(self._ahead(batches), active), step)
        if ahead is None:
            return None
        weights = {name: weight for name, (_, weight) in ahead.items()}
        local: Terms = {}
        if not batches:
            self.work.backward(None)
        for batch in batches:
            terms = self._terms(batch)
            for name, (total, weight) in terms.items():
                before = local.get(name)
                total = total.detach().double() if self.work.device.type != "mps" else total.detach()
                local[name] = (total, weight) if before is None else (before[0] + total, before[1] + weight)
            self.work.backward(_objective(terms, weights))
        found = self._checked(self._totals.over(local, active), step)
        for name, (_, weight) in (found or {}).items():
            if not math.isclose(weight, weights.get(name, 0.0), rel_tol=1e-5, abs_tol=1e-12):
                raise BadValues(
                    f"The weight of {name} is not what was found before the step",
                    value=f"{weights.get(name)} before, {weight} in the step",
                    allowed="weights that depend on the batch alone, and `weights` that returns those of the loss",
                    mend="With accumulate=1 weights may depend on anything",
                )
        return found

    def _ahead(self, batches: list[Any]) -> Terms:
        """Weights of this process's micro-batches, known before any of them is differentiated."""
        import torch

        found: dict[str, Any] = {}
        if self.weights is not None:
            for batch in batches:
                for name, weight in self.weights(batch).items():
                    found[name] = found.get(name, 0.0) + weight
        else:
            # The price of a general loss: a forward pass in eval mode. Its draws are undone, so that the step draws the same.
            with kept(self.work.device), torch.no_grad():
                self.modes.evaluate()
                for batch in batches:
                    for name, (_, weight) in self._terms(batch).items():
                        found[name] = found.get(name, 0.0) + weight
                self.modes.train()
        return {
            name: (torch.zeros(()), weight if isinstance(weight, torch.Tensor) else torch.tensor(float(weight)))
            for name, weight in found.items()
        }

    def _checked(
        self, found: dict[str, tuple[float, float]] | None, step: int
    ) -> dict[str, tuple[float, float]] | None:
        for name, (_, weight) in (found or {}).items():
            if weight < 0 and math.isfinite(weight):
                raise BadValues(
                    f"The weight of {name} is negative at step {step}", value=weight, allowed="weights >= 0"
                )
        if wrong := faults(found or {}):
            raise NumericalFailure(f"The loss is not finite at step {step}: {'; '.join(wrong)}")
        return found


def _objective(terms: Mapping[str, tuple[torch.Tensor, Any]], weights: Mapping[str, float]) -> torch.Tensor | None:
    """Sum over terms of sum / weight; terms that no row has are left out."""
    parts = [total / weights[name] for name, (total, _) in terms.items() if weights.get(name, 0.0) > 0]
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole
