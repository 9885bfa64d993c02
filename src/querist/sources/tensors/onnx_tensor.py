"""ONNX tensors: raw bytes, typed fields and external files, each read by position."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from querist.errors import CorruptFile, UnsafeFile
from querist.sources.tensors.dtypes import ITEMSIZE, torch_dtype, total
from querist.sources.tensors.found import Missing, extent_ref
from querist.sources.tensors.protobuf import BYTES, FIXED32, FIXED64, Message, fields
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.storage import digest_of, tensor_bytes
from querist.sources.tensors.window import Window, read_into

if TYPE_CHECKING:
    import torch

__all__ = ["Typed", "read_tensor", "safe_member"]

_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    24: "float8_e8m0fnu",
}
_OTHER = {
    8: "string",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    25: "uint2",
    26: "int2",
    27: "float6e2m3",
    28: "float6e3m2",
}
_FLOATS, _INT32, _INT64, _DOUBLES, _UINT64 = 4, 5, 7, 10, 11
_TYPED = {"float32": _FLOATS, "complex64": _FLOATS, "float64": _DOUBLES, "complex128": _DOUBLES, "int64": _INT64}
_TYPED |= {"uint32": _UINT64, "uint64": _UINT64}
_EXTERNAL = 1


@dataclass(slots=True)
class _Proto:
    """The fields of one tensor."""

    name: str = ""
    kind: int = 0
    dims: list[int] = field(default_factory=list)
    raw: Message | None = None
    typed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    external: dict[str, str] = field(default_factory=dict)
    location: int = 0


def _parse(message: Message) -> _Proto:
    proto = _Proto()
    for item in fields(message):
        if item.number == 1:
            proto.dims.extend(item.numbers())
        elif item.number == 2:
            proto.kind = item.value
        elif item.number == 8:
            proto.name = item.text()
        elif item.number == 9:
            proto.raw = item.message
        elif item.number == 13:
            entry = {inner.number: inner.text() for inner in fields(item.message) if inner.wire == BYTES}
            proto.external[entry.get(1, "")] = entry.get(2, "")
        elif item.number == 14:
            proto.location = item.value
        elif item.number in (_FLOATS, _INT32, _INT64, _DOUBLES, _UINT64):
            places = proto.typed.setdefault(item.number, [])
            if item.wire in (BYTES, FIXED32, FIXED64):
                places.append((item.message.window.start, item.message.window.size))
            else:  # not packed: a number by itself, kept as its value behind a negative length
                places.append((item.value, -1))
    return proto


def read_tensor(
    message: Message, name: str | None, hints: dict[str, Any] | None = None
) -> TensorRef | PassedOver | Missing:
    """One tensor: where it lies, why it is not read, or which absent file holds it.

    Raises CorruptFile where bytes and shape disagree, UnsafeFile for an external file outside the model's folder.
    """
    proto = _parse(message)
    path = message.window.path
    name = proto.name if name is None else name
    shape = tuple(proto.dims)
    if any(side < 0 for side in shape) or len(shape) > 64:
        raise CorruptFile(f"The tensor {name} has the shape {list(shape[:8])}", value=path)
    if proto.kind not in _DTYPES:
        word = _OTHER.get(proto.kind, f"number {proto.kind}")
        if word == "string":
            return PassedOver(name, shape, word, "texts and no numbers")
        return TensorRef(name, shape, word, hints=dict(hints or {}), reason=f"elements of type {word} are not read")
    dtype = _DTYPES[proto.kind]
    if proto.location == _EXTERNAL:
        return _external(proto, path, name, dtype, shape, hints)
    size = total(shape) * ITEMSIZE[dtype]
    places = proto.typed.get(_TYPED.get(dtype, _INT32), [])
    if proto.raw is None and len(places) == 1 and places[0][1] >= 0 and dtype in _TYPED and "int" not in dtype:
        proto.raw = Message(Window(path, *places[0]))  # packed floats lie in the file as raw ones do
    if proto.raw is not None:
        if proto.raw.window.size != size:
            raise CorruptFile(
                f"The tensor {name} of shape {list(shape)} and type {dtype} does not fit its place: "
                f"expected {size} bytes, found {proto.raw.window.size}",
                value=path,
            )
        window = proto.raw.window
        return extent_ref(path, name, dtype, shape, start=window.start, size=window.size, hints=hints)
    least = sum(
        max(length, 1) if _TYPED.get(dtype, _INT32) in (_INT32, _INT64, _UINT64) else length for _, length in places
    )
    floor = total(shape) if _TYPED.get(dtype, _INT32) in (_INT32, _INT64, _UINT64) else size
    if least < floor:
        raise CorruptFile(f"The tensor {name} is cut off: expected {floor} bytes or more, found {least}", value=path)
    if torch_dtype(dtype) is None:
        return TensorRef(name, shape, dtype, hints=dict(hints or {}), reason=f"elements of type {dtype} are not read")
    return TensorRef(name, shape, dtype, hints=dict(hints or {}), store=Typed(path, tuple(places), dtype, shape))


def safe_member(folder: Path, name: str, what: str) -> Path:
    """A file that an index names, which must lie in or below its folder. Raises UnsafeFile."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if not name or "\0" in name or pure.is_absolute() or ".." in pure.parts or ":" in name.partition("/")[0]:
        raise UnsafeFile(
            f"{what} points outside its folder", value=name, allowed="names of files in the same folder or below it"
        )
    return folder / pure


def _external(
    proto: _Proto, path: str, name: str, dtype: str, shape: tuple[int, ...], hints: dict[str, Any] | None
) -> TensorRef | Missing:
    location = proto.external.get("location", "")
    file = safe_member(Path(path).parent, location, f"The tensor {name}")
    if not file.is_file():
        return Missing(name, shape, dtype, location)
    try:
        offset = int(proto.external.get("offset") or "0")
        length = int(proto.external.get("length") or "-1")
    except ValueError:
        raise CorruptFile(f"The external place of the tensor {name} is damaged", value=path) from None
    whole = Window.whole(file)
    if offset < 0 or offset > whole.size:
        raise CorruptFile(
            f"The tensor {name} begins behind the end of {location}: byte {offset} of {whole.size}", value=path
        )
    size = whole.size - offset if length < 0 else length
    if offset + size > whole.size:
        raise CorruptFile(
            f"The file ends early: the tensor {name} needs {offset + size} bytes, found {whole.size}", value=str(file)
        )
    return extent_ref(str(file), name, dtype, shape, start=offset, size=size, hints=hints)


@dataclass(frozen=True, slots=True)
class Typed:
    """Numbers in the typed fields of a message: `places` are bytes (start, length), or one value with length -1."""

    path: str
    places: tuple[tuple[int, int], ...]
    dtype: str
    shape: tuple[int, ...]

    @property
    def key(self) -> Any:
        """The first place in the file."""
        return (self.path, self.places[:1], self.dtype, self.shape) if total(self.shape) else None

    def load(self) -> torch.Tensor:
        """The whole tensor."""
        import numpy as np
        import torch

        parts = [self._place(start, length) for start, length in self.places]
        flat = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
        pair = 2 if self.dtype.startswith("complex") else 1
        if flat.size != total(self.shape) * pair:
            raise CorruptFile(
                f"A tensor of shape {list(self.shape)} needs {total(self.shape) * pair} numbers, found {flat.size}",
                value=self.path,
            )
        if flat.dtype == np.uint64:  # varints: the low bytes are the number, or the bits of a small float
            word = f"<u{ITEMSIZE[self.dtype]}"
            flat = (flat != 0).astype(np.uint8) if self.dtype == "bool" else flat.astype(word)
        kind = torch_dtype(self.dtype) or torch.uint8
        return torch.from_numpy(np.ascontiguousarray(flat)).view(torch.uint8).view(kind).reshape(self.shape)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows of axis 0; numbers of varying length can only be read from the beginning."""
        return self.load()[start:stop].clone()

    def digest(self) -> str:
        """sha256 of the decoded content."""
        return digest_of(self.dtype, self.shape, iter([tensor_bytes(self.load())] if total(self.shape) else []))

    def _place(self, start: int, length: int) -> Any:
        import numpy as np

        if length < 0:
            return np.array([start], dtype=np.uint64)
        data = np.empty(length, dtype=np.uint8)
        if length:
            read_into(self.path, start, data.data)
        if self.dtype in ("float32", "complex64", "float64", "complex128"):
            word = "<f4" if self.dtype in ("float32", "complex64") else "<f8"
            return data[: length // int(word[2]) * int(word[2])].view(word)
        return _varints(data, self.path)


def _varints(data: Any, path: str) -> Any:
    """All varints of a run of bytes at once: seven bits of each byte, shifted by its position in its number."""
    import numpy as np

    last = data < 128
    if data.size and not last[-1]:
        raise CorruptFile("A number of a tensor is cut off", value=path)
    ends = np.flatnonzero(last)
    if not ends.size:
        return np.zeros(0, np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 9:
        raise CorruptFile("A number of a tensor has more than ten bytes", value=path)
    position = np.arange(data.size) - np.repeat(starts, ends - starts + 1)
    bits = (data & 127).astype(np.uint64) << (7 * position).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts)
