"""What a network is given, by name, so that it can be kept, hashed and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["as_inputs", "named"]


def named(inputs: Any) -> dict[str, Tensor]:
    """Tensors of a batch by name: `x`; `x.NAME` of a dictionary's, `x:0`, `x:1` … of a tuple's."""
    if isinstance(inputs, Mapping):
        return {f"x.{name}": value for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return {f"x:{i}": value for i, value in enumerate(inputs)}
    return {"x": inputs}


def as_inputs(tensors: Mapping[str, Any]) -> Any:
    """What `named` took apart; entries of other names are left out."""
    if "x" in tensors:
        return tensors["x"]
    several = [tensors[f"x:{i}"] for i in range(sum(name.startswith("x:") for name in tensors))]
    if several:
        return tuple(several)
    return {name.removeprefix("x."): value for name, value in tensors.items() if name.startswith("x.")}
