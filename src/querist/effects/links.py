"""How latents become mean outcomes, and what an outcome's loss is: one link per outcome.

identity: squared or Huber loss of the outcome in control sd. logit: log loss. log: Poisson deviance. hurdle: log loss of Y > 0 and gamma
deviance of the positive values under a log link. Losses are halved deviances over their dispersion under control, so that outcomes of
any unit weigh alike. Source: McCullagh & Nelder (1989), chapters 2, 6 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.errors import BadOption

__all__ = ["Link", "Links", "link_of"]

AUTO = {"binary": "logit", "continuous": "identity", "count": "log", "hurdle": "hurdle"}
EXTREME = 20.0
"""Latents of log links are held within ± this: e^20 control means."""


@dataclass(frozen=True, slots=True)
class Link:
    """One outcome's link.

    kind: "identity", "logit", "log", "hurdle". offset: added to the latent (control mean, its logit or log); scale: control sd
    ("identity"); second: log mean of positive values ("hurdle"). dispersion: of counts and positive values under control.
    low, high: limits to which a continuous outcome is winsorised in training. huber: where the loss turns linear, in control sd.
    events: weight of an event over that of none in training; their log is taken from the logit, so that predictions are those of
    equal weights.
    """

    kind: str
    offset: float = 0.0
    scale: float = 1.0
    second: float = 0.0
    dispersion: float = 1.0
    low: float | None = None
    high: float | None = None
    huber: float | None = None
    events: float = 1.0

    @property
    def latents(self) -> int:
        """Latent numbers per person."""
        return 2 if self.kind == "hurdle" else 1

    def as_json(self) -> dict[str, Any]:
        """Plain values; `Link(**values)` is the same again."""
        return asdict(self)


def link_of(
    y: Float[np.ndarray, "n"],
    codes: np.ndarray,
    kind: str,
    link: str = "auto",
    *,
    weight: np.ndarray | None = None,
    winsorise: float | None = None,
    huber: float | None = None,
    class_weight: str | float | None = None,
) -> Link:
    """The link of an outcome of a kind, its constants from the (weighted) control rows; all rows where there are none.

    link: "auto" or a link's name. winsorise: a continuous outcome is clipped at the quantiles 1 − w and w. class_weight: "balanced"
    (events and others weigh the same in all) or the weight of an event. Raises BadOption.
    """
    name = AUTO[kind] if link == "auto" else link
    allowed = {"binary": ("logit", "identity"), "count": ("log", "identity"), "hurdle": ("hurdle", "log", "identity")}
    if name not in allowed.get(kind, ("identity", "log")):
        raise BadOption(
            f"No such link for a {kind} outcome",
            value=link,
            allowed=", ".join(("auto", *allowed.get(kind, ("identity",)))),
        )
    w = np.ones(len(y)) if weight is None else weight
    seen = np.isfinite(y) & (w > 0)
    control = seen & (codes == 0)
    used = control if control.any() else seen
    if winsorise is not None and not 0.5 < winsorise < 1:
        raise BadOption("Quantiles to winsorise at are out of range", value=winsorise, allowed="above .5, below 1")
    if huber is not None and not huber > 0:
        raise BadOption("The Huber threshold is out of range", value=huber, allowed="above 0")
    low = high = None
    if winsorise is not None and kind in ("continuous", "hurdle", "count"):
        low, high = (float(q) for q in np.quantile(y[seen], [1 - winsorise, winsorise]))
        y = np.clip(y, low, high)
    mean = float(np.average(y[used], weights=w[used]))
    variance = float(np.average((y[used] - mean) ** 2, weights=w[used]))
    if name == "identity":
        sd = math.sqrt(variance) if variance > 0 else 1.0
        return Link(name, mean, sd, low=low, high=high, huber=huber)
    if name == "log":
        dispersion = variance / mean if mean > 0 and variance > 0 else 1.0
        return Link(name, math.log(max(mean, 1e-6)), dispersion=max(dispersion, 1e-6), low=low, high=high)
    event = (y > 0).astype(float)
    rate = float(np.clip(np.average(event[used], weights=w[used]), 1e-6, 1 - 1e-6))
    events = _events(class_weight, float(np.average(event[seen], weights=w[seen])))
    if name == "logit":
        return Link(name, math.log(rate / (1 - rate)), events=events)
    positive = used & (y > 0)
    positive = positive if positive.any() else seen & (y > 0)
    second, dispersion = 0.0, 1.0
    if positive.any():
        m = float(np.average(y[positive], weights=w[positive]))
        second = math.log(m)
        dispersion = max(float(np.average((y[positive] / m - 1) ** 2, weights=w[positive])), 1e-6)
    return Link(name, math.log(rate / (1 - rate)), 1.0, second, dispersion, low, high, None, events)


def _events(class_weight: str | float | None, rate: float) -> float:
    if class_weight is None:
        return 1.0
    if class_weight == "balanced":
        rate = min(max(rate, 1e-6), 1 - 1e-6)
        return (1 - rate) / rate
    if isinstance(class_weight, str) or not 0 < class_weight < math.inf:
        raise BadOption("No such class weight", value=class_weight, allowed='None, "balanced", a number above 0')
    return float(class_weight)


class Links(nn.Module):
    """The links of all outcomes over latents [..., L], in the outcomes' order; it has no parameters."""

    scale: torch.Tensor
    offset: torch.Tensor

    def __init__(self, links: Sequence[Link]):
        super().__init__()
        self.links = tuple(links)
        starts = np.cumsum([0, *(one.latents for one in links)])
        self.first = [int(start) for start in starts[:-1]]
        plain = all(one.kind == "identity" and one.huber is None for one in links)
        self.plain = plain
        self.register_buffer("scale", torch.tensor([one.scale for one in links], dtype=torch.float64), persistent=False)
        self.register_buffer(
            "offset", torch.tensor([one.offset for one in links], dtype=torch.float64), persistent=False
        )

    @property
    def latents(self) -> tuple[int, ...]:
        """Latents of each outcome."""
        return tuple(one.latents for one in self.links)

    def targets(self, y: Float[np.ndarray, "n K"]) -> Float[np.ndarray, "n K"]:
        """Outcomes as the losses take them: winsorised, continuous ones standardised; NaN stays."""
        columns = []
        for k, one in enumerate(self.links):
            column = y[:, k] if one.low is None else np.clip(y[:, k], one.low, one.high)
            columns.append((column - one.offset) / one.scale if one.kind == "identity" else column)
        return np.stack(columns, axis=1)

    def forward(self, latents: Float[torch.Tensor, "... L"]) -> Float[torch.Tensor, "... K"]:
        """Mean outcomes."""
        if all(one.kind == "identity" for one in self.links):
            return latents * self.scale.to(latents.dtype) + self.offset.to(latents.dtype)
        found = []
        for at, one in zip(self.first, self.links, strict=True):
            eta = latents[..., at]
            if one.kind == "identity":
                found.append(eta * one.scale + one.offset)
            elif one.kind == "log":
                found.append(torch.exp(eta.clamp(-EXTREME, EXTREME) + one.offset))
            else:
                chance = torch.sigmoid(eta + (one.offset - math.log(one.events)))
                if one.kind == "hurdle":
                    chance = chance * torch.exp(latents[..., at + 1].clamp(-EXTREME, EXTREME) + one.second)
                found.append(chance)
        return torch.stack(found, dim=-1)

    def loss(self, latents: Float[torch.Tensor, "n L"], targets: Float[torch.Tensor, "n K"]) -> torch.Tensor:
        """Losses [n, K]; targets are those of `targets`, of any value where the outcome is missing but finite."""
        if self.plain:
            return (latents - targets) ** 2
        found = []
        for k, (at, one) in enumerate(zip(self.first, self.links, strict=True)):
            eta, y = latents[:, at], targets[:, k]
            if one.kind == "identity":
                # Twice Huber's loss is the square inside.
                off = eta - y
                found.append(off**2 if one.huber is None else 2 * _huber(off, one.huber))
            elif one.kind == "log":
                eta = eta.clamp(-EXTREME, EXTREME) + one.offset
                rest = torch.xlogy(y, y.clamp(min=1e-12)) - y
                found.append((torch.exp(eta) - y * eta + rest) / one.dispersion)
            else:
                event = (y > 0).to(eta.dtype)
                # Offset inside the logit of the weighted odds: the network begins at the control rate.
                value = functional.binary_cross_entropy_with_logits(eta + one.offset, event, reduction="none")
                if one.events != 1:
                    value = value * torch.where(event > 0, one.events, 1.0)
                if one.kind == "hurdle":
                    ratio = y / torch.exp(latents[:, at + 1].clamp(-EXTREME, EXTREME) + one.second)
                    deviance = ratio - torch.log(torch.where(event > 0, ratio, torch.ones_like(ratio))) - 1
                    value = value + event * deviance / one.dispersion
                found.append(value)
        return torch.stack(found, dim=1)


def _huber(off: torch.Tensor, threshold: float) -> torch.Tensor:
    return functional.huber_loss(off, torch.zeros_like(off), reduction="none", delta=threshold)


def links_from_json(values: Sequence[Mapping[str, Any]]) -> Links:
    """Links that a model folder tells of."""
    return Links([Link(**one) for one in values])
