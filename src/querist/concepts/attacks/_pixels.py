"""The least change of a picture's pixels that makes a network say some concepts: projected gradients within a ball."""

from __future__ import annotations

from collections.abc import Iterator
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

__all__ = ["Pictures", "concept_network", "perturb", "searched"]

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
    pictures = Pictures(images, len(images))
    options: dict[str, Any] = {"steps": steps, "restarts": restarts, "mu": mu, "seed": seed}
    found = [searched(model, part, trigger, eps, first=i, **options) for i, part in pictures.batches(batch)]
    return torch.cat(found)


def searched(
    model: CBM | nn.Module,
    part: torch.Tensor,
    trigger: Trigger,
    eps: float,
    *,
    first: int,
    steps: int,
    restarts: int,
    mu: float,
    seed: int,
) -> Float[torch.Tensor, "n 3 h w"]:
    """`perturb` of one batch, whose first picture is the `first` of all. Raises as it does."""
    if steps < 1 or restarts < 1 or not eps > 0 or mu < 0:
        raise BadOption(
            "A search needs steps, starts and a size",
            value=f"{steps}, {restarts}, {eps}, {mu}",
            allowed="1 or more, above 0",
        )
    g = concept_network(model, trigger)
    device = next((p.device for p in g.parameters()), torch.device("cpu"))
    x = part.to(device)
    starts = [x]
    for restart in range(1, restarts):
        drawn = np.stack([stream(seed, "start", restart, first + i).random(x.shape[1:]) for i in range(len(x))])
        noise = torch.as_tensor(2 * drawn - 1, dtype=x.dtype, device=device)
        starts.append((x + eps * noise).clamp(0, 1))
    modes = [(module, module.training) for module in g.modules()]
    g.eval()
    try:
        return _descended(g, x, starts, trigger, eps, steps, mu).cpu()
    finally:
        for module, was in modes:
            module.training = was


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


class Pictures:
    """`n` pictures [n 3 h w], an array or tensor that is read a batch at a time: it may lie on disk and be larger than memory.

    Raises BadOption, ShapeMismatch, TooFewRows, and BadValues for a pixel outside 0 … 1 that is not uint8.
    """

    def __init__(self, images: Any, n: int):
        if images is None:
            raise BadOption("Reachability needs pictures", value="images=None", allowed="a table with images")
        self.images = images if hasattr(images, "shape") else np.asarray(images)
        self.shape = tuple(self.images.shape)
        if len(self.shape) != 4 or self.shape[0] != n:
            raise ShapeMismatch("Pictures must be one per row", value=self.shape, allowed=f"[{n} 3 h w]")
        if not n:
            raise TooFewRows("There are no pictures", value=0, allowed="1 or more")
        if str(self.images.dtype).rpartition(".")[2] != "uint8":
            for _, part in self.batches(BATCH):
                if not bool(((part >= 0) & (part <= 1)).all()):
                    raise BadValues(
                        "A pixel lies outside its range", value=float(part.abs().max()), allowed="uint8, or 0 … 1"
                    )

    def batches(self, size: int) -> Iterator[tuple[int, Float[torch.Tensor, "n 3 h w"]]]:
        """The place of each batch's first picture, and its pictures as floats in 0 … 1 on the CPU."""
        for first in range(0, self.shape[0], size):
            given = self.images[first : first + size]
            x = given if isinstance(given, torch.Tensor) else torch.as_tensor(np.array(given))
            yield first, (x.float() / 255 if x.dtype == torch.uint8 else x.float()).cpu()


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
