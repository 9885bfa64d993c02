"""With rows that are trusted, class by class: does the suspect part differ from them?"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from querist.concepts.data import ConceptData, same_schema
from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics import holm, stream
from querist.statistics.permutation import snap

__all__ = ["ReferenceTest", "class_level_test", "reference_test"]


LEVEL = 0.05
"""A class whose rows can give no p as small as this is not tested."""
MANY = 30
"""More rows than this on both sides have 10¹⁷ divisions, and any p."""


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceTest:
    """Per class code: largest |z| over concepts `statistic` [L], `p`, Holm's `p_adj` over classes, the `concept` that attains it.

    NaN (concept −1) for a class that lacks rows on one side or has too few for any small p; `reasons` [L] says so, else None. `method`
    names the null.
    """

    statistic: Float[np.ndarray, "L"]
    p: Float[np.ndarray, "L"]
    p_adj: Float[np.ndarray, "L"]
    concept: Int[np.ndarray, "L"]
    reasons: tuple[str | None, ...]
    method: str


def reference_test(
    data: ConceptData, reference: ConceptData, *, permutations: int = 999, seed: int = 0
) -> ReferenceTest:
    """max_k |z| between the rows of a class and the trusted rows of that class, origins permuted inside the class.

    z_k is the difference of the known cells' mean from the pooled mean over its permutation standard deviation. The maximum
    over concepts is permuted as a whole, so k needs no correction; classes are corrected by Holm. p is exact at every B. Concepts of
    few rows take few values, and many permutations have the same maximum: among those Σ z_k² decides, without which a class of 60
    rows and 16 concepts rejects 3.5 % at 5 %. A class of so few rows that none of their divisions is rare (3 and 3: one in ten) cannot
    be told among so many classes: it has no p, and Holm does not count it. Classes are matched by their label's text.

    Raises SchemaMismatch, BadOption. Source: Tarone (1990) for the classes that are not counted: K of them are tested, K the least
    number such that no more than K have a least p of .05/K.
    """
    same_schema(data, reference)
    if permutations < 1:
        raise BadOption("A permutation test needs permutations", value=permutations, allowed="1 or more")
    place = {str(label): code for code, label in enumerate(reference.classes)}
    classes = data.n_classes
    statistic, p = np.full(classes, np.nan), np.full(classes, np.nan)
    concept, reasons = np.full(classes, -1), cast(list[str | None], [None] * classes)
    sizes = np.array([reference.class_sizes[place[str(label)]] if str(label) in place else 0 for label in data.classes])
    least = np.array([_least_p(int(n), int(m)) for n, m in zip(data.class_sizes, sizes, strict=True)])
    needed = _needed(least)
    for code, label in enumerate(data.classes):
        suspect = data.concepts[data.codes == code]
        trusted = reference.concepts[reference.codes == place.get(str(label), -1)]
        if not len(suspect) or not len(trusted):
            reasons[code] = f"no {'row' if not len(suspect) else 'trusted row'} of this class"
            continue
        if least[code] > needed:
            few = f"with {len(suspect)} and {len(trusted)} rows no p is below {least[code]:.2g}"
            reasons[code] = f"{few}, and {needed:.2g} is needed among {int(np.isfinite(least).sum())} classes"
            continue
        rng = stream(seed, "reference", label)
        statistic[code], p[code], concept[code] = _one(suspect, trusted, permutations, rng)
    return ReferenceTest(
        statistic,
        p,
        holm(p),
        concept,
        tuple(reasons),
        f"origins permuted inside the class, {permutations} permutations",
    )


def _one(
    suspect: np.ndarray, trusted: np.ndarray, permutations: int, rng: np.random.Generator
) -> tuple[float, float, int]:
    rows = np.concatenate([suspect, trusted]).astype(float)
    known = ~np.isnan(rows)
    n = known.sum(axis=0)
    mean = np.where(known, rows, 0).sum(axis=0) / np.maximum(n, 1)
    centred = np.where(known, rows - mean, 0)
    spread = (centred**2).sum(axis=0) / np.maximum(n, 1)
    labels = np.zeros((permutations + 1, len(rows)))
    labels[:, : len(suspect)] = 1
    labels[1:] = rng.permuted(labels[1:], axis=1)
    total = labels @ centred
    n_s = labels @ known.astype(float) if not known.all() else np.full((1, rows.shape[1]), float(len(suspect)))
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = spread * n_s * (n - n_s) / np.maximum(n - 1, 1)
        z = np.where(variance > 1e-12, np.abs(total) / np.sqrt(variance), 0.0)
    largest, sum_of_squares = z.max(axis=1), (z**2).sum(axis=1)
    draws, sums = (snap(float(values[0]), values[1:]) for values in (largest, sum_of_squares))
    beyond = (draws > largest[0]) | ((draws == largest[0]) & (sums >= sum_of_squares[0]))
    return float(largest[0]), float((1 + beyond.sum()) / (1 + permutations)), int(z[0].argmax())


def _least_p(n: int, m: int) -> float:
    """One over the divisions of n + m rows, two where a division and its mirror have the same |z|; infinite without rows."""
    if min(n, m) > MANY:
        return 0.0
    return (2 if n == m else 1) / comb(n + m, n) if n and m else np.inf


def _needed(least: Float[np.ndarray, "L"]) -> float:
    """Tarone's level: .05/K, K the least number such that at most K classes can reach it."""
    classes = int(np.isfinite(least).sum())
    return next((LEVEL / k for k in range(1, classes + 1) if (least <= LEVEL / k).sum() <= k), LEVEL)


def class_level_test(data: ConceptData, shares: Float[np.ndarray, "L k"], *, floor: float = 0.01) -> ReferenceTest:
    """Against trusted shares of each class: exact binomial tails of every concept, Bonferroni over concepts, Holm over classes.

    shares: probability of 1 for each class code and concept; kept in [floor, 1 − floor], for a recorded 0 % or 100 % is an
    estimate. Approximate, and labelled so: the shares are taken as known and the rows as independent. Raises NotBinary,
    ShapeMismatch, BadValues.
    """
    from scipy.special import bdtr, bdtrc

    data = data.binary()
    given = np.asarray(shares, dtype=float)
    if given.shape != (data.n_classes, data.k):
        raise ShapeMismatch(
            "Shares must be one per class and concept", value=given.shape, allowed=f"({data.n_classes}, {data.k})"
        )
    if not ((given >= 0) & (given <= 1)).all():
        raise BadValues(
            "A share lies outside its range", value=float(given[~((given >= 0) & (given <= 1))][0]), allowed="0 to 1"
        )
    q = np.clip(given, floor, 1 - floor)
    classes = data.n_classes
    statistic, p = np.full(classes, np.nan), np.full(classes, np.nan)
    concept, reasons = np.full(classes, -1), cast(list[str | None], [None] * classes)
    for code in range(classes):
        rows = data.concepts[data.codes == code]
        if not len(rows):
            reasons[code] = "no row of this class"
            continue
        n, a = (~np.isnan(rows)).sum(axis=0), np.nansum(rows, axis=0)
        below, above = bdtr(a, n, q[code]), np.where(a > 0, bdtrc(a - 1, n, q[code]), 1.0)
        tails = np.minimum(1.0, 2 * np.minimum(below, above))
        concept[code] = int(tails.argmin())
        p[code] = min(1.0, data.k * float(tails.min()))
        with np.errstate(invalid="ignore", divide="ignore"):
            z = np.abs(a - n * q[code]) / np.sqrt(n * q[code] * (1 - q[code]))
        statistic[code] = float(np.nan_to_num(z).max())
    return ReferenceTest(
        statistic, p, holm(p), concept, tuple(reasons), "approximate: binomial tails at the class-level shares"
    )
