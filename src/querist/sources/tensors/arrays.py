"""numpy's .npy and .npz: headers parsed without pickle, stored arrays read by position, compressed ones streamed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from querist.errors import CorruptFile, UnsafeFile
from querist.sources.tensors.archive import Archive, reading
from querist.sources.tensors.dtypes import ITEMSIZE, NUMPY_NAMES, torch_dtype, total
from querist.sources.tensors.found import Found, extent_ref
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.storage import CHUNK, check_fits, digest_of, tensor_bytes
from querist.sources.tensors.window import Window, truncated

if TYPE_CHECKING:
    import torch

__all__ = ["MAGIC", "Deflated", "is_npz", "read_npy", "read_npz"]

MAGIC = b"\x93NUMPY"
LONGEST = 1 << 17
"""Bytes of a header that are parsed: numpy writes some hundred."""
_HEADER = re.compile(
    r"\s*\{\s*'descr'\s*:\s*(?P<descr>'[^']*'|\[.*\])\s*,\s*'fortran_order'\s*:\s*(?P<order>True|False)\s*,"
    r"\s*'shape'\s*:\s*\((?P<shape>[\d\s,L]*)\)\s*,?\s*\}\s*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of one array says, and the bytes before its content."""

    dtype: str
    big_endian: bool
    shape: tuple[int, ...]
    fortran: bool
    length: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        order = range(len(self.shape)) if self.fortran else range(len(self.shape) - 1, -1, -1)
        strides, step = [0] * len(self.shape), 1
        for axis in order:
            strides[axis] = step
            step *= max(self.shape[axis], 1)
        return tuple(strides)


def is_npz(archive: Archive) -> bool:
    """Whether every member of the archive is an array by its name."""
    return bool(archive.members) and all(name.endswith(".npy") for name in archive.members)


def read_npy(window: Window) -> Found:
    """One array. Raises CorruptFile, and UnsafeFile for an array of Python objects."""
    head = _header(window.head(LONGEST), window.path, "the file")
    name = "array"
    ref = _ref(window.path, name, head, window.start + head.length, window.size - head.length)
    return Found("npy", [ref] if isinstance(ref, TensorRef) else [], [] if isinstance(ref, TensorRef) else [ref])


def read_npz(archive: Archive) -> Found:
    """Every array of the archive. Raises CorruptFile, and UnsafeFile where every array holds Python objects."""
    path = archive.window.path
    found = Found("npz")
    for name in archive.members:
        inner = name.removeprefix(archive.prefix)
        member, label = archive.member(inner), name.removesuffix(".npy")
        if member.stored:
            part = archive.part(inner)
            head = _header(part.head(LONGEST), path, name)
            ref = _ref(path, label, head, part.start + head.length, part.size - head.length)
        else:
            with reading(path), archive.unpacked(inner) as file:
                head = _header(file.read(LONGEST), path, name)
            ref = _compressed(archive, inner, label, head, member.size - head.length)
        (found.refs if isinstance(ref, TensorRef) else found.passed_over).append(ref)  # pyright: ignore[reportArgumentType]
    if not found.refs and any(row.reason.startswith("Python objects") for row in found.passed_over):
        raise _objects(path)
    return found


def _objects(path: str) -> UnsafeFile:
    return UnsafeFile(
        "The array holds Python objects, which only code can rebuild; it was not run",
        value=path,
        mend="Save numbers with numpy.savez, or convert to safetensors",
    )


def _header(data: bytes, path: str, what: str) -> Header:
    """Parse a header by a pattern and never as Python."""
    if data[:6] != MAGIC or len(data) < 10:
        raise CorruptFile(f"{what} does not begin as an array of numpy does", value=path)
    size = 2 if data[6] == 1 else 4
    start = 8 + size
    length = int.from_bytes(data[8:start], "little")
    if start + length > len(data):
        raise truncated(path, f"the header of {what}", start + length, len(data))
    text = data[start : start + length].decode("latin1")
    match = _HEADER.fullmatch(text)
    if match is None:
        raise CorruptFile(f"The header of {what} is damaged", value=path)
    sides = [side for side in re.sub(r"[\sL]", "", match["shape"]).split(",") if side]
    if len(sides) > 64 or any(len(side) > 18 for side in sides):
        raise CorruptFile(f"The header of {what} claims the shape ({match['shape'][:80]})", value=path)
    shape = tuple(map(int, sides))
    descr = match["descr"].strip("'")
    order, kind = descr[:1], descr[1:]
    if order not in "<>|=":
        order, kind = "<", descr
    dtype = "object" if kind.startswith("O") or ("O" in descr and descr[:1] == "[") else NUMPY_NAMES.get(kind, descr)
    return Header(dtype, order == ">", shape, match["order"] == "True", start + length)


def _ref(path: str, name: str, head: Header, start: int, size: int) -> TensorRef | PassedOver:
    if head.dtype == "object":
        if name == "array":
            raise _objects(path)
        return PassedOver(name, head.shape, "object", "Python objects, which only code can rebuild; it was not run")
    if head.dtype not in ITEMSIZE:
        return PassedOver(name, head.shape, head.dtype, f"elements of type {head.dtype} are no numbers")
    return extent_ref(
        path, name, head.dtype, head.shape, start=start, size=size, strides=head.strides, big_endian=head.big_endian
    )


def _compressed(archive: Archive, member: str, name: str, head: Header, size: int) -> TensorRef | PassedOver:
    if head.dtype not in ITEMSIZE or torch_dtype(head.dtype) is None:
        return _ref(archive.window.path, name, head, 0, 0)
    check_fits(archive.window.path, name, total(head.shape) * ITEMSIZE[head.dtype], size)
    return TensorRef(name, head.shape, head.dtype, store=Deflated(archive.window, member, head))


@dataclass(frozen=True, slots=True)
class Deflated:
    """An array in a compressed member: unpacked from its beginning up to the rows that are asked for, in small pieces."""

    window: Window
    member: str
    head: Header

    @property
    def key(self) -> Any:
        """The member."""
        return (self.window.path, self.member)

    def load(self) -> torch.Tensor:
        """The whole array."""
        count = total(self.head.shape)
        flat = self._flat(0, count)
        return (
            flat.as_strided(self.head.shape, self.head.strides).contiguous() if count else flat.reshape(self.head.shape)
        )

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows of axis 0; of an array with axis 0 fastest the whole is read."""
        if self.head.fortran and len(self.head.shape) > 1:
            return self.load()[start:stop].clone()
        per = total(self.head.shape[1:])
        return self._flat(start * per, stop * per).reshape(stop - start, *self.head.shape[1:])

    def digest(self) -> str:
        """sha256; of an array with axis 0 slowest streamed."""
        if self.head.fortran and len(self.head.shape) > 1:
            return digest_of(
                self.head.dtype, self.head.shape, iter([tensor_bytes(self.load())] if total(self.head.shape) else [])
            )
        return digest_of(self.head.dtype, self.head.shape, self._pieces())

    def _pieces(self) -> Iterator[Any]:
        item = ITEMSIZE[self.head.dtype]
        left = total(self.head.shape) * item
        with reading(self.window.path), Archive(self.window).unpacked(self.member) as file:
            _skip(file, self.head.length)
            while left:
                data = file.read(min(left, CHUNK // 16 * 16))
                if not data or len(data) % item:
                    raise truncated(self.window.path, self.member, left, len(data))
                left -= len(data)
                yield tensor_bytes(self._decode(bytearray(data)))

    def _flat(self, first: int, last: int) -> torch.Tensor:
        item = ITEMSIZE[self.head.dtype]
        data = bytearray((last - first) * item)
        with reading(self.window.path), Archive(self.window).unpacked(self.member) as file:
            _skip(file, self.head.length + first * item)
            view = memoryview(data)
            while len(view):
                count = file.readinto(view[:CHUNK])
                if not count:
                    raise truncated(self.window.path, self.member, len(data), len(data) - len(view))
                view = view[count:]
        return self._decode(data)

    def _decode(self, data: bytearray) -> torch.Tensor:
        import numpy as np
        import torch

        kind = next(kind for kind, name in NUMPY_NAMES.items() if name == self.head.dtype)
        array = np.frombuffer(data, dtype=np.dtype((">" if self.head.big_endian else "<") + kind))
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _skip(file: io.BufferedIOBase | Any, count: int) -> None:
    while count:
        data = file.read(min(count, CHUNK))
        if not data:
            raise EOFError("it ends early")
        count -= len(data)
