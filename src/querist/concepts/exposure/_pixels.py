"""The least change of a picture's pixels that makes a network say some concepts: projected gradients within a ball."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.concepts.model import CBM
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics import stream

__all__ = ["concept_network", "perturb", "pixels"]

STEPS, RESTARTS, COLLATERAL = 40, 2, 1.0
BATCH = 128


def perturb(
    model: CBM | nn.Module,
    images: Any,
    trigger: Trigger,
    eps: float,
    *,
    steps: int = STEPS,
    restarts: int = RESTARTS,
    mu: float = COLLATERAL,
    batch: int = BATCH,
    seed: int = 0,
) -> Float[torch.Tensor, "n 3 h w"]:
    """x + d, ‖d‖_∞ <= ε and in 0 … 1, for the least Σ BCE(g_j, v_j) over the trigger + mu·mean |σ(g_k(x + d)) − σ(g_k(x))| over the rest.

    Projected gradient: `steps` steps of ε/10 along the sign; the first start is x, the other `restarts` − 1 are random in the ball.
    Of all iterates each picture keeps the one of least loss among those that hit the whole trigger, or of least loss where none
    does. model: a CBM, or g itself. Raises BadOption, NonFinite.
    """
    if steps < 1 or restarts < 1 or not eps > 0 or mu < 0:
        raise BadOption(
            "A search needs steps, starts and a size",
            value=f"{steps}, {restarts}, {eps}, {mu}",
            allowed="1 or more, above 0",
        )
    g = concept_network(model, trigger)
    x = pixels(images, len(images))
    device = next((p.device for p in g.parameters()), torch.device("cpu"))
    modes = [(part, part.training) for part in g.modules()]
    g.eval()
    try:
        found = []
        for first in range(0, len(x), batch):
            part = x[first : first + batch].to(device)
            ids = range(first, first + len(part))
            starts = [part]
            for restart in range(1, restarts):
                drawn = np.stack([stream(seed, "start", restart, i).random(part.shape[1:]) for i in ids])
                noise = torch.as_tensor(2 * drawn - 1, dtype=part.dtype, device=device)
                starts.append((part + eps * noise).clamp(0, 1))
            found.append(_descended(g, part, starts, trigger, eps, steps, mu).cpu())
    finally:
        for part, was in modes:
            part.training = was
    return torch.cat(found)


def concept_network(model: CBM | nn.Module, trigger: Trigger) -> nn.Module:
    """g of a CBM, or the network itself. Raises BadOption without one, ShapeMismatch for a concept that it lacks."""
    g = model.g if isinstance(model, CBM) else model
    if g is None:
        raise BadOption("A model of concepts alone has no pictures", value="g=None", allowed="a CBM with g")
    width = getattr(g, "k", None)
    if isinstance(width, int) and max(trigger.index) >= width:
        raise ShapeMismatch(
            "The trigger names a concept that g lacks", value=max(trigger.index), allowed=f"0 to {width - 1}"
        )
    return g


def pixels(images: Any, n: int) -> Float[torch.Tensor, "n 3 h w"]:
    """Pictures as floats in 0 … 1 on the CPU. Raises BadOption, ShapeMismatch, TooFewRows, BadValues."""
    if images is None:
        raise BadOption("Reachability needs pictures", value="images=None", allowed="a table with images")
    x = images if isinstance(images, torch.Tensor) else torch.as_tensor(np.array(images))
    if x.ndim != 4 or len(x) != n:
        raise ShapeMismatch("Pictures must be one per row", value=tuple(x.shape), allowed=f"[{n} 3 h w]")
    if not len(x):
        raise TooFewRows("There are no pictures", value=0, allowed="1 or more")
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise BadValues("A pixel lies outside its range", value=float(x.abs().max()), allowed="uint8, or 0 … 1")
    return x.cpu()


def _descended(
    g: nn.Module, x: torch.Tensor, starts: list[torch.Tensor], trigger: Trigger, eps: float, steps: int, mu: float
) -> torch.Tensor:
    index = list(trigger.index)
    value = torch.tensor(trigger.values, dtype=x.dtype, device=x.device)
    low, high = (x - eps).clamp(min=0), (x + eps).clamp(max=1)
    with torch.no_grad():
        before = torch.sigmoid(g(x))
    rest = torch.ones(before.shape[1], dtype=torch.bool, device=x.device)
    rest[index] = False
    best = x.clone()
    least = torch.full((len(x),), torch.inf, device=x.device)
    reached = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for start in starts:
        now = start
        for step in range(steps + 1):
            now = now.detach().requires_grad_(step < steps)
            with torch.enable_grad():
                logits = g(now)
                own = functional.binary_cross_entropy_with_logits(
                    logits[:, index], value.expand(len(x), -1), reduction="none"
                ).sum(dim=1)
                aside = (torch.sigmoid(logits) - before).abs()[:, rest].mean(dim=1) if bool(rest.any()) else 0 * own
                loss = own + mu * aside
            if not bool(torch.isfinite(loss).all()):
                raise NonFinite("The model's concepts are not finite", value=f"step {step}", mend="Check its weights")
            with torch.no_grad():
                hit = ((logits[:, index] > 0) == (value > 0)).all(dim=1)
                better = (hit & ~reached) | ((hit == reached) & (loss < least))
                best[better], least[better] = now.detach()[better], loss[better]
                reached |= hit
            if step < steps:
                slope = torch.autograd.grad(loss.sum(), now)[0]
                now = torch.minimum(torch.maximum(now.detach() - eps / 10 * slope.sign(), low), high)
    return best
