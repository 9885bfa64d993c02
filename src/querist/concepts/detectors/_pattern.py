"""Pattern excess: the few values that together single out a class more than anything singles out the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.concepts.data import ConceptData
from querist.concepts.triggers import PackedTable, Trigger, pack

__all__ = ["PatternExcess", "pattern_excess"]

STEPS = 5


@dataclass(frozen=True, slots=True, eq=False)
class PatternExcess:
    """`excess` [L] in nats (0 for a class without rows or without such a pattern), the `patterns` that reach it, and the shares
    of the class and of all other rows that match them.
    """

    excess: Float[np.ndarray, "L"]
    patterns: tuple[Trigger | None, ...]
    share_in: Float[np.ndarray, "L"]
    share_out: Float[np.ndarray, "L"]

    def matching(self, data: ConceptData) -> Bool[np.ndarray, "n"]:
        """Rows that carry the pattern of their own label."""
        found = np.zeros(data.n, dtype=bool)
        for code, pattern in enumerate(self.patterns):
            rows = np.flatnonzero(data.codes == code)
            if pattern is not None and rows.size:
                found[rows] = pattern.matches(data.concepts[rows])
        return found


def pattern_excess(data: ConceptData, *, steps: int = STEPS, binarise: str | None = None) -> PatternExcess:
    """D_t = max over prefixes j <= steps of KL(q_in‖q_out), grown greedily, only where q_in > q_out.

    q_in = (a + ½)/(n_t + 1), q_out = (b + ½)/(n − n_t + 1), a and b the rows inside and outside t that match; KL is that of two
    coins. Ties go by index, value 0 before 1. Every prefix is counted in one pass over the packed table, shared by the classes
    that share it. Raises NotBinary. Source: ours; no threshold holds for all tables (on clean CUB the largest D is 5.7).
    """
    data = data.binary(binarise)
    table, sizes = pack(data), data.class_sizes
    excess = np.zeros(data.n_classes)
    length = np.zeros(data.n_classes, dtype=int)
    shares = np.full((data.n_classes, 2), np.nan)
    picks = np.full((data.n_classes, steps), -1, dtype=int)

    def visit(mask: np.ndarray, members: np.ndarray, step: int) -> None:
        gain, a, b = _gains(table, mask, members, sizes, data.n)
        for done in range(step):
            taken = picks[members, done] // 2
            gain[np.arange(len(members)), 2 * taken] = gain[np.arange(len(members)), 2 * taken + 1] = -np.inf
        chosen = gain.argmax(axis=1)
        best = gain[np.arange(len(members)), chosen]
        going = best > -np.inf
        for row in np.flatnonzero(going):
            code, pick = members[row], chosen[row]
            picks[code, step] = pick
            if best[row] > excess[code]:
                excess[code], length[code] = best[row], step + 1
                shares[code] = a[row, pick] / sizes[code], b[row, pick] / max(data.n - sizes[code], 1)
        if step + 1 == min(steps, data.k):
            return
        for pick in np.unique(chosen[going]):
            same = members[going & (chosen == pick)]
            visit(table.narrow(mask, pick // 2, pick % 2), same, step + 1)

    visit(table.rows, np.flatnonzero(sizes), 0)
    patterns = tuple(_trigger(picks[code, : length[code]]) for code in range(data.n_classes))
    return PatternExcess(excess, patterns, shares[:, 0], shares[:, 1])


def _gains(
    table: PackedTable, mask: np.ndarray, members: Int[np.ndarray, "m"], sizes: np.ndarray, n: int
) -> tuple[Float[np.ndarray, "m 2k"], np.ndarray, np.ndarray]:
    """KL of every candidate 2·concept + value for every class asked, −inf where it is no commoner inside; and both counts."""
    found = table.counts(mask, members)
    a = found.classes.reshape(len(members), -1)
    b = found.table.reshape(-1)[None] - a
    n_t = sizes[members][:, None]
    q_in, q_out = (a + 0.5) / (n_t + 1), (b + 0.5) / (n - n_t + 1)
    kl = q_in * np.log(q_in / q_out) + (1 - q_in) * np.log((1 - q_in) / (1 - q_out))
    return np.where(q_in > q_out, kl, -np.inf), a, b


def _trigger(picks: np.ndarray) -> Trigger | None:
    return Trigger(tuple((picks // 2).tolist()), tuple((picks % 2).tolist())) if picks.size else None
