"""Protocol buffer messages by position: large fields are visited without reading them, so a tensor's bytes stay in the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from querist.errors import CorruptFile
from querist.sources.tensors.window import Window, truncated

__all__ = ["Field", "Message", "fields"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
PIECE = 1 << 16
"""A message up to this many bytes is read at once; a longer one is walked over in pieces of this size."""
TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of a message, a text or packed numbers: their place, and their content where it has been read already."""

    window: Window
    data: bytes | None = None

    def content(self, limit: int = TEXT) -> bytes:
        """The bytes themselves. Raises CorruptFile beyond `limit`."""
        if self.data is not None:
            return self.data
        if self.window.size > limit:
            raise CorruptFile(
                f"A field of {self.window.size} bytes where at most {limit} make sense", value=self.window.path
            )
        return self.window.read(0, self.window.size)

    def text(self) -> str:
        """The bytes as text."""
        return self.content().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its number, its wire type, and a number or a message."""

    number: int
    wire: int
    value: int
    message: Message

    @property
    def signed(self) -> int:
        """The number as a signed 64-bit one."""
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def text(self) -> str:
        """The field as text."""
        return self.message.text()

    def numbers(self) -> list[int]:
        """The field as signed numbers: one, or packed ones."""
        if self.wire != BYTES:
            return [self.signed]
        data, values, value, shift = self.message.content(), [], 0, 0
        for byte in data:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                values.append(value - (1 << 64) if value >> 63 & 1 else value)
                value = shift = 0
            elif shift > 63:
                raise _no_message(self.message.window, "a number of more than ten bytes")
        return values


def fields(message: Message) -> Iterator[Field]:
    """The fields of one message, in order. Raises CorruptFile where the bytes are no message or end early."""
    window = message.window
    size = window.size
    data = message.data
    if data is None and size <= PIECE:
        data = window.read(0, size)
    piece, first = (data, 0) if data is not None else (b"", 0)
    at = 0

    def varint(position: int) -> tuple[int, int]:
        nonlocal piece, first
        if data is None and not first <= position <= first + len(piece) - 10:
            first = position
            piece = window.read(position, min(PIECE, size - position))
        value = shift = 0
        i = position - first
        for byte in piece[i : i + 10]:
            value |= (byte & 127) << shift
            shift += 7
            i += 1
            if byte < 128:
                return value & ((1 << 64) - 1), first + i
        if position + 10 > size:
            raise truncated(window.path, "a field", window.start + size + 1, window.start + size)
        raise _no_message(window, "a number of more than ten bytes")

    while at < size:
        tag, at = varint(at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise _no_message(window, f"field number {number}")
        if wire == VARINT:
            value, at = varint(at)
            yield Field(number, wire, value, message)
            continue
        if wire == BYTES:
            length, at = varint(at)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise _no_message(window, f"wire type {wire}")
        if at + length > size:
            raise truncated(window.path, f"field {number}", window.start + at + length, window.start + size)
        inner = Window(window.path, window.start + at, length)
        yield Field(number, wire, 0, Message(inner, None if data is None else data[at : at + length]))
        at += length


def _no_message(window: Window, why: str) -> CorruptFile:
    return CorruptFile(f"The file is no protocol buffer message, or damaged ({why})", value=window.path)
