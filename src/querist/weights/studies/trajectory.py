"""One run of the laboratory: trained, probed, and its last weights scanned as those of any checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import torch

from querist.errors import BadValues, NumericalFailure
from querist.weights.configs import CraftConfig, ScanConfig
from querist.weights.fits import fit_powerlaw
from querist.weights.laboratory import (
    Problem,
    State,
    alignment,
    alignment_profile,
    device_for,
    draw_problem,
    entry_histogram,
    regime_of,
    scores,
    sim_null,
    step_strength,
    train,
)
from querist.weights.nulls import fit_mp, mp_quantiles, tw_edge
from querist.weights.overlaps import block_average, overlap_matrix
from querist.weights.spectrum import esd
from querist.weights.studies.columns import SHORT_TAIL
from querist.weights.tables import OVERLAPS, STEP_SPECTRA, WEIGHTS_HIST

__all__ = ["probed_steps", "problem_of", "run"]

SIM_LEVEL = 0.99


def probed_steps(config: CraftConfig) -> frozenset[int]:
    """Steps that are measured: before the first, after it, each `probe_every`, and the last."""
    return frozenset({0, 1, config.steps, *range(0, config.steps + 1, config.probe_every)})


def problem_of(config: CraftConfig, repeat: int, key: str) -> Problem:
    """Teacher, data and initial weights of a repeat, on the unit's device."""
    dtype = torch.float32 if config.dtype == "float32" else torch.float64
    sizes = (config.h, config.d, config.n, config.n_test, config.rho)
    device = device_for(config.device, key, dtype)
    return draw_problem(*sizes, seed=config.seed, repeat=repeat, dtype=dtype, device=device)


@dataclass
class _Frames:
    """Rows of a run's tables; long ones as columns."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    spectra: list[pl.DataFrame] = field(default_factory=list)
    weights_hist: list[pl.DataFrame] = field(default_factory=list)
    overlaps: list[pl.DataFrame] = field(default_factory=list)


def run(config: CraftConfig, optimizer: str, eta: float, repeat: int, key: str, *, first: bool) -> Mapping[str, Any]:
    """All tables of one run. first: the run that also hands in the profile of its repeat's initial weights."""
    problem = problem_of(config, repeat, key)
    frames, probed, state, ended = _Frames(), probed_steps(config), None, ""
    options = {"gamma": config.gamma, "weight_norm": config.weight_norm, "train_last": config.train_last}
    for state in train(problem, optimizer, eta, config.steps, **options):
        if state.finite and state.step not in probed:
            continue
        names = {"repeat": repeat, "step": state.step, "optimizer": optimizer, "eta": eta}
        ended = _probe(state, problem, config, names, frames)
        if ended:
            break
    layers, draws = ([], []) if state is None or ended else _scanned(state, config, key)
    return {
        "steps": frames.steps,
        "spectra": pl.concat(frames.spectra) if frames.spectra else STEP_SPECTRA.frame([]),
        "weights_hist": pl.concat(frames.weights_hist) if frames.weights_hist else WEIGHTS_HIST.frame([]),
        "overlaps": pl.concat(frames.overlaps) if frames.overlaps else OVERLAPS.frame([]),
        "profile": _profile(problem, repeat) if first else [],
        "layers": layers,
        "null_draws": draws,
    }


def _probe(state: State, problem: Problem, config: CraftConfig, names: Mapping[str, Any], frames: _Frames) -> str:
    """Add everything measured at a state; returns why the run ends here, empty where it does not."""
    h, d = config.h, config.d
    row = {
        **names,
        "gamma": config.gamma,
        "status": "ok",
        "train_loss": state.loss,
        "grad_norm": state.grad_norm,
        "lambda_edge": tw_edge(min(h, d), max(h, d), 0.99, 1.0),
        "sim_null": sim_null(d, SIM_LEVEL),
    }
    row["alpha_mp"], row["alpha_hill_mp"] = _on_the_law(min(h, d), max(h, d))
    frames.steps.append(row)
    if not state.finite:
        row |= {"status": "diverged", "reason": f"loss or weights are not finite after step {state.step}"}
        return row["reason"]
    try:
        evals = esd(state.W.cpu() if state.W.device.type == "mps" else state.W).evals
    except BadValues:
        row |= {"status": "diverged", "reason": f"squared singular values leave float64 after step {state.step}"}
        return row["reason"]
    row |= _spectrum(evals, h, d) | _features(problem, state, config) | _strength(state)
    row["n_spikes"] = int(np.count_nonzero(evals > row["lambda_edge"]))
    row["sim"] = alignment(state.W, problem.beta)
    frames.spectra.append(_frame(names, index=np.arange(evals.size), eigenvalue=evals))
    edges, shares, normal = entry_histogram(state.W)
    frames.weights_hist.append(_frame(names, left=edges[:-1], right=edges[1:], share=shares, normal=normal))
    if config.overlaps and state.update is not None:
        frames.overlaps.extend(_overlaps(state, names))
    return ""


def _spectrum(evals: np.ndarray, h: int, d: int) -> dict[str, Any]:
    """Tail and bulk, as a scan has them."""
    clean = np.where(evals > np.finfo(np.float64).eps * evals[-1] * max(h, d), evals, 0.0)
    fit = fit_powerlaw(clean, alternatives="default")
    row: dict[str, Any] = {
        "lambda1": float(evals[-1]),
        "alpha": fit.alpha,
        "sigma": fit.sigma,
        "xmin": fit.xmin,
        "D": fit.D,
        "n_tail": fit.n_tail,
        "alpha_hill": fit_powerlaw(clean, method="hill").alpha,
        "alpha_peak": fit_powerlaw(clean, method="peak").alpha,
        **{f"lr_{name}": ratio for name, (ratio, _) in fit.ratios.items()},
    }
    if fit.alpha is None:
        row |= {"status": "degenerate", "reason": fit.reason}
    elif fit.n_tail < SHORT_TAIL:
        row |= {
            "status": "short-tail",
            "reason": f"the csn tail holds {fit.n_tail} eigenvalues, fewer than {SHORT_TAIL}",
        }
    try:
        bulk = fit_mp(evals, (h, d))
    except NumericalFailure:
        return row
    return row | {"bulk_ks": bulk.bulk_ks, "bulk_p": bulk.bulk_p}


def _features(problem: Problem, state: State, config: CraftConfig) -> dict[str, float]:
    row = {}
    for scale, found in scores(state.W, problem, config.ridge).items():
        row[f"kta_{scale}"] = found.kta
        row[f"refit_train_{scale}"] = found.refit_train
        row[f"refit_test_{scale}"] = found.refit_test
    return row


def _strength(state: State) -> dict[str, Any]:
    step = step_strength(state)
    if step is None:
        return {}
    regime = regime_of(step.beyond, step.of_second_scale)
    return {"update_norm": step.norm, "theta": step.theta, "theta_e": step.theta_effective, "regime": regime}


@lru_cache(maxsize=16)
def _on_the_law(n: int, m: int) -> tuple[float | None, float | None]:
    law = mp_quantiles(n, m)
    return fit_powerlaw(law).alpha, fit_powerlaw(law, method="hill").alpha


def _frame(names: Mapping[str, Any], **columns: Any) -> pl.DataFrame:
    """Columns of one step, its names repeated beside them."""
    size = len(next(iter(columns.values())))
    # Not pl.repeat, which starts polars' engine for every column: a tenth of a run's time at the default sizes.
    kinds = {"repeat": pl.Int64, "step": pl.Int64, "optimizer": pl.String, "eta": pl.Float64}
    repeated = {name: pl.Series([names[name]], dtype=kind).new_from_index(0, size) for name, kind in kinds.items()}
    return pl.DataFrame({**repeated, **columns})


def _overlaps(state: State, names: Mapping[str, Any]) -> list[pl.DataFrame]:
    """Blocks of squared overlaps between the update and the weights before and after it, both sides."""
    vectors = {}
    for name, matrix in (("update", state.update), ("before", state.before), ("after", state.W)):
        assert matrix is not None
        exact = (matrix.cpu() if matrix.device.type == "mps" else matrix).double()
        U, _, Vh = torch.linalg.svd(exact / (float(exact.abs().max()) or 1.0), full_matrices=False)
        vectors[name] = {"left": U, "right": Vh.mT}
    found = []
    for pair in ("before", "after"):
        for side in ("left", "right"):
            blocks = block_average(overlap_matrix(vectors[pair][side], vectors["update"][side]))
            i, j = np.indices(blocks.shape)
            null = np.full(blocks.size, 1 / len(vectors[pair][side]))
            frame = _frame(names, i=i.ravel(), j=j.ravel(), value=blocks.ravel(), null=null)
            found.append(
                frame.with_columns(pl.lit(side).alias("side"), pl.lit(pair).alias("pair")).select(
                    column.name for column in OVERLAPS.columns
                )
            )
    return found


def _profile(problem: Problem, repeat: int) -> list[dict[str, Any]]:
    null = sim_null(len(problem.beta))
    values = alignment_profile(problem.W, problem.beta).tolist()
    return [{"repeat": repeat, "index": i, "value": value, "null": null} for i, value in enumerate(values, 1)]


def _scanned(state: State, config: CraftConfig, key: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The row that a scan of these weights would have, and the largest eigenvalues of its resampled copies."""
    from querist.sources.tensors import open_source
    from querist.weights.spectrum import matrices
    from querist.weights.studies.measure import measure

    (matrix,), _ = matrices(open_source({key: state.W.cpu()}).refs)
    measured = measure(matrix, ScanConfig(seed=config.seed, nulls=config.nulls))
    return [measured.row], measured.null_draws
