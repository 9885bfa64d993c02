"""Arms: the initial weights beside which pretrained ones are judged, and the new head that all arms of a repeat share."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from querist.errors import BadOption, ShapeMismatch
from querist.features.freezing._blocks import is_norm
from querist.features.random_nets import redrawn
from querist.sources.taps.functions import first_tensor
from querist.sources.taps.hooks import ModuleNetwork
from querist.statistics import stream, torch_seed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ARMS", "Tuned", "initial", "with_head"]

ARMS: Mapping[str, str] = {
    "pretrained": "the network's own weights, running statistics of norms set anew on the target",
    "random": "weights drawn as the architecture draws them",
    "shuffled": "the entries of each tensor permuted: its values without their places",
    "moments": "normal entries with each tensor's mean and sd, scale and shift of norms kept",
    "scratch": "random weights with nothing frozen",
    "pretrained-kept": "the network's own weights and its own running statistics",
}
"""Arms and what they begin with."""


def initial(module: nn.Module, arm: str, *, repeat: int, seed: int = 0) -> nn.Module:
    """A copy of a module with an arm's initial weights. Buffers (running statistics) are the module's own still.

    Weights of `random`, `shuffled` and `moments` depend on the seed, the repeat and the tensor's name alone. `shuffled` permutes
    the scale and shift of norms too; `moments` keeps them. Raises BadOption.
    """
    if arm not in ARMS:
        raise BadOption("No such arm", value=arm, allowed=", ".join(ARMS))
    if arm in ("random", "scratch"):
        return redrawn(module, repeat=repeat, seed=seed)
    fresh = copy.deepcopy(module)
    if arm not in ("shuffled", "moments"):
        return fresh
    affine = {id(p) for part in fresh.modules() if is_norm(part) for p in part.parameters(recurse=False)}
    with torch.no_grad():
        for name, value in fresh.named_parameters():
            if not value.is_floating_point() or (arm == "moments" and id(value) in affine):
                continue
            rng = stream(seed, "freeze", arm, repeat, name)
            if arm == "shuffled":
                order = torch.from_numpy(rng.permutation(value.numel())).to(value.device)
                value.copy_(value.flatten()[order].view_as(value))
            else:
                drawn = torch.from_numpy(rng.standard_normal(tuple(value.shape))).to(value.device)
                wide = value.double()
                value.copy_(wide.mean() + wide.std(correction=0) * drawn)
    return fresh


class Tuned(nn.Module):
    """A network whose output has been given to the target's classes: `net`, and `head` where the network had none to replace.

    Where the head is appended, the network's first output tensor [b, d] or [b, t, d] (mean over the tokens that the mask
    keeps) goes through it.
    """

    def __init__(self, net: nn.Module, head: nn.Linear | None):
        super().__init__()
        self.net, self.head = net, head
        self._network = ModuleNetwork(net)

    def forward(self, inputs: Any) -> Tensor:
        """Inputs as the network takes them -> logits [b, classes]."""
        value = first_tensor(self._network.call(inputs))
        if self.head is not None:
            value = self.head(_pooled(value, inputs))
        if value.ndim != 2:
            raise ShapeMismatch(
                "The network's output is no row of class logits",
                value=list(value.shape),
                allowed="[rows, classes]",
                mend="--head names the last linear layer",
            )
        return value


def _pooled(value: Tensor, inputs: Any) -> Tensor:
    if value.ndim <= 2:
        return value.reshape(len(value), -1)
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if value.ndim == 3 and mask is not None and tuple(mask.shape) == tuple(value.shape[:2]):
        weight = mask.to(value.device, value.dtype).unsqueeze(2)
        return (value * weight).sum(1) / weight.sum(1).clamp(min=1)
    return value.mean(tuple(range(2, value.ndim))) if value.ndim == 4 else value.mean(1)


def with_head(
    module: nn.Module, head: str | None, inputs: Any, classes: int, *, repeat: int, seed: int = 0, target: str = ""
) -> Tuned:
    """The module (changed in place) with a new linear head for so many classes, in place of `head` or behind its output.

    inputs: a few rows, from which the width of an appended head is told. Its weights depend on the seed, the target, the
    repeat and its shape: all arms and numbers of frozen blocks of a repeat share them.
    """
    if classes < 2:
        raise BadOption("A head needs two classes", value=classes)
    if head is not None:
        owner, _, name = head.rpartition(".")
        parent = module.get_submodule(owner)
        old = getattr(parent, name)
        setattr(parent, name, _linear(old.in_features, classes, old.weight, repeat, seed, target))
        return Tuned(module, None)
    flags = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            value = first_tensor(ModuleNetwork(module).call(inputs))
    finally:
        for part, flag in flags:
            part.training = flag
    if value is None or not value.is_floating_point():
        raise ShapeMismatch("The network returns no tensor that a head could read", value=type(value).__name__)
    width = _pooled(value, inputs).shape[1]
    return Tuned(module, _linear(width, classes, value, repeat, seed, target))


def _linear(width: int, classes: int, like: Tensor, repeat: int, seed: int, target: str) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "freeze", "head", target, repeat))
        return nn.Linear(width, classes).to(like.device, like.dtype)
