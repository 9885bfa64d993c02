"""Which rows a repeat trains, chooses and counts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from querist.concepts.data import ConceptData
from querist.errors import TooFewRows
from querist.statistics import folds, torch_seed

__all__ = ["Parts", "joined", "repeat_parts", "repeat_seed", "with_validation"]

TENTHS, TEST, VAL = 10, 2, 1
APART = {"train": 5, "test": 3}
"""Of how many rows of a class one is set aside to choose by."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows of one repeat: trained on, chosen by (None where the table's own split has none), counted on."""

    train: ConceptData
    val: ConceptData | None
    test: ConceptData


def repeat_seed(seed: int, repeat: int) -> int:
    """The seed of a repeat: of its split, initial weights, batches, negatives and poisoned rows, whatever is planted."""
    return torch_seed(seed, "repeat", repeat)


def repeat_parts(data: ConceptData, repeat: int, *, seed: int = 0) -> Parts:
    """Rows of a repeat. The table's own parts train, val and test where it has train and test (without test, val is counted on,
    and nothing is chosen by it); else a split of each class into 70, 10 and 20 % drawn for the repeat.

    Raises TooFewRows below ten rows.
    """
    names = set() if data.split is None else set(data.split.tolist())
    if "train" in names and names & {"test", "val"}:
        test = "test" if "test" in names else "val"
        val = data.part("val") if {"val", "test"} <= names else None
        return Parts(data.part("train"), val, data.part(test))
    if data.n < TENTHS:
        raise TooFewRows(
            "The table is too small to be parted", value=f"{data.n} rows", allowed=f"{TENTHS} or more, or a split"
        )
    tenth = folds(data.n, TENTHS, strata=data.codes, seed=repeat_seed(seed, repeat))
    named = np.where(tenth < TEST, "test", np.where(tenth < TEST + VAL, "val", "train"))
    whole = data.changed(split=named)
    return Parts(whole.part("train"), whole.part("val"), whole.part("test"))


def with_validation(parts: Parts, *, apart: Literal["train", "test"] = "train", seed: int) -> Parts:
    """The same with rows to choose by, which no model of them is trained on: where there are none, some of each class are set aside.

    apart: "train", a fifth of the training rows, before anything is trained on the rest; "test", for a model that is trained already
    and may have seen all of train: a third of the test rows, which are then no test rows any more. No class is emptied by it.
    Raises TooFewRows where no row can be set aside.
    """
    if parts.val is not None and parts.val.n:
        return parts
    whole, share = (parts.train if apart == "train" else parts.test), APART[apart]
    if whole.n < share:
        raise TooFewRows(
            f"Too few {apart} rows to set some aside to choose by",
            value=whole.n,
            allowed=f"{share} or more, or rows named val",
        )
    chosen = folds(whole.n, share, strata=whole.codes, seed=seed) == 0
    emptied = np.bincount(whole.codes[~chosen], minlength=whole.n_classes) == 0
    chosen &= ~emptied[whole.codes]
    if not chosen.any():
        raise TooFewRows(
            f"Every class has one {apart} row: none can be set aside to choose by",
            value=whole.n,
            allowed="classes of more rows, or rows named val",
        )
    rest, val = whole.subset(~chosen), whole.subset(chosen)
    return Parts(rest, val, parts.test) if apart == "train" else Parts(parts.train, val, rest)


def joined(train: ConceptData, val: ConceptData) -> ConceptData:
    """One table of both, with its split."""
    both = {
        "concepts": np.concatenate([train.concepts, val.concepts]),
        "codes": np.concatenate([train.codes, val.codes]),
        "images": None if train.images is None else np.concatenate([train.images, val.images]),
        "split": np.repeat(["train", "val"], [train.n, val.n]),
        "ids": None if train.ids is None or val.ids is None else np.concatenate([train.ids, val.ids]),
    }
    return train.changed(**both)
