"""A test without a reference: does one class come first in several statistics that nothing but a backdoor ties together?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from querist.errors import BadOption, ShapeMismatch

__all__ = ["AgreementTest", "agreement_test"]

LEVEL = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class AgreementTest:
    """The class code that comes first most often, in `m` statistics (`firsts`), `p` the chance that some class does, the verdict and why.

    `ranking` [L]: all classes, by the sum of their ranks over the statistics, most suspicious first.
    """

    code: int
    m: int
    firsts: tuple[str, ...]
    p: float
    verdict: Literal["yes", "cannot say"]
    because: str
    ranking: Int[np.ndarray, "L"]


def agreement_test(
    statistics: Mapping[str, Float[np.ndarray, "L"]], *, clean: Mapping[str, float] | None = None, level: float = LEVEL
) -> AgreementTest:
    """Statistics are larger where more suspicious: size, pattern excess D, and 1 − masked agreement A; NaN ranks last.

    p: the chance that some class tops m or more of them if classes are exchangeable and the statistics independent. It is L^(1−m)
    for m given statistics, and larger where any m of several will do: of three, two agree with chance (3L − 2)/L², so that 60
    classes are needed for 5 %. "yes" needs m >= 2, p <= level, and a value beyond `clean`, the largest on clean resamples, in each
    statistic it tops; in all other cases the test cannot say, for honest classes differ too. A statistic whose first place is
    shared tops nothing.

    Raises BadOption for fewer than two statistics, ShapeMismatch. Source: ours.
    """
    arrays = {name: np.asarray(values, dtype=float) for name, values in statistics.items()}
    if len(arrays) < 2:
        raise BadOption("Agreement needs statistics", value=len(arrays), allowed="two or more")
    if len({array.shape for array in arrays.values()}) > 1:
        raise ShapeMismatch(
            "Statistics need one value per class", value=str([a.shape for a in arrays.values()]), allowed="[L]"
        )
    filled = {name: np.where(np.isnan(array), -np.inf, array) for name, array in arrays.items()}
    classes = len(next(iter(filled.values())))
    tops = {name: int(array.argmax()) for name, array in filled.items() if (array == array.max()).sum() == 1}
    counts = np.bincount(list(tops.values()), minlength=classes)
    ranks = sum(_average_ranks(-array) for array in filled.values())
    ranking = np.argsort(ranks, kind="stable")
    tied = np.flatnonzero(counts == counts.max())
    code = int(tied[np.argmin(np.asarray(ranks)[tied])])
    firsts = tuple(name for name, top in tops.items() if top == code)
    m = len(firsts)
    p = _chance(classes, len(arrays), m)
    inside = [name for name in firsts if clean is None or not filled[name][code] > clean.get(name, np.inf)]
    if m < 2:
        verdict, because = "cannot say", "no class comes first in two statistics"
    elif p > level:
        verdict, because = "cannot say", f"with {classes} classes, coming first in {m} has a chance of {p:.3g}"
    elif clean is None:
        verdict, because = (
            "cannot say",
            f"first in {m} statistics (chance {p:.3g}), but no range on clean resamples is known",
        )
    elif inside:
        verdict, because = (
            "cannot say",
            f"first in {m} statistics, but {', '.join(inside)} lies in the range of clean resamples",
        )
    else:
        verdict, because = (
            "yes",
            f"first in {', '.join(firsts)} (chance {p:.3g} with {classes} classes), beyond clean resamples",
        )
    return AgreementTest(code, m, firsts, p, verdict, because, ranking)


def _chance(classes: int, statistics: int, m: int) -> float:
    """That some class comes first in m or more of independent statistics: 1 − s!·[x^s](Σ_{j<m} x^j/j!)^L / L^s."""
    if m < 2:
        return 1.0
    one = np.array([1 / factorial(j) for j in range(m)])
    product = np.ones(1)
    for bit in f"{classes:b}":
        product = np.convolve(product, product)[: statistics + 1]
        if bit == "1":
            product = np.convolve(product, one)[: statistics + 1]
    fewer = product[statistics] if len(product) > statistics else 0.0
    return float(np.clip(1 - factorial(statistics) * fewer / float(classes) ** statistics, 0, 1))


def _average_ranks(values: np.ndarray) -> Float[np.ndarray, "L"]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse.reshape(-1)]
