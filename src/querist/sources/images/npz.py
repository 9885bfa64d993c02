"""Numpy archives: arrays of pictures, and JPEG files joined in one array with their offsets."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from querist.errors import CorruptFile, ShapeMismatch, SourceNotFound, UnknownName, near
from querist.sources.address import Address
from querist.sources.data import Data
from querist.sources.images.pictures import Broken, as_labels, as_stack, decode, pictures_data, stack_data
from querist.sources.images.transform import Transform

__all__ = ["open_npz"]

_ROWS = ("x", "images", "image", "data", "jpeg", "array")
_LABELS = ("y", "labels", "label", "targets")


def open_npz(address: Address, transform: Transform) -> Data:
    """`npz:FILE[?x=images&y=labels][#split]`: with a split, `x_SPLIT` and `y_SPLIT`.

    `jpeg` (bytes of all files), `offset` (n + 1 places in it) and `label` are pictures still encoded. Raises SourceNotFound,
    UnknownName for arrays that are not there, CorruptFile, ShapeMismatch.
    """
    address.only(["x", "y"], split=True)
    path = Path(address.path).expanduser()
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    with _archive(path) as archive:
        names = archive.files
        x = _chosen(address, "x", _ROWS, names, path)
        y = (
            _chosen(address, "y", _LABELS, names, path)
            if address.option("y") or _maybe(address, _LABELS, names)
            else None
        )
        rows = _array(archive, x, path)
        labels = _array(archive, y, path) if y else None
        offset = _array(archive, "offset", path) if x == "jpeg" and "offset" in names else None
    if offset is not None:
        return _encoded(str(address), rows, offset, labels, transform, path)
    stack = as_stack(rows, f"{path}: {x}")
    found, classes = as_labels(labels, len(stack), f"{path}: {y}") if labels is not None else (None, None)
    return stack_data(str(address), stack, found, classes, transform)


def _encoded(
    name: str, content: np.ndarray, offset: np.ndarray, labels: np.ndarray | None, transform: Transform, path: Path
) -> Data:
    if (
        offset.ndim != 1
        or offset.dtype.kind not in "iu"
        or len(offset) < 2
        or np.any(np.diff(offset.astype(np.int64)) < 0)
    ):
        raise CorruptFile("The offsets are no ascending places", value=str(path))
    offset = offset.astype(np.int64)
    if offset[0] < 0 or offset[-1] > content.size:
        whole = int(np.searchsorted(offset, content.size, side="right")) - 1
        raise CorruptFile(
            f"The joined pictures end at byte {content.size}, the offsets at {offset[-1]}: {max(whole, 0)} of {len(offset) - 1} are whole",
            value=str(path),
        )
    found, classes = as_labels(labels, len(offset) - 1, f"{path}: label") if labels is not None else (None, None)
    content = np.ascontiguousarray(content, dtype=np.uint8).reshape(-1)

    def get(one: int) -> np.ndarray:
        start, stop = int(offset[one]), int(offset[one + 1])
        try:
            return decode(content[start:stop].tobytes(), f"{path}: picture {one}")
        except Broken as error:
            raise Broken(error.what, f"{error.reason} (bytes {start} to {stop})") from None

    return pictures_data(name, get, len(offset) - 1, found, classes, transform)


@contextmanager
def _archive(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    with path.open("rb") as file:
        try:
            found = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise CorruptFile(
                f"The numpy archive of {path.stat().st_size} bytes is damaged or ends early ({str(error)[:100]})",
                value=str(path),
            ) from None
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise CorruptFile(
                "The file is one array and no archive of arrays",
                value=str(path),
                mend="Save it with numpy.savez(file, x=..., y=...)",
            )
        with found:
            yield found


def _array(archive: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        return archive[name]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise CorruptFile(f"The array {name} cannot be read ({str(error)[:100]})", value=str(path)) from None


def _spelled(address: Address, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}_{address.split}" for name in names) if address.split else names


def _maybe(address: Address, known: tuple[str, ...], names: list[str]) -> str | None:
    return next((name for name in _spelled(address, known) if name in names), None)


def _chosen(address: Address, key: str, known: tuple[str, ...], names: list[str], path: Path) -> str:
    name = address.option(key) or _maybe(address, known, names)
    if name is None or name not in names:
        if not names:
            raise ShapeMismatch("The archive holds no arrays", value=str(path))
        raise UnknownName(
            f"No array of this name in {path}",
            value=name or " or ".join(_spelled(address, known)),
            allowed=near(name or known[0], names, 12),
            mend=f"Name it with ?{key}=ARRAY",
        )
    return name
