"""Terms of a loss as sums and weights, added up over micro-batches and processes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from querist.errors import BadValues

if TYPE_CHECKING:
    import torch
    from torch import nn

    from querist.training.accelerate import Workplace

    Loss = Callable[[nn.Module, Any], Mapping[str, tuple[torch.Tensor | float, torch.Tensor | float]]]
    Terms = dict[str, tuple[torch.Tensor, torch.Tensor]]

__all__ = ["Totals", "means", "terms_of"]

_ALLOWED = "a dict of term -> (sum, weight), both single numbers"


def terms_of(returned: Any, device: torch.device, what: str = "The loss") -> Terms:
    """What a loss returned, checked, as pairs of scalar tensors. Raises BadValues."""
    import torch

    if not isinstance(returned, Mapping):
        raise BadValues(f"{what} returned something else than terms", value=type(returned).__name__, allowed=_ALLOWED)
    found: Terms = {}
    for name, pair in returned.items():
        if not isinstance(name, str) or name in ("", "total"):
            raise BadValues(f"{what} has a term without a usable name", value=name, allowed="any text but 'total'")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BadValues(f"{what} returned no pair for {name}", value=type(pair).__name__, allowed=_ALLOWED)
        both = [one if isinstance(one, torch.Tensor) else torch.tensor(float(one), device=device) for one in pair]
        for one in both:
            if one.numel() != 1:
                raise BadValues(
                    f"{what} returned no single number for {name}", value=tuple(one.shape), allowed=_ALLOWED
                )
        found[name] = both[0].reshape(()), both[1].detach().reshape(())
    return found


class Totals:
    """Adds up named terms; processes agree on the names when one of them meets a new one."""

    def __init__(self, work: Workplace):
        import torch

        self.work = work
        self.names: list[str] = []
        self._dtype = torch.float32 if work.device.type == "mps" else torch.float64

    def over(self, local: Mapping[str, tuple[Any, Any]], active: bool = True) -> dict[str, tuple[float, float]] | None:
        """Sum and weight of every term over all processes; None where no process is active."""
        unknown = not local.keys() <= set(self.names)
        if self.work.processes == 1:
            if unknown:
                self._agree(local)
            return self._named(self._flat(local).tolist()) if active else None
        new, anyone, *values = self._shared(local, unknown, active)
        if new:
            self._agree(local)
            _, _, *values = self._shared(local, False, active)
        return self._named(values) if anyone else None

    def _flat(self, local: Mapping[str, tuple[Any, Any]]) -> torch.Tensor:
        """Sums and weights in the order of the names; all are moved to the host at once."""
        import torch

        zero = torch.zeros(())
        parts = [part for name in self.names for part in local.get(name, (zero, zero))]
        if not parts:
            return torch.zeros(0, device=self.work.device, dtype=self._dtype)
        return torch.stack([part.detach().to(self.work.device, self._dtype) for part in parts])

    def _shared(self, local: Mapping[str, tuple[Any, Any]], unknown: bool, active: bool) -> list[float]:
        import torch

        flags = torch.tensor([float(unknown), float(active)], device=self.work.device, dtype=self._dtype)
        return self.work.total(torch.cat([flags, self._flat(local)])).tolist()

    def _named(self, values: list[float]) -> dict[str, tuple[float, float]]:
        return dict(zip(self.names, zip(values[::2], values[1::2], strict=True), strict=True))

    def _agree(self, local: Mapping[str, Any]) -> None:
        for text in self.work.gather_text(json.dumps([name for name in local if name not in self.names])):
            self.names += [name for name in json.loads(text) if name not in self.names]


def means(totals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Each term's sum over its weight; terms without weight are left out."""
    return {name: total / weight for name, (total, weight) in totals.items() if weight > 0}


def faults(totals: Mapping[str, tuple[float, float]]) -> list[str]:
    """What is wrong with totals: sums and weights that are not finite, weights below zero."""
    return [
        f"{name}: sum {total}, weight {weight}"
        for name, (total, weight) in totals.items()
        if not math.isfinite(total) or not math.isfinite(weight) or weight < 0
    ]
