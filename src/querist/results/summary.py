"""The summary: one envelope that every command's JSON opens with, then the room's own keys; plain JSON values only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import PurePath
from typing import Any

from querist.errors import InvariantBroken
from querist.results.finding import Finding

__all__ = ["ENVELOPE", "envelope", "plain"]

ENVELOPE = (
    "schema",
    "room",
    "command",
    "version",
    "status",
    "seed",
    "run",
    "seconds",
    "config",
    "warnings",
    "passed_over",
    "tables",
    "findings",
)
"""The keys of every summary, in order."""


def envelope(
    header: Mapping[str, Any],
    *,
    schema: int,
    run: str | None,
    warnings: Sequence[str],
    passed_over: Iterable[Mapping[str, Any]],
    tables: Mapping[str, str | None],
    findings: Iterable[Finding],
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """A summary. `header` is the content of run.json, `schema` the study's version, `own` the room's keys.

    `tables` leads from a table's name to its path inside the run folder, None in memory. A room may give its own
    `passed_over` with further fields; any other key of the envelope raises InvariantBroken.
    """
    taken = sorted((set(own) & set(ENVELOPE)) - {"passed_over"})
    if taken:
        raise InvariantBroken(f"{header['room']} {header['command']} gives its own summary key {taken[0]}")
    passed = [{"what": row["what"], "reason": row["reason"], **row} for row in own.get("passed_over", passed_over)]
    values = {
        "schema": f"querist.{header['room']}.{header['command']}/{schema}",
        **{name: header[name] for name in ("room", "command", "version", "status", "seed")},
        "run": run,
        "seconds": header["seconds"],
        "config": header["config"],
        "warnings": list(warnings),
        "passed_over": passed,
        "tables": tables,
        "findings": [finding.as_dict() for finding in findings],
        **{name: value for name, value in own.items() if name not in ENVELOPE},
    }
    return plain(values)


def plain(value: Any, at: Any = None) -> Any:
    """A value as plain JSON values: NaN and infinity become None, numpy's numbers and arrays lists and numbers.

    Frames become lists of rows, paths and times text. Raises InvariantBroken, with the place, for anything else. `at` is the place,
    (the place around it, key), so that it costs nothing before it is told: a summary has thousands of values.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            key if type(key) is str else _name(key, at): item if type(item) in _AS_THEY_ARE else plain(item, (at, key))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, (at, number)) for number, item in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return plain(value.tolist(), at)
    if hasattr(value, "to_dicts"):
        return plain(value.to_dicts(), at)
    raise InvariantBroken(f"{_place(at) or 'a value'} is a {kind.__name__}, which JSON does not hold")


_AS_THEY_ARE = frozenset({type(None), bool, int, str})


def _name(key: Any, at: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(key)
    raise InvariantBroken(f"{_place(at) or 'a mapping'} has a key that is a {type(key).__name__}")


def _place(at: Any) -> str:
    """layers[0].x of (((None, "layers"), 0), "x")."""
    told: list[str] = []
    while at is not None:
        at, key = at
        told.append(f"[{key}]" if type(key) is int else f".{key}")
    return "".join(reversed(told)).lstrip(".")
