"""Networks trained with layer-wise rates and pruned with layer-wise sparsities, beside uniform and permuted ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from querist.claims.weights.advice import OWN
from querist.sources.datasets.registry import locate
from querist.sources.images.idx import read_idx
from querist.statistics import stream, torch_seed
from querist.training import Hook, TrainState, fit
from querist.training.losses import cross_entropy
from querist.weights.advising import LayerTail, alpha_pruning, temp_balance
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import mp_quantiles
from querist.weights.spectrum import esd

__all__ = ["measure", "network", "pictures", "prune", "tails"]

Multipliers = Callable[[nn.Sequential], list[float]]


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """All arms of one seed."""
    repeat, rng = payload["repeat"], stream(seed, "claims", "advised", "permutation", payload["repeat"])
    x, y, x_test, y_test = pictures(payload["data"])
    begin = torch_seed(seed, "claims", "advised", repeat)

    def trained(multipliers: Multipliers | None) -> tuple[nn.Sequential, list[float]]:
        net = network(x.shape[1], payload["width"], begin)
        hook = _Balance(multipliers) if multipliers else None
        fit(
            net,
            _loss,
            (x, y),
            batch_size=payload["batch"],
            epochs=payload["epochs"],
            optimizer=partial(_Scaled, momentum=0.9),
            lr=payload["lr"],
            groups=_groups(net),
            hooks=[hook] if hook else [],
            device=device,
            seed=begin % (1 << 31),
        )
        return net.cpu().eval(), hook.last if hook else [1.0] * len(layers(net))

    count = len(layers(network(x.shape[1], payload["width"], begin)))
    order = _not_identity(rng, count)
    rates: dict[str, Multipliers | None] = {
        "uniform": None,
        "advised": lambda net: balanced(net, own=False),
        "permuted": lambda net: [balanced(net, own=False)[i] for i in order],
        f"advised{OWN}": lambda net: balanced(net, own=True),
    }
    rows, plain = [], None
    for arm, multipliers in rates.items():
        net, values = trained(multipliers)
        plain = plain if plain is not None else net
        found = {"method": "temp-balance", "arm": arm, "accuracy": accuracy(net, x_test, y_test), "values": values}
        rows.append({"repeat": repeat} | found)
    assert plain is not None
    for arm, value, values in _pruned(plain, payload["target"], x_test, y_test):
        rows.append({"repeat": repeat, "method": "alpha-pruning", "arm": arm, "accuracy": value, "values": values})
    return {"advised": rows}


# ------------------------------------------------------------------------------------------------ data and networks


def pictures(names: Sequence[str]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test pictures [n, 784] from 0 to 1 less .5, and their classes."""
    if len(names) == 1:
        with np.load(locate(names[0]), allow_pickle=False) as archive:
            parts = [archive[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    else:
        parts = [read_idx(locate(name)) for name in names]
    x, y, x_test, y_test = parts
    flat = [torch.from_numpy(part.reshape(len(part), -1).astype(np.float32) / 255 - 0.5) for part in (x, x_test)]
    classes = [torch.from_numpy(part.astype(np.int64)) for part in (y, y_test)]
    return flat[0], classes[0], flat[1], classes[1]


def network(inputs: int, width: int, seed: int) -> nn.Sequential:
    """Three hidden ReLU layers and ten classes; weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)]
        return nn.Sequential(*hidden, nn.ReLU(), nn.Linear(width, 10))


def layers(net: nn.Sequential) -> list[tuple[str, nn.Linear]]:
    """Linear layers with the names of their weights."""
    return [(f"{name}.weight", part) for name, part in net.named_children() if isinstance(part, nn.Linear)]


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of rows whose class is right."""
    with torch.no_grad():
        return float((net(x).argmax(1) == y).double().mean())


def _loss(net: nn.Module, batch: Any) -> Mapping[str, Any]:
    x, y = batch
    return {"class": cross_entropy(net(x), y)}


def _groups(net: nn.Sequential) -> list[dict[str, Any]]:
    return [{"params": list(part.parameters()), "name": name, "multiplier": 1.0} for name, part in layers(net)]


class _Scaled(torch.optim.SGD):
    """SGD whose groups have a `multiplier` beside their rate: the training loop sets the rate anew before every step."""

    def step(self, closure: Any = None) -> Any:
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= group["multiplier"]
        found = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return found


class _Balance(Hook):
    """Sets the multipliers at the beginning of every epoch."""

    def __init__(self, multipliers: Multipliers):
        self.multipliers = multipliers
        self.last: list[float] = []

    def on_start(self, state: TrainState) -> None:
        self._set(state)

    def on_epoch(self, state: TrainState) -> None:
        self._set(state)

    def _set(self, state: TrainState) -> None:
        assert state.optimizer is not None
        assert isinstance(state.model, nn.Sequential)
        self.last = self.multipliers(state.model)
        for group, value in zip(state.optimizer.param_groups, self.last, strict=True):
            group["multiplier"] = value


# ---------------------------------------------------------------------------------------------------------- advice


def tails(net: nn.Sequential, *, own: bool) -> list[LayerTail]:
    """Hill's exponent of every layer. own: with its interval; else an exponent is taken as it is, as in the publications."""
    found = []
    for name, part in layers(net):
        W = part.weight.detach()
        h, d = W.shape
        evals = esd(W).evals
        alpha = fit_powerlaw(evals, method="hill").alpha
        assert alpha is not None
        null = fit_powerlaw(mp_quantiles(min(h, d), max(h, d)), method="hill").alpha
        half = 1.96 * (alpha - 1) / (min(h, d) / 2) ** 0.5 if own else 0.0
        found.append(LayerTail(name, alpha, null, alpha - half, alpha + half, min(h, d), h * d))
    return found


def balanced(net: nn.Sequential, *, own: bool) -> list[float]:
    """TempBalance's multipliers, in the order of the layers."""
    return [one.value for one in temp_balance(tails(net, own=own))]


def prune(net: nn.Sequential, sparsities: Mapping[str, float]) -> nn.Sequential:
    """A copy of which each named layer has lost the share of its weights that is smallest in magnitude."""
    copy = network(layers(net)[0][1].in_features, layers(net)[0][1].out_features, 0)
    copy.load_state_dict(net.state_dict())
    with torch.no_grad():
        for name, part in layers(copy):
            lost = round(sparsities.get(name, 0.0) * part.weight.numel())
            if lost:
                flat = part.weight.view(-1)
                flat[flat.abs().argsort(stable=True)[:lost]] = 0.0
    return copy.eval()


def _pruned(net: nn.Sequential, target: float, x: Tensor, y: Tensor) -> list[tuple[str, float, list[float]]]:
    """Arm, accuracy, sparsities; the last layer stays whole. Permuted: mean over all permutations but the identity."""

    def scored(given: Sequence[LayerTail]) -> tuple[float, list[float]]:
        advised = alpha_pruning(given, target)
        return accuracy(prune(net, {one.name: one.value for one in advised}), x, y), [one.value for one in advised]

    plain = tails(net, own=False)[:-1]
    uniform = accuracy(prune(net, {layer.name: target for layer in plain}), x, y)
    orders = itertools.islice(itertools.permutations(range(len(plain))), 1, None)
    shuffled = [
        scored([_with_exponent(layer, plain[i]) for layer, i in zip(plain, order, strict=True)]) for order in orders
    ]
    return [
        ("uniform", uniform, [target] * len(plain)),
        ("advised", *scored(plain)),
        ("permuted", float(np.mean([value for value, _ in shuffled])), []),
        (f"advised{OWN}", *scored(tails(net, own=True)[:-1])),
    ]


def _with_exponent(layer: LayerTail, other: LayerTail) -> LayerTail:
    """The layer with another one's exponent, null and interval."""
    return LayerTail(layer.name, other.alpha, other.alpha_null, other.low, other.high, layer.side, layer.parameters)


def _not_identity(rng: np.random.Generator, count: int) -> list[int]:
    while True:
        order = rng.permutation(count).tolist()
        if order != list(range(count)):
            return order
