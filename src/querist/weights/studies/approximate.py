"""Measuring a matrix too large for its whole spectrum: what can be said from exact top values and a quadrature."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from querist.errors import NumericalFailure
from querist.statistics import rank_p
from querist.weights.configs import ScanConfig
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import fit_mp, predicted_p, top_replicas
from querist.weights.spectrum import LayerMatrix, alpha_weighted, slq
from querist.weights.studies.columns import Measured, fit_columns

__all__ = ["approximate"]

TOP, PROBES, STEPS = 256, 16, 128


def approximate(matrix: LayerMatrix, config: ScanConfig, measured: Measured, *, streamed: bool) -> None:
    """Fill a row by the largest TOP values exactly and Lanczos quadrature for the rest; what needs small values stays null.

    α is fitted to the exact values only, so n_tail is at most TOP. Spikes are tested as everywhere, on largest values alone.
    streamed: the matrix is read block by block, once for every product, and is held whole only where copies of it are drawn.
    Raises NonFinite.
    """
    row = measured.row
    W = matrix if streamed else _whole(matrix)
    found = slq(W, k=TOP, probes=PROBES, steps=STEPS, seed=config.seed, layer=row["layer_id"])
    evals = found.evals
    total = found.trace + float(found.top.sum())
    row |= {
        "method": "slq+topk",
        "status": "approximate",
        "reason": f"the {found.top.size} largest eigenvalues are exact, the distribution of the rest is known to "
        f"{found.cdf_error:.2g} and their sum to {found.trace_error / max(total, 1e-300):.2g}; "
        "ranks and tests of the bulk need small eigenvalues and were left out",
        "scale": found.scale,
        "xmax": float(evals[-1]),
        "log_norm": float(np.log10(total)) if total > 0 else None,
        "log_spectral_norm": float(np.log10(evals[-1])) if evals[-1] > 0 else None,
        "stable_rank": total / float(evals[-1]) if evals[-1] > 0 else None,
    }
    measured.spectra.append(("real", None, evals))
    fit = fit_powerlaw(found.top, method="csn" if config.fit == "hill" else config.fit)
    row |= fit_columns(fit)
    if fit.alpha is not None:
        row["alpha_weighted"] = alpha_weighted(fit.alpha, evals)
    try:
        bulk = fit_mp(evals, matrix.shape)
    except NumericalFailure:
        return
    row |= {
        "sigma_mp": bulk.sigma_mp,
        "lambda_plus": bulk.lambda_plus,
        "mp_softrank": bulk.softrank,
        "n_spikes_tw": bulk.n_spikes_tw99,
    }
    edge, ranks, ps = bulk.tw99, [], []
    if evals[-1] > bulk.tw95 and config.rank_replicas and config.nulls:
        W = W if isinstance(W, Tensor) else _whole(matrix)
        for null in reversed(config.nulls):
            tops = top_replicas(W, null, range(config.rank_replicas), config.seed, row["layer_id"])
            measured.null_draws.extend(
                {"layer_id": row["layer_id"], "null": null, "replica": i, "lambda_max": float(top)}
                for i, top in enumerate(tops)
            )
            edge = max(edge, float(tops.max()))
            ranks.append(rank_p(float(evals[-1]), tops))
            ps.append(predicted_p(float(evals[-1]), tops))
    above = int(np.count_nonzero(found.top > edge))
    row |= {
        "n_spikes": above if config.nulls else None,
        "n_spikes_low": above,
        "n_spikes_high": above,
        "spike_edge": edge,
        "spike_p": max(ps, default=None),
        "spike_p_rank": max(ranks, default=None),
    }


def _whole(matrix: LayerMatrix) -> Tensor:
    entries = matrix.entries()
    return entries[0] if entries.ndim == 3 else entries
