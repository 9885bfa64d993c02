"""What is watched while a network is trained, on a fixed batch after each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from querist.effects.links import Links
from querist.effects.network._net import Network
from querist.training import Hook, TrainState
from querist.training.random_state import kept

__all__ = ["Watch"]


class Watch(Hook):
    """Norm of the loss's gradient, entropy of the gates in nats, sd of increments over sd of base (0 without a base)."""

    def __init__(self, sample: Mapping[str, torch.Tensor], links: Links):
        self.sample, self.links = dict(sample), links
        self.rows: list[dict[str, float]] = []

    def on_epoch(self, state: TrainState) -> None:
        """Look at the network in eval mode, without a trace."""
        model = state.model
        assert isinstance(model, Network)
        device = next(model.parameters()).device
        batch = {name: value.to(device) for name, value in self.sample.items()}
        encoded = (batch["numbers"], batch["missing"], batch["codes"])
        modes = [(one, one.training) for one in model.modules()]
        with kept(device):
            model.eval()
            try:
                latent, parts = model.observed(model.tokens(*encoded), batch["arm"])
                weight = batch["weight"]
                losses = (self.links.loss(latent, batch["y"]) * weight).sum(0) / weight.sum(0).clamp(min=1e-12)
                asked = [one for one in model.parameters() if one.requires_grad]
                found = torch.autograd.grad(losses.sum(), asked, allow_unused=True)
                square = sum(float((one.detach() ** 2).sum()) for one in found if one is not None)
                with torch.no_grad():
                    shares = model.shares(*encoded).clamp(min=1e-12)
                    base, own = float(parts.base.std(0).mean()), float(parts.increments.std(0).mean())
            finally:
                for one, was in modes:
                    one.training = was
        self.rows.append(
            {
                "epoch": state.epoch,
                "gradient_norm": square**0.5,
                "gate_entropy": float(-(shares * shares.log()).sum(-1).mean()),
                "increment_over_base": own / base if base > 0 else 0.0,
            }
        )

    def state(self) -> dict[str, Any]:
        """The rows so far."""
        return {"rows": self.rows}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the rows of before."""
        self.rows = list(state["rows"])
