"""What a network is fed: rows known by lasting ids, read in batches; the one seeded choice of rows; DATA addresses opened.

Every layer and every network sees the same rows: ids are chosen before anything is read, by the order of a hash of the
seed and the id, so that the first n of a data set stay the first n when it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from querist.errors import BadOption, CorruptFile, QueristError, TooFewRows, UnsupportedFormat
from querist.sources.address import Address, parse
from querist.sources.tensors.ref import PassedOver
from querist.statistics import torch_seed

if TYPE_CHECKING:
    from querist.sources.images.transform import Transform

__all__ = ["Batch", "Data", "batches", "choose_ids", "hash_order", "open_data"]

BROKEN = 0.01
"""Part of the rows asked for that may be unreadable; above it reading stops."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a data set: their ids [b], a tensor (or a dict or tuple of them) with b rows, and labels [b] where there are any."""

    ids: Int[np.ndarray, "b"]
    inputs: Any
    labels: Int[np.ndarray, "b"] | None = None


@dataclass(slots=True)
class Data:
    """A data set of rows with ids.

    `ids` are those it offers, absolute in the whole source, so that `#0:100` and `#50:150` share fifty; `kind` is "images",
    "tokens" or "rows"; `classes` the names of the labels; `fetch` reads some ids and returns what it could read, with what
    it could not; `source` names the whole source, without the part.
    """

    name: str
    ids: Int[np.ndarray, "n"]
    fetch: Callable[[np.ndarray], tuple[Batch, list[PassedOver]]]
    kind: str = "images"
    classes: tuple[str, ...] | None = None
    source: str = ""
    passed_over: list[PassedOver] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Sequence[int] | np.ndarray) -> Batch:
        """These rows, those that can be read; others join `passed_over`."""
        batch, broken = self.fetch(np.asarray(ids, dtype=np.int64))
        self.passed_over.extend(broken)
        return batch

    def part(self, rows: tuple[int | None, int | None]) -> Data:
        """Rows a to b of this data set, ids kept. Raises TooFewRows where none is left."""
        ids = self.ids[slice(*rows)]
        if not len(ids):
            raise TooFewRows(
                f"The part {rows[0] or 0}:{rows[1] or ''} of {self.name} is empty", value=f"{len(self.ids)} rows in all"
            )
        spelled = ":".join("" if end is None else str(end) for end in rows)
        return replace(self, ids=ids, name=f"{self.name}#{spelled}")


def hash_order(ids: np.ndarray, seed: int) -> np.ndarray:
    """ids [n] in the order of a seeded 64-bit hash of each (splitmix64 of id and seed; ties cannot occur for distinct ids)."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64) + np.uint64(torch_seed(seed, "rows"))
        x = (x + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ids[np.argsort(x, kind="stable")]


def choose_ids(data: Data, n: int | None, *, seed: int = 0) -> Int[np.ndarray, "n"]:
    """The n ids that come first in hash order (all where n is None or there are fewer), sorted. Raises BadOption for n < 1."""
    if n is not None and n < 1:
        raise BadOption("A number of rows must be at least 1", value=n)
    return np.sort(hash_order(data.ids, seed)[: len(data.ids) if n is None else n])


def batches(data: Data, ids: np.ndarray, batch_size: int) -> Iterator[Batch]:
    """Batches of these ids in their order; batches of which nothing can be read are left out.

    Raises CorruptFile when more than one in a hundred of the ids cannot be read, TooFewRows for no ids.
    """
    if batch_size < 1:
        raise BadOption("A batch size must be at least 1", value=batch_size)
    if not len(ids):
        raise TooFewRows(f"There are no rows in {data.name}", value=0)
    before = len(data.passed_over)
    for start in range(0, len(ids), batch_size):
        batch = data.read(ids[start : start + batch_size])
        broken = data.passed_over[before:]
        if len(broken) > BROKEN * len(ids):
            raise CorruptFile(
                f"{len(broken)} of the {len(ids)} rows asked for cannot be read, the first of them: {broken[0].reason}",
                value=broken[0].what,
                allowed="at most one unreadable row in a hundred",
                mend="Mend or remove the broken files",
            )
        if len(batch.ids):
            yield batch


def open_data(what: Any, *, transform: Transform | None = None, tokenizer: Any = None) -> Data:
    """Open a data set.

    Parameters
    ----------
    what: a DATA address (a registered name, `folder: npz: idx: csv: parquet: text:`, `package.module:factory`), an open
        `Data`, an array or tensor with rows first, a pair (rows, labels), a dict of tensors, a torch Dataset with a length, or
        an iterable of batches (which is read whole).
    transform: what is done to pictures; None leaves them as they are, scaled to 0..1.
    tokenizer: for texts: `package.module:factory`, or a callable from a list of texts to a dict of tensors.

    Raises SourceNotFound, UnknownName, CorruptFile, UnsupportedFormat, BadOption, ShapeMismatch, MemoryBound.
    """
    from querist.sources.images.transform import Transform

    transform = transform or Transform()
    if isinstance(what, Data):
        return what
    if not isinstance(what, str | Address):
        from querist.sources.memory import in_memory

        return in_memory(what, transform)
    address = what if isinstance(what, Address) else parse(what)
    bare = replace(address, rows=None)
    data = _opened(bare, transform, tokenizer)
    data.source = data.source or str(replace(bare, split=""))
    return data.part(address.rows) if address.rows is not None else data


def _opened(address: Address, transform: Transform, tokenizer: Any) -> Data:
    if address.kind == "python":
        from querist.sources.memory import in_memory
        from querist.sources.models import call_factory

        data = in_memory(call_factory(address), transform)
        data.name = str(address)
        return data
    if address.kind == "name":
        from querist.sources.datasets.collections import COLLECTIONS, open_collection

        if address.path in COLLECTIONS:
            return open_collection(address, transform, tokenizer)
    form = address.format if address.kind == "file" else None
    if address.kind == "name":  # a registered file: what it is, its own ending says
        address = replace(address, kind="file", path=str(address.local()))
        form = address.format
    if form == "text":
        from querist.sources.text import open_text

        return open_text(address, tokenizer)
    if form in ("csv", "parquet"):
        from querist.sources.images.parquet import open_table

        return open_table(address, transform)
    try:
        if form == "npz":
            from querist.sources.images.npz import open_npz as reader
        elif form == "idx":
            from querist.sources.images.idx import open_idx as reader
        elif form == "folder":
            from querist.sources.images.folder import open_folder as reader
        else:
            raise UnsupportedFormat(
                "No data set of a known form",
                value=str(address),
                allowed="a registered name, folder:DIR, npz:FILE, idx:IMAGES.gz,LABELS.gz, parquet:FILE, csv:FILE, "
                "text:FILE, package.module:factory",
            )
        return reader(address, transform)
    except QueristError:
        raise
    except OSError as error:
        raise CorruptFile(f"The data cannot be read ({error})", value=str(address)) from None
