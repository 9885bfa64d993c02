"""Batches of rows in an order that depends on seed and epoch alone, shared out over processes and micro-batches.

One optimiser step takes `batch_size` rows, however many processes and micro-batches share them: the rows of a step are
cut into one run of rows per process and each of those into one per micro-batch, so their union is always the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from querist.errors import BadOption, BadValues, ShapeMismatch, TooFewRows
from querist.statistics.streams import stream
from querist.training.random_state import kept, seed_all

if TYPE_CHECKING:
    import torch

__all__ = ["Batches", "Rows", "rows_of", "split", "to_device"]


class Batches(Protocol):
    """Where a training's batches come from, for sources that `fit` does not know itself (tables larger than memory).

    steps: optimiser steps per epoch, None where that is unknown.
    """

    steps: int | None

    def describe(self) -> Mapping[str, Any]:
        """A JSON value that differs where the data or their order differ; a resumed training must find the same."""
        ...

    def epoch(self, epoch: int, skip: int, rank: int, processes: int, accumulate: int) -> Iterator[list[Any]]:
        """This process's part of each step of an epoch (from 0), without the first `skip` steps.

        A step is a list of at most `accumulate` micro-batches; an empty list where this process has no rows. Processes
        may end after different numbers of steps.
        """
        ...


Load = Callable[[Iterable[list[tuple[int, int]]]], Iterator[Any]]


@dataclass
class Rows:
    """Batches of a map-style source: `fetch(rows, epoch)` gives one batch of these row numbers.

    rows: the row numbers that are used. workers: None, or what starts a reader of whole lists of batches in processes of
    its own; each `Rows` has its own reader, since one reader reads one list at a time.
    """

    rows: np.ndarray
    fetch: Callable[[np.ndarray, int], Any]
    about: Callable[[], Mapping[str, Any]]
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    workers: Callable[[], Load] | None = None
    _load: Load | None = field(default=None, init=False, repr=False)

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        whole, rest = divmod(len(self.rows), self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def describe(self) -> dict[str, Any]:
        """See `Batches.describe`."""
        return {
            **self.about(),
            "used": hashlib.sha256(self.rows.tobytes()).hexdigest()[:16],
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.seed,
        }

    def order(self, epoch: int) -> np.ndarray:
        """Row numbers in the order of an epoch."""
        if not self.shuffle:
            return self.rows
        return self.rows[stream(self.seed, "training", "order", epoch).permutation(len(self.rows))]

    def epoch(self, epoch: int, skip: int, rank: int, processes: int, accumulate: int) -> Iterator[list[Any]]:
        """See `Batches.epoch`."""
        order, size = self.order(epoch), self.batch_size
        steps = range(skip, self.steps)

        def parts() -> Iterator[list[np.ndarray]]:
            return (_part(order[step * size : (step + 1) * size], rank, processes, accumulate) for step in steps)

        if self.workers is None:
            for part in parts():
                yield [self.fetch(rows, epoch) for rows in part]
            return
        self._load = self._load or self.workers()
        loaded = self._load([(epoch, int(row)) for row in rows] for part in parts() for rows in part)
        for part in parts():
            yield [next(loaded) for _ in part]


def _part(rows: np.ndarray, rank: int, processes: int, accumulate: int) -> list[np.ndarray]:
    own = np.array_split(rows, processes)[rank] if processes > 1 else rows
    return (
        [micro for micro in np.array_split(own, accumulate) if len(micro)] if accumulate > 1 else [own] * bool(len(own))
    )


def split(source: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Part of the rows, drawn with the seed, set aside for validation: (to train on, to validate on)."""
    if not 0 < fraction < 1:
        raise BadOption("The share of rows to validate on is none", value=fraction, allowed="above 0 and below 1")
    count = max(1, round(fraction * len(source.rows)))
    if count >= len(source.rows):
        raise TooFewRows("No rows are left to train on", value=len(source.rows), allowed="at least 2 rows")
    drawn = stream(seed, "training", "validation").permutation(len(source.rows))
    return (
        replace(source, rows=np.sort(source.rows[drawn[count:]])),
        replace(source, rows=np.sort(source.rows[drawn[:count]]), shuffle=False, drop_last=False),
    )


def rows_of(
    data: Any,
    batch_size: int,
    *,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    rows: np.ndarray | None = None,
    what: str = "batches",
) -> Rows | Batches:
    """Rows of tensors or of a map-style data set; an object with `epoch` and `describe` is a source already.

    data: a tensor or array, a tuple or list of them, a dict of them (first axes agree; a batch has the same form), or
    anything with `__len__` and `__getitem__`. Rows of the latter are read one by one with the global generators seeded by
    (seed, epoch, row), so random transforms do not depend on workers, processes or restarts, and joined by `collate`
    (torch's default one). Where there are `fetch(rows)`, which makes a whole batch of row numbers, and `about()`, a JSON value that
    differs where the data do, a table is trained on whose batches nobody holds. rows: numbers of those that are used, in the order
    of an epoch without shuffling; a part of a table is so trained on without a copy of it.

    Raises BadOption, BadValues, ShapeMismatch, TooFewRows.
    """
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    if callable(getattr(data, "epoch", None)) and callable(getattr(data, "describe", None)):
        return data
    if isinstance(data, DataLoader | IterableDataset | Iterator):
        raise BadOption(
            f"The order of {what} cannot be taken up again in the middle",
            value=type(data).__name__,
            allowed="tensors, a dict or tuple of tensors, a map-style Dataset, or an object with `epoch` and `describe`",
            mend="Pass the DataLoader's dataset and batch_size" if isinstance(data, DataLoader) else None,
        )
    if type(batch_size) is not int or batch_size < 1:
        raise BadOption("A batch has at least one row", value=batch_size, allowed="batch_size >= 1")
    if isinstance(data, TensorDataset):
        data = data.tensors
    whole = callable(getattr(data, "fetch", None)) and callable(getattr(data, "about", None))
    if whole or _columns(data):
        if workers or collate:
            raise BadOption(
                "Tensors need neither workers nor collate",
                value=f"workers={workers}, collate={collate}",
                mend="Leave out",
            )
        count, fetch, about = (len(data), _fetched(data), data.about) if whole else _tensors(data, what)
        start = None
    else:
        count, fetch, about, start = _dataset(data, seed, collate, workers, what)
    used = np.arange(count) if rows is None else rows
    if used.size == 0:
        raise TooFewRows(f"There are no rows in {what}", value=0, allowed="at least 1 row")
    made = Rows(used, fetch, about, batch_size, seed, shuffle, drop_last, start)
    if made.steps == 0:
        raise TooFewRows(
            f"Every batch of {what} would be dropped",
            value=used.size,
            allowed=f"at least {batch_size} rows with drop_last",
        )
    return made


# ---------------------------------------------------------------------------------------------------------- tensors


def _column(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor | np.ndarray)


def _columns(data: Any) -> bool:
    if isinstance(data, Mapping):
        return True
    return _column(data) or (isinstance(data, tuple | list) and bool(data) and all(map(_column, data)))


def _fetched(data: Any) -> Callable[[np.ndarray, int], Any]:
    return lambda rows, epoch: data.fetch(rows)


def _tensors(data: Any, what: str) -> tuple[int, Callable[[np.ndarray, int], Any], Callable[[], dict[str, Any]]]:
    import torch

    if isinstance(data, Mapping):
        named = {str(key): _tensor(value, f"{what}[{key!r}]") for key, value in data.items()}
    elif _column(data):
        named = {"": _tensor(data, what)}
    else:
        named = {str(i): _tensor(value, f"{what}[{i}]") for i, value in enumerate(data)}
    counts = {name: len(value) for name, value in named.items()}
    if len(set(counts.values())) > 1:
        raise ShapeMismatch(
            f"The tensors of {what} have different numbers of rows",
            value=", ".join(f"{name}: {count}" for name, count in counts.items()),
            allowed="first axes of one length",
        )

    def fetch(rows: np.ndarray, epoch: int) -> Any:
        index = torch.from_numpy(np.ascontiguousarray(rows))
        taken = {name: value.index_select(0, index.to(value.device)) for name, value in named.items()}
        if isinstance(data, Mapping):
            return dict(zip(data, taken.values(), strict=True))
        return taken[""] if _column(data) else tuple(taken.values())

    def about() -> dict[str, Any]:
        return {
            "rows": next(iter(counts.values()), 0),
            "columns": {name: _about(value) for name, value in named.items()},
        }

    return next(iter(counts.values()), 0), fetch, about


def _tensor(value: Any, where: str) -> torch.Tensor:
    import torch

    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise BadValues(f"{where} holds no numbers", value=str(value.dtype), allowed="an array of numbers")
        native = value.astype(value.dtype.newbyteorder("="), copy=not value.flags.writeable)
        value = torch.from_numpy(native if native.ndim == 0 else np.ascontiguousarray(native))
    if not isinstance(value, torch.Tensor):
        raise BadValues(f"{where} is no tensor", value=type(value).__name__, allowed="tensors and arrays")
    if value.ndim == 0:
        raise ShapeMismatch(f"{where} has no rows", value="a single number", allowed="a first axis of rows")
    return value.detach()


def _about(value: torch.Tensor) -> dict[str, Any]:
    import torch

    raw = value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "checksum": hashlib.sha256(raw.data).hexdigest()[:32],
    }


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with every tensor on the device; dicts, lists and tuples are walked, other things stay."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch


# --------------------------------------------------------------------------------------------------------- data sets


class _Seeded:
    """A data set whose row (epoch, i) is read with global generators seeded for that row."""

    def __init__(self, data: Any, seed: int):
        self.data, self.seed = data, seed

    def __getitem__(self, where: tuple[int, int]) -> Any:
        epoch, row = where
        seed_all(self.seed, "training", "row", epoch, row)
        return self.data[row]


class _Plan:
    """The batches that workers read next; a loader with lasting workers asks for them at the start of each epoch."""

    def __init__(self) -> None:
        self.batches: Iterable[list[tuple[int, int]]] = ()

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)


def _dataset(
    data: Any, seed: int, collate: Callable[[list[Any]], Any] | None, workers: int, what: str
) -> tuple[Any, ...]:
    import torch
    from torch.utils.data import DataLoader, default_collate

    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or isinstance(data, str | bytes):
        raise BadOption(
            f"{what} cannot be read by row",
            value=type(data).__name__,
            allowed="tensors, a dict or tuple of tensors, or a map-style Dataset",
        )
    seeded, join = _Seeded(data, seed), collate or default_collate

    def fetch(rows: np.ndarray, epoch: int) -> Any:
        with kept():
            return join([seeded[epoch, int(row)] for row in rows])

    def about() -> dict[str, Any]:
        return {"rows": len(data), "dataset": f"{type(data).__module__}.{type(data).__qualname__}"}

    if workers == 0:
        return len(data), fetch, about, None

    def start() -> Load:
        plan = _Plan()
        loader: Any = DataLoader(
            seeded,  # pyright: ignore[reportArgumentType]
            batch_sampler=plan,  # pyright: ignore[reportArgumentType]
            num_workers=workers,
            collate_fn=join,
            persistent_workers=True,
            generator=torch.Generator(),  # the loader would else draw from the caller's
        )

        def load(batches: Iterable[list[tuple[int, int]]]) -> Iterator[Any]:
            plan.batches = batches
            return iter(loader)

        return load

    return len(data), fetch, about, start
