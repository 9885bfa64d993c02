"""Element types by torch's names, with their sizes and what other formats call them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["ITEMSIZE", "NUMPY_NAMES", "torch_dtype", "total"]

ITEMSIZE: dict[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "complex32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one element of every type that is read."""

NUMPY_NAMES: dict[str, str] = {
    "b1": "bool",
    "u1": "uint8",
    "i1": "int8",
    "i2": "int16",
    "u2": "uint16",
    "f2": "float16",
    "i4": "int32",
    "u4": "uint32",
    "f4": "float32",
    "i8": "int64",
    "u8": "uint64",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
"""numpy's kind and size (the type string without its byte order) to torch's name."""


def torch_dtype(name: str) -> torch.dtype | None:
    """torch's element type of this name, or None where this version of torch lacks it."""
    import torch

    found = getattr(torch, name, None) if name in ITEMSIZE else None
    return found if isinstance(found, torch.dtype) else None


def total(shape: Iterable[int]) -> int:
    """Number of entries of a shape, in exact integers."""
    count = 1
    for side in shape:
        count *= side
    return count
