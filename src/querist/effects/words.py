"""How numbers stand in the room's sentences: one style for values, intervals, p and the names of arms."""

from __future__ import annotations

from typing import Any

__all__ = ["arm_named", "between", "number", "p_told", "signed"]


def number(value: float | None, form: str = ".3g") -> str:
    """A number to three significant digits, whole and without an exponent from 1,000 on; "not known" where there is none.

    >>> number(0.012345), number(20000.0), number(-0.0), number(None)
    ('0.0123', '20,000', '0', 'not known')
    """
    if value is None:
        return "not known"
    return f"{value:{'+' * form.startswith('+')},.0f}" if 1e3 <= abs(value) < 1e15 else f"{value + 0.0:{form}}"


def signed(value: float | None) -> str:
    """The same with its sign, for differences.

    >>> signed(0.5), signed(-8497.6)
    ('+0.5', '-8,498')
    """
    return number(value, "+.3g")


def between(low: float | None, high: float | None, form: str = ".3g") -> str:
    """ " [low, high]" to be put behind its estimate, nothing where an end is missing.

    >>> f"{number(0.5)}{between(0.25, 0.75)}", between(None, 1.0)
    ('0.5 [0.25, 0.75]', '')
    """
    return "" if low is None or high is None else f" [{number(low, form)}, {number(high, form)}]"


def p_told(p: float | None) -> str:
    """A p value, "not tested" where there is none."""
    return "not tested" if p is None else f"{p:.3g}"


def arm_named(label: Any, *, first: bool = False) -> str:
    """An arm in a sentence: its label, or "arm 1" where that is a number or a bare yes or no. first: at its beginning.

    >>> arm_named("Mens E-Mail"), arm_named(1), arm_named("Yes", first=True)
    ('Mens E-Mail', 'arm 1', 'Arm Yes')
    """
    text = str(label)
    bare = text.lower() in ("true", "false", "yes", "no") or text.replace(".", "", 1).isdigit()
    return f"{'Arm' if first else 'arm'} {text}" if bare else text
