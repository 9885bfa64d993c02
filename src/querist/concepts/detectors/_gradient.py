"""Inversion by gradient, as published for pictures: a soft mask and pattern of each class, as small as success allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from querist.concepts.data import ConceptData
from querist.concepts.detectors._anomaly import anomaly_index
from querist.concepts.detectors._inversion import Inversion
from querist.concepts.detectors._network import Place, place_of
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, NonFinite

__all__ = ["invert_gradient"]

STEPS, ROWS, SUCCESS, LR = 100, 32, 0.99, 0.1
WEIGHT, FACTOR, PATIENCE = 1e-2, 1.5, 3
"""λ at the start, what it is multiplied or divided by, and after how many steps in a row."""
BLOCK = 1 << 23
"""Values held at once, over the classes that are inverted together."""


def invert_gradient(
    model: nn.Module,
    data: ConceptData,
    *,
    classes: Iterable[Any] | None = None,
    success: float = SUCCESS,
    steps: int = STEPS,
    rows: int = ROWS,
    lr: float = LR,
    weight: float = WEIGHT,
    strength: str = "quantile",
    scale: np.ndarray | None = None,
    seed: int = 0,
) -> Inversion:
    """m, p in [0, 1]^k of each class: least mean cross-entropy of (1 − m)·c + m·p towards it + λ‖m‖₁, by projected Adam.

    λ grows while at least `success` of other classes' rows reach the class and shrinks while they do not; kept is the mask of
    least ‖m‖₁ among those that reached it, and where none did the class is not `found` and its norm is k. p runs from value 0
    to value 1 of each concept (in space logit its low to its high logit). size: concepts with m > ½, and the trigger those with
    p rounded; None where there is none.

    Raises BadOption, UnknownName, BadValues, NonFinite naming the class whose mask or scores are not finite. Source: Wang et al.
    (2019), sections IV and V; clamped m and p in place of a tanh, so that a mask's zeros are exact.
    """
    if steps < 1 or rows < 1 or not lr > 0 or not weight > 0 or not 0 < success <= 1:
        raise BadOption(
            "An inversion by gradient needs steps, rows and rates",
            value=f"steps {steps}, rows {rows}, lr {lr}, weight {weight}, success {success}",
            allowed="1 or more, above 0, 0 < success <= 1",
        )
    place = place_of(model, data, rows=rows, strength=strength, scale=scale, seed=seed)
    codes = np.arange(data.n_classes) if classes is None else np.array([data.code(c) for c in classes])
    names = [str(data.classes[c]) for c in codes]
    per = max(1, BLOCK // (place.n * max(place.k, place.hidden.shape[1], place.classes)))
    with place.evaluated():
        parts = [
            _inverted(place, codes[i : i + per], names[i : i + per], success, steps, lr, weight)
            for i in range(0, len(codes), per)
        ]
    mask, pattern, asr, found = (np.concatenate([part[j] for part in parts]) for j in range(4))
    norm = np.where(found, mask.sum(axis=1), float(place.k))
    return Inversion(
        "gradient",
        codes,
        (mask > 0.5).sum(axis=1),
        norm,
        asr,
        found,
        anomaly_index(norm, names=names),
        tuple(_trigger(m, p) for m, p in zip(mask, pattern, strict=True)),
        place.k,
        place.n,
    )


def _inverted(
    place: Place, codes: np.ndarray, names: list[str], success: float, steps: int, lr: float, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Masks and patterns [c k], success [c], and whether it was reached [c]."""
    device, dtype = place.x.device, place.x.dtype
    at = torch.as_tensor(codes, device=device)
    counted = place.weight[codes]
    total = counted.sum(dim=1)
    mask, pattern = (torch.full((len(codes), place.k), 0.5, dtype=dtype, device=device) for _ in range(2))
    price = torch.full((len(codes),), weight, dtype=dtype, device=device)
    streak = torch.zeros(len(codes), dtype=torch.long, device=device)
    best = torch.full((len(codes),), torch.inf, dtype=dtype, device=device)
    kept = [mask.clone(), pattern.clone(), torch.zeros(len(codes), dtype=torch.double, device=device)]
    mask.requires_grad_()
    pattern.requires_grad_()
    adam = torch.optim.Adam([mask, pattern], lr=lr, betas=(0.5, 0.9))
    for step in range(steps + 1):
        with torch.enable_grad():
            logits = place.rest(_blended(place, mask, pattern))
            loss = functional.cross_entropy(
                logits.flatten(0, 1), at.repeat_interleave(place.n), reduction="none"
            ).unflatten(0, logits.shape[:2])
            entropy = (loss * counted).sum(dim=1) / total
            cost = (entropy + price * mask.sum(dim=1)).sum()
        rate = ((logits.argmax(dim=2) == at[:, None]).to(dtype) * counted).sum(dim=1).double() / total.double()
        norm = mask.detach().sum(dim=1)
        broken = ~(torch.isfinite(entropy) & torch.isfinite(norm))
        if bool(broken.any()):
            raise NonFinite(
                "The inversion of a class is not finite",
                value=f"class {names[int(broken.nonzero()[0])]}, step {step}",
                mend="Lower the learning rate, or check the model's weights and the range of the concepts",
            )
        reached = rate >= success
        better = (reached & (norm < best)) | (torch.isinf(best) & (rate > kept[2]))
        for old, new in zip(kept, (mask.detach(), pattern.detach(), rate), strict=True):
            old[better] = new[better]
        best = torch.where(reached & (norm < best), norm, best)
        if step == steps:
            break
        adam.zero_grad()
        cost.backward(inputs=[mask, pattern])
        adam.step()
        mask.clamp_(0, 1)
        pattern.clamp_(0, 1)
        streak = torch.where(reached, streak.clamp(min=0) + 1, streak.clamp(max=0) - 1)
        price = torch.where(streak == PATIENCE, price * FACTOR, torch.where(streak == -PATIENCE, price / FACTOR, price))
        streak = torch.where(streak.abs() == PATIENCE, 0, streak)
    found = torch.isfinite(best)
    return kept[0].cpu().numpy(), kept[1].cpu().numpy(), kept[2].double().cpu().numpy(), found.cpu().numpy()


def _blended(place: Place, mask: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """Hidden values [c n h] of (1 − m)·c + m·p."""
    cell = place.low + pattern * (place.high - place.low)
    x = place.x[None] * (1 - mask[:, None]) + (mask * cell)[:, None]
    return x @ place.columns.T + (0 if place.bias is None else place.bias)


def _trigger(mask: np.ndarray, pattern: np.ndarray) -> Trigger | None:
    index = np.flatnonzero(mask > 0.5)
    return Trigger(tuple(index.tolist()), tuple((pattern[index] > 0.5).astype(int).tolist())) if index.size else None
