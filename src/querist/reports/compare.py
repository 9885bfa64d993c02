"""Two runs side by side: verdicts that turned, estimates that moved beyond their intervals, options and tables that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from querist.reports.budget import TABLE_BYTES, table_json
from querist.reports.document import Document
from querist.reports.page import asset, draw, specification
from querist.reports.present import news, number, questions_of
from querist.results.finding import Finding
from querist.results.question import Question
from querist.results.table import Column, TableSpec

__all__ = ["Change", "changes", "compare", "join", "settings"]

Kind = Literal["verdict", "moved", "only-a", "only-b", "same"]

_GROUPS = {
    "verdict": ("Verdicts that turned", "The same question of the same subject was answered otherwise."),
    "moved": (
        "Estimates that moved",
        "The verdict stands, but the estimate lies outside what the other run's interval allows. Where neither run gives "
        "an interval, every difference is listed.",
    ),
    "only-b": ("Asked in B only", "A has no finding of this question and subject."),
    "only-a": ("Asked in A only", "B has no finding of this question and subject."),
    "same": ("Unchanged", "The verdict is the same, and the estimates agree within their intervals."),
}
_NUMBERS = ("int", "float")
_UNTIMED = {"seconds"}
"""Columns that no two runs share: they are never a difference."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one question of one subject from run A to run B, and why it is called that."""

    kind: Kind
    question: Question
    a: Finding | None
    b: Finding | None
    why: str


def compare(a: Document, b: Document) -> str:
    """One HTML page on what changed from run `a` to run `b`."""
    every = changes(a, b)
    grouped = [
        {
            "id": kind,
            "title": title,
            "words": words,
            "changes": [change for change in every if change.kind == kind],
            "open": kind in ("verdict", "moved"),
        }
        for kind, (title, words) in _GROUPS.items()
    ]
    grouped = [group for group in grouped if group["changes"] or group["open"]]
    counts = {kind: sum(change.kind == kind for change in every) for kind in _GROUPS}
    common = [name for name in b.tables if name in a.tables]
    joined = [_joined(name, a, b, position, len(common)) for position, name in enumerate(common, 1)]
    view = {
        "a": a,
        "b": b,
        "headline": _headline(counts),
        "lead": f"{len(every)} findings were laid side by side: {counts['same']} unchanged, {counts['only-a']} only in A, "
        f"{counts['only-b']} only in B.",
        "groups": grouped,
        "settings": settings(a, b),
        "joined": joined,
        "news": news,
    }
    return draw("compare.html", [asset(name) for name in ("theme.js", "tables.js", "page.js", "sort.js")], **view)


def changes(a: Document, b: Document) -> list[Change]:
    """Every question of every subject in either run, in the order of `b`, then what only `a` has."""
    questions = questions_of([*b.findings, *a.findings], [*b.layout.questions, *a.layout.questions])
    before = {(f.question, f.subject): f for f in a.findings}
    after = {(f.question, f.subject): f for f in b.findings}
    return [_change(before.get(k), after.get(k), questions[k[0]]) for k in dict.fromkeys([*after, *before])]


def _change(a: Finding | None, b: Finding | None, question: Question) -> Change:
    if a is None or b is None:
        return Change("only-b" if a is None else "only-a", question, a, b, "")
    if a.verdict != b.verdict:
        return Change("verdict", question, a, b, f"{a.verdict} became {b.verdict}.")
    why = _moved(a, b)
    return Change("moved" if why else "same", question, a, b, why)


def _moved(a: Finding, b: Finding) -> str:
    """Why the estimates disagree, or nothing where they do not."""
    if a.estimate is None or b.estimate is None:
        return "" if a.estimate == b.estimate else "Only one of the runs has an estimate."
    whole = [None not in (finding.low, finding.high) for finding in (a, b)]
    if all(whole) and (a.high < b.low or b.high < a.low):  # type: ignore[operator]
        return "The intervals do not meet."
    if all(whole):
        return ""
    for has, one, other, name in ((whole[0], a, b, "B"), (whole[1], b, a, "A")):
        if has:
            inside = one.low <= other.estimate <= one.high  # type: ignore[operator]
            return "" if inside else f"The estimate of {name} lies outside the interval of the other run."
    return (
        "" if a.estimate == b.estimate else f"Different by {number(b.estimate - a.estimate)}; neither has an interval."
    )


def settings(a: Document, b: Document) -> list[tuple[str, str, str]]:
    """Options, seed, versions and inputs that differ, each with both values as text."""
    rows = []
    for part in ("config", "versions", "inputs", "host"):
        one, other = _flat(a.header.get(part)), _flat(b.header.get(part))
        for name in dict.fromkeys([*one, *other]):
            if one.get(name, "–") != other.get(name, "–"):
                label = name if part == "config" else f"{part}: {name}"
                rows.append((label, one.get(name, "–"), other.get(name, "–")))
    own = ((name, a.header.get(name), b.header.get(name)) for name in ("room", "command", "version", "engine"))
    return [*rows, *((name, str(one), str(other)) for name, one, other in own if one != other)]


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        return {k: v for name, one in value.items() for k, v in _flat(one, f"{prefix}{name}.").items()}
    if not prefix:
        return {}
    return {prefix[:-1]: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)}


def join(
    spec: TableSpec, a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]]
) -> tuple[TableSpec, list[dict]]:
    """Rows of both tables that differ, joined on the key, with `NAME.a`, `NAME.b` and `NAME.change` of what differs.

    `where` says which run has the row. Numbers are compared exactly: tables of equal runs are equal bit for bit.
    """
    before, after = ({_key(row, spec): row for row in rows} for rows in (a, b))
    plain = [c for c in spec.columns if c.name not in spec.key and c.name not in _UNTIMED]
    pairs = [(before.get(k), after.get(k)) for k in dict.fromkeys([*after, *before])]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    differing = [c for c in plain if any(one.get(c.name) != other.get(c.name) for one, other in both)]
    rows = []
    for one, other in pairs:
        if one is not None and other is not None and all(one.get(c.name) == other.get(c.name) for c in differing):
            continue
        row = {name: (other or one or {}).get(name) for name in spec.key}
        row["where"] = "both" if one is not None and other is not None else ("A only" if other is None else "B only")
        for c in differing:
            old, new = (one or {}).get(c.name), (other or {}).get(c.name)
            row |= {f"{c.name}.a": old, f"{c.name}.b": new}
            if c.kind in _NUMBERS:
                row[f"{c.name}.change"] = None if old is None or new is None else new - old
        rows.append(row)
    columns = [c for c in spec.columns if c.name in spec.key]
    columns.append(Column("where", "str", "Which run has this row: both, A only or B only."))
    for c in differing:
        columns += [Column(f"{c.name}.{side}", c.kind, f"{c.meaning} Run {side.upper()}.", c.unit) for side in "ab"]
        if c.kind in _NUMBERS:
            columns.append(Column(f"{c.name}.change", c.kind, f"{c.name} of B minus that of A.", c.unit))
    return TableSpec(spec.name, spec.meaning, tuple(columns), spec.key), rows


def _key(row: Mapping[str, Any], spec: TableSpec) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v := row[name], list) else v for name in spec.key)


def _joined(name: str, a: Document, b: Document, position: int, count: int) -> dict[str, Any]:
    spec, other = specification(b, name), specification(a, name)
    if not spec.key or spec.key != other.key:
        told = "It has no key that both runs share, so that its rows cannot be told from one another"
        return {
            "name": name,
            "table": None,
            "words": f"{told}: {a.tables[name].height:,} rows in A, {b.tables[name].height:,} in B.",
        }
    columns = tuple(c for c in spec.columns if c.name in {one.name for one in other.columns})
    narrow = TableSpec(spec.name, spec.meaning, columns, spec.key)
    made, rows = join(narrow, a.tables[name].to_dicts(), b.tables[name].to_dicts())
    words = f"{a.tables[name].height:,} rows in A, {b.tables[name].height:,} in B, {len(rows):,} of them different or in one run only."
    gone = [
        c.name for c in (*spec.columns, *other.columns) if c not in columns and c.name not in {k.name for k in columns}
    ]
    words += f" In one run only: the columns {', '.join(gone)}." if gone else ""
    if not rows:
        return {"name": name, "table": None, "words": words}
    text = table_json(made, made.frame(rows), TABLE_BYTES * 3 / count, None)
    return {
        "name": name,
        "words": words,
        "table": {"number": position, "spec": made, "json": text, "height": len(rows)},
    }


def _headline(counts: Mapping[str, int]) -> str:
    turned, moved = counts["verdict"], counts["moved"]
    if not turned and not moved:
        return "No verdict turned and no estimate moved"

    def told(count: int, noun: str, verb: str) -> str:
        return f"{count or 'no'} {noun}{'' if count == 1 else 's'} {verb}"

    text = f"{told(turned, 'verdict', 'turned')}, {told(moved, 'estimate', 'moved')}"
    return text[0].upper() + text[1:]
