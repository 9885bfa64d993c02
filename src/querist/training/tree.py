"""Nested state as plain JSON and named tensors, and back: what checkpoints hold instead of pickles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import BadValues, CorruptFile

if TYPE_CHECKING:
    import torch

__all__ = ["flatten", "unflatten"]


def flatten(value: Any, where: str = "state") -> tuple[Any, dict[str, torch.Tensor]]:
    """A JSON value and the tensors that it names.

    value: None, bool, int, float, str, dense tensors, numpy arrays and scalars, and dicts, lists and tuples of them; keys
    of a dict are text or numbers. Tensors come back detached, on the CPU, each with its own memory. NaN and infinity are
    kept. `where` names the value in errors.

    Raises BadValues, naming the place, for anything else.
    """
    tensors: dict[str, torch.Tensor] = {}
    return _flat(value, where, tensors), tensors


def _flat(value: Any, where: str, tensors: dict[str, torch.Tensor]) -> Any:
    import torch

    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if isinstance(value, np.generic):
        return _flat(value.item(), where, tensors)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return {"$tensor": _kept(value.detach(), tensors)}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.kind in "biufc":
        native = np.array(value, dtype=value.dtype.newbyteorder("="))
        return {"$array": _kept(torch.from_numpy(native), tensors)}
    if isinstance(value, list | tuple):
        parts = [_flat(part, f"{where}[{i}]", tensors) for i, part in enumerate(value)]
        return parts if isinstance(value, list) else {"$tuple": parts}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _flat(part, f"{where}.{key}", tensors) for key, part in value.items()}
        if all(isinstance(key, str | int | float) for key in value):
            return {"$items": [[key, _flat(part, f"{where}.{key}", tensors)] for key, part in value.items()]}
    raise BadValues(
        f"{where} cannot be kept in a checkpoint",
        value=f"{type(value).__module__}.{type(value).__qualname__}",
        allowed="None, bool, numbers, text, dense tensors, arrays of numbers, and dicts, lists and tuples of them",
    )


def _kept(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    import torch

    name = str(len(tensors))
    tensors[name] = (
        tensor.to("cpu", copy=True).contiguous() if tensor.numel() else torch.empty_like(tensor, device="cpu")
    )
    return name


def unflatten(plain: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What `flatten` was given. Raises CorruptFile where a tensor that it names is missing."""
    if isinstance(plain, list):
        return [unflatten(part, tensors) for part in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        ((tag, inner),) = plain.items()
        if tag == "$float":
            return float(inner)
        if tag == "$tuple":
            return tuple(unflatten(part, tensors) for part in inner)
        if tag == "$items":
            return {key: unflatten(part, tensors) for key, part in inner}
        if tag in ("$tensor", "$array"):
            if inner not in tensors:
                raise CorruptFile("A tensor of this checkpoint is missing", value=inner, mend="Use an older checkpoint")
            return tensors[inner] if tag == "$tensor" else tensors[inner].numpy()
    return {key: unflatten(part, tensors) for key, part in plain.items()}
