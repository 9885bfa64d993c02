"""Networks with a head per arm over one representation: TARNet, CFRNet, DragonNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from querist.effects.baselines._layers import Dense, Net, Shape, Tower
from querist.effects.baselines._networks import Networks
from querist.effects.links import Links
from querist.effects.nettrain import Observed, outcome_terms
from querist.errors import BadOption
from querist.training.losses import balance, weighted_sum

__all__ = ["CFRNet", "DragonNet", "TARNet"]

SMALLEST = 0.01
"""Propensities of the network are held above it where they divide."""


class _Heads(Net):
    """Three shared layers; two layers and an output per arm."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        h, half = shape.width, max(shape.width // 2, 1)
        self.shared = Dense(self.encoder.width, h, h, h)
        self.heads = Tower(shape.arms + 1, h, half, half, shape.out, last=True)

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        return self.shared(self.encoder(numbers, missing, codes).flat)

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        return self.heads(known).transpose(0, 1)

    def own(self, known: torch.Tensor, arm: torch.Tensor) -> torch.Tensor:
        """Latents [n, L] under the arm that each row got; other heads are not run."""
        return self.heads.own(known, arm)


class _Dragon(_Heads):
    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.arm = nn.Linear(shape.width, shape.arms + 1)
        self.nudge = nn.Parameter(torch.zeros(shape.arms + 1, shape.out))


class TARNet(Networks):
    """Shared representation, a head per arm (control one of them).

    Source: Shalit, Johansson & Sontag (2017), with more arms than two and all outcomes at the end of each head.
    """

    _by_rows = True

    def _net(self, shape: Shape) -> Net:
        return _Heads(shape)

    def _observed(self, links: Links, names: Sequence[str]) -> Observed | None:
        def observed(net: Any, batch: Any) -> Any:
            known = net.represent(batch["numbers"], batch["missing"], batch["codes"])
            return net.own(known, batch["arm"]), {}

        return observed


class CFRNet(TARNet):
    """TARNet whose representation is pulled together over arms: a penalty on the distance of each arm's rows from control's.

    balance: "wasserstein" (sliced), "mmd-linear" or "mmd-rbf"; alpha: its weight.

    Source: Shalit, Johansson & Sontag (2017); ours is the sliced distance in place of the entropic one, and the sum over arms.
    """

    _by_rows = None  # a distance between arms looks at a batch as one

    def __init__(self, *, balance: str = "wasserstein", alpha: float = 0.1, **common: Any):
        super().__init__(**common)
        self.balance = balance
        self.alpha = alpha

    def _observed(self, links: Links, names: Sequence[str]) -> Observed | None:
        kind, alpha = self.balance, self.alpha
        if kind not in ("wasserstein", "mmd-linear", "mmd-rbf"):
            raise BadOption("No such distance", value=kind, allowed="wasserstein, mmd-linear, mmd-rbf")
        if not alpha >= 0:
            raise BadOption("alpha lies outside its range", value=alpha, allowed="0 or more")
        options: dict[str, Any] = {"seed": None} if kind == "wasserstein" else {}

        def observed(net: Any, batch: Any) -> Any:
            known = net.represent(batch["numbers"], batch["missing"], batch["codes"])
            latent = net.own(known, batch["arm"])
            if not net.training:  # training stops by what is predicted alone
                return latent, {}
            total, weight = balance(known, batch["arm"], distance=kind, **options)  # pyright: ignore[reportArgumentType]
            return latent, {"balance of arms": (alpha * total, weight)}

        return observed


class DragonNet(TARNet):
    """TARNet with a further head that tells the arms apart, so that the representation keeps what assignment depends on.

    alpha: weight of that head's log loss; targeted: weight of the targeted regularisation, in which a latent response is moved by
    ε_m/ĝ_m(x) with one learnt ε per arm and latent. Predictions are the responses before that move.

    Source: Shi, Blei & Veitch (2019); ours: several arms, and the move on the scale of the link.
    """

    _by_rows = None  # its further terms have weights of their own

    def __init__(self, *, alpha: float = 1.0, targeted: float = 1.0, **common: Any):
        super().__init__(**common)
        self.alpha = alpha
        self.targeted = targeted

    def _net(self, shape: Shape) -> Net:
        return _Dragon(shape)

    def _observed(self, links: Links, names: Sequence[str]) -> Observed | None:
        alpha, targeted = self.alpha, self.targeted
        if not (alpha >= 0 and targeted >= 0):
            raise BadOption("A weight of the loss is negative", value=f"{alpha}, {targeted}", allowed="0 or more")

        def observed(net: Any, batch: Any) -> Any:
            arm = batch["arm"]
            known = net.represent(batch["numbers"], batch["missing"], batch["codes"])
            latent = net.own(known, arm)
            if not net.training:
                return latent, {}
            logits = net.arm(known)
            row = batch["weight"].amax(dim=1)
            total, weight = weighted_sum(functional.cross_entropy(logits, arm, reduction="none"), row)
            more = {"propensity of arms": (alpha * total, weight)}
            if targeted > 0:
                g = torch.softmax(logits, dim=1).gather(1, arm[:, None]).clamp(min=SMALLEST)
                moved = outcome_terms(links, names, latent + net.nudge[arm] / g, batch, {})
                more |= {f"targeted {name}": (targeted * sum_, w) for name, (sum_, w) in moved.items()}
            return latent, more

        return observed
