"""Encoded rows as the columns of the refit: numbers, missing flags, and levels that enough rows have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.sources.rows import Encoded

__all__ = ["Design"]

SHARE = 0.01
"""Least share of rows of a level with a column of its own."""


@dataclass(frozen=True)
class Design:
    """numbers p; flags: numeric columns with missing values in the fit; levels: (category, code) with a column of their own."""

    numbers: int
    flags: tuple[int, ...]
    levels: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, encoded: Encoded) -> Design:
        """The columns that fit rows call for."""
        levels = []
        for k, codes in enumerate(encoded.codes.T):
            seen, counts = np.unique(codes, return_counts=True)
            often = seen[counts >= SHARE * max(len(codes), 1)].tolist()
            levels += [(k, int(code)) for code in often]
        flags = np.flatnonzero(encoded.missing.any(axis=0)).tolist()
        return cls(encoded.numbers.shape[1], tuple(flags), tuple(levels))

    def at(self, encoded: Encoded) -> Float[np.ndarray, "n p"]:
        """Columns of rows."""
        levels = [(encoded.codes[:, k] == code)[:, None] for k, code in self.levels]
        return np.concatenate([encoded.numbers, encoded.missing[:, list(self.flags)], *levels], axis=1, dtype=float)

    def as_json(self) -> dict[str, Any]:
        """Plain values, from which `from_json` makes an equal one."""
        return {"numbers": self.numbers, "flags": list(self.flags), "levels": [list(one) for one in self.levels]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Design:
        """What `as_json` gave."""
        return cls(value["numbers"], tuple(value["flags"]), tuple((int(k), int(c)) for k, c in value["levels"]))
