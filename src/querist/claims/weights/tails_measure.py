"""Full-batch trajectories: the spectrum of every step, its tests where the run ends in a tail, refitted losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from querist.errors import BadValues, NumericalFailure
from querist.statistics import stream
from querist.weights.fits import PLFit, fit_powerlaw, hill_exponent
from querist.weights.laboratory import State, device_for, draw_problem, scores, train
from querist.weights.nulls import MPFit, SpikeTest, fit_mp, spike_test
from querist.weights.spectrum import esd

__all__ = ["bulk_verdict", "is_power_law", "mass_in_bulk", "measure"]

SHORT_TAIL, LIKELIHOOD_P = 50, 0.1


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """One trajectory, or one group of untrained matrices."""
    if payload["kind"] == "hill-null":
        return {"hill_null": _untrained(payload, seed)}
    return {"trajectories": _trajectory(payload, seed, device)}


def _untrained(payload: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    rows = []
    for draw in range(payload["first"], payload["first"] + payload["count"]):
        W = stream(seed, "claims", "hill-null", draw).standard_normal((payload["h"], payload["d"]))
        rows.append({"draw": draw, "alpha_hill": hill_exponent(esd(torch.from_numpy(W)).evals)[0]})
    return rows


def _trajectory(payload: Mapping[str, Any], seed: int, device: str) -> list[dict[str, Any]]:
    key = f"{payload['optimizer']}/{payload['eta']:g}/{payload['scan']}/{payload['repeat']}"
    problem = draw_problem(
        payload["h"],
        payload["d"],
        payload["n"],
        payload["n_test"],
        payload["rho"],
        seed=seed,
        repeat=payload["repeat"],
        device=device_for(device, key),
    )
    states = list(train(problem, payload["optimizer"], payload["eta"], payload["steps"], gamma=payload["gamma"]))
    rows = [_spectrum(state, payload) for state in states]
    end, last = states[-1], rows[-1]
    last["last"] = True
    if not last["finite"]:
        return rows
    both = scores(end.W, problem, payload["ridge"])
    last |= {f"refit_test_{scale}": found.refit_test for scale, found in both.items()}
    if payload["test"]:
        rows[-1] = last | _tests(end.W, payload, f"{key}/{end.step}", seed)
        if rows[-1]["bulk"] == "yes":
            _follow(states, rows, payload, key, seed)
    return rows


def _spectrum(state: State, payload: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: payload[name] for name in ("optimizer", "eta", "scan", "repeat")}
    row |= {
        "step": state.step,
        "last": False,
        "finite": state.finite,
        "train_loss": state.loss,
        "spikes": "",
        "bulk": "",
    }
    if not state.finite:
        return row
    try:
        evals = esd(state.W).evals
    except BadValues:  # entries whose squares leave the range of float64
        return row | {"finite": False}
    return row | {"lambda1": float(evals[-1]), "alpha_hill": hill_exponent(evals[evals > 0])[0]}


def _tests(W: Tensor, payload: Mapping[str, Any], layer: str, seed: int) -> dict[str, Any]:
    """What the room's own questions say of W, and the fit of its tail."""
    evals = esd(W).evals
    fit = fit_powerlaw(evals, alternatives="default")
    found: dict[str, Any] = {"alpha": fit.alpha, "n_tail": fit.n_tail, "power_law": is_power_law(fit)}
    try:
        bulk = fit_mp(evals, (int(W.shape[0]), int(W.shape[1])))
        spikes = spike_test(W.float(), evals, seed=seed, layer=f"claims/{layer}", fit=bulk)
    except NumericalFailure:
        return {**found, "spikes": "cannot say", "bulk": "cannot say"}
    return {
        **found,
        "spikes": spikes.verdict,
        "n_spikes": spikes.n_spikes if spikes.verdict == "yes" else 0,
        "bulk": bulk_verdict(bulk, spikes),
        "bulk_p": bulk.bulk_p,
    }


def bulk_verdict(bulk: MPFit, spikes: SpikeTest) -> str:
    """The rule of weights.bulk: yes below .01 and beyond every sign-flipped copy, no above .05."""
    copies = [fit.bulk_ks for fit in spikes.fits.get("signflip", ())]
    if bulk.bulk_p < 0.01 and copies and bulk.bulk_ks > max(copies):
        return "yes"
    return "no" if bulk.bulk_p > 0.05 else "cannot say"


def is_power_law(fit: PLFit) -> bool:
    """Whether a power law covers 50 values, beats the exponential at .1 and is not beaten by the lognormal at .1."""
    if fit.alpha is None or fit.n_tail < SHORT_TAIL or not {"exponential", "lognormal"} <= set(fit.ratios):
        return False
    (better, p), (against, q) = fit.ratios["exponential"], fit.ratios["lognormal"]
    return better > 0 and p < LIKELIHOOD_P and not (against < 0 and q < LIKELIHOOD_P)


def _follow(
    states: Sequence[State], rows: list[dict[str, Any]], payload: Mapping[str, Any], key: str, seed: int
) -> None:
    """Test every step of a run that ends in a tail, and measure where each update works."""
    for state, after in pairwise(states):
        row = rows[state.step]
        if state.step > 0:
            row |= _tests(state.W, payload, f"{key}/{state.step}", seed)
        else:
            row |= {"n_spikes": 0}
        if after.update is not None:
            row |= mass_in_bulk(state.W, after.update, row.get("n_spikes") or 0)


def mass_in_bulk(W: Tensor, M: Tensor, spikes: int) -> dict[str, float]:
    """Share of ‖M‖_F² in the singular directions of W below its first `spikes`, left and right, each beside its null.

    The null is what an update of random directions would have: the number of those directions over the side's length.
    """
    U, _, Vh = torch.linalg.svd(W, full_matrices=False)
    total = float(M.square().sum())
    if total == 0:
        return {}
    U, Vh = U[:, spikes:], Vh[spikes:]
    kept = Vh.shape[0]
    return {
        "mass_left": float((U.T @ M).square().sum()) / total,
        "mass_right": float((M @ Vh.T).square().sum()) / total,
        "mass_left_null": kept / W.shape[0],
        "mass_right_null": kept / W.shape[1],
    }
