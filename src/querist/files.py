"""Files that are whole or absent: atomic writes, an advisory lock, content fingerprints, names for keys.

Every write goes to a temporary name in the same folder, is flushed to the disk and renamed into place, so a reader
never sees half a file and a crash leaves either the old content or the new.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from querist.errors import BadOption, RunBusy

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = [
    "Lock",
    "encode_key",
    "fingerprint",
    "fingerprint_array",
    "flush_folder",
    "is_temporary",
    "move_folder",
    "replacing",
    "temporary_folder",
    "write_arrays",
    "write_bytes",
    "write_frame",
    "write_json",
    "write_text",
]

_CHUNK = 1 << 20
_MARK = ".querist-"
_LONGEST = 200  # bytes: file systems stop at 255, and a temporary name adds a mark, digits and an ending


# ---------------------------------------------------------------------------------------------------------- writing


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what is written there is flushed and renamed to `path` on a clean exit.

    On an exception the temporary file is removed and `path` is left as it was. Folders above are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{_MARK}{secrets.token_hex(8)}{path.suffix[:16]}"
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - tests put a fault here, by this name
        flush_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write bytes to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path | str, text: str) -> None:
    """Write text to `path` as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path | str, value: Any) -> None:
    """Write a plain JSON value, whole or not at all. NaN and infinity raise ValueError: they are no JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_frame(path: Path | str, frame: pl.DataFrame) -> None:
    """Write a frame as Parquet (zstd), whole or not at all."""
    with replacing(path) as temporary:
        frame.write_parquet(temporary, compression="zstd")


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as an uncompressed .npz, whole or not at all. Arrays of Python objects raise ValueError."""
    import numpy as np

    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"array {name} holds Python objects")
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: np.asarray(array) for name, array in arrays.items()})  # pyright: ignore[reportArgumentType]


def move_folder(source: Path, target: Path) -> None:
    """Flush every file of `source` and rename the folder to `target`; a folder already there is removed first."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            _flush(path)
    flush_folder(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(target)
    os.replace(source, target)  # noqa: PTH105 - tests put a fault here, by this name
    flush_folder(target.parent)


def temporary_folder(parent: Path) -> Path:
    """A new folder in `parent` that `is_temporary` knows for the leftover of a write that was cut off."""
    folder = parent / f"{_MARK}{secrets.token_hex(8)}"
    folder.mkdir()
    return folder


def is_temporary(path: Path) -> bool:
    """Whether a path is the leftover of a write that was cut off."""
    return path.name.startswith(_MARK)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Make renames inside a folder last through a power cut. File systems that cannot do it are left alone."""
    with suppress(OSError):
        _flush(folder)


# ------------------------------------------------------------------------------------------------------------- lock


class Lock:
    """An advisory lock on a folder, held by one process; it ends with the process, however that ends.

    Raises RunBusy, naming the holder's process and host, where another one holds it, and BadOption on a file system
    without locks. The lock file is removed when the lock is given back.
    """

    NAME = ".lock"

    def __init__(self, folder: Path):
        self.path = Path(folder) / self.NAME
        self._descriptor: int | None = None

    def __enter__(self) -> Lock:
        import fcntl

        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                text = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip()
                os.close(descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise BadOption(
                        "The file system of this folder has no locks",
                        value=str(self.path.parent),
                        mend="Use a folder on a local disk",
                    ) from None
                raise RunBusy(
                    f"Another process writes to this run folder ({text or 'it has only just begun'})",
                    value=str(self.path.parent),
                    mend="Wait until it ends, or use another folder",
                ) from None
            except BaseException:
                os.close(descriptor)
                raise
            # The holder before us may have removed the file between our open and our lock: then we locked a ghost.
            try:
                same = os.fstat(descriptor).st_ino == os.stat(self.path).st_ino  # noqa: PTH116
            except FileNotFoundError:
                same = False
            if same:
                break
            os.close(descriptor)
        os.ftruncate(descriptor, 0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            with suppress(FileNotFoundError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = None


# ----------------------------------------------------------------------------------------------------- fingerprints


def fingerprint(path: Path | str) -> str:
    """`sha256:<hex>` of a file's bytes, or of a folder's relative names and bytes in order.

    Raises FileNotFoundError.
    """
    path = Path(path)
    digest = hashlib.sha256()
    if not path.is_dir():
        _feed(digest, path)
        return f"sha256:{digest.hexdigest()}"
    for file in sorted(path.rglob("*"), key=lambda file: file.relative_to(path).as_posix()):
        if file.is_file():
            name = file.relative_to(path).as_posix().encode()
            digest.update(f"{len(name)}:{file.stat().st_size}:".encode() + name)
            _feed(digest, file)
    return f"sha256:{digest.hexdigest()}"


def fingerprint_array(array: np.ndarray) -> str:
    """`sha256:<hex>` of an array's dtype, shape and values, whatever its strides and byte order."""
    import numpy as np

    array = np.asarray(array)
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects has no fingerprint")
    kind = array.dtype.newbyteorder("<")
    digest = hashlib.sha256(f"{kind.str}:{array.shape}:".encode())
    digest.update(np.ascontiguousarray(array, dtype=kind).reshape(-1).view(np.uint8).data)
    return f"sha256:{digest.hexdigest()}"


def _feed(digest: Any, path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_CHUNK)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])


# ------------------------------------------------------------------------------------------------------------- keys


def encode_key(key: str) -> str:
    """A unit's key as one file name: percent-encoded, and cut with a checksum where it would be too long.

    Letters, digits and `-_.~` stay as they are; a leading dot is encoded, so no key is hidden or leads upwards.

    >>> encode_key("layer1.0/conv weight")
    'layer1.0%2Fconv%20weight'
    """
    name = quote(key, safe="", errors="surrogatepass")
    if not name or name.startswith("."):
        name = "%2E" + name[1:] if name else "%"
    if len(name) > _LONGEST:
        check = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: _LONGEST - 35].rstrip('%')}%~{check}"
    return name
