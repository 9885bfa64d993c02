"""What pages about many layers have in common: the most surprising ones, sections by question and by layer, counts in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from querist.results.layout import Section
from querist.results.question import Question
from querist.weights.figures.scan import figure_name

__all__ = ["SHOWN_LAYERS", "by_layer", "by_question", "counted", "last_name", "literal", "most", "told_of"]

SHOWN_LAYERS = 12
"""Layers with a section of their own: beyond a dozen nobody scrolls, and eight figures each weigh about 100 kB."""
Row = Mapping[str, Any]


def most(rows: Sequence[Row], surprise: Callable[[Row], float], count: int = SHOWN_LAYERS) -> list[Row]:
    """The rows with the largest surprise, in order of the source."""
    chosen = sorted(rows, key=lambda row: (-surprise(row), row["position"]))[:count]
    return sorted(chosen, key=lambda row: row["position"])


def by_question(questions: Iterable[Question]) -> Iterator[Section]:
    """A closed section of findings per question."""
    for question in questions:
        yield Section(question.ask, words=(question.rule,), findings=(("*", question.id),), open=False, level=3)


def by_layer(
    shown: Sequence[Row], drawn: Sequence[str], views: Iterable[str], words: Callable[[Row], str]
) -> Iterator[Section]:
    """A section per layer, with its findings and those of its figures that were drawn; the first one open."""
    for position, row in enumerate(shown):
        own = {figure_name(row["layer_id"], view) for view in views}
        yield Section(
            row["layer_id"],
            words=(words(row),),
            findings=((literal(row["layer_id"]), "*"),),
            figures=tuple(name for name in drawn if name in own),
            open=position == 0,
            level=3,
        )


def literal(name: str) -> str:
    """A glob that matches this name and no other."""
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


def told_of(row: Row, *more: str) -> str:
    """What a matrix is, in a sentence, and what became of it."""
    shape = " × ".join(str(side) for side in row["shape"])
    words = ", ".join([f"{row['kind']}{' ' + row['part'] if row['part'] else ''}", shape, *more])
    return f"{words}. {row['status']}: {row['reason']}." if row["reason"] else f"{words}."


def counted(rows: Sequence[Row], words: Mapping[str, str]) -> list[str]:
    """A sentence per status that some rows have."""
    counts = Counter(row["status"] for row in rows)
    return [
        f"{counts[status]} of {len(rows)} matrices {told}; their rows say why."
        for status, told in words.items()
        if counts[status]
    ]


def last_name(address: str) -> str:
    """An address without the folders before it."""
    return address.rstrip("/").rpartition("/")[2]
