"""Which targets a sweep runs over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["choose_targets"]

MANY = 50
"""Up to so many classes every one is a target."""
BUDGETS = {"fast": 10, "full": 20}


def choose_targets(data: ConceptData, how: Any = "full", *, seed: int = 0) -> list[Any]:
    """Labels of the classes to sweep over, in the order of their codes; only classes with training rows are drawn.

    how: "all"; a number; "fast" and "full", which are all classes up to 50, beyond that 10 and 20; or the labels themselves. A
    number m draws one class from each of m strata of equal count in the order of class size, in which always stand the last
    class (ties that are broken by class id show there) and a middle one, each in the place of its own stratum's draw.

    Raises UnknownName for a label without rows, BadOption for a number below 1 or no label.
    """
    train = data.part("train") if data.split is not None and "train" in data.split else data
    present = np.flatnonzero(train.class_sizes)
    if isinstance(how, str) and how not in ("all", *BUDGETS):
        how = [how]
    if isinstance(how, Sequence) and not isinstance(how, str):
        if not len(how):
            raise BadOption("There is no target", value="[]", allowed="one or more classes")
        return [train.classes[code] for code in sorted({train.target(label) for label in how})]
    every = how == "all" or (isinstance(how, str) and len(present) <= MANY)
    count = len(present) if every else BUDGETS[how] if isinstance(how, str) else int(how)
    if count < 1:
        raise BadOption("No such number of targets", value=how, allowed="1 or more, all, fast, full, or labels")
    if count >= len(present):
        return [train.classes[code] for code in present]
    rng = stream(seed, "targets")
    order = rng.permutation(present)
    order = order[np.argsort(train.class_sizes[order], kind="stable")]
    strata = np.array_split(order, count)
    wanted = [int(present[-1]), int(present[len(present) // 2])][:count]
    chosen = []
    for stratum in strata:
        forced = [code for code in wanted if code in stratum]
        chosen += forced or [int(rng.choice(stratum))]
    drawn = [code for code in chosen if code not in wanted]
    while len(chosen) > count:  # both fell into one stratum: another draw gives way
        chosen.remove(drawn.pop())
    return [train.classes[code] for code in sorted(chosen)]
