"""A table of people whose effects are known: the generator that methods are compared on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int

from querist.effects.parts import Effects, compose
from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["SETTINGS", "Simulated", "simulate"]

SETTINGS: Mapping[int, Mapping[str, float | bool]] = MappingProxyType(
    {
        1: {"base_scale": 0.4, "increment_scale": 0.1},
        2: {"base_scale": 0.2, "increment_scale": 0.2},
        3: {"base_scale": 0.05, "increment_scale": 0.4},
        4: {"base_scale": 0.4, "increment_scale": 0.1, "nonlinear": True},
    }
)
"""The reference settings: a strong base, both alike, strong increments, and the first with nonlinear parts."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Columns X [n, 12], arm [n] (0 control, 1 … M), outcomes Y [n, 2] (NaN where not observed), the truth, P(A = m) [n, M + 1]."""

    X: Float[np.ndarray, "n 12"]
    arm: Int[np.ndarray, "n"]
    Y: Float[np.ndarray, "n 2"]
    truth: Effects
    propensity: Float[np.ndarray, "n M+1"]


def simulate(
    n: int,
    *,
    arms: int = 3,
    base_scale: float,
    increment_scale: float,
    noise_sd: float = 1.0,
    confounding: float = 0.0,
    correlation: float = 0.0,
    rare: float = 1.0,
    nonlinear: bool = False,
    seed: int,
) -> Simulated:
    """n people, `arms` arms beside control, two continuous outcomes.

    x ~ N(0, I₁₂). natural: sin x₀ + ½x₁x₂ + ½x₃ and cos x₀ + ½x₁ + .3x₄. base: ½ + b·tanh(x₀ + x₅) and .3 + b·tanh(x₅ − x₆),
    nonlinear ½ + b·tanh(x₀x₅ + ½x₅) and .3 + b·cos(x₅ − x₆). Increments of arm m on outcome k: d·tanh(a_k·x_{7 + (m − 1) mod 3}
    + .3x₁), nonlinear d·sin(2a_k·x + x₁), a = (1, .7), centred over arms. Arms are uniform; confounding c makes their logits
    c·m·natural₁/M. Noise: normal, sd noise_sd, the two outcomes' correlated by `correlation`. rare: the share of people whose
    second outcome is observed.

    The same seed gives the same people, noise and (without confounding) arms in every setting. Raises BadOption.
    """
    for name, value, fine, allowed in (
        ("n", n, n >= 1, "1 or more"),
        ("arms", arms, arms >= 1, "1 or more"),
        ("noise_sd", noise_sd, noise_sd >= 0, "0 or more"),
        ("correlation", correlation, -1 <= correlation <= 1, "-1 to 1"),
        ("rare", rare, 0 < rare <= 1, "above 0, at most 1"),
    ):
        if not fine:
            raise BadOption(f"{name} lies outside its range", value=value, allowed=allowed)
    X = stream(seed, "simulate", "people").standard_normal((n, 12))
    response = _response(X, arms, base_scale, increment_scale, nonlinear)
    truth = compose(response)
    logits = confounding * np.arange(arms + 1) * truth.natural[:, :1] / arms
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    e /= e.sum(axis=1, keepdims=True)
    u = stream(seed, "simulate", "arms").random((n, 1))
    arm = (u > np.cumsum(e[:, :-1], axis=1)).sum(axis=1)
    noise = stream(seed, "simulate", "noise").standard_normal((n, 2))
    noise[:, 1] = correlation * noise[:, 0] + np.sqrt(1 - correlation**2) * noise[:, 1]
    Y = response[np.arange(n), arm] + noise_sd * noise
    if rare < 1:
        Y[stream(seed, "simulate", "observed").random(n) >= rare, 1] = np.nan
    return Simulated(X, arm, Y, truth, e)


def _response(X: np.ndarray, arms: int, b: float, d: float, nonlinear: bool) -> Float[np.ndarray, "n M+1 2"]:
    x = X.T
    natural = np.stack([np.sin(x[0]) + 0.5 * x[1] * x[2] + 0.5 * x[3], np.cos(x[0]) + 0.5 * x[1] + 0.3 * x[4]])
    first = np.tanh(x[0] * x[5] + 0.5 * x[5] if nonlinear else x[0] + x[5])
    second = np.cos(x[5] - x[6]) if nonlinear else np.tanh(x[5] - x[6])
    base = np.stack([0.5 + b * first, 0.3 + b * second])
    own = x[7 + np.arange(arms) % 3]
    a = np.array([1.0, 0.7])[:, None, None]
    increment = d * (np.sin(2 * a * own + x[1]) if nonlinear else np.tanh(a * own + 0.3 * x[1]))
    increment -= increment.mean(axis=1, keepdims=True)
    treated = (natural + base)[:, None] + increment
    return np.concatenate([natural[:, None], treated], axis=1).transpose(2, 1, 0)
