"""A live torch module: parameters and buffers with what their modules' classes tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from querist.sources.tensors.found import Found
from querist.sources.tensors.memory import held
from querist.sources.tensors.naming import RECURRENT_ORDER

if TYPE_CHECKING:
    from torch import nn

__all__ = ["read_module"]


def read_module(module: nn.Module) -> Found:
    """Parameters and buffers in order of registration; a tied one occurs under each of its names. Nothing is changed."""
    import torch

    if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        module = module.module
    module = getattr(module, "_orig_mod", module)
    found = Found("module", metadata={"class": f"{type(module).__module__}.{type(module).__qualname__}"})
    seen: set[str] = set()
    for prefix, owner in module.named_modules(remove_duplicate=False):
        dot = prefix + "." if prefix else ""
        for what, registered in (("parameter", owner._parameters), ("buffer", owner._buffers)):
            for name, tensor in registered.items():
                full = dot + name
                if tensor is None or full in seen:
                    continue
                seen.add(full)
                hints = _hints(module, owner, prefix, name)
                found.refs.append(held(full, tensor, {**hints, "buffer": True} if what == "buffer" else hints))
    return found


def _hints(root: nn.Module, owner: nn.Module, prefix: str, name: str) -> dict[str, Any]:
    """Hints for one tensor of a module."""
    from torch.nn.utils.parametrize import ParametrizationList

    if isinstance(owner, ParametrizationList):
        # prefix is "...layer.parametrizations.weight": the layer itself says what the composed tensor is.
        holder, _, target = prefix.rpartition(".parametrizations.")
        layer = root.get_submodule(holder) if holder else root
        if not holder:
            target = prefix.removeprefix("parametrizations.")
        hints = _of_class(layer, target)
        base = f"{holder}.{target}" if holder else target
        norm: Any = next((step for step in owner if type(step).__name__ == "_WeightNorm"), None)
        if norm is not None and len(owner) == 1 and name in ("original0", "original1"):
            hints["weight_norm"] = _pair(
                f"{prefix}.original0", f"{prefix}.original1", base, name == "original0", norm.dim
            )
        elif norm is None:
            hints["parametrized"] = {"base": base, "by": [type(step).__name__ for step in owner]}
        return hints
    hook: Any
    for hook in owner._forward_pre_hooks.values():
        if type(hook).__name__ == "WeightNorm" and name in (f"{hook.name}_g", f"{hook.name}_v"):
            dot = prefix + "." if prefix else ""
            g, v, base = f"{dot}{hook.name}_g", f"{dot}{hook.name}_v", f"{dot}{hook.name}"
            return {**_of_class(owner, hook.name), "weight_norm": _pair(g, v, base, name.endswith("_g"), hook.dim)}
    return _of_class(owner, name)


def _pair(g: str, v: str, base: str, is_g: bool, dim: int | None) -> dict[str, Any]:
    return {"base": base, "part": "g" if is_g else "v", "g": g, "v": v, "dim": None if dim in (None, -1) else dim}


def _of_class(owner: nn.Module, name: str) -> dict[str, Any]:
    """What a module's class tells of its tensor `name`."""
    import torch.nn as nn
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

    cls = type(owner)
    hints: dict[str, Any] = {"module": f"{cls.__module__}.{cls.__qualname__}"}
    role = {"role": name} if name in ("weight", "bias") else {}
    if isinstance(owner, nn.Linear):
        return {**hints, "kind": "linear", **role}
    if isinstance(owner, _ConvNd):
        axes = len(owner.kernel_size)
        transposed = isinstance(owner, _ConvTransposeNd)
        return {**hints, "kind": f"conv{axes}d", "groups": owner.groups, "transposed": transposed, **role}
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return {**hints, "kind": "embedding", **role}
    if isinstance(owner, nn.MultiheadAttention):
        side = owner.embed_dim
        if name in ("in_proj_weight", "in_proj_bias"):
            return {**hints, "kind": "attention", "role": "in_proj", "parts": (("q", side), ("k", side), ("v", side))}
        if name.endswith("_proj_weight"):
            return {**hints, "kind": "attention", "role": name.removesuffix("_weight")}
        return hints
    if isinstance(owner, nn.RNNBase | nn.RNNCellBase):
        count = 4 if isinstance(owner, nn.LSTM | nn.LSTMCell) else 3 if isinstance(owner, nn.GRU | nn.GRUCell) else 1
        part = next((part for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if name.startswith(part)), None)
        kind, order = RECURRENT_ORDER[count]
        if part is None:  # weight_hr, the projection of an LSTM
            return {**hints, "kind": "linear", "role": "weight"}
        return {**hints, "kind": kind, "role": part, "gates": count, "gate_order": tuple(order)}
    if isinstance(owner, _NormBase | nn.LayerNorm | nn.GroupNorm):
        return {**hints, "kind": "norm", **role}
    return {**hints, **role}
