"""From pictures on disk or in memory to a data set: decoding, labels, what cannot be read."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from querist.errors import BadValues, ShapeMismatch
from querist.sources.data import Batch, Data
from querist.sources.images.transform import Transform
from querist.sources.tensors.ref import PassedOver

__all__ = ["Broken", "as_labels", "as_stack", "decode", "pictures_data", "stack_data"]


class Broken(Exception):
    """One picture that cannot be read: where it is, and why."""

    def __init__(self, what: str, reason: str):
        super().__init__(what, reason)
        self.what, self.reason = what, reason


def decode(content: bytes | Any, what: str) -> np.ndarray:
    """One encoded picture, bytes or an open file, as [h, w, c]: 1, 3 or 4 channels of bytes, or 1 of 16 bits. Raises Broken."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
                if image.mode in ("I;16", "I;16B", "I;16L"):
                    return np.asarray(image).astype(np.uint16)[..., None]
                mode = "L" if image.mode in ("L", "1") else "RGB" if image.mode != "LA" else "L"
                return np.asarray(image.convert(mode)).reshape(image.height, image.width, -1)
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise Broken(what, (str(error).splitlines() or [type(error).__name__])[0][:150]) from None


def pictures_data(
    name: str,
    get: Callable[[int], np.ndarray],
    count: int,
    labels: np.ndarray | None,
    classes: Sequence[str] | None,
    transform: Transform,
) -> Data:
    """Pictures read one at a time by `get(id)`, which may raise Broken."""

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        kept, pictures, broken = [], [], []
        for one in ids.tolist():
            try:
                pictures.append(get(one))
                kept.append(one)
            except Broken as error:
                broken.append(PassedOver(error.what, None, None, error.reason))
        return _batch(np.asarray(kept, dtype=np.int64), pictures, labels, transform), broken

    return Data(name, np.arange(count), fetch, "images", tuple(classes) if classes else None)


def stack_data(
    name: str, stack: np.ndarray, labels: np.ndarray | None, classes: Sequence[str] | None, transform: Transform
) -> Data:
    """Pictures in one array [n, h, w, c], or rows of numbers [n, d]."""
    if stack.ndim == 2:

        def rows(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
            import torch

            found = torch.from_numpy(np.ascontiguousarray(stack[ids], dtype=np.float32))
            return Batch(ids, found, None if labels is None else labels[ids]), []

        return Data(name, np.arange(len(stack)), rows, "rows", tuple(classes) if classes else None)

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        return _batch(ids, stack[ids], labels, transform), []

    return Data(name, np.arange(len(stack)), fetch, "images", tuple(classes) if classes else None)


def _batch(ids: np.ndarray, pictures: Any, labels: np.ndarray | None, transform: Transform) -> Batch:
    import torch

    if not len(ids):
        return Batch(ids, torch.empty(0), None if labels is None else labels[ids])
    return Batch(ids, torch.from_numpy(transform(pictures)), None if labels is None else labels[ids])


def as_stack(array: np.ndarray, what: str) -> np.ndarray:
    """An array of pictures as [n, h, w, c], of rows as [n, d].

    [n, h, w] is grey. Of four axes the one of length 1, 3 or 4 holds the channels: the last where both could. Raises
    ShapeMismatch, BadValues for what are no numbers.
    """
    if array.dtype.kind not in "buif":
        raise BadValues(f"{what} holds no numbers", value=str(array.dtype))
    if array.dtype.kind == "b":
        array = array.astype(np.float32)
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4:
        if array.shape[3] in (1, 3, 4):
            return array
        if array.shape[1] in (1, 3, 4):
            return array.transpose(0, 2, 3, 1)
    if array.ndim == 2:
        return array
    raise ShapeMismatch(
        f"{what} is no stack of pictures or rows",
        value=list(array.shape),
        allowed="[n, h, w], [n, h, w, c], [n, c, h, w] or [n, d]",
    )


def as_labels(values: np.ndarray, count: int, what: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Labels as int64 [n] and the names of the classes, where they are given as texts (sorted).

    Raises ShapeMismatch where their number is not that of the rows, BadValues for fractions and missing ones.
    """
    values = np.asarray(values)
    if values.ndim == 2 and 1 in values.shape:
        values = values.reshape(-1)
    if values.shape != (count,):
        raise ShapeMismatch(
            f"The labels {what} do not belong to the rows", value=list(values.shape), allowed=f"[{count}]"
        )
    if values.dtype.kind in "OUS":
        if any(value is None for value in values.tolist()):
            raise BadValues(f"The labels {what} have missing values", value="null")
        names, found = np.unique(values.astype(str), return_inverse=True)
        return found.astype(np.int64), tuple(str(name) for name in names)
    if values.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
        raise BadValues(
            f"The labels {what} are no classes",
            value=str(values[values != np.rint(values)][0]),
            allowed="whole numbers or texts",
        )
    return values.astype(np.int64), None
