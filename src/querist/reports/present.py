"""Findings and numbers as people read them: four digits, good or bad news, a gauge of estimate, interval and null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from querist.results.finding import VERDICTS, Finding
from querist.results.question import Question

__all__ = ["NEWS", "Gauge", "Group", "Row", "chosen", "full", "groups", "news", "number", "questions_of", "tally"]

NEWS = {"bad": "bad news", "good": "good news", "open": "cannot say", "plain": "neither good nor bad"}
"""How a verdict is received, in the order in which rows are shown."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """Places on a scale from 0 to 100, None where a number does not exist; `log` says whether it is logarithmic."""

    estimate: float | None
    low: float | None
    high: float | None
    null: float | None
    log: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One finding with its question, how its verdict is received, and its gauge."""

    finding: Finding
    question: Question
    news: str
    gauge: Gauge | None


@dataclass(frozen=True, slots=True)
class Group:
    """Findings shown together: all of one question, or, where `question` is None, one of each of several questions."""

    question: Question | None
    rows: tuple[Row, ...]


def number(value: Any, digits: int = 4) -> str:
    """A number to four significant digits; whole numbers below a billion in full; an en dash where there is none.

    >>> [number(x) for x in (0.123456, 1234.5678, 12345, 1.5e-7, -2.0, None)]
    ['0.1235', '1,235', '12,345', '1.5e−7', '−2', '–']
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    size = abs(value)
    if size < 1e9 and value == int(value):
        text = f"{int(value):,}"
    elif 1e-3 <= size < 1e6:
        text = f"{float(f'{value:.{digits}g}'):,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return text.replace("-", "−")


def full(value: Any) -> str:
    """Every digit of a number, for the tooltip."""
    return "no value" if value is None else repr(value)


def news(finding: Finding, question: Question) -> str:
    """Which of `NEWS` a verdict is."""
    if finding.verdict == "cannot say":
        return "open"
    if question.welcome is None:
        return "plain"
    return "good" if finding.verdict == question.welcome else "bad"


def questions_of(findings: Iterable[Finding], declared: Iterable[Question]) -> dict[str, Question]:
    """Every question asked, in declared order; one that was not declared is shown under its id."""
    index = {question.id: question for question in declared}
    asked = list(dict.fromkeys(finding.question for finding in findings))
    known = {name: question for name, question in index.items() if name in set(asked)}
    return known | {name: Question(name, name, "", "", "") for name in asked if name not in known}


def chosen(findings: Sequence[Finding], pairs: Iterable[tuple[str, str]]) -> list[Finding]:
    """Findings that match one of the (subject glob, question glob) pairs; a pair that equals both names matches too.

    Names of layers and cohorts may hold brackets, which a glob reads as a set of letters; hence the comparison.
    """
    pairs = list(pairs)

    def matches(name: str, glob: str) -> bool:
        return name == glob or fnmatchcase(name, glob)

    return [f for f in findings if any(matches(f.subject, subject) and matches(f.question, q) for subject, q in pairs)]


def groups(findings: Sequence[Finding], questions: Mapping[str, Question]) -> list[Group]:
    """Findings by question, what needs attention first; one flat group where no question has two findings."""
    by_question: dict[str, list[Finding]] = {}
    for finding in findings:
        by_question.setdefault(finding.question, []).append(finding)
    ordered = [name for name in questions if name in by_question]
    if len(ordered) > 1 and all(len(rows) == 1 for rows in by_question.values()):
        return [Group(None, tuple(row for name in ordered for row in _rows(by_question[name], questions[name])))]
    return [Group(questions[name], _rows(by_question[name], questions[name])) for name in ordered]


def tally(findings: Iterable[Finding], questions: Mapping[str, Question]) -> list[dict[str, Any]]:
    """Per question: the question and, per verdict that occurred, its count and how it is received."""
    counts: dict[str, dict[str, int]] = {name: dict.fromkeys(VERDICTS, 0) for name in questions}
    for finding in findings:
        counts[finding.question][finding.verdict] += 1
    rows = []
    for name, question in questions.items():
        parts = [
            {"verdict": verdict, "count": count, "news": _received(verdict, question)}
            for verdict, count in counts[name].items()
            if count
        ]
        rows.append({"question": question, "parts": parts, "total": sum(counts[name].values())})
    return rows


def _received(verdict: str, question: Question) -> str:
    if verdict == "cannot say":
        return "open"
    return "plain" if question.welcome is None else ("good" if verdict == question.welcome else "bad")


def _rows(findings: Sequence[Finding], question: Question) -> tuple[Row, ...]:
    scale = _scale(findings)
    rows = [Row(finding, question, news(finding, question), _gauge(finding, scale)) for finding in findings]
    rank = {"yes": 1, "cannot say": 2, "no": 3}

    def first(row: Row) -> tuple[float, float]:
        p = row.finding.p
        return (0 if row.news == "bad" else rank[row.finding.verdict], math.inf if p is None else p)

    return tuple(sorted(rows, key=first))


def _values(finding: Finding) -> list[float]:
    every = (finding.estimate, finding.low, finding.high, finding.null)
    return [value for value in every if value is not None]


def _scale(findings: Sequence[Finding]) -> tuple[float, float, bool] | None:
    """Ends of the scale that a question's findings share; logarithmic where all are positive and span two decades."""
    values = [value for finding in findings if finding.estimate is not None for value in _values(finding)]
    if not values or min(values) == max(values):
        return None
    low, high = min(values), max(values)
    if low > 0 and high / low > 100:
        return math.log(low), math.log(high), True
    return low, high, False


def _gauge(finding: Finding, scale: tuple[float, float, bool] | None) -> Gauge | None:
    if scale is None or finding.estimate is None or len(_values(finding)) < 2:
        return None
    low, high, log = scale

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        return round(100 * ((math.log(value) if log else value) - low) / (high - low), 1)

    return Gauge(place(finding.estimate), place(finding.low), place(finding.high), place(finding.null), log)
