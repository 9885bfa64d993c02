"""Rows that a training goes through many times: held in memory, or in a file above a bound; pictures cut into shuffled blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from querist.errors import BadOption
from querist.features.errors import LabelsNeeded
from querist.features.inputs import named
from querist.statistics import stream

if TYPE_CHECKING:
    from torch import Tensor

    from querist.sources.data import Batch, Data
    from querist.sources.tensors.ref import PassedOver

__all__ = ["Held", "Room", "hold", "shuffled_blocks"]


class Room:
    """Memory for held rows: what no longer fits into `bytes` goes into files of `folder`, which are mapped.

    Without a folder everything is held in memory.
    """

    def __init__(self, bytes: int, folder: Path | None = None):
        self.left, self.folder, self.files = bytes, folder, 0

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """An array to be filled."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size <= self.left or self.folder is None or not size:
            self.left -= size
            return np.empty(tuple(shape), dtype)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        path = self.folder / f"held-{self.files:03d}.npy"
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=tuple(shape))


@dataclass(frozen=True)
class Held:
    """Rows of a data set: `inputs` by name (see `named`), `labels` [n] as codes 0 … K − 1, `ids` [n]."""

    inputs: Mapping[str, np.ndarray]
    labels: Int[np.ndarray, "n"]
    ids: Int[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.ids)

    def tensors(self, rows: Any) -> dict[str, Tensor]:
        """Inputs of these rows (a slice or row numbers) by name, copied."""
        import torch

        return {name: torch.from_numpy(np.array(values[rows])) for name, values in self.inputs.items()}


def hold(data: Data, ids: np.ndarray, classes: np.ndarray, room: Room, *, batch_size: int = 128) -> Held:
    """Read rows of labelled data; rows that cannot be read are left out (`Data.passed_over` has them).

    classes: the labels that there are, sorted; labels become places in it. Raises LabelsNeeded, CorruptFile, TooFewRows.
    """
    from querist.sources.data import batches

    arrays: dict[str, np.ndarray] = {}
    kept: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    done = 0
    for batch in batches(data, ids, batch_size):
        if batch.labels is None:
            raise no_labels(data.name)
        for name, value in named(batch.inputs).items():
            rows = value.detach().cpu().numpy()
            if name not in arrays:
                arrays[name] = room.array((len(ids), *rows.shape[1:]), rows.dtype)
            arrays[name][done : done + len(rows)] = rows
        done += len(batch.ids)
        kept.append(batch.ids)
        labels.append(np.searchsorted(classes, batch.labels))
    return Held({name: values[:done] for name, values in arrays.items()}, np.concatenate(labels), np.concatenate(kept))


def no_labels(name: str) -> LabelsNeeded:
    """The error for data without labels."""
    return LabelsNeeded(
        "The target has no labels, which training and scores need",
        value=name,
        allowed="data with labels",
        mend="Give them: folder: (a folder for each class), idx:IMAGES,LABELS, npz:FILE?x=…&y=…, a pair of rows and labels",
    )


def shuffled_blocks(data: Data, side: int, *, seed: int = 0) -> Data:
    """Data whose pictures are cut into square blocks of `side` pixels that are put together in another order.

    The order depends on the seed and the picture's id alone, so a picture is the same whenever it is read. What a network
    could use of a picture's parts is then no longer there, while the statistics of single pixels are. Raises BadOption for
    data that are no pictures, and while reading where a side is no multiple of the block's.

    Source: Neyshabur, Sedghi & Zhang (2020), section 3.1.
    """
    if data.kind != "images":
        raise BadOption("Only pictures can be cut into blocks", value=data.kind, mend="Leave out --block-shuffle")

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        batch, broken = data.fetch(ids)
        return (
            replace(batch, inputs=_shuffled(batch.inputs, batch.ids, side, seed)) if len(batch.ids) else batch
        ), broken

    return replace(data, fetch=fetch, source=f"{data.source} in blocks of {side}")


def _shuffled(pictures: Tensor, ids: np.ndarray, side: int, seed: int) -> Tensor:
    import torch

    b, c, h, w = pictures.shape
    if h % side or w % side:
        raise BadOption(
            "Pictures cannot be cut into whole blocks",
            value=f"{h} x {w} pixels into blocks of {side}",
            allowed="a divisor of both sides",
            mend="Change --block-shuffle or --size",
        )
    rows, columns = h // side, w // side
    blocks = pictures.reshape(b, c, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
    blocks = blocks.reshape(b, rows * columns, c, side, side)
    drawn = [stream(seed, "block-shuffle", one, rows * columns).permutation(rows * columns) for one in ids.tolist()]
    order = torch.from_numpy(np.stack(drawn))
    mixed = blocks[torch.arange(b)[:, None], order].reshape(b, rows, columns, c, side, side)
    return mixed.permute(0, 3, 1, 4, 2, 5).reshape(b, c, h, w).contiguous()
