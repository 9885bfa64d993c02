"""What estimators over networks share: sizes, training, ensembles, and how they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from querist.effects.baselines._layers import Net, Shape
from querist.effects.encoder import Encoder, Widths
from querist.effects.estimator import Estimator, Parts
from querist.effects.links import Links, links_from_json
from querist.effects.nettrain import Observed, links_for, made, responses, train
from querist.effects.sample import Sample
from querist.errors import BadOption
from querist.sources.rows import Encoded

__all__ = ["Networks"]


BUDGETS: dict[str | None, tuple[int, int]] = {"small": (23_400, 136), None: (1_663_000, 1_032)}
"""Parameters of MTMT by preset: on twelve inputs, and for each further one. Arms and outcomes hardly count."""


class Networks(Estimator):
    """Estimators over a network whose latents are responses under every arm.

    preset: "small" or None; the width is chosen so that there are about as many parameters as MTMT of the same preset has on these
    columns (about 23,400 and 1,660,000 on twelve numbers). width: the network's own, in place of that. link: "auto" (0/1 outcomes
    logit, counts log, many zeros in two parts, others as they are), a link's name, or outcome to link. weighting: "none", "ipw" or
    "overlap". epochs, batch_size, lr, weight_decay, val_fraction, patience, device: see `nettrain.train`. ensemble: networks of other
    seeds whose means are predicted; the sd of their effects comes as `spread`, which is no interval. Further keywords: see Estimator.

    Fitted ones have histories_ (a frame per member) and parameters_ (their number).
    """

    def __init__(
        self,
        *,
        preset: str | None = "small",
        width: int | None = None,
        link: Any = "auto",
        weighting: str = "none",
        epochs: int = 50,
        batch_size: int | str = "auto",
        lr: float = 1e-3,
        weight_decay: float = 1e-3,
        val_fraction: float = 0.1,
        patience: int | None = 10,
        ensemble: int = 1,
        device: str = "auto",
        **common: Any,
    ):
        super().__init__(**common)
        self.preset = preset
        self.width = width
        self.link = link
        self.weighting = weighting
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.val_fraction = val_fraction
        self.patience = patience
        self.ensemble = ensemble
        self.device = device

    def _width_for(self, shape: Shape) -> int:
        """The width whose number of parameters is nearest to that of MTMT of this preset on as many inputs."""
        base, each = BUDGETS[self.preset]

        def count(width: int) -> int:
            with torch.device("meta"):
                net = self._net(shape._replace(width=width))
            return sum(one.numel() for one in net.parameters())

        with torch.device("meta"):
            budget = base + each * (Encoder(*shape.columns).width - 12)
        low, high = 1, 4096
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count(middle) <= budget else (low, middle)
        return min((low, high), key=lambda width: abs(count(width) - budget))

    # Whether a loss with terms of its own is a sum over rows, so that a step may be taken in runs of few rows.
    _by_rows: bool | None = None

    def _net(self, shape: Shape) -> Net:
        """A new network of a shape."""
        raise NotImplementedError

    def _observed(self, links: Links, names: Sequence[str]) -> Observed | None:
        """Further terms of the loss, where there are any."""
        return None

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        if self.preset not in BUDGETS:
            raise BadOption("No such preset", value=self.preset, allowed="small, None")
        if type(self.ensemble) is not int or self.ensemble < 1:
            raise BadOption("An ensemble has members", value=self.ensemble, allowed="ensemble >= 1")
        if self.width is not None and self.width < 1:
            raise BadOption("A network has a width", value=self.width, allowed="width >= 1")
        self.links_ = links_for(sample, self.link)
        shape = Shape(Widths.of(sample.columns), sample.arms, self.links_.latents, self.width or 1)
        self.shape_ = shape if self.width else shape._replace(width=self._width_for(shape))
        self.nets_, self.histories_ = [], []
        for member in range(self.ensemble):
            net = made(lambda: self._net(self.shape_), sample.seed, type(self).__name__, member)
            result = train(
                net,
                sample,
                self.links_,
                observed=self._observed(self.links_, sample.outcomes.names),
                runs=self._by_rows,
                epochs=self.epochs,
                batch_size=self.batch_size,
                lr=self.lr,
                weight_decay=self.weight_decay,
                val_fraction=self.val_fraction,
                patience=self.patience,
                weighting=self.weighting,
                hooks=hooks,
                device=self.device,
                seed=sample.seed + member,
                name=f"network-{member}",
            )
            self.nets_.append(net)
            self.histories_.append(result.history)
        self.parameters_ = sum(one.numel() for one in self.nets_[0].parameters())

    def _parts(self, encoded: Encoded) -> Parts:
        found = np.stack([responses(net, self.links_, encoded) for net in self.nets_])
        total = found[:, :, 1:] - found[:, :, :1]
        spread = total.std(axis=0, ddof=1) if len(found) > 1 else None
        return found[:, :, 0].mean(axis=0), total.mean(axis=0), spread

    # ------------------------------------------------------------------------------------------------- model folders

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {
            f"{member}/{name}": value.numpy()
            for member, net in enumerate(self.nets_)
            for name, value in net.state_dict().items()
        }
        links = [one.as_json() for one in self.links_.links]
        return {"shape": self.shape_.to_json(), "links": links, "members": len(self.nets_)}, arrays

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.links_, self.shape_ = links_from_json(state["links"]), Shape.from_json(state["shape"])
        self.nets_, self.histories_ = [], []
        for member in range(int(state["members"])):
            net = made(lambda: self._net(self.shape_), 0)
            mine = {
                name.partition("/")[2]: torch.as_tensor(value)
                for name, value in arrays.items()
                if name.startswith(f"{member}/")
            }
            net.load_state_dict(mine)
            self.nets_.append(net.eval())
        self.parameters_ = sum(one.numel() for one in self.nets_[0].parameters())
