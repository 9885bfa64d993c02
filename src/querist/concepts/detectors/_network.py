"""A head laid open: its first layer, what follows, and the rows and values that triggers of it are tried on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional

from querist.concepts.data import ConceptData
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.concepts.triggers import fixed_strength, logit_scale
from querist.errors import BadOption, BadValues, ShapeMismatch, TooFewRows
from querist.statistics import stream

__all__ = ["Place", "activations_of", "evaluating", "head_of", "place_of", "reading", "same_space"]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where triggers of a head are tried. `hidden` [n h] = x·columnsᵀ + bias, `rest` from there to logits.

    x [n k]: the rows, unknown cells filled. low, high [k]: what values 0 and 1 stand as. weight [L n]: 1 where a row counts for a
    target, that is where its label is another.
    """

    network: nn.Module
    x: torch.Tensor
    hidden: torch.Tensor
    columns: torch.Tensor
    bias: torch.Tensor | None
    rest: Callable[[torch.Tensor], torch.Tensor]
    low: torch.Tensor
    high: torch.Tensor
    weight: torch.Tensor

    @property
    def n(self) -> int:
        """Rows."""
        return self.x.shape[0]

    @property
    def k(self) -> int:
        """Concepts."""
        return self.x.shape[1]

    @property
    def classes(self) -> int:
        """Classes of the head."""
        return self.weight.shape[0]

    def moved(self, literals: Int[np.ndarray, "c"]) -> tuple[torch.Tensor, torch.Tensor]:
        """How far each literal (2·concept + value) moves every row's cell [c n], and the columns that it moves [c h]."""
        index = torch.as_tensor(literals // 2, device=self.x.device)
        on = torch.as_tensor(literals % 2 == 1, device=self.x.device)
        cell = torch.where(on, self.high[index], self.low[index])
        return cell[:, None] - self.x[:, index].T, self.columns[:, index].T

    def state(self, literals: tuple[int, ...], rows: int | None = None) -> Float[torch.Tensor, "n h"]:
        """Hidden values of the first rows (all of them) with these literals set."""
        if not literals:
            return self.hidden[:rows]
        delta, columns = self.moved(np.array(literals))
        return self.hidden[:rows] + delta.T[:rows] @ columns

    @contextlib.contextmanager
    def evaluated(self) -> Iterator[None]:
        """Evaluation mode, and no gradients but those asked for."""
        with evaluating(self.network), torch.no_grad():
            yield


def place_of(
    model: nn.Module,
    data: ConceptData,
    *,
    rows: int,
    strength: str = "quantile",
    scale: np.ndarray | None = None,
    seed: int = 0,
) -> Place:
    """At most `rows` rows of the table, drawn by the seed, before the model's head.

    Raises BadValues for a table in another space than a CBM reads, BadOption for a strength that has no one value per concept,
    ShapeMismatch for a head of fewer or other classes than the table, TooFewRows where a class has no row of another class.
    """
    network = head_of(model)
    same_space(model, data)
    if isinstance(model, CBM) and model.classes and tuple(map(str, model.classes)) != tuple(map(str, data.classes)):
        raise ShapeMismatch(
            "The model was trained on other classes than the table has",
            value=", ".join(map(str, data.classes[:8])),
            allowed=", ".join(map(str, model.classes[:8])),
            mend="Make the table with class_names=model.classes",
        )
    chosen = stream(seed, "inversion rows").permutation(data.n)[:rows]
    x = reading(network, data)(data.concepts[chosen])
    device, dtype = x.device, x.dtype
    low, high = _values(model, data, strength, scale)
    with evaluating(network), torch.no_grad():
        columns, bias, rest = _opened(network, x)
        hidden = functional.linear(x, columns, bias)
        logits = rest(hidden)
    if logits.ndim != 2 or logits.shape[1] < data.n_classes:
        raise ShapeMismatch(
            "The head has fewer classes than the table", value=tuple(logits.shape), allowed=f"[n {data.n_classes}]"
        )
    ends = [torch.as_tensor(end, dtype=dtype, device=device) for end in (low, high)]
    weight = torch.as_tensor(data.codes[chosen] != np.arange(logits.shape[1])[:, None], dtype=dtype, device=device)
    alone = [str(data.classes[c]) for c in range(data.n_classes) if not bool(weight[c].any())]
    if alone:
        raise TooFewRows(
            "A target needs rows of other classes",
            value=f"none beside {alone[0]}",
            allowed="rows of two classes or more",
        )
    return Place(network, x, hidden, columns, bias, rest, ends[0], ends[1], weight)


def head_of(model: nn.Module) -> nn.Module:
    """f of a CBM, else the network itself."""
    return model.f if isinstance(model, CBM) else model


def same_space(model: nn.Module, data: ConceptData) -> None:
    """Raises BadValues where a CBM reads another range than the table holds; a bare head takes the table's word."""
    if isinstance(model, CBM) and model.input != data.space and (model.input, data.space) != ("prob", "hard"):
        raise BadValues(
            "The table's concepts are not in the range that the model reads",
            value=f"space {data.space}",
            allowed=f"space {model.input}",
            mend="Give the table as the model reads it (CBM.predict_concepts), with that space=",
        )


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode; every part is given back in the mode it was in."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, was in modes:
            part.training = was


def activations_of(model: nn.Module, data: ConceptData, *, batch: int = 4096) -> Float[np.ndarray, "n d"]:
    """What enters the last linear layer of the head. Raises BadOption where the head has none that runs, and `same_space`'s."""
    network = head_of(model)
    same_space(model, data)
    read = reading(network, data)
    seen: list[torch.Tensor] = []
    linears = [part for part in network.modules() if isinstance(part, nn.Linear)]
    handles = [part.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for part in linears]
    found = []
    try:
        with evaluating(network), torch.no_grad():
            for i in range(0, data.n, batch):
                seen.clear()
                network(read(data.concepts[i : i + batch]))
                if not seen:
                    raise BadOption(
                        "The head has no linear layer", value=type(network).__name__, allowed="a network with nn.Linear"
                    )
                found.append(seen[-1].flatten(1).float().cpu().numpy())
    finally:
        for handle in handles:
            handle.remove()
    return np.concatenate(found)


def reading(network: nn.Module, data: ConceptData) -> Callable[[np.ndarray], torch.Tensor]:
    """Makes rows [n k] what the network takes: its device and type, unknown cells at a Head's fill, else at the table's means.

    Raises ShapeMismatch for a Head of other concepts.
    """
    first = next((p for p in network.parameters() if p.is_floating_point()), None)
    device, dtype = (torch.device("cpu"), torch.float32) if first is None else (first.device, first.dtype)
    fill = network.fill.detach().cpu().numpy() if isinstance(network, Head) else np.nan_to_num(data.means)
    if fill.shape != (data.k,):
        raise ShapeMismatch("A head reads its own concepts", value=f"[n {data.k}]", allowed=f"[n {len(fill)}]")
    return lambda rows: torch.as_tensor(np.where(np.isnan(rows), fill, rows), dtype=dtype, device=device)


def _opened(
    network: nn.Module, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, Callable[[torch.Tensor], torch.Tensor]]:
    """The first linear layer's weights and the network after it; the identity and the network itself where it begins otherwise."""
    if isinstance(network, Head):
        layers = list(network.layers)
    elif isinstance(network, nn.Sequential) and len(network) and type(network[0]) is nn.Linear:
        layers = list(network)
    else:
        return torch.eye(x.shape[1], dtype=x.dtype, device=x.device), None, _flat(network)
    first: Any = layers[0]
    if isinstance(network, Head):
        later: list[nn.Module] = []
        for layer in layers[1:]:
            later += [nn.ReLU(), layer]
        after = nn.Sequential(*later)
    else:
        after = nn.Sequential(*layers[1:])
    bias = None if first.bias is None else first.bias.detach()
    return first.weight.detach(), bias, _flat(after)


def _flat(network: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """The network on any leading axes, for one that asks for rows alone."""
    return lambda given: network(given.flatten(0, -2)).unflatten(0, given.shape[:-1])


def _values(
    model: nn.Module, data: ConceptData, strength: str, scale: np.ndarray | None
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    if data.space != "logit":
        return np.zeros(data.k), np.ones(data.k)
    if strength == "quantile":
        if scale is None and isinstance(model, CBM) and len(model.scale):
            scale = model.scale.cpu().numpy()
        ends = logit_scale(data.concepts) if scale is None else np.asarray(scale, dtype=float)
        if ends.shape != (data.k, 2):
            raise ShapeMismatch(
                "Quantile strength needs two logits a concept", value=ends.shape, allowed=f"({data.k}, 2)"
            )
        return ends[:, 0], ends[:, 1]
    size = fixed_strength(strength)
    if size is None:
        raise BadOption(
            "An inverted trigger needs one value per concept", value=strength, allowed="quantile, fixed:M with M > 0"
        )
    return np.full(data.k, -size), np.full(data.k, size)
