"""What is measured of a network in training: alignment, kernel, refitted last layer, spectrum, entries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.weights.laboratory._steps import State
from querist.weights.laboratory._teacher import Problem, Sample
from querist.weights.laboratory._theory import strength, top_triple

__all__ = [
    "SCALES",
    "FeatureScores",
    "StepStrength",
    "alignment",
    "alignment_profile",
    "entry_histogram",
    "features",
    "kta",
    "refit",
    "scores",
    "sim_null",
    "step_strength",
]

SCALES = ("formula", "repo")
HISTOGRAM_BINS = 60


def features(W: Float[Tensor, "h d"], X: Float[Tensor, "n d"], scale: str = "formula") -> Float[Tensor, "n h"]:
    """Hidden features: tanh(Wx/√d) by the formula, tanh(Wx/d) as the published code probes them ("repo").

    That code divides the products by √d in place while it predicts, and its probe, which reads the same memory, by √d again.
    """
    return _activated(X @ W.T, W.shape[1], scale)


def _activated(products: Tensor, d: int, scale: str) -> Tensor:
    return torch.tanh(products / (d if scale == "repo" else math.sqrt(d)))


def kta(Z: Float[Tensor, "n h"], y: Float[Tensor, "n"]) -> float:
    """Kernel-target alignment ‖Zᵀy‖²/(‖ZᵀZ‖_F·‖y‖²), uncentred; between 0 and 1. No n x n matrix is formed."""
    aligned = float((Z.T @ y).square().sum())
    return aligned / (float((Z.T @ Z).norm()) * float(y.square().sum()))


def refit(
    Z: Float[Tensor, "n h"],
    y: Float[Tensor, "n"],
    Z_test: Float[Tensor, "m h"],
    y_test: Float[Tensor, "m"],
    ridge: float,
) -> tuple[float, float]:
    """Mean squared error, on (Z, y) and on the test set, of a last layer refitted on (Z, y) by ridge regression.

    With Φ = Z/√h: â = (ΦᵀΦ + (ridge·n/h)·I)⁻¹Φᵀy, which predicts as (ZᵀZ + ridge·n·I)⁻¹Zᵀy does on Z.
    """
    gram = Z.T @ Z
    gram.diagonal().add_(ridge * len(y))
    factor = torch.linalg.cholesky(gram)
    last = torch.cholesky_solve((Z.T @ y)[:, None], factor)[:, 0]
    return float((Z @ last - y).square().mean()), float((Z_test @ last - y_test).square().mean())


@dataclass(frozen=True, slots=True)
class FeatureScores:
    """kta on the training set; refit_train, refit_test: errors of a last layer refitted on the fresh set."""

    kta: float
    refit_train: float
    refit_test: float


def scores(W: Float[Tensor, "h d"], problem: Problem, ridge: float) -> Mapping[str, FeatureScores]:
    """Scores of the features in both scales."""
    parts: tuple[Sample, ...] = (problem.train, problem.fresh, problem.test)
    aligned: dict[str, float] = {}
    products = parts[0].X @ W.T
    for scale in SCALES:
        aligned[scale] = kta(_activated(products, W.shape[1], scale), problem.train.y)
    products, tested = (part.X @ W.T for part in parts[1:])
    found = {}
    for scale in SCALES:
        Z, Z_test = (_activated(values, W.shape[1], scale) for values in (products, tested))
        found[scale] = FeatureScores(aligned[scale], *refit(Z, problem.fresh.y, Z_test, problem.test.y, ridge))
    return found


def alignment(W: Float[Tensor, "h d"], beta: Float[Tensor, "d"]) -> float:
    """|v₁ᵀβ*| of the leading right singular vector."""
    _, _, v = top_triple(W)
    return abs(float(v @ beta.to(v)))


def alignment_profile(W: Float[Tensor, "h d"], beta: Float[Tensor, "d"]) -> Float[np.ndarray, "N"]:
    """|vᵢᵀβ*| of every right singular vector, the leading one first."""
    exact = (W.cpu() if W.device.type == "mps" else W).double()
    right = torch.linalg.svd(exact, full_matrices=False).Vh
    return (right @ beta.to(right)).abs().cpu().numpy()


def sim_null(d: int, level: float | None = None) -> float:
    """|vᵀβ*| of a direction v that knows nothing of β*: its mean Γ(d/2)/(√π·Γ((d+1)/2)), or the quantile of this level.

    Its square is Beta(1/2, (d−1)/2) (`overlaps.overlap_quantile`); the mean is near √(2/πd).
    """
    if level is None:
        return math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
    from querist.weights.overlaps import overlap_quantile

    return math.sqrt(float(overlap_quantile(level, 1, d)))


@dataclass(frozen=True, slots=True)
class StepStrength:
    """The last update beside the weights it was added to. norm: ‖M‖_F; theta: σ₁(M); theta_effective: √max(θ_e², 0);
    inner: uᵀWv; beyond: whether θ_e² > √(hd); of_second_scale: ‖M‖_F/‖W‖_F."""

    norm: float
    theta: float
    theta_effective: float
    inner: float
    beyond: bool
    of_second_scale: float


def step_strength(state: State) -> StepStrength | None:
    """Strength of the update that led to this state, for entries of variance 1, as before training. None before the first."""
    if state.update is None or state.before is None:
        return None
    sigma, inner = strength(state.before, state.update)
    squared = sigma * sigma + 2 * sigma * inner
    norm = float(state.update.norm())
    return StepStrength(
        norm,
        sigma,
        math.sqrt(max(squared, 0.0)),
        inner,
        squared > math.sqrt(state.W.numel()),
        norm / float(state.before.norm()),
    )


def entry_histogram(W: Float[Tensor, "h d"], bins: int = HISTOGRAM_BINS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges [bins + 1] from −max|W| to max|W|, the share of entries in each bin, and the share of a standard normal there.

    Entries are raw: before training they are standard normal. Normal mass beyond the outermost edges is left out.
    """
    flat = W.detach().reshape(-1).cpu().double().numpy()
    reach = float(np.abs(flat).max()) or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    shares = np.histogram(flat, edges)[0] / flat.size
    cdf = np.array([0.5 * math.erfc(-edge / math.sqrt(2)) for edge in edges])
    return edges, shares, np.diff(cdf)
