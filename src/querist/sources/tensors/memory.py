"""Arrays, tensors and state dicts in memory as tensor references, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from querist.sources.tensors.found import Found
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.storage import Held
from querist.sources.tensors.tree import flatten, unwrapped

if TYPE_CHECKING:
    import torch

__all__ = ["as_tensor", "held", "is_array", "read_array", "read_state"]


def held(name: str, tensor: torch.Tensor, hints: Mapping[str, Any] | None = None) -> TensorRef:
    """A ref to a tensor in memory; one without dense content of its own (lazy, meta, sparse, sharded) gets a reason."""
    import torch

    hints = dict(hints or {})
    dtype = str(tensor.dtype).removeprefix("torch.")
    if torch.nn.parameter.is_lazy(tensor):
        return TensorRef(name, (), dtype, hints=hints, reason="not materialised")
    shape = tuple(tensor.shape)
    if tensor.device.type == "meta":
        return TensorRef(name, shape, dtype, hints=hints, reason="not materialised")
    if type(tensor).__name__ == "DTensor":
        return TensorRef(name, shape, dtype, hints=hints, reason="spread over processes: gather it first")
    if tensor.layout != torch.strided:
        return TensorRef(name, shape, dtype, hints=hints, reason="a sparse tensor, which is not stored densely")
    if tensor.is_quantized:
        return TensorRef(name, shape, dtype, hints=hints, reason="quantised by torch")
    return TensorRef(name, shape, dtype, hints=hints, store=Held(tensor.detach()))


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy or a tensor of torch."""
    import numpy as np
    import torch

    return isinstance(value, (np.ndarray, torch.Tensor))


def as_tensor(value: Any) -> torch.Tensor | str:
    """An array as a tensor that shares its memory where torch can; or why its elements cannot be read."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.hasobject:
        return "Python objects and no numbers"
    if array.dtype.kind not in "biufc":
        return f"elements of type {array.dtype} are no numbers"
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if (
        any(step < 0 for step in array.strides)
        or not array.flags.writeable
        or any(s % array.itemsize for s in array.strides)
    ):
        array = array.copy()  # torch takes neither backward strides nor arrays that may not be written
    try:
        return torch.from_numpy(array)
    except TypeError:
        return f"elements of type {array.dtype} are not read"


def read_array(value: Any) -> Found:
    """One array or tensor, under the name "array"."""
    tensor = as_tensor(value)
    if isinstance(tensor, str):
        return Found("array", passed_over=[PassedOver("array", tuple(value.shape), str(value.dtype), tensor)])
    return Found("array", [held("array", tensor)])


def read_state(state: Mapping[str, Any]) -> Found:
    """A state dict, nested or not. Raises CorruptFile for one without end."""
    found = Found("state dict")

    def tensor(node: Any) -> Any:
        return node if is_array(node) else None

    def children(node: Any) -> list[tuple[Any, Any]] | None:
        if isinstance(node, Mapping):
            return list(node.items())
        return list(enumerate(node)) if isinstance(node, (list, tuple)) else None

    named, found.passed_over = unwrapped(flatten(state, children, tensor, source="a state dict"))
    for name, leaf in named:
        value = as_tensor(leaf.value)
        if isinstance(value, str):
            found.passed_over.append(PassedOver(name, tuple(leaf.value.shape), str(leaf.value.dtype), value))
        else:
            found.refs.append(held(name, value))
    return found
