"""Fine-pruning: hidden units that clean rows do not use are cut, then what is left is trained a little."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.repairs._repaired import Repaired, repaired
from querist.concepts.repairs._training import accuracy, copied, held_out, train_f, with_f
from querist.errors import BadOption, ShapeMismatch

__all__ = ["fine_prune", "last_linear"]


def fine_prune(
    model: Any,
    data: ConceptData,
    *,
    limit: float = 0.04,
    epochs: int = 10,
    lr: float = 1e-3,
    batch: int = 128,
    clean: tuple[Any, ConceptData] | None = None,
    seed: int = 0,
) -> Repaired:
    """The inputs of f's last linear layer are cut, least mean activation first, as long as accuracy on the held-out rows stays
    within `limit` of what it was; then f is fine-tuned with the cut units held at zero.

    data: rows that are trusted (parts train and val, or a fifth is held out; those held out should be new to the model, on whose own
    training rows accuracy falls later); clean: the clean model and its rows. f may be any
    network that ends in a linear layer over hidden units. Raises BadOption without hidden units, ShapeMismatch, NonFinite.
    Source: Liu, Dolan-Gavitt & Garg (2018), "Fine-Pruning", with 4 points as their limit.
    """
    if not 0 <= limit < 1:
        raise BadOption("No such limit of lost accuracy", value=limit, allowed="0 <= limit < 1")

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, None, str]:
        train, val = held_out(held, table, seed)
        made = with_f(held, copied(held))
        last = last_linear(made.f)
        keep = np.ones(last.in_features, dtype=bool)
        floor = accuracy(made, val) - limit - 1e-12
        handle = last.register_forward_pre_hook(lambda _, given: (given[0] * torch.as_tensor(keep).to(given[0]),))
        try:
            for unit in np.argsort(_mean_activation(made, last, train), kind="stable"):
                keep[unit] = False
                if accuracy(made, val) < floor:
                    keep[unit] = True
                    break
            train_f(made.f, train, val, epochs=epochs, lr=lr, batch=batch, seed=seed)
        finally:
            handle.remove()
        with torch.no_grad():
            last.weight[:, torch.as_tensor(~keep)] = 0
        return made, None, f"{int((~keep).sum())} of {len(keep)} hidden units cut"

    return repaired("fine-prune", repair, model, data, clean)


def last_linear(f: nn.Module) -> nn.Linear:
    """The last linear layer of f. Raises BadOption unless it reads hidden units."""
    layers = [part for part in f.modules() if isinstance(part, nn.Linear)]
    if len(layers) < 2:
        raise BadOption(
            "The head has no hidden units to prune",
            value=type(f).__name__,
            allowed="a linear layer over hidden ones",
            mend="Use another repair",
        )
    return layers[-1]


def _mean_activation(model: CBM, last: nn.Linear, table: ConceptData) -> np.ndarray:
    """Mean input [h] of the last layer over the rows."""
    total, rows = torch.zeros(last.in_features, dtype=torch.float64), 0

    def seen(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        nonlocal rows
        if given[0].ndim != 2:
            raise ShapeMismatch("Hidden units must be one row per input", value=tuple(given[0].shape), allowed="[n h]")
        total.add_(given[0].double().sum(dim=0).cpu())
        rows += len(given[0])

    handle = last.register_forward_pre_hook(seen)
    try:
        model.scores(table.concepts)
    finally:
        handle.remove()
    return (total / rows).numpy()
