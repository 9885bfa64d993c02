"""Neural Cleanse in pixels: for every class the smallest patch that sends other pictures to it, the model taken as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn
from torch.nn import functional

from querist.concepts.data import ConceptData
from querist.errors import BadOption, NonFinite
from querist.statistics import stream

__all__ = ["Patches", "invert_pixels"]

SUCCESS, LR, WEIGHT, FACTOR, PATIENCE = 0.99, 0.1, 1e-3, 1.5, 3
"""Share of pictures to be sent, step of Adam, λ at the start, what it is multiplied or divided by, and after how many steps in a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """Of each class [L]: `norm` = ‖m‖₁ in pixels (all pixels where no mask was `found`), and its success `asr`."""

    norm: Float[np.ndarray, "L"]
    asr: Float[np.ndarray, "L"]
    found: Bool[np.ndarray, "L"]
    mask: Float[np.ndarray, "L h w"]


def invert_pixels(model: nn.Module, data: ConceptData, *, rows: int = 32, steps: int = 100, seed: int = 0) -> Patches:
    """m [h w], p [3 h w] in [0, 1] of each class: least mean cross-entropy of (1 − m)·x + m·p towards it + λ‖m‖₁, by projected Adam.

    model: any network from pictures [n 3 h w] in 0 … 1 to class logits [n L]. data: a table with pictures, of which `rows` are drawn;
    those of a class are no pictures of other classes and do not count for it. λ grows while at least 99 % of them reach the
    class and shrinks while they do not; kept is the mask of least ‖m‖₁ that did. Raises BadOption, NonFinite naming the class.

    Source: Wang et al. (2019), sections IV and V; clamped m and p in place of a tanh, all classes side by side.
    """
    if data.images is None or rows < 2 or steps < 1:
        raise BadOption(
            "An inversion in pixels needs pictures, rows and steps",
            value=f"rows {rows}, steps {steps}, images {'none' if data.images is None else 'given'}",
            allowed="a table with images, 2 rows or more, 1 step or more",
        )
    chosen = np.sort(stream(seed, "pixel inversion rows").permutation(data.n)[:rows])
    place = next((part.device for part in model.parameters()), torch.device("cpu"))
    pictures = torch.as_tensor(np.array(data.images)[chosen], device=place)
    x = pictures.float() / 255 if pictures.dtype == torch.uint8 else pictures.float()
    codes = torch.as_tensor(np.array(data.codes)[chosen], device=place)
    classes, (height, width) = data.n_classes, x.shape[-2:]
    at = torch.arange(classes, device=place)
    counted = (codes != at[:, None]).to(x.dtype)
    total = counted.sum(dim=1).clamp(min=1)
    mask = torch.full((classes, 1, height, width), 0.5, device=place, requires_grad=True)
    pattern = torch.full((classes, 3, height, width), 0.5, device=place, requires_grad=True)
    price = torch.full((classes,), WEIGHT, device=place)
    streak = torch.zeros(classes, dtype=torch.long, device=place)
    best = torch.full((classes,), torch.inf, device=place)
    kept, success = mask.detach().clone(), torch.zeros(classes, device=place)
    adam = torch.optim.Adam([mask, pattern], lr=LR, betas=(0.5, 0.9))
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        for step in range(steps + 1):
            with torch.enable_grad():
                blended = (1 - mask[:, None]) * x + (mask * pattern)[:, None]
                logits = model(blended.flatten(0, 1)).unflatten(0, (classes, len(x)))
                loss = functional.cross_entropy(
                    logits.flatten(0, 1), at.repeat_interleave(len(x)), reduction="none"
                ).unflatten(0, logits.shape[:2])
                entropy = (loss * counted).sum(dim=1) / total
                cost = (entropy + price * mask.sum(dim=(1, 2, 3))).sum()
            norm = mask.detach().sum(dim=(1, 2, 3))
            broken = ~(torch.isfinite(entropy) & torch.isfinite(norm))
            if bool(broken.any()):
                name = data.classes[int(broken.nonzero()[0])]
                raise NonFinite(
                    "The inversion of a class is not finite",
                    value=f"class {name}, step {step}",
                    mend="Check the model's weights",
                )
            rate = ((logits.argmax(dim=2) == at[:, None]).to(x.dtype) * counted).sum(dim=1) / total
            reached = rate >= SUCCESS
            better = (reached & (norm < best)) | (torch.isinf(best) & (rate > success))
            kept[better], success[better] = mask.detach()[better], rate[better]
            best = torch.where(reached & (norm < best), norm, best)
            if step == steps:
                break
            adam.zero_grad()
            cost.backward(inputs=[mask, pattern])
            adam.step()
            with torch.no_grad():
                mask.clamp_(0, 1)
                pattern.clamp_(0, 1)
            streak = torch.where(reached, streak.clamp(min=0) + 1, streak.clamp(max=0) - 1)
            grown = torch.where(streak == -PATIENCE, price / FACTOR, price)
            price = torch.where(streak == PATIENCE, price * FACTOR, grown)
            streak = torch.where(streak.abs() == PATIENCE, 0, streak)
    finally:
        for part, was in modes:
            part.training = was
    found = torch.isfinite(best)
    norm = torch.where(found, best, float(height * width))
    held = (norm, success, found, kept[:, 0])
    return Patches(
        *(part.detach().cpu().double().numpy() if part.is_floating_point() else part.cpu().numpy() for part in held)
    )
