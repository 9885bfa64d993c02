"""How the room's findings are said: one template, numbers in one style."""

from __future__ import annotations

from typing import Any

from querist.results.finding import Verdict
from querist.statistics import verdict

__all__ = ["because", "held_against", "number", "percent", "times"]


def number(value: float | None, digits: int = 3) -> str:
    """A number of so many significant digits, or "unknown"."""
    return "unknown" if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """A fraction as a percentage."""
    if value is None:
        return "an unknown share"
    return f"{100 * value:.1f} %" if 0 < abs(value) < 0.1 else f"{100 * value:.0f} %"


def times(count: int, what: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count} {what if count == 1 else many or what + 's'}"


def because(
    what: str,
    estimate: float | None,
    low: float | None,
    high: float | None,
    unit: str,
    null: str,
    rule: str,
    *,
    rows: int | None = None,
    targets: int | None = None,
    seeds: int | None = None,
    more: str = "",
) -> str:
    """ "{what} is {estimate} [{low}, {high}] {unit}; with nothing hidden it would be {null}; {rule}; {n} rows, …"."""
    value = number(estimate)
    if low is not None and high is not None:
        value += f" [{number(low)}, {number(high)}]"
    counts: list[str] = []
    given: tuple[tuple[Any, str], ...] = ((rows, "row"), (targets, "target"), (seeds, "seed"))
    for count, noun in given:
        if count is not None:
            counts.append(times(count, noun))
    named = "" if unit in ("", "fraction") else f" {unit}"
    said = f"{what} is {value}{named}; with nothing hidden it would be {null}; {rule}"
    said += f"; {', '.join(counts)}" if counts else ""
    return f"{said}{f'; {more}' if more else ''}."


def held_against(low: float | None, high: float | None, bound: float, named: str | None = None) -> tuple[Verdict, str]:
    """The verdict of an interval against the bound that it must clear, and the rule in words; named: what the bound is called."""
    what = f"{bound:g}" if named is None else named
    said = verdict(low, high, yes_above=bound)
    return said, {
        "yes": f"the lower end is above {what}",
        "no": f"the upper end is at most {what}",
        "cannot say": f"the interval holds {what}",
    }[said]
