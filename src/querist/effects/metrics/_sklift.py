"""Numbers of the scikit-uplift convention: areas beside those of a straight line and of the perfect curve."""

from __future__ import annotations

from querist.effects.metrics._curves import Areas, perfect_qini, perfect_uplift, small, trapezoid
from querist.errors import UndefinedMetric

__all__ = ["sklift_auuc", "sklift_qini"]


def sklift_qini(a: Areas, *, binary: bool, normalise: bool = True, negative_effect: bool = True) -> float:
    """(area − line)/(perfect − line) of the Qini curve; the numerator alone (outcome × rows) where not normalised.

    Raises UndefinedMetric where no perfect curve exists (outcomes other than 0 and 1, r ≤ 0 without negative effects), or
    where it is the line. Source: Radcliffe (2007), scikit-uplift.
    """
    line = a.last_qini * a.n / 2
    if not normalise:
        return a.qini - line
    _binary(binary)
    nodes = perfect_qini(a, negative_effect=negative_effect)
    return _share(a.qini, line, trapezoid(nodes[:, 0], nodes[:, 1]))


def sklift_auuc(a: Areas, *, binary: bool, normalise: bool = True) -> float:
    """(area − line)/(perfect − line) of the uplift curve; the numerator alone where not normalised.

    Raises UndefinedMetric as `sklift_qini` does.
    """
    line = a.last_gain * a.n / 2
    if not normalise:
        return a.uplift - line
    _binary(binary)
    nodes = perfect_uplift(a)
    return _share(a.uplift, line, trapezoid(nodes[:, 0], nodes[:, 1]))


def _binary(binary: bool) -> None:
    if not binary:
        raise UndefinedMetric(
            "Only outcomes of 0 and 1 have a perfect curve: ask for normalise=False or for the rate convention"
        )


def _share(area: float, line: float, perfect: float) -> float:
    if small(perfect - line, perfect, line):
        raise UndefinedMetric("The perfect curve is the random line: no ranking of these rows could show an effect")
    return (area - line) / (perfect - line)
