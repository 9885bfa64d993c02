"""The update ΔW itself: its spectrum, its rank above rounding, and its spikes beside resampled copies of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from querist.errors import NumericalFailure
from querist.weights.configs import CompareConfig
from querist.weights.delta import Factors, beyond, factor_replicas
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import MPFit, fit_mp, full_replicas, spike_test, top_error, top_replicas
from querist.weights.spectrum import ShortSide, Triplets, triplets
from querist.weights.studies.sides import Sides

__all__ = ["Update", "dense_update", "low_rank_update"]


@dataclass
class Update:
    """Columns of a row about ΔW, its eigenvalues, its leading triplets, and its copies.

    draws: (null, replica) to columns of `null_draws`, replica None for ΔW itself.
    """

    row: dict[str, Any]
    evals: np.ndarray
    triplets: Triplets
    copies: list[tuple[str, int, np.ndarray]] = field(default_factory=list)
    draws: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict)


def dense_update(
    both: Sides, short: ShortSide, config: CompareConfig, layer: str, *, coarse: bool, faint: float, count: int
) -> Update:
    """ΔW as a matrix: its entries are resampled, as a scan does.

    faint: what independent rounding errors would make of its largest singular value. Directions below it are not compared
    unless all are; their number above it is `delta_rank`.
    """
    assert both.delta is not None
    delta, view = both.delta, both.view
    evals = short.evals if coarse or view.flat else view.spectrum(delta)  # type: ignore[arg-type]
    shape = short.shape if view.flat else view.matrix.shape
    rank = int(np.count_nonzero(np.sqrt(short.evals) > max(faint, _resolved(short))))
    wanted = min(config.k, rank) or config.k
    update = Update({"delta_rank": rank, "delta_null": "entries"}, evals, triplets(delta, short, wanted))
    _describe(update, evals, coarse, config, max(shape))
    bulk = _bulk(update, evals, shape, 1 if view.flat else count)
    entries = view.entries(delta) if isinstance(delta, Tensor) else None
    update.draws["real", None] = {"lambda_max": float(evals[-1]), "edge": bulk.tw99 if bulk else None}
    if entries is None or not config.nulls:
        return update
    if bulk is None or coarse:
        _largest_only(update, entries, evals, bulk, shape, both, config, layer)
    else:
        _spikes(update, entries, evals, bulk, shape, both, config, layer)
    return update


def _resolved(short: ShortSide) -> float:
    """Singular values below this are rounding of the float64 Gram matrix."""
    return float(np.sqrt(np.finfo(np.float64).eps * max(short.shape) * short.evals[-1]))


def _describe(update: Update, evals: np.ndarray, coarse: bool, config: CompareConfig, longer: int) -> None:
    top = float(evals[-1])
    update.row["delta_stable_rank"] = float(evals.sum()) / top if top > 0 else None
    clean = np.where(evals > np.finfo(np.float64).eps * top * longer, evals, 0.0)
    if not coarse:
        update.row["delta_alpha"] = fit_powerlaw(clean, method=config.fit).alpha


def _bulk(update: Update, evals: np.ndarray, shape: tuple[int, int], count: int) -> MPFit | None:
    try:
        bulk = fit_mp(evals, shape, count=count)
    except NumericalFailure:
        return None
    update.row |= {
        "delta_sigma_mp": bulk.sigma_mp,
        "delta_lambda_plus": bulk.lambda_plus,
        "delta_bulk_ks": bulk.bulk_ks,
        "delta_bulk_p": bulk.bulk_p,
        "delta_n_spikes_tw": bulk.n_spikes_tw99,
    }
    return bulk


def _spikes(
    update: Update,
    entries: Tensor,
    evals: np.ndarray,
    bulk: MPFit,
    shape: tuple[int, int],
    both: Sides,
    config: CompareConfig,
    layer: str,
) -> None:
    """The test of a scan, on ΔW."""
    operator = both.view.matrix.conv == "operator"
    test = spike_test(
        entries,
        evals,
        nulls=config.nulls,
        replicas=config.replicas,
        rank_replicas=config.rank_replicas,
        seed=config.seed,
        layer=layer,
        fit=bulk,
        spectrum=both.view.matrix.spectrum if operator else None,
        shape=shape,
    )
    update.row |= {
        "delta_n_spikes": test.n_spikes,
        "delta_n_spikes_low": test.n_low,
        "delta_n_spikes_high": test.n_high,
        "delta_edge": test.edge,
        "delta_p": test.p,
        "delta_p_rank": test.p_rank,
    }
    for null, tops in test.draws.items():
        fits = test.fits.get(null, ())
        for i, top in enumerate(tops):
            update.draws[null, i] = {"lambda_max": float(top), "edge": fits[i].tw99 if i < len(fits) else None}
        update.copies.extend((null, i, drawn) for i, drawn in enumerate(test.replicas.get(null, ())))


def _largest_only(
    update: Update,
    entries: Tensor,
    evals: np.ndarray,
    bulk: MPFit | None,
    shape: tuple[int, int],
    both: Sides,
    config: CompareConfig,
    layer: str,
) -> None:
    """Copies' largest eigenvalues alone: of a large matrix, or of one without a bulk (an update of low rank, merged)."""
    draws: dict[str, np.ndarray] = {}
    number = config.rank_replicas or config.replicas
    screened = bulk is not None and evals[-1] <= bulk.tw95
    for null in () if screened else config.nulls:
        if entries.ndim == 2:
            draws[null] = top_replicas(entries, null, range(number), config.seed, layer)
        else:
            copies = full_replicas(entries, null, number, config.seed, layer, spectrum=both.view.matrix.spectrum)
            draws[null] = np.array([copy[-1] for copy in copies])
        for i, top in enumerate(draws[null]):
            update.draws[null, i] = {"lambda_max": float(top)}
    edges = (bulk.tw99, bulk.tw95) if bulk is not None else (0.0, 0.0)
    _count(update, evals, draws, edges, top_error(shape))
    if screened:
        update.row |= {"delta_n_spikes": 0, "delta_n_spikes_low": 0, "delta_n_spikes_high": 0}


def _count(
    update: Update, evals: np.ndarray, draws: dict[str, np.ndarray], edges: tuple[float, float], tie: float
) -> None:
    found = beyond(evals, draws, edges=edges, tie=tie)
    update.row |= {
        "delta_n_spikes": found.n,
        "delta_n_spikes_low": found.low,
        "delta_n_spikes_high": found.high,
        "delta_edge": found.edge,
        "delta_p": found.p,
        "delta_p_rank": found.p_rank,
    }


def low_rank_update(low: Factors, update: Triplets, config: CompareConfig, layer: str) -> Update:
    """ΔW as a product of two factors, never formed: the factors are resampled, each on its own.

    Beside entries of ΔW resampled, every direction of an update of low rank is a spike, which says no more than that its
    rank is low. Resampled factors keep the rank and the entries: what lies beyond them is correlation that training put
    into the factors. A rank-one update has no such null: every copy has the same singular value.
    """
    evals = update.spectrum(min(low.shape))
    measured = Update({"delta_rank": len(update.S), "delta_null": "factors"}, evals, update.first(config.k))
    measured.row["delta_stable_rank"] = float(evals.sum() / evals[-1])
    measured.row["delta_alpha"] = fit_powerlaw(evals, method=config.fit).alpha
    measured.draws["real", None] = {"lambda_max": float(evals[-1])}
    draws: dict[str, np.ndarray] = {}
    number = max(config.rank_replicas, config.replicas)
    for null in config.nulls:
        copies = [copy.triplets().spectrum(low.rank) for copy in factor_replicas(low, null, number, config.seed, layer)]
        draws[null] = np.array([copy[-1] for copy in copies])
        measured.copies.extend((null, i, copy) for i, copy in enumerate(copies[: config.replicas]))
        for i, top in enumerate(draws[null]):
            measured.draws[null, i] = {"lambda_max": float(top)}
    if config.nulls:
        _count(measured, evals, draws, (0.0, 0.0), 1e-9)
    return measured
