"""Numbers of the causalml convention: means over the n + 1 points of a curve, over its last value where normalised."""

from __future__ import annotations

from querist.effects.metrics._curves import Areas, small
from querist.errors import UndefinedMetric

__all__ = ["causalml_auuc", "causalml_qini"]


def causalml_auuc(a: Areas, *, normalise: bool = True) -> float:
    """Mean of the gain curve's n + 1 points; over |last| where normalised (a random score: ½·sign(last)).

    Points inside a tie group lie on the straight line between its ends, so a constant score is the random line. Raises
    UndefinedMetric where the curve ends at 0. Source: causalml, Gutierrez & Gérardy (2017).
    """
    mean = _mean(a.gain_from, a.last_gain, a.n)
    if not normalise:
        return mean
    per = a.n * (abs(a.y_treated) / a.treated + abs(a.y_control) / a.control)
    return mean / _last(a.last_gain, per)


def causalml_qini(a: Areas, *, normalise: bool = True) -> float:
    """Mean of the Qini curve's n + 1 points minus that of its random line; over |last| where normalised (random: 0).

    Raises UndefinedMetric where the curve ends at 0. Source: causalml, Radcliffe (2007).
    """
    above = _mean(a.qini_from, a.last_qini, a.n) - a.last_qini / 2
    if not normalise:
        return above
    return above / _last(a.last_qini, abs(a.y_treated) + abs(a.y_control) * a.treated / a.control)


def _mean(area: float, last: float, n: float) -> float:
    """The sum over whole places is the trapezoid area plus half the last value."""
    return (area + last / 2) / (n + 1)


def _last(last: float, scale: float) -> float:
    if small(last, scale):
        raise UndefinedMetric(
            "The curve ends at 0, and a number normalised by its end has no value: ask for the raw one"
        )
    return abs(last)
