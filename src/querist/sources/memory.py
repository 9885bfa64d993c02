"""Data sets that are already objects: arrays, tensors, dicts of tensors, torch Datasets, iterables of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from querist.errors import BadOption, MemoryBound, ShapeMismatch, TooFewRows
from querist.sources.data import Batch, Data
from querist.sources.images.pictures import as_labels, as_stack, stack_data
from querist.sources.images.transform import Transform
from querist.sources.tensors.ref import PassedOver

__all__ = ["in_memory"]

LARGEST = 4 << 30
"""Bytes that an iterable of batches may hold: it is read whole, since it has no ids to choose from."""


def in_memory(what: Any, transform: Transform) -> Data:
    """Open an object as data.

    Byte arrays of pictures go through the transform; floating tensors [n, ...] are taken as they are unless an option of the
    transform is set. Raises BadOption, ShapeMismatch, TooFewRows, MemoryBound.
    """
    import torch

    if isinstance(what, Data):
        return what
    if isinstance(what, np.ndarray | torch.Tensor):
        return _rows(what, None, transform)
    if isinstance(what, Mapping):
        return _tensors({str(key): value for key, value in what.items()})
    if isinstance(what, tuple) and len(what) == 2 and all(isinstance(item, np.ndarray | torch.Tensor) for item in what):
        return _rows(what[0], np.asarray(what[1]), transform)
    if hasattr(what, "__getitem__") and hasattr(what, "__len__") and not isinstance(what, str | bytes | list | tuple):
        return _dataset(what, transform)
    if isinstance(what, Iterable) and not isinstance(what, str | bytes):
        return _iterated(what, transform)
    raise BadOption(
        "These are no data",
        value=type(what).__qualname__,
        allowed="an address, an array or tensor, (rows, labels), a dict of tensors, a Dataset, an iterable of batches",
    )


def _rows(what: Any, labels: np.ndarray | None, transform: Transform) -> Data:
    import torch

    if not what.ndim or not len(what):
        raise TooFewRows("There are no rows in these data", value=list(what.shape), allowed="1 row or more")
    found, classes = as_labels(labels, len(what), "given") if labels is not None else (None, None)
    if transform == Transform() and isinstance(what, torch.Tensor | np.ndarray) and _kind(what) != "uint8":
        return _tensor(torch.as_tensor(what), found, classes)
    array = what.detach().cpu().numpy() if isinstance(what, torch.Tensor) else what
    return stack_data("array", as_stack(array, "The array"), found, classes, transform)


def _kind(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _tensor(rows: Any, labels: np.ndarray | None, classes: tuple[str, ...] | None) -> Data:
    import torch

    kind = "images" if rows.ndim == 4 else "rows" if rows.is_floating_point() else "tokens"

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        return Batch(ids, rows[torch.from_numpy(ids)].detach(), None if labels is None else labels[ids]), []

    return Data("array", np.arange(len(rows)), fetch, kind, classes)


def _tensors(tensors: dict[str, Any]) -> Data:
    import torch

    found = {key: torch.as_tensor(value) for key, value in tensors.items()}
    labels = found.pop("labels", None)
    lengths = {len(value) for value in found.values() if value.ndim}
    if len(lengths) != 1 or any(not value.ndim for value in found.values()):
        raise ShapeMismatch(
            "The tensors have different numbers of rows", value={key: list(v.shape) for key, v in found.items()}
        )
    count = lengths.pop()
    if not count:
        raise TooFewRows("There are no rows in these data", value=0, allowed="1 row or more")
    classes = as_labels(np.asarray(labels), count, "labels")[0] if labels is not None else None

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        rows = torch.from_numpy(ids)
        return Batch(
            ids, {key: value[rows] for key, value in found.items()}, None if classes is None else classes[ids]
        ), []

    return Data("tensors", np.arange(count), fetch, "tokens")


def _dataset(dataset: Any, transform: Transform) -> Data:
    """A map-style dataset: an item is a row, (row, label, ...), or a dict of tensors that may hold `labels`."""
    if not len(dataset):
        raise TooFewRows("The dataset is empty", value=0, allowed="1 row or more")
    first = _item(dataset[0], transform)
    kind = "tokens" if isinstance(first[0], Mapping) else "images" if np.ndim(first[0]) >= 3 else "rows"
    names = getattr(dataset, "classes", None)

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        import torch

        items = [_item(dataset[one], transform) for one in ids.tolist()]
        rows = [row for row, _ in items]
        marks = [mark for _, mark in items]
        labels = np.asarray(marks, dtype=np.int64) if marks and all(mark is not None for mark in marks) else None
        try:
            if rows and isinstance(rows[0], Mapping):
                return Batch(
                    ids, {key: torch.stack([torch.as_tensor(row[key]) for row in rows]) for key in rows[0]}, labels
                ), []
            return Batch(
                ids, torch.stack([torch.as_tensor(row) for row in rows]) if rows else torch.empty(0), labels
            ), []
        except RuntimeError as error:
            raise ShapeMismatch(
                "The rows of the dataset have different shapes",
                value=str(error).splitlines()[0][:150],
                mend="Give --size, or rows of one shape",
            ) from None

    classes = tuple(str(name) for name in names) if isinstance(names, list | tuple) else None
    return Data(type(dataset).__qualname__, np.arange(len(dataset)), fetch, kind, classes)


def _item(item: Any, transform: Transform) -> tuple[Any, int | None]:
    """One row and its label. Pictures of Pillow, and bytes [h, w, c], go through the transform."""
    label = None
    if isinstance(item, Mapping):
        item = dict(item)
        label = item.pop("labels", item.pop("label", None))
        return item, None if label is None else int(label)
    row = item
    if isinstance(item, tuple | list) and len(item):
        row = item[0]
        label = int(item[1]) if len(item) > 1 and np.ndim(item[1]) == 0 else None
    if hasattr(row, "convert") and hasattr(row, "mode"):
        row = np.asarray(row if row.mode in ("L", "RGB") else row.convert("RGB"))
    if isinstance(row, np.ndarray) and row.dtype == np.uint8 and row.ndim in (2, 3):
        row = transform(row.reshape(1, *row.shape[:2], -1))[0]
    return row, label


def _iterated(what: Iterable[Any], transform: Transform) -> Data:
    """An iterable of batches (rows, or (rows, labels), or dicts), joined."""
    import torch

    rows: list[Any] = []
    labels: list[np.ndarray] = []
    size = 0
    for batch in what:
        pair = isinstance(batch, tuple | list) and len(batch) == 2
        row = batch[0] if pair else batch
        if isinstance(row, Mapping):
            row = {key: torch.as_tensor(value) for key, value in row.items()}
            size += sum(value.numel() * value.element_size() for value in row.values())
        else:
            row = torch.as_tensor(row)
            size += row.numel() * row.element_size()
        if size > LARGEST:
            raise MemoryBound(
                "An iterable of batches is read whole, and this one is too large",
                value=f"more than {LARGEST} bytes",
                mend="Give a Dataset with a length, which is read batch by batch",
            )
        rows.append(row)
        if pair:
            labels.append(np.asarray(batch[1]).reshape(-1))
    if not rows:
        raise TooFewRows("The iterable gives no batch", value=0, allowed="1 batch or more")
    if isinstance(rows[0], Mapping):
        longest = {key: max(row[key].shape[1] for row in rows) if rows[0][key].ndim > 1 else 0 for key in rows[0]}
        joined = {key: torch.cat([_padded(row[key], side) for row in rows]) for key, side in longest.items()}
        return _tensors(joined | ({"labels": torch.as_tensor(np.concatenate(labels))} if labels else {}))
    try:
        return _rows(torch.cat(rows), np.concatenate(labels) if len(labels) == len(rows) else None, transform)
    except RuntimeError as error:
        raise ShapeMismatch(
            "The batches have rows of different shapes", value=str(error).splitlines()[0][:150]
        ) from None


def _padded(value: Any, side: int) -> Any:
    import torch

    return (
        torch.nn.functional.pad(value, (0, side - value.shape[1]))
        if value.ndim == 2 and value.shape[1] < side
        else value
    )
