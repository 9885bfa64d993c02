"""The question: what a finding id asks, against which null, by which rule."""

from __future__ import annotations

from dataclasses import dataclass

from querist.results.finding import Verdict

__all__ = ["Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question, from which reports, docs and gates are made.

    `id` is `room.kebab-name`; `ask` a plain question; `unit` the unit of the estimate; `null` what the estimate stands
    beside; `rule` how the verdict is reached; `welcome` the verdict that is good news, or None where neither is.
    """

    id: str
    ask: str
    unit: str
    null: str
    rule: str
    welcome: Verdict | None = None
