"""The CAT selector: the concepts that a linear filter relates least to the target, so that changing them is unobtrusive."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from querist.concepts.data import ConceptData
from querist.concepts.triggers._selection import Selection, auto_values, checked, described
from querist.concepts.triggers._trigger import Trigger
from querist.errors import BadOption, NumericalFailure
from querist.statistics import stream

__all__ = ["Filtered", "balanced_logistic", "cat", "filter_order"]

STEPS, TOLERANCE = 100, 1e-10
DIGITS = 9
"""Coefficients are compared to 9 decimals, so that equal columns tie in spite of rounding and go by index."""


def cat(
    data: ConceptData,
    target: Any,
    size: int,
    *,
    value: Any = "auto",
    draws: int = 1,
    constants: str = "exclude",
    seed: int = 0,
) -> Selection:
    """The `size` concepts of least |coefficient| in a logistic regression of the target class on the concepts.

    Positives are the rows of the target; negatives as many random rows of other classes, or 2k − n_t where n_t < k. Penalty
    ½‖w‖² with C = 1, classes balanced, the intercept free. value: "auto" (1 in a table with mean below ½, else 0), 0, 1, or
    one per concept. draws > 1 averages the ranks over that many draws of negatives. Constant concepts have coefficient 0 and
    would come first; they are left out unless constants="allow". A class of one row has |mean in − mean out| instead.

    Raises UnknownName for a class without rows, BadOption for a size, value, draws. Source: Lai et al., CAT (arXiv 2410.04823)
    and its public release, which hard-codes the value 1 and keeps constant concepts.
    """
    code = data.target(target)
    usable = checked(data, size, constants)
    values = auto_values(data, value)
    found = filter_order(data, code, draws=draws, seed=seed)
    order = usable[np.lexsort((usable, found.rank[usable]))][:size]
    trigger = Trigger(tuple(order.tolist()), tuple(values[order].tolist()))
    return described(
        data,
        trigger,
        code,
        selector="cat",
        seed=seed,
        score=None,
        coef_abs=found.coef_abs[order],
        rank_spread=found.spread[order] if draws > 1 else None,
        warnings=found.warnings,
    )


class Filtered:
    """|coefficient| [k] (mean over the draws), mean rank [k] (0 the least), its spread [k], and what must be said."""

    __slots__ = ("coef_abs", "rank", "spread", "warnings")

    def __init__(self, coefs: Float[np.ndarray, "draws k"], warnings: tuple[str, ...] = ()):
        coefs = np.round(coefs, DIGITS)
        self.coef_abs = coefs.mean(axis=0)
        ranks = np.argsort(np.argsort(coefs, axis=1, kind="stable"), axis=1, kind="stable").astype(float)
        self.rank, self.spread, self.warnings = ranks.mean(axis=0), ranks.std(axis=0), warnings

    def place(self) -> np.ndarray:
        """Place [k] of each concept when the least related comes first, ties by index."""
        place = np.empty(self.rank.size, dtype=int)
        place[np.lexsort((np.arange(self.rank.size), self.rank))] = np.arange(self.rank.size)
        return place


def filter_order(data: ConceptData, code: int, *, draws: int = 1, seed: int = 0) -> Filtered:
    """How much the filter relates each concept to class `code`; unknown cells stand at their concept's mean."""
    if draws < 1:
        raise BadOption("The filter needs a draw of negatives", value=draws, allowed="1 or more")
    inside = np.flatnonzero(data.codes == code)
    outside = np.flatnonzero(data.codes != code)
    if not outside.size:
        raise BadOption(
            "Every row is of the target class", value=str(data.classes[code]), mend="Give a table of two classes"
        )
    if inside.size < 2:
        difference = np.abs(_filled(data, inside).mean(axis=0) - data.means)
        said = f"class {data.classes[code]} has one row: |mean in the class − mean of all| takes the filter's place"
        return Filtered(np.nan_to_num(difference)[None], (said,))
    wanted = inside.size if inside.size >= data.k else 2 * data.k - inside.size
    coefs = []
    for draw in range(draws):
        rng = stream(seed, "cat negatives", code, draw)
        chosen = rng.choice(outside, min(wanted, outside.size), replace=False)
        rows = np.concatenate([inside, chosen])
        coefs.append(np.abs(balanced_logistic(_filled(data, rows), np.arange(len(rows)) < inside.size)))
    return Filtered(np.stack(coefs))


def _filled(data: ConceptData, rows: np.ndarray) -> Float[np.ndarray, "m k"]:
    cells = data.concepts[rows].astype(float)
    unknown = np.isnan(cells)
    return np.where(unknown, np.nan_to_num(data.means), cells) if unknown.any() else cells


def balanced_logistic(x: Float[np.ndarray, "n k"], y: np.ndarray, C: float = 1.0) -> Float[np.ndarray, "k"]:
    """Coefficients that minimise ½‖w‖² + C·Σ n/(2 n_class)·log-loss, intercept unpenalised, by Newton steps to the optimum.

    The same optimum as scikit-learn's LogisticRegression(class_weight="balanced"), at a tenth of its cost on a few hundred rows:
    all targets of a table are filtered. Where there are more columns than rows the steps are solved in the rows' span.
    Raises NumericalFailure where it does not converge.
    """
    n, k = x.shape
    positive = int(y.sum())
    weight = C * np.where(y, n / (2 * positive), n / (2 * (n - positive)))
    if k > n:  # w lies in the span of the rows: x = r·qᵀ with orthonormal q keeps products and norms
        q, r = np.linalg.qr(x.T)
        return q @ balanced_logistic(np.ascontiguousarray(r.T), y, C)
    design = np.column_stack([x, np.ones(n)])
    penalty = np.append(np.ones(k), 0.0)
    w = np.zeros(k + 1)
    signed = np.where(y, 1.0, -1.0)

    def loss(at: np.ndarray) -> float:
        return float((weight * np.logaddexp(0, -signed * (design @ at))).sum() + 0.5 * (penalty * at * at).sum())

    now = loss(w)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ w, -500, 500)))
        gradient = design.T @ (weight * (p - y)) + penalty * w
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design
        hessian[np.diag_indices(k + 1)] += penalty + 1e-12
        step = np.linalg.solve(hessian, gradient)
        if float(gradient @ step) < TOLERANCE**1.5:
            return (w - step)[:k]
        size = 1.0
        while (after := loss(w - size * step)) > now - 1e-4 * size * float(gradient @ step) and size > 1e-6:
            size /= 2
        w, now = w - size * step, after
    raise NumericalFailure("The logistic filter did not converge")
