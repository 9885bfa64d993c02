"""The linear model of a refit: scores of many columns on people's columns and on what networks said, with scales they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.network._evidence import SPREAD, Evidence, noise, observed, taken
from querist.effects.network._gaussian import integrate_one, integrate_two, slices, spectrum

__all__ = ["Linear", "linear_model"]

TOLD = 100_000
"""Rows that the shares of the table are taken from: two digits need no more."""


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


def linear_model(
    found: Evidence,
    name: str,
    y: Float[np.ndarray, "n C"],
    own: Float[np.ndarray, "n C"],
    known: Bool[np.ndarray, "C"],
    of: Int[np.ndarray, "C"],
    constant: Float[np.ndarray, "C"] | None,
    *,
    scales: Literal[1, 2],
) -> tuple[Linear, list[dict[str, Any]]]:
    """Columns y of outcomes `of` on [x | own], and a row of the refit's table.

    known: columns that are modelled; the others stay 0. constant: means to use, else those of y. scales: one for every
    coefficient, or one for x and one for own. Outcomes with other rows observed are decomposed apart, and share the scales.
    """
    columns = y.shape[1]
    centre, scale = _standard(found, own, of)
    groups: dict[bytes, list[int]] = {}
    for c in np.flatnonzero(known):
        groups.setdefault(np.isfinite(y[:, c]).tobytes(), []).append(int(c))
    spectra, variances, units, shifts = [], [], [], []
    means = np.zeros(columns)
    for members in groups.values():
        values, rows = observed(y[:, members])
        weight = taken(found.weight, rows)
        means[members] = mean = np.average(values, axis=0, weights=weight)
        values -= mean  # a copy already

        def standardised(part: slice, rows: np.ndarray | None = rows) -> Float[np.ndarray, "r P"]:
            index: Any = part if rows is None else rows[part]
            return (np.concatenate([found.x(index), own[index]], axis=1) - centre) / scale

        shift = _mean_of(standardised, len(values), weight)
        spectra.append(spectrum(lambda part, f=standardised, s=shift: f(part) - s, values, weight))
        variances.append(noise(values, weight, taken(found.cluster, rows)))
        units.append(found.sd[of[members]])
        shifts.append(shift)
    posterior = (
        integrate_one(spectra, variances, units)
        if scales == 1
        else integrate_two(spectra, variances, units, own.shape[1])
    )
    coefficients, used = np.zeros((len(centre), columns)), means if constant is None else constant.astype(float).copy()
    for members, beta, shift in zip(groups.values(), posterior.coefficients, shifts, strict=True):
        coefficients[:, members] = beta
        used[members] -= shift @ beta
    made = Linear(centre, scale, coefficients, used)
    return made, [_told(found, name, made, own, known, posterior.scales, of)]


def _told(
    found: Evidence, name: str, made: Linear, own: np.ndarray, known: np.ndarray, scales: tuple[float, ...], of: Any
) -> dict[str, Any]:
    """Scales, and how much of the spread comes from columns and from networks."""
    p, rows = found.p, slice(0, min(len(own), TOLD))
    unit = found.sd[of]
    from_x = [
        ((block - made.centre[:p]) / made.scale[:p]) @ made.coefficients[:p] for _, block in _blocks(found, rows.stop)
    ]
    net = ((own[rows] - made.centre[p:]) / made.scale[p:]) @ made.coefficients[p:]
    vx, vn = (float((one[:, known] / unit[known]).var(axis=0).sum()) for one in (np.concatenate(from_x), net))
    whole = vx + vn
    row: dict[str, Any] = {"part": name, "tau": scales[0], "tau_net": scales[-1]}
    row["share_x"], row["share_net"] = (vx / whole, vn / whole) if whole > 0 else (None, None)
    return row


def _standard(found: Evidence, own: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd of the columns; one that is constant, or of which the networks say the same to everybody, never counts."""
    mean, square = np.zeros(found.p + own.shape[1]), np.zeros(found.p + own.shape[1])
    for into, centre in ((mean, 0.0), (square, mean)):
        for part, block in _blocks(found, found.n):
            one = np.concatenate([block, own[part]], axis=1) - centre
            one = one if into is mean else one**2
            into += one.sum(axis=0) if found.weight is None else found.weight[part] @ one
        into /= found.n if found.weight is None else found.weight.sum()
    sd = np.sqrt(square)
    least = np.concatenate([np.zeros(found.p), SPREAD * found.sd[of]])
    return mean, np.where(sd > np.maximum(least, 1e-9 * np.maximum(np.abs(mean), 1e-9)), sd, np.inf)


def _blocks(found: Evidence, n: int) -> Iterator[tuple[slice, Float[np.ndarray, "r p"]]]:
    for part in slices(n, found.p):
        yield part, found.x(part)


def _mean_of(rows: Any, n: int, weight: np.ndarray | None) -> Float[np.ndarray, "P"]:
    total = 0.0
    for part in slices(n, rows(slice(0, 0)).shape[1]):
        total = total + (rows(part).sum(axis=0) if weight is None else weight[part] @ rows(part))
    return np.asarray(total) / (n if weight is None else weight.sum())
