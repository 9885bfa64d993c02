"""Names of score columns: part, arm and outcome by colons, ":" and "%" inside names percent-encoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from querist.errors import BadOption

__all__ = ["PARTS", "ScoreColumns", "column_name", "decoded", "score_columns"]

PARTS = ("natural", "base", "incremental", "total", "response")
BY_ARM = ("incremental", "total", "response")


def column_name(part: str, outcome: str, arm: Any = None) -> str:
    """The column of a part of an outcome, of an arm where the part has one.

    >>> column_name("total", "visit", "Mens: E-Mail")
    'total:Mens%3A E-Mail:visit'
    """
    middle = [] if arm is None else [_encoded(str(arm))]
    return ":".join([part, *middle, _encoded(outcome)])


def decoded(name: str) -> tuple[str, str | None, str] | None:
    """Part, arm (None where the part has none) and outcome of a score column's name; None for any other name."""
    part, *rest = name.split(":")
    if part not in PARTS or len(rest) != (2 if part in BY_ARM else 1):
        return None
    *arm, outcome = (_plain(text) for text in rest)
    return part, arm[0] if arm else None, outcome


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """Arms and outcomes that a table of scores holds, in the order of its columns."""

    arms: tuple[str, ...]
    outcomes: tuple[str, ...]

    def totals(self) -> list[str]:
        """Columns of total effects, arm by arm, outcomes inside."""
        return [column_name("total", outcome, arm) for arm in self.arms for outcome in self.outcomes]


def score_columns(names: Iterable[str], origin: str = "the table") -> ScoreColumns:
    """What a table of scores holds. Raises BadOption where it has no total effects, or not of every arm and outcome."""
    names = list(names)
    found = [parts for parts in map(decoded, names) if parts is not None and parts[0] == "total"]
    if not found:
        raise BadOption(
            "The table holds no scores of effects",
            value=origin,
            allowed="columns total:ARM:OUTCOME",
            mend="Make it by querist effects score",
        )
    arms = tuple(dict.fromkeys(str(arm) for _, arm, _ in found))
    outcomes = tuple(dict.fromkeys(outcome for *_, outcome in found))
    whole = ScoreColumns(arms, outcomes)
    for name in whole.totals():
        if name not in names:
            raise BadOption(
                "The table lacks a total effect",
                value=name,
                allowed="one for every arm and outcome",
                mend="Score it again",
            )
    return whole


def _encoded(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _plain(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")
