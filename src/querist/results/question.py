"""The question: what a finding id asks, against which null, by which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from querist.errors import InvariantBroken
from querist.results.finding import Verdict

__all__ = ["Question", "by_id"]


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


def by_id(questions: Iterable[Question]) -> Mapping[str, Question]:
    """Index questions by id; a repeated id is a defect."""
    index: dict[str, Question] = {}
    for question in questions:
        if question.id in index:
            raise InvariantBroken(f"question {question.id} is declared twice")
        index[question.id] = question
    return index
