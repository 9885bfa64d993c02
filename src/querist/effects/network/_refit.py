"""The tiered refit: base effect and increments of a cross-fitted model, each shrunk by its own evidence.

A network that was trained on noisy outcomes spreads people too much or too little, and not alike in the two parts. Out-of-fold
doubly robust scores say what each part is worth: arm means are shrunk together (James and Stein 1961), increments are modelled
anew by the columns and by what the networks said of them, and of the base effect what the networks missed. The natural part
stays as it is. Design ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from querist.effects.network._evidence import Evidence, Pair, mean_of, noise, taken
from querist.effects.network._gaussian import Blocks
from querist.effects.network._linear import Linear, linear_model
from querist.effects.network._slopes import slope_model
from querist.errors import BadOption, TooFewRows

__all__ = ["Refit", "refit"]

Method = Literal["tier", "flat", "slope"]


@dataclass(frozen=True, slots=True)
class Refit:
    """A finished refit; `apply` turns a model's parts into refitted ones. `table` tells of every factor."""

    method: str
    tier_weights: Float[np.ndarray, "M K"]
    parts: Mapping[str, Linear]
    table: list[dict[str, Any]]

    def apply(
        self, x: Float[np.ndarray, "n p"], base: Float[np.ndarray, "n K"], increments: Float[np.ndarray, "n M K"]
    ) -> tuple[Float[np.ndarray, "n K"], Float[np.ndarray, "n M K"]]:
        """Base and increments of new rows, from the mean parts of the cross-fitted networks; increments cancel."""
        n, arms, outcomes = increments.shape
        w = self.tier_weights
        if self.method == "flat":
            total = base[:, None] + increments
            flat = total.reshape(n, -1)
            total = total + self.parts["total"].at(np.concatenate([x, flat], axis=1)).reshape(total.shape)
            base = np.einsum("nmk,mk->nk", total, w)
            return base, total - base[:, None]
        new_base = self.parts["base"].at(np.concatenate([x, base], axis=1))
        # The slope stands for the networks' base effect; the Bayes refit corrects it.
        new_base = new_base if self.method == "slope" else base + new_base
        if "increments" not in self.parts:
            return new_base, np.zeros_like(increments)
        flat = increments.reshape(n, -1)
        made = self.parts["increments"].at(np.concatenate([x, flat], axis=1)).reshape(n, arms, outcomes)
        return new_base, made - np.einsum("nmk,mk->nk", made, w)[:, None]

    def arrays(self) -> dict[str, np.ndarray]:
        """All numbers by name, for a file."""
        found = {"tier_weights": self.tier_weights}
        for name, part in self.parts.items():
            for field in ("centre", "scale", "coefficients", "constant"):
                found[f"{name}.{field}"] = getattr(part, field)
        return found

    @classmethod
    def from_arrays(cls, method: str, arrays: Mapping[str, np.ndarray], table: list[dict[str, Any]]) -> Refit:
        """What `arrays` gave, again."""
        names = dict.fromkeys(name.partition(".")[0] for name in arrays if "." in name)
        fields = ("centre", "scale", "coefficients", "constant")
        parts = {name: Linear(*(arrays[f"{name}.{field}"] for field in fields)) for name in names}
        return cls(method, arrays["tier_weights"], parts, table)


def refit(found: Evidence, method: Method = "tier") -> Refit:
    """Fit the refit.

    "tier": increments are shrunken arm means plus a Gaussian linear model on [x | increments of the networks] with one scale for all
    arms and outcomes; the base effect is that of the networks plus its mean error and such a model of their residuals on
    [x | base of the networks] with two scales. "flat": the same two-scale model on the residuals of total effects. "slope": each
    part is its mean plus the networks' deviations times their out-of-fold slope, shrunk by max(0, 1 − 1/t²).

    Raises BadOption, TooFewRows.
    """
    if method not in ("tier", "flat", "slope"):
        raise BadOption("No such shrinkage", value=method, allowed='"tier", "flat", "slope", False')
    if found.n < 4:
        raise TooFewRows("Too few rows to shrink by", value=found.n, allowed="4 or more")
    if method == "flat":

        def totals(rows: Any) -> tuple[np.ndarray, np.ndarray]:
            one = found.scores(rows)
            said = one.base[:, None] + one.increments
            return _flat(one.psi_base[:, None] + one.psi_increments - said), _flat(said)

        part, rows = _residual(found, "total", totals, found.estimable)
        return Refit(method, found.tier_weights, {"total": part}, rows)
    parts: dict[str, Linear] = {}
    known = np.asarray(found.estimable.any(axis=0))[None]
    free = found.estimable & (found.tier_weights < 1)  # a reference arm, and one that is alone, has no increment
    arms, outcomes = free.shape
    table: list[dict[str, Any]] = []
    if free.any():
        mean, factor, told = arm_means(found, free)
        mean = (mean * factor).reshape(-1)

        def increments(rows: Any) -> tuple[np.ndarray, np.ndarray]:
            one = found.scores(rows)
            return _flat(one.psi_increments), _flat(one.increments)

        if method == "slope":
            names: list[Any] = [(m, k) for m in range(arms) for k in range(outcomes)]
            part, rows = slope_model(found, "increments", increments, free.reshape(-1), mean, names)
        else:
            of = np.tile(np.arange(outcomes), arms)
            part, rows = linear_model(found, "increments", increments, free.reshape(-1), of, mean, scales=1)
        parts["increments"], table = part, [told, *rows]
    if method == "slope":

        def bases(rows: Any) -> tuple[np.ndarray, np.ndarray]:
            one = found.scores(rows)
            return one.psi_base, one.base

        part, rows = slope_model(found, "base", bases, known[0], None, [(None, k) for k in range(outcomes)])
    else:

        def missed(rows: Any) -> tuple[np.ndarray, np.ndarray]:
            one = found.scores(rows)
            return one.psi_base - one.base, one.base

        part, rows = _residual(found, "base", missed, known)
    parts["base"] = part
    return Refit(method, found.tier_weights, parts, table + rows)


def arm_means(found: Evidence, free: Bool[np.ndarray, "M K"]) -> tuple[Float[np.ndarray, "M K"], float, dict[str, Any]]:
    """Means of the increments' scores, the factor that shrinks them towards 0 together, and its row of the table.

    free: increments that are not 0 by definition. Source: James and Stein (1961), over free directions.
    """
    arms, outcomes = free.shape
    mean, square, df = np.zeros((arms, outcomes)), 0.0, 0
    for k in range(outcomes):
        columns = np.flatnonzero(free[:, k])
        if not columns.size:
            continue
        rows = found.seen(k)
        weight = taken(found.weight, rows)
        scores = found.blocks(lambda part, c=columns, k=k: found.scores(part).psi_increments[:, c, k], rows)
        mean[columns, k] = centre = mean_of(scores, weight)
        deviations = Blocks(scores.n, lambda part, f=scores, m=centre: f(part) - m)
        variance = noise(deviations, weight, taken(found.cluster, rows)) / scores.n
        directions = int(found.estimable[:, k].sum()) - 1
        square += float((centre**2 / variance).sum()) * directions / columns.size
        df += directions
    factor = 1.0 if df <= 2 else max(0.0, 1 - (df - 2) / square) if square > 0 else 0.0
    return mean, factor, {"part": "arm means", "factor": factor, "t": square}


def _residual(found: Evidence, name: str, missed: Pair, known: np.ndarray) -> tuple[Linear, list[dict[str, Any]]]:
    """The linear model of what the networks missed: a scale for the columns, one for what they said."""
    of = np.tile(np.arange(known.shape[1]), known.shape[0])
    return linear_model(found, name, missed, known.reshape(-1), of, None, scales=2)


def _flat(values: Float[np.ndarray, "n M K"]) -> Float[np.ndarray, "n MK"]:
    return values.reshape(len(values), values.shape[1] * values.shape[2])
