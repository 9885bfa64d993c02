"""Where the content of tensors lies: a range of a file, blocks of a quantisation, a compressed member, or memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from querist.errors import CorruptFile
from querist.sources.tensors.dtypes import ITEMSIZE, torch_dtype, total
from querist.sources.tensors.window import read_into, reader

if TYPE_CHECKING:
    import torch

__all__ = ["Extent", "Held", "Quantised", "contiguous", "digest_of"]

CHUNK = 4 << 20
"""Bytes that are hashed at a time: large enough that reading dominates, small beside any bound on memory."""
SCATTERED = 32 << 20
"""The same where rows lie scattered: the more rows at a time, the fewer and longer the reads."""
SLAB = 1 << 16
"""A strided range below this many bytes is read whole: one read costs as much as about 64 KiB of copying."""


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor stored with axis 0 slowest."""
    strides, step = [], 1
    for side in reversed(shape):
        strides.append(step)
        step *= max(side, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides are those of axis 0 slowest; the stride of an axis of length 0 or 1 does not matter."""
    pairs = zip(shape, strides, contiguous(shape), strict=True)
    return total(shape) == 0 or all(side == 1 or have == want for side, have, want in pairs)


def digest_of(dtype: str, shape: tuple[int, ...], chunks: Iterator[Any]) -> str:
    """Hexadecimal sha256 of dtype, shape and content bytes."""
    digest = hashlib.sha256(f"{dtype}|{'x'.join(map(str, shape))}|".encode())
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Content of a CPU tensor, axis 0 slowest, in the machine's byte order (little endian wherever torch runs)."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


@dataclass(frozen=True, slots=True)
class Extent:
    """A strided range of a file. `offset` is the byte of the first element, `strides` count elements."""

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    big_endian: bool = False

    @property
    def key(self) -> Any:
        """The place in the file, which tied tensors share."""
        return (self.path, self.offset, self.dtype, self.shape, self.strides) if total(self.shape) else None

    def load(self) -> torch.Tensor:
        """The whole tensor."""
        return self._gather(self.offset, self.shape)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows of axis 0; of a contiguous tensor exactly their bytes are read."""
        return self._gather(
            self.offset + start * self.strides[0] * ITEMSIZE[self.dtype], (stop - start, *self.shape[1:])
        )

    def digest(self) -> str:
        """sha256, in chunks of 4 MiB."""
        return digest_of(self.dtype, self.shape, self._chunks())

    def _chunks(self) -> Iterator[Any]:
        if is_contiguous(self.shape, self.strides) and not self.big_endian:
            size = total(self.shape) * ITEMSIZE[self.dtype]
            buffer = memoryview(bytearray(min(size, CHUNK)))
            for done in range(0, size, CHUNK):
                view = buffer[: min(CHUNK, size - done)]
                read_into(self.path, self.offset + done, view)
                yield view
        elif not self.shape:
            yield tensor_bytes(self.load())
        else:
            step = max(1, SCATTERED // max(1, total(self.shape[1:]) * ITEMSIZE[self.dtype]))
            for start in range(0, self.shape[0], step):
                yield tensor_bytes(self.rows(start, min(start + step, self.shape[0])))

    def _gather(self, offset: int, shape: tuple[int, ...]) -> torch.Tensor:
        import torch

        out = torch.empty(shape, dtype=torch_dtype(self.dtype))
        if out.numel():
            with reader(self.path) as read:
                self._fill(read, out, offset, self.strides)
        return out

    def _fill(
        self, read: Callable[[int, memoryview], None], out: torch.Tensor, offset: int, strides: tuple[int, ...]
    ) -> None:
        """Read the elements of `out`: at once where they lie densely, else one index of the slowest axis at a time."""
        import torch

        size = ITEMSIZE[self.dtype]
        span = 1 + sum((side - 1) * step for side, step in zip(out.shape, strides, strict=True))
        if span > 2 * out.numel() and span * size > SLAB:
            axis = max((i for i in range(out.ndim) if out.shape[i] > 1), key=lambda i: strides[i])
            rest = strides[:axis] + strides[axis + 1 :]
            for i in range(out.shape[axis]):
                self._fill(read, out.select(axis, i), offset + i * strides[axis] * size, rest)
            return
        if out.is_contiguous() and is_contiguous(tuple(out.shape), strides):
            raw = out.view(-1).view(torch.uint8)
            read(offset, raw.numpy().data)
            self._tidy(raw)
            return
        raw = torch.empty(span * size, dtype=torch.uint8)
        read(offset, raw.numpy().data)
        self._tidy(raw)
        out.copy_(raw.view(out.dtype).as_strided(tuple(out.shape), strides))

    def _tidy(self, raw: torch.Tensor) -> None:
        """Turn big-endian bytes round, and make any non-zero byte of a truth value 1, in place."""
        if self.big_endian and ITEMSIZE[self.dtype] > 1:
            word = ITEMSIZE[self.dtype] // (2 if self.dtype.startswith("complex") else 1)
            raw.copy_(raw.view(-1, word).flip(1).reshape(-1))
        if self.dtype == "bool":
            raw.copy_(raw.ne(0))


@dataclass(frozen=True, slots=True)
class Quantised:
    """GGUF's Q8_0: along the last axis, blocks of 32 signed bytes after a float16 scale (34 bytes a block)."""

    path: str
    offset: int
    shape: tuple[int, ...]
    big_endian: bool = False

    @property
    def key(self) -> Any:
        """The place in the file."""
        return (self.path, self.offset, self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one index of axis 0."""
        return total(self.shape[1:]) // 32 * 34 if len(self.shape) > 1 else 34

    def load(self) -> torch.Tensor:
        """The whole tensor as float32."""
        return self._decode(0, total(self.shape) // 32).reshape(self.shape)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows of axis 0 as float32, reading their blocks only."""
        per = total(self.shape[1:])
        first, last = start * per // 32, -(-stop * per // 32)
        flat = self._decode(first, last)[start * per - first * 32 : stop * per - first * 32]
        return flat.reshape(stop - start, *self.shape[1:])

    def digest(self) -> str:
        """sha256 of the blocks as they are stored."""
        blocks = Extent(self.path, self.offset, "uint8", (total(self.shape) // 32 * 34,), (1,))
        return digest_of("q8_0", self.shape, blocks._chunks())

    def _decode(self, first: int, last: int) -> torch.Tensor:
        import numpy as np
        import torch

        kind = np.dtype([("scale", ">f2" if self.big_endian else "<f2"), ("q", "i1", (32,))])
        blocks = np.empty(last - first, dtype=kind)
        if blocks.size:
            read_into(self.path, self.offset + 34 * first, blocks.view(np.uint8).data)
        out = torch.from_numpy(blocks["q"].astype(np.float32))
        return out.mul_(torch.from_numpy(blocks["scale"].astype(np.float32))[:, None]).reshape(-1)


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in memory, on any device."""

    tensor: torch.Tensor

    @property
    def key(self) -> Any:
        """The place in memory, which tied tensors share."""
        t = self.tensor
        return ("memory", str(t.device), t.data_ptr(), t.dtype, tuple(t.shape), t.stride()) if t.numel() else None

    def load(self) -> torch.Tensor:
        """The tensor itself, moved to the CPU where it is elsewhere: not to be changed."""
        return self.tensor.detach().resolve_conj().resolve_neg().cpu()

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """A view of rows, or only these rows moved to the CPU."""
        return self.tensor.detach()[start:stop].resolve_conj().resolve_neg().cpu()

    def digest(self) -> str:
        """sha256, in blocks of rows of about 4 MiB."""
        name = str(self.tensor.dtype).removeprefix("torch.")
        return digest_of(name, tuple(self.tensor.shape), self._chunks())

    def _chunks(self) -> Iterator[Any]:
        t = self.tensor
        if not t.numel():
            return
        if not t.ndim:
            yield tensor_bytes(self.load())
            return
        step = max(1, CHUNK // max(1, t[0].numel() * t.element_size()))
        for start in range(0, t.shape[0], step):
            yield tensor_bytes(self.rows(start, min(start + step, t.shape[0])))


def check_fits(path: str, name: str, expected: int, found: int) -> None:
    """Raise CorruptFile where a tensor's content is shorter than its shape says."""
    if expected > found:
        raise CorruptFile(
            f"The tensor {name} is cut off: expected {expected} bytes, found {found}",
            value=path,
            mend="Copy or download it again",
        )
