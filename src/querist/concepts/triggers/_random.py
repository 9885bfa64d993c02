"""The random selector: the control for every claim about a selector."""

from __future__ import annotations

from typing import Any

from querist.concepts.data import ConceptData
from querist.concepts.triggers._selection import Selection, auto_values, checked, described
from querist.concepts.triggers._trigger import Trigger
from querist.statistics import stream

__all__ = ["random_trigger"]


def random_trigger(
    data: ConceptData, target: Any, size: int, *, value: Any = "auto", constants: str = "exclude", seed: int
) -> Selection:
    """`size` usable concepts, uniform without replacement, with the values of `cat`; the draw depends on target and seed.

    Raises UnknownName for a class without rows, BadOption for a size or value.
    """
    code = data.target(target)
    usable = checked(data, size, constants)
    values = auto_values(data, value)
    chosen = stream(seed, "random trigger", code).permutation(usable)[:size]
    trigger = Trigger(tuple(chosen.tolist()), tuple(values[chosen].tolist()))
    return described(data, trigger, code, selector="random", seed=seed, score=None, coef_abs=None)
