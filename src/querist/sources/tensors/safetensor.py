"""safetensors: eight bytes of length, a JSON header, then the tensors; read and written here without the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from querist.errors import CorruptFile, QueristError, UnsupportedFormat
from querist.files import replacing
from querist.sources.tensors.dtypes import ITEMSIZE, total
from querist.sources.tensors.found import Found, extent_ref
from querist.sources.tensors.ref import TensorRef, TensorSource
from querist.sources.tensors.window import Window

__all__ = ["is_safetensors", "read_safetensors", "write_safetensors"]

_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}
LONGEST = 100_000_000
"""Bytes of a header: the format's own limit."""
BLOCK = 16 << 20


def is_safetensors(window: Window) -> bool:
    """Whether the bytes begin as a safetensors file does: a plausible length and an opening brace."""
    head = window.head(9)
    return len(head) == 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= LONGEST


def read_safetensors(window: Window) -> Found:
    """Every tensor of one file. Raises CorruptFile, with expected and found bytes, where it is cut off or damaged."""
    path = window.path
    length = int.from_bytes(window.read(0, 8), "little")
    if length > LONGEST:
        raise CorruptFile(f"The header claims {length} bytes", value=path, allowed=f"at most {LONGEST}")
    try:
        header = json.loads(window.read(8, length))
        if not isinstance(header, dict):
            raise ValueError("it is no object")
    except QueristError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"The header is damaged ({error})", value=path, mend="Copy or download it again") from None
    start = 8 + length
    metadata = header.pop("__metadata__", None)
    found = Found("safetensors", metadata={"file": metadata} if isinstance(metadata, dict) else {})
    for name, entry in header.items():
        dtype, shape, first, last = _entry(path, name, entry)
        if last > window.size - start:
            raise CorruptFile(
                f"The file ends early: the tensor {name} needs {start + last} bytes, found {window.size}",
                value=path,
                mend="Copy or download it again",
            )
        if dtype in _DTYPES.values() and total(shape) * ITEMSIZE[dtype] != last - first:
            raise CorruptFile(
                f"The tensor {name} of shape {list(shape)} and type {dtype} does not fit its place: "
                f"expected {total(shape) * ITEMSIZE[dtype]} bytes, found {last - first}",
                value=path,
            )
        found.refs.append(extent_ref(path, name, dtype, shape, start=window.start + start + first, size=last - first))
    return found


def _entry(path: str, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    try:
        dtype, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, first, last)
        if (
            any(type(n) is not int or not 0 <= n < 1 << 62 for n in numbers)
            or last < first
            or not isinstance(dtype, str)
        ):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise CorruptFile(f"The header's entry of the tensor {name} is damaged", value=path) from None
    return _DTYPES.get(dtype, dtype.lower()), shape, first, last


def write_safetensors(path: Path | str, source: TensorSource, *, metadata: dict[str, str] | None = None) -> Path:
    """Write every readable tensor of a source to one file, a block of rows at a time, whole or not at all.

    Tied tensors are written once, under their first name. Tensors that cannot be read are left out: their refs say why.
    Raises UnsupportedFormat for an element type that safetensors lacks.
    """
    names = {ours: theirs for theirs, ours in _DTYPES.items()}
    refs = [ref for ref in source.refs if ref.reason is None]
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for ref in refs:
        dtype = "float32" if ref.dtype == "q8_0" else ref.dtype
        if dtype not in names:
            raise UnsupportedFormat(f"safetensors has no elements of type {dtype}", value=ref.name)
        size = ref.numel * ITEMSIZE[dtype]
        header[ref.name] = {"dtype": names[dtype], "shape": list(ref.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for ref in refs:
            for block in _blocks(ref):
                file.write(block)
    return Path(path)


def _blocks(ref: TensorRef) -> Iterator[Any]:
    from querist.sources.tensors.storage import tensor_bytes

    if not ref.numel:
        return
    if not ref.shape:
        yield tensor_bytes(ref.load())
        return
    step = max(1, BLOCK * ref.shape[0] // max(1, ref.numel * 8))
    for start in range(0, ref.shape[0], step):
        yield tensor_bytes(ref.rows(start, min(start + step, ref.shape[0])))
