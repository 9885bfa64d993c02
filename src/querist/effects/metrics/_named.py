"""Qini, AUUC and gain curves under their named conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.metrics import _curves as curves
from querist.effects.metrics._causalml import causalml_auuc, causalml_qini
from querist.effects.metrics._order import Ranked, points, ranked
from querist.effects.metrics._shares import uplift_of
from querist.effects.metrics._sklift import sklift_auuc, sklift_qini
from querist.errors import BadOption, UndefinedMetric

__all__ = ["Curve", "auuc", "gain_curve", "named_numbers", "numbers", "qini", "rate_numbers"]

Convention = Literal["rate", "sklift", "causalml"]
CONVENTIONS = ("rate", "sklift", "causalml")


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of a curve: `n` rows (shares in the rate convention), `gain`, the random `line`; `kind` and `convention` name it.

    `perfect` [nodes, 2] holds (n, value) of the best curve there is, None where there is none (scikit-uplift's convention with
    outcomes of 0 and 1 has one).
    """

    n: Float[np.ndarray, "points"]
    gain: Float[np.ndarray, "points"]
    line: Float[np.ndarray, "points"]
    perfect: Float[np.ndarray, "nodes 2"] | None
    kind: str = "qini"
    convention: str = "rate"


def qini(
    y: Any,
    treated: Any,
    score: Any,
    *,
    convention: Convention = "sklift",
    normalise: bool = True,
    negative_effect: bool = True,
    weight: Any = None,
) -> float:
    """Qini number of a score [n] over rows of control and one arm: how much better than random it ranks by effect.

    convention: "sklift" (area above the line over the perfect curve's; raw: outcome × rows), "causalml" (mean of the Qini
    curve above the line, over its last value; raw: outcome summed), "rate" (outcome per person, never normalised). Random
    scores give 0 in all three. A tie group counts as the average over its orders. weight: [n], whole numbers are repeated rows.

    Raises UndefinedMetric where a group is empty or a denominator is 0, BadValues, NonFinite, LengthMismatch, BadOption.

    Source: Radcliffe (2007); scikit-uplift and causalml for their conventions; Yadlowsky et al. (2025) for rate.
    """
    _known(convention, CONVENTIONS)
    rows = ranked(y, treated, score, weight)
    a = curves.areas(rows, rate=convention == "rate")
    if convention == "sklift":
        return sklift_qini(a, binary=rows.binary, normalise=normalise, negative_effect=negative_effect)
    if convention == "causalml":
        return causalml_qini(a, normalise=normalise)
    return rate_numbers(a)[0]


def auuc(
    y: Any,
    treated: Any,
    score: Any,
    *,
    convention: Literal["sklift", "causalml"] = "sklift",
    normalise: bool = True,
    weight: Any = None,
) -> float:
    """Area under the uplift curve of a score [n] over rows of control and one arm.

    convention: "sklift" (above the line, over the perfect curve's; random: 0), "causalml" (mean of the gain curve over its
    last value; random: ½·sign; raw: the mean). The rate convention's like is `rate(..., weighting="autoc")`. Raises as `qini`.
    """
    _known(convention, CONVENTIONS[1:])
    rows = ranked(y, treated, score, weight)
    a = curves.areas(rows, rate=False)
    if convention == "sklift":
        return sklift_auuc(a, binary=rows.binary, normalise=normalise)
    return causalml_auuc(a, normalise=normalise)


def gain_curve(
    y: Any,
    treated: Any,
    score: Any,
    *,
    kind: Literal["qini", "uplift"] = "qini",
    convention: Convention = "rate",
    weight: Any = None,
) -> Curve:
    """The curve behind the numbers: points at the ends of tie groups, straight lines between.

    kind "uplift" is (mean_t − mean_c)·n, causalml's gain. The rate convention has one curve, cumulated ψ per person against the
    share of rows (kind "qini"). Raises as `qini`.
    """
    _known(convention, CONVENTIONS)
    _known(kind, ("qini", "uplift"))
    if convention == "rate" and kind == "uplift":
        raise BadOption("The rate convention has one curve", value=kind, allowed="kind='qini'")
    rows = ranked(y, treated, score, weight)
    p = points(rows)
    if convention == "rate":
        n, gain = p[0] / p[0, -1], curves.rate_values(p)
    else:
        value = {
            ("sklift", "qini"): curves.qini_values,
            ("sklift", "uplift"): curves.uplift_values,
            ("causalml", "qini"): curves.interpolated_qini,
            ("causalml", "uplift"): curves.interpolated_gain,
        }[convention, kind]
        n, gain = p[0], value(p)
    perfect = None
    if convention == "sklift" and rows.binary:
        a = curves.areas(rows, rate=False)
        perfect = curves.perfect_qini(a) if kind == "qini" else curves.perfect_uplift(a)
    return Curve(n, gain, gain[-1] * n / n[-1], perfect, kind, convention)


def rate_numbers(a: curves.Areas) -> tuple[float, float]:
    """Rate qini and autoc with ψ from arm means and the treated share: linear in the cumulated counts' areas."""
    if a.level is None or a.harmonic is None:
        raise BadOption("These areas were taken without the rate part", value="rate=False", allowed="rate=True")
    mean_t, mean_c, e = a.y_treated / a.treated, a.y_control / a.control, a.treated / a.n

    def gained(area: np.ndarray, whole: float) -> float:
        t, yt, yc = area
        return float((yt - mean_t * t) / e - (yc - mean_c * (whole - t)) / (1 - e))

    return gained(a.level, a.n**2 / 2) / a.n**2, gained(a.harmonic, a.n) / a.n


def numbers(rows: Ranked, k: tuple[float, ...] = ()) -> dict[str, float | UndefinedMetric]:
    """Every single number of one (arm, outcome) from one sort and one pass; those without a value carry their reason.

    Keys: qini and auuc as "sklift qini", "sklift qini raw" and so on, "rate qini", "rate autoc", "uplift@K" for each share of k.
    """
    found = named_numbers(curves.areas(rows), rows.binary)
    for share in k:
        found[f"uplift@{share:g}"] = _value(lambda share=share: uplift_of(rows, share))
    return found


def named_numbers(a: curves.Areas, binary: bool) -> dict[str, float | UndefinedMetric]:
    """`numbers` of areas, without the shares."""
    found: dict[str, float | UndefinedMetric] = {}
    for normalise, ending in ((True, ""), (False, " raw")):
        for name, value in (
            ("sklift qini", lambda n=normalise: sklift_qini(a, binary=binary, normalise=n)),
            ("sklift auuc", lambda n=normalise: sklift_auuc(a, binary=binary, normalise=n)),
            ("causalml qini", lambda n=normalise: causalml_qini(a, normalise=n)),
            ("causalml auuc", lambda n=normalise: causalml_auuc(a, normalise=n)),
        ):
            found[name + ending] = _value(value)
    found["rate qini"], found["rate autoc"] = rate_numbers(a)
    return found


def _value(compute) -> float | UndefinedMetric:
    try:
        return compute()
    except UndefinedMetric as reason:
        return reason


def _known(name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise BadOption("No such convention or kind", value=name, allowed=", ".join(allowed))
