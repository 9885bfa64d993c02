"""A window of a file: the bytes of a whole file or of one stored member of an archive, read by position."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from querist.errors import CorruptFile, SourceNotFound

__all__ = ["Stream", "Window", "WindowFile", "read_into", "reader", "truncated"]


def truncated(path: str, what: str, expected: int, found: int) -> CorruptFile:
    """The error for a file that is shorter than it says."""
    return CorruptFile(
        f"The file ends early: {what} needs {expected} bytes, found {found}",
        value=path,
        mend="Copy or download it again",
    )


@dataclass(frozen=True, slots=True)
class Window:
    """`size` bytes of the file `path` from byte `start` on. Holds no open file."""

    path: str
    start: int
    size: int

    @classmethod
    def whole(cls, path: str | Path) -> Window:
        """The whole file. Raises SourceNotFound where it is not there or cannot be read."""
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - the text is the path itself
                return cls(str(path), 0, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise SourceNotFound(f"The file cannot be read ({error.strerror or error})", value=str(path)) from None

    def part(self, offset: int, size: int, what: str) -> Window:
        """A window inside this one. Raises CorruptFile where it reaches beyond the end."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise truncated(self.path, what, offset + size, self.size)
        return Window(self.path, self.start + offset, size)

    def read(self, offset: int, size: int, what: str = "the header") -> bytes:
        """Exactly `size` bytes at `offset`. Raises CorruptFile where there are fewer; nothing is allocated before."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise truncated(self.path, what, offset + size, self.size)
        data = bytearray(size)
        read_into(self.path, self.start + offset, memoryview(data))
        return bytes(data)

    def head(self, size: int) -> bytes:
        """The first `size` bytes, or fewer."""
        return self.read(0, min(size, self.size))

    def open(self) -> WindowFile:
        """A seekable file of the window alone."""
        return WindowFile(self)

    def stream(self) -> Stream:
        """A buffered file of the window alone, whose reads never allocate more than there is."""
        return Stream(WindowFile(self), self.size)


@contextmanager
def reader(path: str) -> Iterator[Callable[[int, memoryview], None]]:
    """A function that fills a buffer from byte `offset` of a file, which is opened once.

    Plain reads: a mapped file would count as resident memory. Raises CorruptFile where the file is shorter, SourceNotFound
    where it is gone.
    """
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            found = os.fstat(file.fileno()).st_size

            def fill(offset: int, view: memoryview) -> None:
                if found < offset + len(view):
                    raise truncated(path, "a tensor", offset + len(view), found)
                file.seek(offset)
                while len(view):
                    count = file.readinto(view)  # Linux reads at most 2 GiB at a time
                    if not count:
                        raise truncated(path, "a tensor", offset + len(view), file.tell())
                    view = view[count:]

            yield fill
    except OSError as error:
        raise SourceNotFound(f"The file cannot be read ({error.strerror or error})", value=path) from None


def read_into(path: str, offset: int, view: memoryview) -> None:
    """Fill `view` from byte `offset` of a file, as `reader` does."""
    with reader(path) as fill:
        fill(offset, view)


class WindowFile(io.RawIOBase):
    """A window as a seekable, read-only file, for readers that want one (zip archives)."""

    def __init__(self, window: Window):
        super().__init__()
        self._window = window
        self._at = 0
        self._file = open(window.path, "rb", buffering=0)  # noqa: PTH123, SIM115 - closed with this object

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position of the window."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._window.size}[whence]
        if base + offset < 0:
            raise OSError("a position before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Position inside the window."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; a size beyond the end allocates no more than there is."""
        left = max(0, self._window.size - self._at)
        buffer = bytearray(left if size is None or size < 0 else min(size, left))
        done = 0
        while done < len(buffer) and (count := self.readinto(memoryview(buffer)[done:])):
            done += count
        return bytes(buffer[:done])

    def readinto(self, buffer) -> int:
        """Read up to the end of the window."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._window.size - self._at))
        self._file.seek(self._window.start + self._at)
        done = self._file.readinto(view[:count]) or 0
        self._at += done
        return done

    def close(self) -> None:
        """Close the file below."""
        self._file.close()
        super().close()


class Stream(io.BufferedReader):
    """A buffered window in which a length that lies is cut to what is left, before anything is allocated."""

    LINE = 1 << 20

    def __init__(self, raw: WindowFile, size: int):
        super().__init__(raw, 1 << 16)
        self._size = size

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes and at most what is left."""
        left = max(0, self._size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))

    def readline(self, size: int | None = -1, /) -> bytes:
        """One line, cut after 1 MiB."""
        return super().readline(self.LINE if size is None or size < 0 else min(size, self.LINE))
