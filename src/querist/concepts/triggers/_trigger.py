"""A trigger: distinct concepts with a value each; applying it, matching it, and what it touches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from querist.concepts.data import SPACES, Space
from querist.errors import BadOption, BadValues, ShapeMismatch

__all__ = ["Trigger", "fixed_strength", "logit_scale"]

LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True, slots=True)
class Trigger:
    """Concepts `index`, distinct, with `values` 0 or 1 in the same order. Raises BadOption, BadValues."""

    index: tuple[int, ...]
    values: tuple[int, ...]

    def __post_init__(self):
        index, values = tuple(int(i) for i in self.index), tuple(self.values)
        if not index or len(index) != len(values):
            raise BadOption(
                "A trigger needs a value for each of its concepts",
                value=f"{len(index)} and {len(values)}",
                allowed="one or more of each",
            )
        if len(set(index)) != len(index) or min(index) < 0:
            raise BadOption(
                "A trigger's concepts must be distinct positions", value=list(index), allowed="0 or more, each once"
            )
        if any(v not in (0, 1) for v in values):
            raise BadValues("A trigger's values must be 0 or 1", value=list(values), allowed="0, 1")
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "values", tuple(int(v) for v in values))

    def __len__(self) -> int:
        return len(self.index)

    def apply(
        self,
        concepts: np.ndarray,
        *,
        space: Space = "hard",
        strength: str = "quantile",
        scale: np.ndarray | None = None,
    ) -> Float[np.ndarray, "n k"]:
        """A copy of the concepts [n k] with the trigger set.

        hard, prob: the values themselves. logit, by `strength`: "quantile" the 5 % or 95 % quantile of each concept's training
        logits, given as `scale` (`logit_scale`); "rowmax" the row's own largest or smallest logit, as the CAT release does;
        "fixed:M" +M or −M. Raises BadOption, ShapeMismatch for a concept that the table does not have.

        Source: the quantiles are the intervention rule of Koh et al. (2020).
        """
        self._check(concepts)
        made = np.array(concepts)
        if made.dtype.kind != "f":
            made = made.astype(np.float32)
        made[:, list(self.index)] = self._cells(concepts, space, strength, scale)
        return made

    def _cells(self, concepts: np.ndarray, space: Space, strength: str, scale: np.ndarray | None) -> np.ndarray:
        on = np.array(self.values, dtype=bool)
        if space not in SPACES:
            raise BadOption("No such space of concepts", value=space, allowed=", ".join(SPACES))
        if space != "logit":
            return on.astype(float)
        if strength == "rowmax":
            return np.where(on, np.nanmax(concepts, axis=1)[:, None], np.nanmin(concepts, axis=1)[:, None])
        if strength == "quantile":
            if scale is None or np.shape(scale) != (np.shape(concepts)[1], 2):
                raise ShapeMismatch(
                    "Quantile strength needs a low and a high logit of each concept",
                    value="no scale" if scale is None else np.shape(scale),
                    allowed=f"[{np.shape(concepts)[1]} 2]",
                    mend="Pass scale=logit_scale(training logits)",
                )
            return np.where(on, np.asarray(scale)[list(self.index), 1], np.asarray(scale)[list(self.index), 0])
        size = fixed_strength(strength)
        if size is None:
            raise BadOption("No such strength", value=strength, allowed="quantile, rowmax, fixed:M with M > 0")
        return np.where(on, size, -size)

    def wrong_side_share(
        self, concepts: np.ndarray, *, strength: str = "rowmax", scale: np.ndarray | None = None
    ) -> float | None:
        """Share of the trigger's cells [n s] whose logit ends on the other side of 0 than its value; None without rows.

        Above 0 for "rowmax" in rows whose logits all have one sign: the largest of (−3, −2) is −2, a probability below ½.
        """
        if not len(concepts):
            return None
        cells = np.broadcast_to(self._cells(concepts, "logit", strength, scale), (len(concepts), len(self)))
        return float(((cells > 0) != np.array(self.values, dtype=bool)).mean())

    def matches(self, concepts: np.ndarray, *, space: Space = "hard") -> Bool[np.ndarray, "n"]:
        """Rows that carry the trigger: equal values (hard), the same side of ½ (prob) or of 0 (logit). NaN never matches."""
        self._check(concepts)
        cells = np.asarray(concepts)[:, list(self.index)]
        on = np.array(self.values)
        if space == "hard":
            return (cells == on).all(axis=1)
        cut = {"prob": 0.5, "logit": 0.0}[space]
        return (((cells > cut) == (on == 1)) & ~np.isnan(cells)).all(axis=1)

    def coverage(self, groups: Sequence[Any]) -> int:
        """How many groups of concepts the trigger touches; `groups` names the group of each concept [k]."""
        return len({groups[i] for i in self.index})

    def violates(self, groups: Sequence[Any] | None, concepts: np.ndarray) -> bool:
        """Whether it turns on two concepts of a group in which no row of `concepts` has two on: a free signal to a detector."""
        if groups is None:
            return False
        on = [i for i, value in zip(self.index, self.values, strict=True) if value]
        for group in {groups[i] for i in on}:
            members = [k for k, name in enumerate(groups) if name == group]
            several = sum(groups[i] == group for i in on) > 1
            if several and not (np.nansum(np.asarray(concepts)[:, members] == 1, axis=1) > 1).any():
                return True
        return False

    def to_json(self) -> str:
        """The trigger as JSON: index and values."""
        return json.dumps({"index": self.index, "values": self.values})

    @classmethod
    def from_json(cls, text: str) -> Trigger:
        """The trigger that `to_json` wrote. Raises BadValues for other text."""
        try:
            held = json.loads(text)
            return cls(tuple(held["index"]), tuple(held["values"]))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, BadOption | BadValues):
                raise
            raise BadValues("This is no trigger", value=text, allowed='{"index": [...], "values": [...]}') from error

    def _check(self, concepts: np.ndarray) -> None:
        shape = np.shape(concepts)
        if len(shape) != 2 or max(self.index) >= shape[1]:
            raise ShapeMismatch(
                "The trigger names a concept that the table lacks",
                value=f"concept {max(self.index)} in a table {shape}",
                mend="Use the table that the trigger was chosen for",
            )


def logit_scale(logits: np.ndarray) -> Float[np.ndarray, "k 2"]:
    """The 5 % and the 95 % quantile of each concept's logits [n k], unknown cells left out."""
    return np.nanquantile(np.asarray(logits, dtype=float), [LOW, HIGH], axis=0).T


def fixed_strength(strength: str) -> float | None:
    """M of the strength "fixed:M", M > 0; None for any other text."""
    kind, _, number = strength.partition(":")
    try:
        size = float(number)
    except ValueError:
        return None
    return size if kind == "fixed" and np.isfinite(size) and size > 0 else None
