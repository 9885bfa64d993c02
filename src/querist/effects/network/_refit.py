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
from jaxtyping import Bool, Float, Int

from querist.effects.network._gaussian import integrate_one, integrate_two, spectrum
from querist.effects.network._slopes import slopes
from querist.errors import BadOption, TooFewRows

__all__ = ["Evidence", "Linear", "Refit", "evidence", "refit"]

Method = Literal["tier", "flat", "slope"]

SPREAD = 1e-3
"""Least sd of what the networks say of people, in sd of the outcome: below it standardised columns would show how rows were rounded."""


@dataclass(frozen=True, slots=True)
class Linear:
    """constant + ((columns − centre)/scale)·coefficients: [n, P] -> [n, C]."""

    centre: Float[np.ndarray, "P"]
    scale: Float[np.ndarray, "P"]
    coefficients: Float[np.ndarray, "P C"]
    constant: Float[np.ndarray, "C"]

    def at(self, columns: Float[np.ndarray, "n P"]) -> Float[np.ndarray, "n C"]:
        """Values for rows of columns."""
        return self.constant + ((columns - self.centre) / self.scale) @ self.coefficients


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the refit learns from: scores of base [n, K] and increments [n, M, K] (NaN where the outcome is missing), out-of-fold
    base [n, K] and increments [n, M, K] of the networks, encoded columns x [n, p], sd of each outcome [K], what can be estimated
    [M, K], tier weights of each outcome [M, K], weights [n] with mean 1, clusters."""

    psi_base: Float[np.ndarray, "n K"]
    psi_increments: Float[np.ndarray, "n M K"]
    base: Float[np.ndarray, "n K"]
    increments: Float[np.ndarray, "n M K"]
    x: Float[np.ndarray, "n p"]
    sd: Float[np.ndarray, "K"]
    estimable: Bool[np.ndarray, "M K"]
    tier_weights: Float[np.ndarray, "M K"]
    weight: Float[np.ndarray, "n"] | None = None
    cluster: Int[np.ndarray, "n"] | None = None


def evidence(
    x: Float[np.ndarray, "n p"],
    response: Float[np.ndarray, "n M+1 K"],
    codes: Int[np.ndarray, "n"],
    y: Float[np.ndarray, "n K"],
    propensity: Float[np.ndarray, "n M+1"],
    tier_weights: Float[np.ndarray, "M"],
    *,
    estimable: Bool[np.ndarray, "M K"] | None = None,
    weight: Float[np.ndarray, "n"] | None = None,
    cluster: Any = None,
) -> Evidence:
    """Scores and parts from out-of-fold mean outcomes, arms (0 control), outcomes with NaN where missing, and P(A = m | x)."""
    n, arms, outcomes = response.shape
    known = np.ones((arms - 1, outcomes), dtype=bool) if estimable is None else estimable
    w = tier_weights[:, None] * known
    w = w / np.where(w.sum(0) > 0, w.sum(0), 1.0)
    rows = np.arange(n)
    gamma = response.astype(float)
    # Rows of an arm that does not carry an outcome are left out of it: the others' chances are those among the arms that do.
    among = propensity @ np.concatenate([np.ones((1, outcomes)), known])
    gamma[rows, codes] += (y - response[rows, codes]) * among / propensity[rows, codes][:, None]
    gamma[np.isnan(y)[:, None].repeat(arms, 1)] = np.nan
    psi, total = gamma[:, 1:] - gamma[:, :1], response[:, 1:] - response[:, :1].astype(float)
    psi_base, base = np.einsum("nmk,mk->nk", psi, w), np.einsum("nmk,mk->nk", total, w)
    control = np.where((codes == 0)[:, None], y, np.nan)
    sd = np.array([np.nanstd(one) if np.isfinite(one).any() else 0.0 for one in control.T])
    return Evidence(
        psi_base,
        psi - psi_base[:, None],
        base,
        total - base[:, None],
        np.asarray(x, dtype=float),
        np.where(sd > 0, sd, 1.0),
        known,
        w,
        None if weight is None else weight / weight.mean(),
        None if cluster is None else np.unique(cluster, return_inverse=True)[1].reshape(-1),
    )


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
    if len(found.x) < 4:
        raise TooFewRows("Too few rows to shrink by", value=len(found.x), allowed="4 or more")
    n = len(found.x)
    if method == "flat":
        total, psi = found.base[:, None] + found.increments, found.psi_base[:, None] + found.psi_increments
        part, rows = _residual(found, "total", psi.reshape(n, -1), total.reshape(n, -1), found.estimable)
        return Refit(method, found.tier_weights, {"total": part}, rows)
    parts: dict[str, Linear] = {}
    known = np.asarray(found.estimable.any(axis=0))[None]
    free = found.estimable & (found.tier_weights < 1)  # a reference arm, and one that is alone, has no increment
    table: list[dict[str, Any]] = []
    if free.any():
        mean, factor, told = _arm_means(found, free)
        table += told
        model = _slope_increments if method == "slope" else _increments
        part, rows = model(found, free, mean * factor)
        parts["increments"], table = part, table + rows
    if method == "slope":
        part, rows = _slope_base(found, known[0])
    else:
        part, rows = _residual(found, "base", found.psi_base, found.base, known)
    parts["base"] = part
    return Refit(method, found.tier_weights, parts, table + rows)


# -------------------------------------------------------------------------------------------------------- arm means


def _arm_means(found: Evidence, free: np.ndarray) -> tuple[np.ndarray, float, list[dict[str, Any]]]:
    """Means of the increments' scores [M, K], and the factor that shrinks them towards 0 together."""
    arms, outcomes = free.shape
    mean, square, df = np.zeros((arms, outcomes)), 0.0, 0
    for k in range(outcomes):
        columns = np.flatnonzero(free[:, k])
        if not columns.size:
            continue
        y, rows = _observed(found, found.psi_increments[:, columns, k])
        weight = _of(found.weight, rows)
        centre = np.average(y, axis=0, weights=weight)
        mean[columns, k] = centre
        variance = noise(y - centre, weight, _of(found.cluster, rows)) / len(y)
        free_directions = int(found.estimable[:, k].sum()) - 1
        square += float((centre**2 / variance).sum()) * free_directions / columns.size
        df += free_directions
    factor = 1.0 if df <= 2 else max(0.0, 1 - (df - 2) / square) if square > 0 else 0.0
    return mean, factor, [{"part": "arm means", "factor": factor, "t": square}]


def noise(
    deviation: Float[np.ndarray, "n C"], weight: np.ndarray | None = None, cluster: np.ndarray | None = None
) -> Float[np.ndarray, "C"]:
    """Variance of one row's score, such that it over n is that of their mean: sums in clusters first, G/(G − 1)."""
    n = len(deviation)
    scaled = deviation if weight is None else deviation * weight[:, None]
    groups = n
    if cluster is not None:
        _, label = np.unique(cluster, return_inverse=True)
        groups = int(label.max()) + 1
        scaled = np.stack([np.bincount(label, one, minlength=groups) for one in scaled.T], axis=1)
    total = n if weight is None else float(weight.sum())
    found = (scaled**2).sum(axis=0) * groups / max(groups - 1, 1) / total
    return np.where(found > 0, found, np.finfo(float).tiny)


# ------------------------------------------------------------------------------------------------------------ parts


def _increments(found: Evidence, free: np.ndarray, mean: np.ndarray) -> tuple[Linear, list[dict[str, Any]]]:
    """The linear model of the increments' deviations: one scale for all."""
    n, arms, outcomes = found.increments.shape
    return _linear(
        found,
        "increments",
        found.psi_increments.reshape(n, -1),
        found.increments.reshape(n, -1),
        free.reshape(-1),
        np.tile(np.arange(outcomes), arms),
        mean.reshape(-1),
        scales=1,
    )


def _residual(
    found: Evidence, name: str, psi: np.ndarray, own: np.ndarray, known: np.ndarray
) -> tuple[Linear, list[dict[str, Any]]]:
    """The linear model of what the networks missed: a scale for the columns, one for what they said."""
    outcomes = found.base.shape[1]
    of = np.tile(np.arange(outcomes), known.shape[0])
    return _linear(found, name, psi - own, own, known.reshape(-1), of, None, scales=2)


def _linear(
    found: Evidence,
    name: str,
    y: np.ndarray,
    own: np.ndarray,
    known: np.ndarray,
    of: np.ndarray,
    constant: np.ndarray | None,
    *,
    scales: int,
) -> tuple[Linear, list[dict[str, Any]]]:
    """Columns y [n, C] of outcomes `of` on [x | own]; constant: means to use, else those of y. Outcomes with other rows observed
    are decomposed apart, and share the scales."""
    columns = y.shape[1]
    centre, scale = _standard(found, own, of)
    inputs = len(centre)
    groups: dict[bytes, list[int]] = {}
    for c in np.flatnonzero(known):
        groups.setdefault(np.isfinite(y[:, c]).tobytes(), []).append(int(c))
    spectra, variances, units, shifts = [], [], [], []
    means = np.zeros(columns)
    for members in groups.values():
        values, rows = _observed(found, y[:, members])
        weight = _of(found.weight, rows)
        mean = np.average(values, axis=0, weights=weight)
        means[members] = mean

        def standardised(part: slice, rows: np.ndarray | None = rows) -> np.ndarray:
            index: Any = part if rows is None else rows[part]
            return (np.concatenate([found.x[index], own[index]], axis=1) - centre) / scale

        shift = _mean_of(standardised, len(values), weight)
        spectra.append(spectrum(lambda part, f=standardised, s=shift: f(part) - s, values - mean, weight))
        variances.append(noise(values - mean, weight, _of(found.cluster, rows)))
        units.append(found.sd[of[members]])
        shifts.append(shift)
    two = scales == 2
    posterior = (
        integrate_two(spectra, variances, units, own.shape[1]) if two else integrate_one(spectra, variances, units)
    )
    coefficients, used = np.zeros((inputs, columns)), means if constant is None else constant.astype(float).copy()
    for members, beta, shift in zip(groups.values(), posterior.coefficients, shifts, strict=True):
        coefficients[:, members] = beta
        used[members] -= shift @ beta
    made = Linear(centre, scale, coefficients, used)
    return made, [_told(found, name, made, own, known, posterior.scales, of)]


def _told(
    found: Evidence, name: str, made: Linear, own: np.ndarray, known: np.ndarray, scales: tuple[float, ...], of: Any
) -> dict[str, Any]:
    """A row of the table: scales, and how much of the spread comes from columns and from networks."""
    p = found.x.shape[1]
    rows = slice(0, min(len(own), 100_000))  # shares to two digits need no more
    unit = found.sd[of]
    x = ((found.x[rows] - made.centre[:p]) / made.scale[:p]) @ made.coefficients[:p]
    net = ((own[rows] - made.centre[p:]) / made.scale[p:]) @ made.coefficients[p:]
    vx, vn = (float((one[:, known] / unit[known]).var(axis=0).sum()) for one in (x, net))
    whole = vx + vn
    row: dict[str, Any] = {"part": name, "tau": scales[0], "tau_net": scales[-1]}
    row["share_x"], row["share_net"] = (vx / whole, vn / whole) if whole > 0 else (None, None)
    return row


def _standard(found: Evidence, own: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd of the columns; one that is constant, or of which the networks say the same to everybody, never counts."""
    least = [np.zeros(found.x.shape[1]), SPREAD * found.sd[of]]
    means, sds = [], []
    for block, floor in zip((found.x, own), least, strict=True):
        mean = np.average(block, axis=0, weights=found.weight)
        sd = np.sqrt(np.average((block - mean) ** 2, axis=0, weights=found.weight))
        means.append(mean)
        sds.append(np.where(sd > np.maximum(floor, 1e-9 * np.maximum(np.abs(mean), 1e-9)), sd, np.inf))
    return np.concatenate(means), np.concatenate(sds)


def _mean_of(rows: Any, n: int, weight: np.ndarray | None) -> np.ndarray:
    total, block = 0.0, 65_536
    for start in range(0, n, block):
        part = slice(start, min(n, start + block))
        total = total + (rows(part).sum(axis=0) if weight is None else weight[part] @ rows(part))
    return np.asarray(total) / (n if weight is None else weight.sum())


def _observed(found: Evidence, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Columns of one outcome without missing rows, and those rows' numbers, None for all."""
    seen = np.isfinite(y[:, 0])
    if seen.all():
        return y, None
    rows = np.flatnonzero(seen)
    if len(rows) < 4:
        raise TooFewRows("An outcome has too few rows to shrink by", value=len(rows), allowed="4 or more")
    return y[rows], rows


def _of(values: np.ndarray | None, rows: np.ndarray | None) -> np.ndarray | None:
    return values if values is None or rows is None else values[rows]


# ----------------------------------------------------------------------------------------------------------- slopes


def _slope_increments(found: Evidence, free: np.ndarray, mean: np.ndarray) -> tuple[Linear, list[dict[str, Any]]]:
    n, arms, outcomes = found.increments.shape
    return _slopes(
        found,
        "increments",
        found.psi_increments.reshape(n, -1),
        found.increments.reshape(n, -1),
        free.reshape(-1),
        mean.reshape(-1),
        [(m, k) for m in range(arms) for k in range(outcomes)],
    )


def _slope_base(found: Evidence, known: np.ndarray) -> tuple[Linear, list[dict[str, Any]]]:
    names: list[tuple[int | None, int]] = [(None, k) for k in range(len(known))]
    return _slopes(found, "base", found.psi_base, found.base, known, None, names)


def _slopes(
    found: Evidence,
    name: str,
    psi: np.ndarray,
    own: np.ndarray,
    known: np.ndarray,
    mean: np.ndarray | None,
    names: list[Any],
) -> tuple[Linear, list[dict[str, Any]]]:
    columns, p = own.shape[1], found.x.shape[1]
    centre, scale = np.zeros(p + columns), np.ones(p + columns)
    coefficients, constant, table = np.zeros((p + columns, columns)), np.zeros(columns), []
    for c in np.flatnonzero(known):
        y, rows = _observed(found, psi[:, [c]])
        said = own[:, c] if rows is None else own[rows, c]
        weight = _of(found.weight, rows)
        m, k = names[c]
        # As in `_standard`: a slope on rounding would make rounding an effect.
        spread = np.sqrt(np.cov(said, aweights=weight, ddof=0))
        slope, t = (
            slopes(y[:, 0], said, weight, _of(found.cluster, rows)) if spread > SPREAD * found.sd[k] else (0.0, 0.0)
        )
        factor = max(0.0, 1 - 1 / t**2) if slope > 0 and t > 0 else 0.0
        centre[p + c] = np.average(said, weights=weight)
        coefficients[p + c, c] = slope * factor
        constant[c] = np.average(y[:, 0], weights=weight) if mean is None else mean[c]
        table.append({"part": name, "arm": m, "outcome": k, "slope": slope, "t": t, "factor": factor})
    return Linear(centre, scale, coefficients, constant), table
