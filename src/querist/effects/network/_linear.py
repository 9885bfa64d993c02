"""The linear model of a refit: scores of many columns on people's columns and on what networks said, with scales they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.network._evidence import SPREAD, Evidence, Pair, mean_of, noise, taken
from querist.effects.network._gaussian import WORK, Blocks, integrate_one, integrate_two, slices, spectrum
from querist.statistics.moments import Moments

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
    pair: Pair,
    known: Bool[np.ndarray, "C"],
    of: Int[np.ndarray, "C"],
    constant: Float[np.ndarray, "C"] | None,
    *,
    scales: Literal[1, 2],
) -> tuple[Linear, list[dict[str, Any]]]:
    """Columns of outcomes `of` on [x | own], and a row of the refit's table; both come from `pair` as blocks of rows are asked for.

    known: columns that are modelled; the others stay 0. constant: means to use, else those of y. scales: one for every
    coefficient, or one for x and one for own. Outcomes with other rows observed are decomposed apart, and share the scales.
    """
    centre, scale = _standard(found, pair, of)

    def standardised(rows: Any) -> Float[np.ndarray, "r P"]:
        return (np.concatenate([found.x(rows), pair(rows)[1]], axis=1) - centre) / scale

    spectra, variances, units, shifts = [], [], [], []
    means = np.zeros(len(of))
    groups = _alike(found, known, of)
    for members in groups:
        rows = found.seen(of[members[0]])
        weight = taken(found.weight, rows)
        scores = found.blocks(lambda part, c=members: pair(part)[0][:, c], rows)
        means[members] = mean = mean_of(scores, weight)
        values = Blocks(scores.n, lambda part, f=scores, m=mean: f(part) - m)
        columns = found.blocks(standardised, rows)
        shift = mean_of(columns, weight)
        spectra.append(spectrum(lambda part, f=columns, s=shift: f(part) - s, values, weight))
        variances.append(noise(values, weight, taken(found.cluster, rows)))
        units.append(found.sd[of[members]])
        shifts.append(shift)
    posterior = (
        integrate_one(spectra, variances, units) if scales == 1 else integrate_two(spectra, variances, units, len(of))
    )
    coefficients, used = np.zeros((len(centre), len(of))), means if constant is None else constant.astype(float).copy()
    for members, beta, shift in zip(groups, posterior.coefficients, shifts, strict=True):
        coefficients[:, members] = beta
        used[members] -= shift @ beta
    made = Linear(centre, scale, coefficients, used)
    return made, [_told(found, name, made, pair, known, posterior.scales, of)]


def _alike(found: Evidence, known: np.ndarray, of: np.ndarray) -> list[list[int]]:
    """Columns that are modelled, those together whose outcomes are known of the same rows."""
    seen = np.isfinite(found.error)
    groups: list[list[int]] = []
    for c in np.flatnonzero(known).tolist():
        same = [one for one in groups if np.array_equal(seen[:, of[one[0]]], seen[:, of[c]])]
        if same:
            same[0].append(c)
        else:
            groups.append([c])
    return groups


def _told(
    found: Evidence, name: str, made: Linear, pair: Pair, known: np.ndarray, scales: tuple[float, ...], of: Any
) -> dict[str, Any]:
    """Scales, and how much of the spread comes from columns and from networks."""
    p, unit = found.p, found.sd[of][known]
    shares = Moments(len(unit)), Moments(len(unit))
    for part, block in _blocks(found, min(found.n, TOLD), len(of)):
        for into, one, at in zip(shares, (block, pair(part)[1]), (slice(p), slice(p, None)), strict=True):
            into.update(((one - made.centre[at]) / made.scale[at]) @ made.coefficients[at][:, known] / unit)
    vx, vn = (float((one.m2 / one.n).sum()) for one in shares)
    whole = vx + vn
    row: dict[str, Any] = {"part": name, "tau": scales[0], "tau_net": scales[-1]}
    row["share_x"], row["share_net"] = (vx / whole, vn / whole) if whole > 0 else (None, None)
    return row


def _standard(found: Evidence, pair: Pair, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd of the columns; one that is constant, or of which the networks say the same to everybody, never counts."""
    mean, square = np.zeros(found.p + len(of)), np.zeros(found.p + len(of))
    for into, centre in ((mean, 0.0), (square, mean)):
        for part, block in _blocks(found, found.n, len(of)):
            one = np.concatenate([block, pair(part)[1]], axis=1) - centre
            one = one if into is mean else one**2
            into += one.sum(axis=0) if found.weight is None else found.weight[part] @ one
        into /= found.n if found.weight is None else found.weight.sum()
    sd = np.sqrt(square)
    least = np.concatenate([np.zeros(found.p), SPREAD * found.sd[of]])
    return mean, np.where(sd > np.maximum(least, 1e-9 * np.maximum(np.abs(mean), 1e-9)), sd, np.inf)


def _blocks(found: Evidence, n: int, own: int) -> Iterator[tuple[slice, Float[np.ndarray, "r p"]]]:
    for part in slices(n, found.p + own, WORK * own):
        yield part, found.x(part)
