"""Zip archives: where each member lies in the file, so that a stored one is read by position like a file of its own."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from querist.errors import CorruptFile, QueristError, UnsupportedFormat
from querist.sources.tensors.window import Window, truncated

__all__ = ["Archive", "Member", "reading"]

RATIO = 1040
"""deflate makes at most 1032 bytes of one: a member that claims more is lying about its size."""
WHOLE = 1 << 28
"""Bytes of a compressed member that is read whole (a header, a small inner file)."""
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its sizes and its local header's place. `stored` members have a window of their own."""

    name: str
    size: int
    packed: int
    stored: bool
    header: int


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn every fault of Python's zip reader into CorruptFile."""
    try:
        yield
    except QueristError:
        raise
    except _FAULTS as error:
        raise CorruptFile(
            f"The archive is damaged ({error or type(error).__name__})", value=path, mend="Copy or download it again"
        ) from None


class Archive:
    """The members of a zip archive in a window. No file is held open; nothing is unpacked to the disk."""

    def __init__(self, window: Window):
        self.window = window
        self.members: dict[str, Member] = {}
        # Python's reader takes any end record in the last 64 KiB, and so the archive inside an archive that is cut off.
        tail = window.read(max(0, window.size - 65557), min(window.size, 65557))
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + 22 > len(tail) or at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail):
            raise _cut(window)
        try:
            with window.open() as file, zipfile.ZipFile(file) as packed:
                for info in packed.infolist():
                    if info.flag_bits & 1:
                        raise UnsupportedFormat("The archive is encrypted", value=window.path)
                    stored = info.compress_type == zipfile.ZIP_STORED
                    self.members[info.filename] = Member(
                        info.filename, info.file_size, info.compress_size, stored, info.header_offset
                    )
                    if not stored and info.file_size > RATIO * info.compress_size + 1024:
                        raise CorruptFile(
                            f"The archive's member {info.filename} claims {info.file_size} bytes from {info.compress_size}",
                            value=window.path,
                        )
        except QueristError:
            raise
        except _FAULTS:
            raise _cut(window) from None
        if self.members and all(member.header for member in self.members.values()):
            raise _cut(window)
        root = {name.partition("/")[0] for name in self.members}
        one = len(root) == 1 and all("/" in name for name in self.members)
        self.prefix = root.pop() + "/" if one else ""

    def has(self, name: str) -> bool:
        """Whether there is a member of this name below the archive's one folder."""
        return self.prefix + name in self.members

    def names(self) -> list[str]:
        """Member names without the archive's one folder."""
        return [name.removeprefix(self.prefix) for name in self.members]

    def member(self, name: str) -> Member:
        """The member of this name. Raises CorruptFile where it is missing."""
        found = self.members.get(self.prefix + name)
        if found is None:
            raise CorruptFile(f"The archive lacks its member {name}", value=self.window.path)
        return found

    def part(self, name: str) -> Window:
        """The bytes of a stored member. Raises CorruptFile where they are cut off, UnsupportedFormat where compressed."""
        member = self.member(name)
        if not member.stored:
            raise UnsupportedFormat(
                f"The archive's member {name} is compressed",
                value=self.window.path,
                mend="Write the file with torch.save again",
            )
        head = self.window.read(member.header, 30, f"the archive's member {name}")
        if head[:4] != b"PK\x03\x04":
            raise CorruptFile(f"The archive's member {name} is not where its directory says", value=self.window.path)
        skip = 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        return self.window.part(member.header + skip, member.size, f"the archive's member {name}")

    def read(self, name: str) -> bytes:
        """The whole content of a member."""
        member = self.member(name)
        if member.stored:
            part = self.part(name)
            return part.read(0, part.size)
        if member.size > WHOLE:
            raise CorruptFile(f"The archive's member {name} is too large to unpack", value=self.window.path)
        with reading(self.window.path), self.unpacked(name) as file:
            return file.read()

    @contextmanager
    def unpacked(self, name: str) -> Iterator[zipfile.ZipExtFile]:
        """A member as a file to be read from its beginning, whatever its compression."""
        with self.window.open() as file, zipfile.ZipFile(file) as packed, packed.open(self.prefix + name) as member:  # pyright: ignore[reportArgumentType]
            yield member  # pyright: ignore[reportReturnType]


def _cut(window: Window) -> CorruptFile:
    """The error for an archive without a readable directory: the first member that reaches beyond the end, if any."""
    at = 0
    while at + 30 <= window.size:
        head = window.read(at, 30)
        if head[:4] != b"PK\x03\x04":
            break
        flags, packed = int.from_bytes(head[6:8], "little"), int.from_bytes(head[18:22], "little")
        names, extra = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        if flags & 8 or at + 30 + names + extra > window.size:
            break
        if packed == 0xFFFFFFFF:
            fields = window.read(at + 30 + names, extra)
            packed = int.from_bytes(fields[12:20], "little") if fields[:2] == b"\x01\x00" and len(fields) >= 20 else 0
        end = at + 30 + names + extra + packed
        if end > window.size:
            name = window.read(at + 30, names).decode("utf-8", "replace")
            return truncated(window.path, f"the archive's member {name}", end, window.size)
        at = end
    return CorruptFile(
        f"The archive's directory is missing or damaged: expected it at the end, at least 22 bytes after byte {at}; "
        f"found {window.size} bytes in all",
        value=window.path,
        mend="Copy or download it again",
    )
