"""The idx format of MNIST, plain or gzipped: `idx:IMAGES.gz[,LABELS.gz]`."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from querist.errors import BadOption, CorruptFile, ShapeMismatch, SourceNotFound
from querist.sources.address import Address
from querist.sources.data import Data
from querist.sources.images.pictures import as_labels, as_stack, stack_data
from querist.sources.images.transform import Transform

__all__ = ["open_idx", "read_idx"]

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def open_idx(address: Address, transform: Transform) -> Data:
    """Pictures, with labels where a second file is named. Raises SourceNotFound, CorruptFile, ShapeMismatch."""
    address.only([])
    images, comma, labels = address.path.partition(",")
    stack = read_idx(Path(images).expanduser())
    if stack.ndim not in (2, 3, 4):
        raise ShapeMismatch("This idx file holds no pictures", value=list(stack.shape), allowed="[n, h, w]")
    if comma and not labels:
        raise BadOption("The name of the labels is missing", value=str(address), allowed="idx:IMAGES.gz,LABELS.gz")
    found = as_labels(read_idx(Path(labels).expanduser()), len(stack), labels)[0] if labels else None
    return stack_data(str(address), as_stack(stack, images), found, None, transform)


def read_idx(path: Path) -> np.ndarray:
    """The array of one idx file. Raises SourceNotFound, and CorruptFile with offset and count where it ends early."""
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = _unzipped(raw, path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES:
        raise CorruptFile(
            "The file does not begin as an idx file does",
            value=f"{path}: {raw[:4].hex(' ')}",
            allowed="00 00, a type, the number of axes",
        )
    axes = raw[3]
    begin = 4 + 4 * axes
    if len(raw) < begin or not axes:
        raise CorruptFile(f"The idx file ends in its header, at byte {len(raw)}", value=str(path))
    shape = [int.from_bytes(raw[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(axes)]
    kind = np.dtype(_TYPES[raw[2]])
    need = begin + kind.itemsize * int(np.prod(shape, dtype=object))
    if len(raw) != need:
        row = kind.itemsize * int(np.prod(shape[1:], dtype=object))
        whole = (len(raw) - begin) // row if row else 0
        raise CorruptFile(
            f"The idx file {'ends early' if len(raw) < need else 'goes on'} at byte {min(len(raw), need)}: "
            f"it says {shape[0]} rows and holds {whole}",
            value=str(path),
            mend="Copy or download it again",
        )
    return np.frombuffer(raw, kind, offset=begin).reshape(shape).astype(kind.newbyteorder("="), copy=False)


def _unzipped(raw: bytes, path: Path) -> bytes:
    """All that can be unzipped; a file cut off, or damaged, raises with the byte where it ends."""
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        whole = len(zlib.decompressobj(31).decompress(raw, 1 << 31)) if isinstance(error, EOFError) else 0
        raise CorruptFile(
            f"The gzip file ends early or is damaged ({str(error)[:100]}); {whole} bytes could be read of {len(raw)} compressed ones",
            value=str(path),
            mend="Copy or download it again",
        ) from None
