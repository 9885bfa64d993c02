"""The count kernel: rows that match a prefix and one more (concept, value), in the table and in every class, by bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from querist.concepts.data import ConceptData

__all__ = ["Counts", "PackedTable", "pack"]

BLOCK = 64 << 20
"""Bytes of temporary words held at a time."""
PADDED = 1.5
"""Classes start at words of 64 bits unless that pads the table to more than one and a half times its rows; then at bytes."""


class Counts(NamedTuple):
    """Rows that match a prefix and (concept, value): `table` [k 2] over all rows, `classes` [m k 2] in those asked for."""

    table: Int[np.ndarray, "k 2"]
    classes: Int[np.ndarray, "m k 2"]


class PackedTable:
    """A binary table as bits, rows sorted by class, every class starting at a word of its own.

    `ones` [k words] holds where a concept is 1, `known` [k words] where it is known (None where all are), `rows` [words]
    where a row is, `starts` [L + 1] the first word of each class. Two bits a cell at most.
    """

    __slots__ = ("known", "ones", "rows", "starts")

    def __init__(self, ones: np.ndarray, known: np.ndarray | None, rows: np.ndarray, starts: np.ndarray):
        self.ones, self.known, self.rows, self.starts = ones, known, rows, starts

    @property
    def k(self) -> int:
        """Concepts."""
        return len(self.ones)

    def column(self, concept: int, value: int) -> np.ndarray:
        """Where a concept has a value: bits [words]."""
        if value:
            return self.ones[concept]
        return ~self.ones[concept] & (self.rows if self.known is None else self.known[concept])

    def narrow(self, mask: np.ndarray, concept: int, value: int) -> np.ndarray:
        """The rows of `mask` in which the concept has the value."""
        return mask & self.column(concept, value)

    def sizes(self, mask: np.ndarray) -> Int[np.ndarray, "L"]:
        """Rows of `mask` in each class."""
        total = np.concatenate([[0], np.cumsum(np.bitwise_count(mask), dtype=np.int64)])
        return np.diff(total[self.starts])

    def counts(self, mask: np.ndarray, classes: np.ndarray) -> Counts:
        """For every (concept, value): rows of `mask` that have it, over all rows and in each of `classes`.

        O(words·k) of 8-byte words, whatever the number of classes.
        """
        ones, known = self._sums(self.ones, mask, classes), None
        if self.known is not None:
            known = self._sums(self.known, mask, classes)
        whole = (known[0], known[1]) if known else self._everywhere(mask, classes)
        return Counts(
            np.stack([whole[0] - ones[0], ones[0]], axis=-1), np.stack([whole[1] - ones[1], ones[1]], axis=-1)
        )

    def _everywhere(self, mask: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes = self.sizes(mask)
        return np.full(self.k, sizes.sum()), np.repeat(sizes[classes][:, None], self.k, axis=1)

    def _sums(self, bits: np.ndarray, mask: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words = len(mask)
        table, inside = np.empty(self.k, dtype=np.int64), np.empty((len(classes), self.k), dtype=np.int64)
        begin, end = self.starts[classes], self.starts[classes + 1]
        narrow = np.uint32 if words * mask.itemsize * 8 < 2**32 else np.uint64
        step = max(1, BLOCK // max(1, words * mask.itemsize))
        for first in range(0, self.k, step):
            part = slice(first, first + step)
            hits = bits[part] & mask
            if len(classes) == 1:  # the rows are whole words of 64 bits, whatever the classes start at
                table[part] = np.bitwise_count(hits.view(np.uint64)).sum(axis=1, dtype=narrow)
                own = np.ascontiguousarray(hits[:, begin[0] : end[0]])
                inside[0, part] = np.bitwise_count(own).sum(axis=1, dtype=narrow)
            else:
                counted = np.bitwise_count(hits)
                running = np.zeros((len(counted), words + 1), dtype=narrow)
                np.cumsum(counted, axis=1, out=running[:, 1:], dtype=narrow)
                table[part] = running[:, -1]
                inside[:, part] = (running[:, end] - running[:, begin]).T
        return table, inside


def pack(data: ConceptData) -> PackedTable:
    """The bits of a binary table. Raises NotBinary."""
    data.binary()
    sizes = data.class_sizes
    bits = 64 if 64 * np.ceil(sizes / 64).sum() <= PADDED * max(data.n, 64) else 8
    padded = -(-sizes // bits) * bits
    starts = np.concatenate([[0], np.cumsum(padded)])
    length = -(-int(starts[-1]) // 64) * 64
    order = np.argsort(data.codes, kind="stable")
    place = np.repeat(starts[:-1] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) + np.arange(data.n)
    dtype = np.uint64 if bits == 64 else np.uint8

    def packed(cells: np.ndarray) -> np.ndarray:
        wide = np.zeros((length, data.k), dtype=bool)
        wide[place] = cells[order]
        return np.packbits(np.ascontiguousarray(wide.T), axis=1, bitorder="little").view(dtype)

    rows = np.zeros(length, dtype=bool)
    rows[place] = True
    known = packed(~np.isnan(data.concepts)) if data.missing else None
    return PackedTable(
        packed(data.concepts == 1), known, np.packbits(rows, bitorder="little").view(dtype), starts // bits
    )
