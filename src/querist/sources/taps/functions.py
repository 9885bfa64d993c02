"""Watching a forward pass of a torch module: which module is at work, and what its activations are given.

Functions are caught as they are called (`torch.overrides.TorchFunctionMode`), not by tracing: a branch that depends on the
data, a residual sum inside `relu(x + y)` and a method such as `x.relu()` are seen alike, and no trace can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from querist.sources.taps.activations import functions, softmaxes

__all__ = ["Watch", "first_tensor", "items"]

Sight = Callable[[str, str, str, Any], None]
"""Takes (what, base name, operation, value) of an event: "call" before an activation, "result" after it, "end" of a module."""


class Watch(TorchFunctionMode):
    """Reports every call of an activation function, unless it is made inside an activation module."""

    def __init__(self, sight: Sight):
        super().__init__()
        self.sight = sight
        self.stack: list[str] = [""]
        self.inside = 0
        self._functions = functions()
        self._softmaxes = softmaxes()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = self._functions.get(func)
        if name == "clamp" and not _from_zero(func, args, kwargs):
            name = None
        what = "call"
        if name is None and func in self._softmaxes:
            name, what = "softmax", "softmax"
        if name is None or self.inside:
            return func(*args, **kwargs)
        base = f"{self.stack[-1]}.{name}".removeprefix(".")
        self.sight(what, base, name, args[0] if args else kwargs.get("input"))
        result = func(*args, **kwargs)
        self.sight("result", base, name, result)
        return result


def _from_zero(func: Any, args: Any, kwargs: Any) -> bool:
    low = args[1] if len(args) > 1 else kwargs.get("min")
    return isinstance(low, int | float) and low == 0


def items(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every tensor of an output with its path in it: "" for the first, ":key", ":0:1" and so on for all items of several."""
    import torch

    if isinstance(value, torch.Tensor):
        return [(path, value)]
    pairs = value.items() if hasattr(value, "items") else enumerate(value) if isinstance(value, list | tuple) else ()
    found = [item for key, inner in pairs for item in items(inner, f"{path}:{key}")]
    return [("", found[0][1]), *found] if found and not path else found


def first_tensor(value: Any) -> Any:
    """The first tensor of an output, that named `logits` before others; None where there is none."""
    if hasattr(value, "get") and value.get("logits") is not None:
        value = value["logits"]
    found = items(value)
    return found[0][1] if found else None
