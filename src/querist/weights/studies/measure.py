"""Everything a scan measures on one matrix: pure, one call, plain rows out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from querist.errors import BadValues, NonFinite, NumericalFailure, QueristError
from querist.weights.configs import ScanConfig
from querist.weights.fits import PLFit, erg, farms, fit_powerlaw
from querist.weights.nulls import (
    MPFit,
    SpikeTest,
    beyond_copies,
    fit_mp,
    mp_quantiles,
    phase,
    phase_stability,
    shuffle_distance,
    spike_test,
)
from querist.weights.shrinkage import shrink
from querist.weights.spectrum import ESD, LayerMatrix, alpha_weighted, esd, log_alpha_norm, nonfinite, norms
from querist.weights.studies.approximate import approximate
from querist.weights.studies.columns import SHORT_TAIL, Measured, fit_columns
from querist.weights.studies.entries import entry_shares

__all__ = ["STREAM_BYTES", "measure", "on_the_law"]

STREAM_BYTES = 64 << 20
"""Matrices larger than this are read in row blocks where nothing needs them whole."""


def measure(matrix: LayerMatrix, config: ScanConfig) -> Measured:
    """Measure one matrix. Whatever goes wrong with it costs its row (status failed, with the reason), never the run."""
    begun = time.perf_counter()
    measured = Measured(_identity(matrix, config))
    try:
        _fill(matrix, config, measured)
    except (QueristError, RuntimeError) as error:
        measured.row |= {"status": "failed", "reason": str(error).rstrip(".")}
    measured.row["seconds"] = time.perf_counter() - begun
    return measured


def _identity(matrix: LayerMatrix, config: ScanConfig) -> dict[str, Any]:
    n, m = sorted(matrix.shape)
    return {
        "layer_id": matrix.layer_id,
        "name": matrix.name,
        "aliases": list(matrix.aliases),
        "kind": matrix.kind,
        "part": matrix.part,
        "shape": list(matrix.tensor_shape),
        "N": n,
        "M": m,
        "q": n / m,
        "n_values": n * matrix.count,
        "dtype": matrix.dtype,
        "status": "ok",
        "precision": config.precision,
        "conv": matrix.conv,
        "n_nonfinite": 0,
    }


def _fill(matrix: LayerMatrix, config: ScanConfig, measured: Measured) -> None:
    row = measured.row
    long = matrix.streams and _bytes(matrix) > STREAM_BYTES
    if _coarse(matrix, config):
        try:
            approximate(matrix, config, measured, streamed=long)
        except NonFinite:
            _damaged(row, *nonfinite(matrix))
        return
    streamed = long and not _needs_whole(config)
    W: Tensor | None = None
    if streamed:
        try:
            spectrum = esd(matrix)
        except NonFinite:
            _damaged(row, *nonfinite(matrix))
            return
    else:
        W = matrix.entries()
        own = matrix.conv == "operator" or matrix.low_rank  # what is not read off the entries as they are
        try:
            spectrum = esd(matrix if own else W, precision=config.precision)
        except NonFinite:
            _damaged(row, *nonfinite(W))
            return
        W = W if matrix.resampled else None
    evals = spectrum.evals
    row |= {"method": spectrum.method, "scale": spectrum.scale, "xmax": float(evals[-1])}
    exact = config.precision == "exact"
    sizes = norms(evals, matrix.shape, ranks=exact)
    row |= {name: getattr(sizes, name) for name in sizes.__dataclass_fields__}
    measured.spectra.append(("real", None, evals))
    if evals[-1] == 0 or (exact and sizes.rank is not None and sizes.rank <= 1):
        word = "every entry is zero" if evals[-1] == 0 else "its rank is one"
        row |= {"status": "degenerate", "reason": f"{word}, so there is no tail to fit", "phase": "rank-collapse"}
        return
    bulk = _bulk(spectrum, matrix, row)
    # What lies below rounding is no eigenvalue of the matrix: a fit would see a second, meaningless cloud.
    clean = np.where(evals > np.finfo(np.float64).eps * evals[-1] * row["M"], evals, 0.0) if exact else evals
    fit = _powerlaw(clean, matrix, config, row)
    _counts(clean, spectrum, fit, row)
    test = _against_nulls(W, matrix, spectrum, bulk, config, measured)
    _judge(W, matrix, spectrum, bulk, fit, test, config, row)
    if W is not None and not W.is_complex():
        measured.entries = entry_shares(W)
        if config.farms:
            _add_farms(W, matrix, row)


def _damaged(row: dict[str, Any], count: int, index: tuple[int, ...] | None) -> None:
    where = ", ".join(str(i) for i in index or ())
    row |= {"status": "nonfinite", "n_nonfinite": count}
    row["reason"] = f"{count} NaN or infinite entries, the first at ({where})"


def _coarse(matrix: LayerMatrix, config: ScanConfig) -> bool:
    """Whether this is one large matrix of free entries, to be approximated."""
    asked = config.approx == "always" or (config.approx == "auto" and min(matrix.shape) > config.exact_side)
    return asked and matrix.count == 1 and matrix.conv != "operator" and matrix.resampled


def _needs_whole(config: ScanConfig) -> bool:
    return bool(config.nulls) or config.farms or config.stability > 0 or config.precision == "fast"


def _bytes(matrix: LayerMatrix) -> int:
    return 4 * matrix.count * matrix.shape[0] * matrix.shape[1]


def _bulk(spectrum: ESD, matrix: LayerMatrix, row: dict[str, Any]) -> MPFit | None:
    try:
        bulk = fit_mp(spectrum.evals, spectrum.shape, count=spectrum.count, independent=matrix.independent)
    except NumericalFailure as error:
        row["reason"] = f"the bulk was not fitted: {error}"
        return None
    row |= {
        "sigma_mp": bulk.sigma_mp,
        "lambda_plus": bulk.lambda_plus,
        "mp_softrank": bulk.softrank,
        "n_spikes_tw": bulk.n_spikes_tw99,
        "bulk_ks": bulk.bulk_ks,
        "bulk_p": bulk.bulk_p,
        "bulk_extrapolated": bulk.bulk_extrapolated,
    }
    if matrix.conv == "operator":
        row["null_note"] = (
            f"The Tracy–Widom edge and bulk_p are those of {bulk.independent} independent real matrices, as many as the kernel "
            f"has positions; its {bulk.pooled} frequencies are combinations of these and stray less, being complex, so both "
            "err on the side of noise."
        )
    denoised = shrink(np.sqrt(spectrum.evals), spectrum.shape, count=spectrum.count)
    row |= {"denoised_rank": denoised.denoised_rank, "denoised_energy": denoised.denoised_energy}
    return bulk


def _powerlaw(evals: np.ndarray, matrix: LayerMatrix, config: ScanConfig, row: dict[str, Any]) -> PLFit:
    fit = fit_powerlaw(evals, method=config.fit, alternatives=config.ratios)
    hill = fit if config.fit == "hill" else fit_powerlaw(evals, method="hill")
    row |= fit_columns(fit)
    row |= {
        "n_dropped": fit.n_dropped,
        "alpha_hill": hill.alpha,
        "alpha_peak": fit.alpha if config.fit == "peak" else fit_powerlaw(evals, method="peak").alpha,
        "lr_exponential": fit.ratios["exponential"][0] if "exponential" in fit.ratios else None,
        "lr_lognormal": fit.ratios["lognormal"][0] if "lognormal" in fit.ratios else None,
        "lr_truncated": fit.ratios["truncated"][0] if "truncated" in fit.ratios else None,
    }
    n, m = row["N"], row["M"]
    row["alpha_mp"], row["alpha_hill_mp"], row["n_erg_mp"] = on_the_law(n, m, config.fit)
    row["n_erg_mp"] *= evals.size / n
    if fit.alpha is None:
        row |= {"status": "degenerate", "reason": fit.reason}
    elif fit.n_tail < SHORT_TAIL:
        row |= {"status": "short-tail", "reason": f"the tail holds {fit.n_tail} eigenvalues, fewer than {SHORT_TAIL}"}
    return fit


@lru_cache(maxsize=256)
def on_the_law(n: int, m: int, method: str) -> tuple[float | None, float | None, float]:
    """α, Hill's α and the ERG count on the matching Marchenko–Pastur quantiles; a shape recurs in every block of a model."""
    law = mp_quantiles(n, m)
    alpha = fit_powerlaw(law, method=method).alpha  # type: ignore[arg-type]
    return alpha, fit_powerlaw(law, method="hill").alpha, float(erg(law).n_erg)


def _counts(evals: np.ndarray, spectrum: ESD, fit: PLFit, row: dict[str, Any]) -> None:
    row["n_erg"] = erg(evals).n_erg
    if fit.alpha is not None:
        row["alpha_weighted"] = alpha_weighted(fit.alpha, evals)
        row["log_alpha_norm"] = log_alpha_norm(fit.alpha, evals)
        row["erg_gap"] = row["n_erg"] - fit.n_tail


def _against_nulls(
    W: Tensor | None,
    matrix: LayerMatrix,
    spectrum: ESD,
    bulk: MPFit | None,
    config: ScanConfig,
    measured: Measured,
) -> SpikeTest | None:
    if bulk is None or W is None:
        return None
    tensor, whole = _resampled(W, matrix, config)
    test = spike_test(
        tensor,
        spectrum.evals,
        nulls=config.nulls,
        replicas=config.replicas,
        rank_replicas=config.rank_replicas if config.nulls else 0,
        seed=config.seed,
        layer=matrix.layer_id,
        fit=bulk,
        spectrum=whole,
        shape=matrix.shape,
        independent=matrix.independent,
    )
    row = measured.row
    row |= test.columns()
    flipped = [fit.bulk_ks for fit in test.fits.get("signflip", ())]
    if len(flipped) > 1:
        row["bulk_p_copies"] = beyond_copies(bulk.bulk_ks, flipped, bulk.ks_sd)
    _null_rows(test, spectrum.evals, matrix, bulk, config, measured)
    return test


def _resampled(
    W: Tensor, matrix: LayerMatrix, config: ScanConfig
) -> tuple[Tensor, Callable[[Tensor], np.ndarray] | None]:
    """What is resampled, and how a copy becomes eigenvalues: the kernel of a convolution operator, else the matrix itself."""
    if matrix.conv == "operator" or config.precision == "fast":
        return W, lambda copy: matrix.spectrum(copy, precision=config.precision)
    return W, None


def _null_rows(
    test: SpikeTest, evals: np.ndarray, matrix: LayerMatrix, bulk: MPFit, config: ScanConfig, measured: Measured
) -> None:
    row, layer = measured.row, matrix.layer_id
    measured.null_draws.append(
        {"layer_id": layer, "null": "real", "lambda_max": row["xmax"], "edge": bulk.tw99, "bulk_ks": bulk.bulk_ks}
    )
    for null, draws in test.draws.items():
        fits = test.fits.get(null, ())
        for i, top in enumerate(draws):
            own = fits[i] if i < len(fits) else None
            measured.null_draws.append(
                {
                    "layer_id": layer,
                    "null": null,
                    "replica": i,
                    "lambda_max": float(top),
                    "edge": own.tw99 if own else None,
                    "bulk_ks": own.bulk_ks if own else None,
                }
            )
        measured.spectra.extend((null, i, drawn) for i, drawn in enumerate(test.replicas.get(null, ())))
    shuffled = test.replicas.get("shuffle", ())
    if not shuffled:
        return
    alphas = [fit_powerlaw(drawn, method=config.fit).alpha for drawn in shuffled]
    known = [alpha for alpha in alphas if alpha is not None]
    row |= {
        "alpha_shuffle": sum(known) / len(known) if known else None,
        "rand_num_spikes": test.rand_num_spikes,
        "null_max_ratio": test.null_max_ratio,
    }
    apart = shuffle_distance(evals, shuffled)
    if apart is not None:
        row |= {"shuffle_distance": apart.distance, "shuffle_distance_sd": apart.sd}
        row |= {"null_distance": float(apart.null[-1]) if apart.null.size else None, "null_distance_sd": apart.null_sd}


def _judge(
    W: Tensor | None,
    matrix: LayerMatrix,
    spectrum: ESD,
    bulk: MPFit | None,
    fit: PLFit,
    test: SpikeTest | None,
    config: ScanConfig,
    row: dict[str, Any],
) -> None:
    found = phase(N=spectrum.evals.size, rank_loss=row["rank_loss"], mp=bulk, spikes=test, fit=fit)
    row |= {"phase": found.label, "phase_margin": found.margin, "phase_decided": found.decided}
    row["phase_reason"] = found.because
    if found.label == "heavy-tailed" and found.decided:
        row["finger"] = fit.finger
    if config.stability and W is not None and test is not None and W.ndim == 2 and not W.is_complex():
        blocks = min(config.stability, W.shape[0] // 8)
        if blocks >= 2:
            row["phase_share"] = phase_stability(W, blocks, found.label, lambda part: _label(part, config)).share


def _label(W: Tensor, config: ScanConfig) -> str | None:
    """The phase of a part of a matrix, every fit made anew."""
    spectrum = esd(W)
    try:
        bulk = fit_mp(spectrum.evals, spectrum.shape)
    except NumericalFailure:
        return None
    fit = fit_powerlaw(spectrum.evals, method=config.fit, alternatives="default")
    test = spike_test(
        W,
        spectrum.evals,
        nulls=config.nulls,
        replicas=config.replicas,
        rank_replicas=config.rank_replicas if config.nulls else 0,
        seed=config.seed,
        layer="stability",
        fit=bulk,
    )
    loss = norms(spectrum.evals, spectrum.shape).rank_loss
    return phase(N=spectrum.evals.size, rank_loss=loss, mp=bulk, spikes=test, fit=fit).label


def _add_farms(W: Tensor, matrix: LayerMatrix, row: dict[str, Any]) -> None:
    if W.ndim != 2:
        return
    try:
        row["alpha_farms"] = farms(W).alpha
    except BadValues as error:
        row["reason"] = row.get("reason") or f"no FARMS exponent: {error}"
