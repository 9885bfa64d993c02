"""Optimisers by name, by factory or as they are, over parameter groups that hold every trainable parameter once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, BadValues

if TYPE_CHECKING:
    import torch
    from torch import nn

    Optimizer = str | torch.optim.Optimizer | Callable[[list[dict[str, Any]]], torch.optim.Optimizer]

__all__ = ["build", "describe"]

NAMES = ("adam", "adamw", "sgd")


def build(
    model: nn.Module,
    optimizer: Optimizer = "adamw",
    *,
    lr: float | None = None,
    weight_decay: float | None = None,
    groups: Sequence[Mapping[str, Any]] | None = None,
) -> torch.optim.Optimizer:
    """The optimiser of a training.

    optimizer: "adam", "adamw", "sgd"; a factory that is given the list of groups, each with its `lr` and `weight_decay`
    (`functools.partial(torch.optim.SGD, momentum=0.9)`); or a torch optimiser, which keeps its own rates. groups: dicts
    with `params` and, where it differs, `lr` and `weight_decay`; together they hold every trainable parameter once.
    lr, weight_decay: for groups that name none; 1e-3 and 0 by default. Parameters that do not require a gradient are
    left out.

    Raises BadOption; BadValues where nothing can be trained.
    """
    import torch

    names = {parameter: name for name, parameter in model.named_parameters()}
    trainable = [parameter for parameter in names if parameter.requires_grad]
    if not trainable:
        raise BadValues(
            "No parameter of this network can be trained", value="requires_grad is False for all", mend="Freeze less"
        )
    if isinstance(optimizer, torch.optim.Optimizer):
        made = _own(optimizer, lr, weight_decay, groups)
    else:
        made = _made(optimizer, _groups(trainable, names, groups, lr, weight_decay))
    if isinstance(made, torch.optim.LBFGS):
        raise BadOption(
            "This optimiser evaluates the loss itself", value="LBFGS", allowed="optimisers that take a gradient"
        )
    strangers = sum(parameter not in names for group in made.param_groups for parameter in group["params"])
    if strangers:
        raise BadOption(
            "The optimiser holds parameters that are not the network's",
            value=f"{strangers} tensors",
            mend="Build it from this network's parameters",
        )
    return made


def _own(optimizer: torch.optim.Optimizer, lr: Any, weight_decay: Any, groups: Any) -> torch.optim.Optimizer:
    given = {"lr": lr, "weight_decay": weight_decay, "groups": groups}
    if said := [name for name, value in given.items() if value is not None]:
        raise BadOption(
            "A finished optimiser has its own rates and groups",
            value=", ".join(said),
            mend="Set them in the optimiser, or name its class instead",
        )
    return optimizer


def _made(optimizer: Any, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    import torch

    known = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    if isinstance(optimizer, str):
        if optimizer not in known:
            raise BadOption(
                "No such optimiser",
                value=optimizer,
                allowed=f"{', '.join(NAMES)}, a function of groups, a torch optimiser",
            )
        return known[optimizer](groups)
    made = optimizer(groups) if callable(optimizer) else None
    if not isinstance(made, torch.optim.Optimizer):
        raise BadOption(
            "This makes no torch optimiser",
            value=optimizer,
            allowed=f"{', '.join(NAMES)}, a function of groups, an optimiser",
        )
    return made


def _groups(
    trainable: list[nn.Parameter],
    names: Mapping[nn.Parameter, str],
    groups: Sequence[Mapping[str, Any]] | None,
    lr: float | None,
    weight_decay: float | None,
) -> list[dict[str, Any]]:
    base = {"lr": 1e-3 if lr is None else lr, "weight_decay": 0.0 if weight_decay is None else weight_decay}
    made = []
    seen: set[nn.Parameter] = set()
    for group in groups if groups is not None else [{"params": trainable}]:
        found = group.get("params")
        members: list[Any] = [found] if hasattr(found, "requires_grad") else list(found or ())
        for member in members:
            if member not in names:
                raise BadOption(
                    "A group holds a parameter that is not the network's",
                    value=group.get("name", "params"),
                    mend="Take it out",
                )
            if member in seen:
                raise BadOption("A parameter is in two groups", value=names[member], allowed="every parameter once")
            seen.add(member)
        members = [member for member in members if member.requires_grad]
        if members:
            made.append({**base, **group, "params": members})
    if missing := [names[one] for one in trainable if one not in seen]:
        raise BadOption(
            "Trainable parameters are in no group", value=", ".join(missing[:5]), mend="Add a group, or freeze them"
        )
    for group in made:
        if not 0 <= group["lr"] < math.inf:
            raise BadOption("A learning rate is out of range", value=group["lr"], allowed="lr >= 0")
        if not 0 <= group["weight_decay"] < math.inf:
            raise BadOption(
                "The weight decay is out of range", value=group["weight_decay"], allowed="weight_decay >= 0"
            )
    return made


def describe(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Any]:
    """Class and groups of an optimiser as a JSON value."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        "class": f"{type(optimizer).__module__}.{type(optimizer).__qualname__}",
        "groups": [
            {
                "parameters": [names[one] for one in group["params"]],
                **{key: _plain(value) for key, value in group.items() if key != "params"},
            }
            for group in optimizer.param_groups
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
