"""The whole spectrum of a watched layer beside its nulls, and what of it is new."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from querist.errors import NumericalFailure
from querist.weights.fits import fit_powerlaw
from querist.weights.monitor._alarms import RANK_STEPS, Known, bulk_departs, level_at, spikes_beyond
from querist.weights.monitor._kept import BINS, log_histogram
from querist.weights.nulls import MPFit, SpikeTest, fit_mp, full_replicas, mp_quantiles, spike_test
from querist.weights.spectrum import LayerMatrix, esd, norms, slq

__all__ = ["EXACT_SIDE", "Told", "Whole", "whole_spectrum"]

EXACT_SIDE = 4096
"""Above this side a spectrum on a CPU is approximated, as a scan does it."""
FEW, MANY = 3, 19
"""Sign-flipped copies that stand beside every bulk in doubt, and those that an alarm of a departing bulk needs."""
_RETRY = 1.25
"""A bulk whose departure its copies have refuted is held against 19 of them again once N·KS has grown by this."""


class Told(NamedTuple):
    """An alarm before it has its step and layer."""

    kind: str
    value: float
    null: float
    p: float | None
    level: float | None
    because: str


@dataclass(slots=True)
class Whole:
    """Columns of the trace, bins, resampled copies, alarms, and what is known of the layer from now on."""

    row: dict[str, Any]
    known: Known
    band: tuple[float, float] | None
    histogram: list[dict[str, Any]] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[Told] = field(default_factory=list)


def whole_spectrum(
    W: Tensor, matrix: LayerMatrix, known: Known, band: tuple[float, float] | None, event: int, layers: int, seed: int
) -> Whole:
    """All eigenvalues of W [h, d]: bulk, spikes, exponent and rank, each beside its null.

    known, band: what earlier looks found (band: the range of Hill's exponent on the law and on sign-flipped copies); event,
    layers: from which the level of alarms follows. Copies are drawn as a scan draws them: both resampling nulls where
    λ_max passes the .95 Tracy–Widom edge, three sign-flipped whole spectra at the first look and where p of the bulk is at
    most .05.
    """
    out = Whole({}, replace(known), band)
    shape, level = matrix.shape, level_at(event, layers)
    approximate = min(shape) > EXACT_SIDE and W.device.type == "cpu"
    if approximate:
        found = slq(W, seed=seed, layer=matrix.layer_id)
        evals, top = found.evals, found.top
        reason = (
            f"the {top.size} largest eigenvalues are exact, the rest is known to {found.cdf_error:.2g} in distribution"
        )
        out.row |= {"status": "approximate", "reason": reason}
    else:
        evals = top = esd(W).evals
    out.histogram = _bins(evals, max(shape))
    if evals[-1] == 0:
        out.row |= {"rank": 0, "rank_loss": evals.size - matrix.zeros, "reason": "every entry is zero"}
        _rank(out, matrix, event)
        return out
    if not approximate:
        sizes = norms(evals, shape)
        lost = (sizes.rank_loss or 0) - matrix.zeros
        out.row |= {"rank": sizes.rank, "rank_loss": max(lost, 0), "entropy": sizes.entropy}
        _rank(out, matrix, event)
    _exponent(out, top if approximate else _without_rounding(evals, shape), shape, approximate)
    if matrix.resampled:
        _bulk_and_spikes(out, W, evals, matrix, level, event, seed, approximate)
    else:
        out.row["reason"] = "a low-rank pair has no free entries, so there are no copies to stand beside it"
    return out


def _bins(evals: np.ndarray, side: int) -> list[dict[str, Any]]:
    first, counts, zeros = log_histogram(evals, side)
    rows: list[dict[str, Any]] = [{"bin": None, "left": 0.0, "right": 0.0, "count": zeros}] if zeros else []
    for i, count in enumerate(counts.tolist(), first):
        if count:
            rows.append({"bin": i, "left": 10 ** (i / BINS), "right": 10 ** ((i + 1) / BINS), "count": count})
    return rows


def _without_rounding(evals: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """What lies below rounding is no eigenvalue of the matrix: a fit would see a second, meaningless cloud."""
    return np.where(evals > np.finfo(np.float64).eps * evals[-1] * max(shape), evals, 0.0)


def _rank(out: Whole, matrix: LayerMatrix, event: int) -> None:
    share = out.row["rank_loss"] / max(min(matrix.shape) - matrix.zeros, 1)
    reached = sum(share >= step for step in RANK_STEPS)
    if out.known.rank_step is not None and reached > out.known.rank_step:
        because = (
            f"{out.row['rank_loss']} of {min(matrix.shape) - matrix.zeros} singular values are lost to rounding "
            f"({100 * share:.3g} %), at the looks before fewer than {100 * RANK_STEPS[out.known.rank_step]:.3g} %."
        )
        out.alarms.append(Told("rank-drop", share, RANK_STEPS[reached - 1], None, None, because))
    out.known.rank_step = max(reached, out.known.rank_step or 0)


def _exponent(out: Whole, evals: np.ndarray, shape: tuple[int, int], approximate: bool) -> None:
    fit = fit_powerlaw(evals)
    out.row |= {"alpha": fit.alpha, "n_tail": fit.n_tail}
    if not approximate:  # Hill's exponent is over half of the spectrum, of which the upper part alone is known
        out.row |= {
            "alpha_hill": fit_powerlaw(evals, method="hill").alpha,
            "alpha_hill_mp": _hill_of_law(*sorted(shape)),
        }


@lru_cache(maxsize=256)
def _hill_of_law(n: int, m: int) -> float | None:
    return fit_powerlaw(mp_quantiles(n, m), method="hill").alpha


def _bulk_and_spikes(
    out: Whole,
    W: Tensor,
    evals: np.ndarray,
    matrix: LayerMatrix,
    level: float,
    event: int,
    seed: int,
    approximate: bool,
) -> None:
    row, layer = out.row, matrix.layer_id
    try:
        fit = fit_mp(evals, matrix.shape)
    except NumericalFailure as error:
        row["reason"] = f"the bulk was not fitted: {error}"
        return
    row |= {"sigma_mp": fit.sigma_mp, "lambda_plus": fit.lambda_plus, "edge": fit.tw99}
    test = spike_test(W, evals, replicas=0, rank_replicas=MANY, seed=seed, layer=layer, fit=fit)
    row |= test.columns()
    for null, draws in test.draws.items():
        out.copies += [{"null": null, "replica": i, "lambda_max": float(value)} for i, value in enumerate(draws)]
    _spikes(out, evals, test, fit, level)
    if approximate:
        return
    row |= {"bulk_ks": fit.bulk_ks, "bulk_p": fit.bulk_p}
    copies: list[np.ndarray] = []
    if out.band is None or fit.bulk_p <= 0.05:
        copies = full_replicas(W, "signflip", FEW, seed, layer)
        hill = [fit_powerlaw(copy, method="hill").alpha for copy in copies]
        known = [value for value in (*hill, row["alpha_hill_mp"]) if value is not None]
        out.band = (min(known), max(known)) if known else out.band
    if out.band is not None:
        row |= {"alpha_null_low": out.band[0], "alpha_null_high": out.band[1]}
    _bulk(out, W, copies, fit, matrix, level, seed)


def _spikes(out: Whole, evals: np.ndarray, test: SpikeTest, fit: MPFit, level: float) -> None:
    known = out.known
    count, edge, p = spikes_beyond(evals, test, fit, level)
    if known.spikes is None:
        known.spikes = test.n_spikes or 0 if test.verdict == "yes" else 0
        return
    if count > known.spikes:
        copies = ", ".join(f"{len(draws)} {word}" for word, draws in _named(test))
        because = (
            f"{count} eigenvalue{'s lie' if count > 1 else ' lies'} beyond {edge:.4g}, the edge of every null at level "
            f"{level:.2g} (Tracy–Widom, {copies}); {known.spikes} did before. The largest is {float(evals[-1]):.4g}."
        )
        out.alarms.append(Told("spike-born", float(evals[-count]), edge, p, level, because))
        known.spikes, known.top_refuted = count, 0.0
    elif evals.size > known.spikes:
        known.top_refuted = float(evals[-1 - known.spikes])


def _named(test: SpikeTest) -> list[tuple[str, np.ndarray]]:
    words = {"shuffle": "shuffled copies", "signflip": "copies with random signs"}
    return [(words[null], draws) for null, draws in sorted(test.draws.items())]


def _bulk(
    out: Whole, W: Tensor, copies: list[np.ndarray], fit: MPFit, matrix: LayerMatrix, level: float, seed: int
) -> None:
    known, ks = out.known, fit.bulk_ks
    beside = [fit_mp(copy, matrix.shape).bulk_ks for copy in copies]
    first = known.departed is None
    if first:
        known.departed = bool(fit.bulk_p < 0.01 and beside and ks > max(beside))
    if not known.departed and not first and fit.bulk_p <= min(level, 0.01) and ks > _RETRY * known.ks_refuted:
        more = full_replicas(W, "signflip", MANY - len(copies), seed, matrix.layer_id, first=len(copies))
        beside += [fit_mp(copy, matrix.shape).bulk_ks for copy in more]
        yes, p = bulk_departs(ks, fit.bulk_p, np.array(beside), level)
        if yes:
            because = (
                f"N·KS {ks:.3g} is beyond a random matrix of this shape (p {fit.bulk_p:.2g}) and beyond {max(beside):.3g}, the "
                f"most in {len(beside)} copies with random signs; level {level:.2g}."
            )
            out.alarms.append(Told("bulk-departs", ks, max(beside), p, level, because))
            known.departed = True
        else:
            known.ks_refuted = ks
    own = [{"null": "signflip", "replica": i, "bulk_ks": value} for i, value in enumerate(beside)]
    joined = {(row["null"], row["replica"]): row for row in out.copies}
    for row in own:
        joined[row["null"], row["replica"]] = {**joined.get((row["null"], row["replica"]), {}), **row}
    out.copies = list(joined.values())
