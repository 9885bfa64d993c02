"""One full-batch step: the largest eigenvalue, its direction, and the rate from which there is a spike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from querist.weights.laboratory import device_for, draw_problem, first_direction, predict_spike, sim_null, top_triple
from querist.weights.nulls import spike_test

__all__ = ["measure"]


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """One draw stepped at several rates, or one bisection."""
    key = f"{payload['kind']}/{payload['optimizer']}/{payload['d']}/{payload['repeat']}"
    h, d, n = payload["h"], payload["d"], payload["n"]
    place = device_for(device, key)
    problem = draw_problem(h, d, n, 1, payload["rho"], seed=seed, repeat=payload["repeat"], device=place)
    direction = first_direction(payload["optimizer"], problem.W, problem.a, problem.train)
    if payload["kind"] == "threshold":
        return {"thresholds": [_bisect(payload, problem.W, direction, seed, key)]}
    critical = predict_spike(h, d, n, payload["optimizer"], 1.0, rho=payload["rho"]).eta_critical
    rows = []
    for multiple in payload["multiples"]:
        predicted = predict_spike(h, d, n, payload["optimizer"], multiple * critical, rho=payload["rho"])
        sigma, _, v = top_triple(problem.W + predicted.eta * direction)
        rows.append(
            {
                "optimizer": payload["optimizer"],
                "repeat": payload["repeat"],
                "multiple": multiple,
                "eta": predicted.eta,
                "lambda1": sigma**2,
                "lambda_predicted": predicted.lambda_predicted,
                "sim": abs(float(v @ problem.beta.to(v.dtype))),
                "sim_predicted": predicted.sim_predicted,
                "sim_null": sim_null(d, 0.99),
            }
        )
    return {"one_step": rows}


def _bisect(payload: Mapping[str, Any], W: Any, direction: Any, seed: int, key: str) -> dict[str, Any]:
    """The rate at which the verdict of weights.spikes turns from no to yes, to the factor `precision`."""
    tests = 0

    def spiked(eta: float) -> bool:
        nonlocal tests
        tests += 1
        stepped = (W + eta * direction).float()
        return spike_test(stepped, replicas=0, seed=seed, layer=f"claims/{key}/{tests}").verdict == "yes"

    low, high = float(payload["low"]), float(payload["high"])
    row = {name: payload[name] for name in ("optimizer", "repeat", "d", "h", "n")}
    closed = predict_spike(row["h"], row["d"], row["n"], row["optimizer"], 1.0, rho=payload["rho"])
    row |= {"eta_predicted": closed.eta_critical}
    if spiked(low) or not spiked(high):
        return row | {"eta_without": None, "eta_with": None, "eta_critical": None, "tests": tests}
    while high / low > payload["precision"]:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spiked(middle) else (middle, high)
    return row | {"eta_without": low, "eta_with": high, "eta_critical": math.sqrt(low * high), "tests": tests}
