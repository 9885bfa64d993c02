"""The layout: what a report shows, in order. A report is drawn from it and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from querist.results.question import Question
from querist.results.table import TableSpec

__all__ = ["Layout", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """One section: words, then findings, then figures, then tables.

    `findings` is a tuple of (subject glob, question glob) pairs; every finding that matches one is shown. `open` is
    whether the section starts unfolded; `level` 2 or 3, its heading's rank.
    """

    title: str
    words: tuple[str, ...] = ()
    findings: tuple[tuple[str, str], ...] = ()
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    open: bool = True
    level: int = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """A report's title, its lead paragraph, its sections in order, and the specifications of what they show."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    tables: tuple[TableSpec, ...] = ()
    questions: tuple[Question, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The layout as plain JSON values: what layout.json holds."""
        return {
            "title": self.title,
            "lead": self.lead,
            "sections": [asdict(section) for section in self.sections],
            "tables": [spec.describe() for spec in self.tables],
            "questions": [asdict(question) for question in self.questions],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Layout:
        """Read what `as_dict` wrote."""
        return cls(
            title=value["title"],
            lead=value["lead"],
            sections=tuple(_section(section) for section in value["sections"]),
            tables=tuple(_spec(spec) for spec in value["tables"]),
            questions=tuple(Question(**question) for question in value["questions"]),
        )


def _section(value: Mapping[str, Any]) -> Section:
    pairs = tuple((subject, question) for subject, question in value["findings"])
    return Section(**{**value, "findings": pairs, **{k: tuple(value[k]) for k in ("words", "figures", "tables")}})


def _spec(value: Mapping[str, Any]) -> TableSpec:
    from querist.results.table import Column

    columns: Iterable[Mapping[str, Any]] = value["columns"]
    return TableSpec(
        value["name"],
        value["meaning"],
        tuple(Column(**c) for c in columns),
        tuple(value["key"]),
        tuple(value.get("shown", ())),
    )
