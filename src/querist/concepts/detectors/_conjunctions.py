"""Values that never occur together in clean rows although they could be expected to: what a trigger brings together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.concepts.data import Space
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, MemoryBound, TooFewRows

__all__ = ["Conjunctions", "absent_conjunctions", "literals"]

KEPT = 1 << 16
BLOCK = 1 << 11
MEMORY = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Conjunctions:
    """Conjunctions of one to three values, most surprising first. `index` [c 3]: literals (2·concept + value; −1 beyond the last),
    `expected` [c]: the rows in which each was expected and never seen.
    """

    index: Int[np.ndarray, "c 3"]
    expected: Float[np.ndarray, "c"]
    k: int

    def __len__(self) -> int:
        return len(self.expected)

    def above(self, threshold: float) -> Conjunctions:
        """Those expected in more than `threshold` rows."""
        kept = int((self.expected > threshold).sum())
        return Conjunctions(self.index[:kept].copy(), self.expected[:kept].copy(), self.k)

    def pattern(self, place: int) -> Trigger:
        """One of them."""
        chosen = [int(i) for i in self.index[place] if i >= 0]
        return Trigger(tuple(i // 2 for i in chosen), tuple(i % 2 for i in chosen))

    def first(self, on: Bool[np.ndarray, "n 2k"], *, stop: float = 1.0) -> Int[np.ndarray, "n"]:
        """The most surprising conjunction of each row, −1 for none; the search ends once more than `stop` of the rows have one."""
        found = np.full(len(on), -1)
        cells = np.ascontiguousarray(on, dtype=np.float32)
        for begin in range(0, len(self), BLOCK):
            block = self.index[begin : begin + BLOCK]
            open_rows = np.flatnonzero(found < 0)
            if not open_rows.size or len(open_rows) < (1 - stop) * len(on):
                break
            matrix = np.zeros((2 * self.k, len(block)), dtype=np.float32)
            for column in range(3):
                used = np.flatnonzero(block[:, column] >= 0)
                matrix[block[used, column], used] = 1
            size = (block >= 0).sum(axis=1)
            hit = cells[open_rows] @ matrix > size - 0.5
            some = hit.any(axis=1)
            found[open_rows[some]] = begin + hit[some].argmax(axis=1)
        return found


def literals(concepts: Float[np.ndarray, "n k"], space: Space = "hard") -> Bool[np.ndarray, "n 2k"]:
    """Column 2·concept + value: whether the cell stands on that side of ½ (of 0 in space logit); neither for an unknown cell."""
    cut = 0.0 if space == "logit" else 0.5
    with np.errstate(invalid="ignore"):
        made = np.stack([concepts <= cut, concepts > cut], axis=2)
    return made.reshape(len(concepts), -1)


def absent_conjunctions(on: Bool[np.ndarray, "n 2k"], *, most: int = 3, kept: int = KEPT) -> Conjunctions:
    """Conjunctions of at most `most` values that no row of `on` (`literals` of clean rows) holds, none of whose parts is absent.

    Expected rows: of one value n/2; of two n_a·n_b/n; of three n_ab·n_ac·n_bc/(n_a·n_b·n_c), at most the least n_ab: what counts
    of two already explain is no surprise. At most `kept` are kept, the most expected.

    Raises BadOption, TooFewRows, MemoryBound where the counts of three would need more than 1 GB. Source: ours; the product over
    pairs is Kirkwood's superposition.
    """
    if most not in (1, 2, 3):
        raise BadOption("Conjunctions are of few values", value=most, allowed="1, 2, 3")
    n, width = on.shape
    if n < 2:
        raise TooFewRows("Absence needs rows", value=n, allowed="2 or more")
    if most == 3 and 4 * width * width > MEMORY // 8:
        raise MemoryBound(
            "Counts of three values need too much memory", value=f"{width // 2} concepts", mend="Use most=2"
        )
    cells = on.astype(np.float32)
    one = cells.sum(axis=0, dtype=float)
    two = (cells.T @ cells).astype(float)
    concept = np.arange(width) // 2
    found = [(np.stack([np.flatnonzero(one == 0)]).T, np.full(int((one == 0).sum()), n / 2))]
    if most > 1:
        a, b = np.nonzero((two == 0) & (concept[:, None] < concept[None]) & (one[:, None] > 0) & (one[None] > 0))
        found.append((np.stack([a, b], axis=1), one[a] * one[b] / n))
    if most > 2:
        found += _threes(cells, one, two, concept, kept)
    index = np.concatenate([np.pad(i, ((0, 0), (0, 3 - i.shape[1])), constant_values=-1) for i, _ in found])
    expected = np.concatenate([e for _, e in found])
    order = np.lexsort((*index.T[::-1], -expected))
    order = order[expected[order] > 0][:kept]
    return Conjunctions(index[order], expected[order], width // 2)


def _threes(
    cells: np.ndarray, one: np.ndarray, two: np.ndarray, concept: np.ndarray, kept: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Absent triples whose pairs are all present, the `kept` most expected."""
    width = len(one)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    waiting, floor = 0, 0.0
    later = concept[:, None] < concept[None]
    for a in range(width - 2):
        if one[a] == 0:
            continue
        rest = slice(2 * int(concept[a]) + 2, None)
        rows = cells[cells[:, a] > 0][:, rest]
        count = rows.T @ rows
        pair, ones = two[a, rest], one[rest]
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = np.outer(pair / ones, pair / ones) * two[rest, rest] / one[a]
        expected = np.minimum(np.minimum(expected, two[rest, rest]), np.minimum(pair[:, None], pair[None]))
        b, c = np.nonzero((count == 0) & later[rest, rest] & (expected > floor))
        found.append((np.stack([np.full(len(b), a), b + rest.start, c + rest.start], axis=1), expected[b, c]))
        waiting += len(b)
        if waiting > 4 * kept:
            found, floor = _thinned(found, kept)
            waiting = kept
    return found


def _thinned(
    found: list[tuple[np.ndarray, np.ndarray]], kept: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], float]:
    index, expected = (np.concatenate(list(part)) for part in zip(*found, strict=True))
    top = np.argpartition(-expected, kept - 1)[:kept]
    return [(index[top], expected[top])], float(expected[top].min())
