"""Gates: expressions on findings and on the summary that make a command exit with 3.

A gate is `PATH OP VALUE [and ...]`. PATH is `question.field` or `question[SUBJECT-GLOB].field`, where the room's prefix may be left
out and field is verdict, estimate, low, high, null or p; or it is a dotted path into the summary, where a list of rows
offers each of its members. A gate trips where any member matches; in a conjunction each part looks for its own members.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from querist.errors import BadOption, UnknownName, near
from querist.results.finding import Finding
from querist.results.question import Question

__all__ = ["GATE_FIELDS", "Condition", "Gate", "Outcome", "evaluate", "parse"]

GATE_FIELDS = ("verdict", "estimate", "low", "high", "null", "p")

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"^\s*(?P<path>[^<>=!]+?)\s*(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?)\s*$")
_PATH = re.compile(r"^(?P<question>[A-Za-z0-9_.-]+?)(?:\[(?P<glob>.*)\])?\.(?P<field>[a-z_]+)$")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. `question` is a full question id, or None where `path` leads into the summary."""

    path: str
    op: str
    value: Any
    question: str | None
    glob: str
    field: str


@dataclass(frozen=True, slots=True)
class Gate:
    """One expression: it trips where every condition has a member that matches."""

    text: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a gate: whether it tripped, the members that did it, and the members that had no value."""

    gate: Gate
    tripped: bool
    members: tuple[str, ...]
    nulls: tuple[str, ...]

    def sentence(self) -> str:
        """One line for a person."""
        if self.tripped:
            shown = ", ".join(self.members[:5]) + (
                f" and {len(self.members) - 5} more" if len(self.members) > 5 else ""
            )
            return f"Gate tripped: {self.gate.text} ({shown})."
        told = f" {len(self.nulls)} members have no value and were not compared." if self.nulls else ""
        return f"Gate held: {self.gate.text}.{told}"


def parse(texts: Iterable[str], questions: Sequence[Question], room: str) -> tuple[Gate, ...]:
    """Read gate expressions before the work.

    Raises UnknownName for a question or field that does not exist, BadOption for an expression that cannot be read.
    """
    return tuple(Gate(text, tuple(_condition(part, text, questions, room) for part in _split(text))) for text in texts)


def evaluate(gates: Iterable[Gate], findings: Sequence[Finding], summary: Mapping[str, Any]) -> tuple[Outcome, ...]:
    """Compare gates with what was found.

    Raises UnknownName for a summary path that leads nowhere and for a subject glob that matches no finding.
    """
    return tuple(_outcome(gate, findings, summary) for gate in gates)


def _split(text: str) -> list[str]:
    return re.split(r"\s+and\s+", text.strip())


def _condition(part: str, text: str, questions: Sequence[Question], room: str) -> Condition:
    match = _CONDITION.match(part)
    if match is None:
        raise BadOption(
            "A gate could not be read",
            value=text,
            allowed="PATH OP VALUE [and ...] with OP one of == != < <= > >=",
            mend="For example: --fail-if 'spikes.verdict == yes' or --fail-if 'layers.alpha < 2'",
        )
    path, op, value = match["path"].strip(), match["op"], _literal(match["value"])
    ids = {question.id for question in questions}
    hit = _PATH.match(path)
    if hit is not None:
        name = next((n for n in (hit["question"], f"{room}.{hit['question']}") if n in ids), None)
        if name is not None and hit["field"] not in GATE_FIELDS:
            raise UnknownName(
                "A finding has no such field",
                value=path,
                allowed=", ".join(GATE_FIELDS),
                mend="Name one of these fields",
            )
        short = [question.removeprefix(f"{room}.") for question in ids]
        meant = hit["field"] in GATE_FIELDS and difflib.get_close_matches(hit["question"], [*ids, *short], 1)
        if name is None and (hit["glob"] is not None or hit["field"] == "verdict" or meant):
            raise UnknownName(
                "No such question",
                value=hit["question"],
                allowed=near(hit["question"], short, 8),
                mend="Name one of these",
            )
        if name is not None:
            ordered = hit["field"] != "verdict"
            if ordered and not isinstance(value, int | float):
                raise BadOption(
                    "A gate compares a number with something else", value=part, allowed="a number after the sign"
                )
            if not ordered and (op not in ("==", "!=") or value not in ("yes", "no", "cannot say")):
                raise BadOption(
                    "A verdict is compared only with == or != and one of its three values",
                    value=part,
                    allowed="yes, no, cannot say",
                )
            return Condition(path, op, value, name, hit["glob"] or "*", hit["field"])
    return Condition(path, op, value, None, "*", "")


def _literal(text: str) -> Any:
    bare = text.strip().strip("'\"")
    if bare in ("true", "false"):
        return bare == "true"
    try:
        return float(bare)
    except ValueError:
        return bare


def _outcome(gate: Gate, findings: Sequence[Finding], summary: Mapping[str, Any]) -> Outcome:
    tripped, members, nulls = True, [], []
    for condition in gate.conditions:
        hits = []
        for name, value in _members(condition, findings, summary):
            if value is None:
                nulls.append(name)
            elif _compare(condition, value):
                hits.append(f"{name}: {value}")
        tripped = tripped and bool(hits)
        members.extend(hits)
    return Outcome(gate, tripped, tuple(members) if tripped else (), tuple(nulls))


def _compare(condition: Condition, value: Any) -> bool:
    wanted = condition.value
    if condition.op not in ("==", "!=") and (isinstance(value, str) != isinstance(wanted, str)):
        raise BadOption(
            "A gate compares a number with text",
            value=condition.path,
            allowed=f"a {type(value).__name__} like {value!r}",
        )
    return _OPERATORS[condition.op](value, wanted)


def _members(
    condition: Condition, findings: Sequence[Finding], summary: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    if condition.question is None:
        yield from _walk(summary, condition.path.split("."), condition.path, "")
        return
    mine = [finding for finding in findings if finding.question == condition.question]
    chosen = [finding for finding in mine if fnmatchcase(finding.subject, condition.glob)]
    if not chosen and condition.glob != "*":
        raise UnknownName(
            f"No finding of {condition.question} has a subject like this",
            value=condition.glob,
            allowed=near(condition.glob, [finding.subject for finding in mine], 8) or "none was asked",
        )
    for finding in chosen:
        yield f"{finding.question}[{finding.subject}].{condition.field}", getattr(finding, condition.field)


def _walk(value: Any, steps: list[str], path: str, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            label = item.get("layer_id") or item.get("name") or number if isinstance(item, Mapping) else number
            yield from _walk(item, steps, path, f"{at}[{label}]")
        return
    if not steps:
        if isinstance(value, Mapping):
            raise UnknownName("A gate's path ends at a group of values", value=path, allowed=near("", value, 20))
        yield at, value
        return
    if not isinstance(value, Mapping) or steps[0] not in value:
        known = list(value) if isinstance(value, Mapping) else []
        raise UnknownName(
            "The summary has no such path",
            value=path,
            allowed=near(steps[0], known, 8) or "nothing below this",
            mend=None,
        )
    yield from _walk(value[steps[0]], steps[1:], path, f"{at}.{steps[0]}" if at else steps[0])
