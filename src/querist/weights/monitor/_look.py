"""One look at one layer: its largest triplets, what the latest update did, and where asked its whole spectrum."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from querist.statistics import torch_seed
from querist.weights.monitor._alarms import Alarm, Known
from querist.weights.monitor._strength import bulk_variance, strength
from querist.weights.monitor._triplets import Triplets, top_triplets
from querist.weights.monitor._whole import Whole, whole_spectrum
from querist.weights.overlaps import overlap_matrix
from querist.weights.spectrum import LayerMatrix, nonfinite

__all__ = ["Look", "Memory", "Plan", "begin_again", "look"]

_RETRY = 1.1
"""A value that the nulls have refuted is tested again out of turn once it has grown by this."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a look is to do. affords: whether a whole spectrum out of turn may be paid for."""

    step: int
    event: int
    whole: bool
    k: int
    layers: int
    seed: int
    affords: Callable[[], bool]


@dataclass(slots=True)
class Memory:
    """What is kept of a layer from one look to the next: one copy of its weights on the CPU, and a few vectors."""

    known: Known = field(default_factory=Known)
    previous: Tensor | None = None
    previous_step: int | None = None
    weights: Triplets | None = None
    update: Triplets | None = None
    band: tuple[float, float] | None = None


@dataclass(slots=True)
class Look:
    """What a look gave: a row of the table `trace`, rows of the other tables, alarms, and what a whole spectrum took."""

    row: dict[str, Any]
    top_values: list[dict[str, Any]] = field(default_factory=list)
    overlaps: list[dict[str, Any]] = field(default_factory=list)
    histogram: list[dict[str, Any]] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    whole_seconds: float = 0.0


def look(W: Tensor, matrix: LayerMatrix, memory: Memory, plan: Plan) -> Look:
    """Look at a matrix [h, d]; `memory` is brought up to date, W is not changed.

    A matrix with NaN or infinite entries costs its row. Draws come from streams named by the layer, so that no layer's
    numbers depend on the others or on their order.
    """
    begun = time.perf_counter()
    h, d = matrix.shape
    row: dict[str, Any] = {"step": plan.step, "layer_id": matrix.layer_id, "event": "top", "status": "ok"}
    seen = Look(row)
    count, index = nonfinite(W)
    row["n_nonfinite"] = count
    if count:
        _damaged(seen, memory, count, index)
        row["seconds"] = time.perf_counter() - begun
        return seen
    memory.known.nonfinite = False
    found = _triplets(W, memory.weights, matrix.layer_id, "weights", plan)
    top = found.sigma.square().tolist()
    variance, above = bulk_variance(found.total, top, (h, d))
    row |= {
        "norm": math.sqrt(found.total),
        "lambda_max": top[0] if top else 0.0,
        "stable_rank": found.total / top[0] if top else None,
        "variance": variance,
        "n_above": above,
        "search": found.method,
        "products": found.products,
    }
    seen.top_values = [
        {"step": plan.step, "layer_id": matrix.layer_id, "index": i, "eigenvalue": value} for i, value in enumerate(top)
    ]
    if memory.previous is not None and memory.previous.shape == W.shape:
        _follow(seen, W, found, matrix, memory, plan)
    if plan.whole or _candidate(top, above, memory.known, plan):
        row["event"], whole_begun = "whole", time.perf_counter()
        _add(seen, whole_spectrum(W, matrix, memory.known, memory.band, plan.event, plan.layers, plan.seed), memory)
        seen.whole_seconds = time.perf_counter() - whole_begun
    memory.weights = found
    # On the CPU: what is kept between two looks must not crowd the network out of its accelerator.
    memory.previous = W.detach().to("cpu", copy=True)
    memory.previous_step = plan.step
    row["seconds"] = time.perf_counter() - begun
    return seen


def begin_again(W: Tensor, matrix: LayerMatrix, memory: Memory, plan: Plan) -> None:
    """After a restart, whose checkpoint holds no copy of the weights: what the next update is measured from."""
    memory.previous = memory.previous_step = memory.weights = memory.update = None
    if not nonfinite(W)[0]:
        memory.weights = _triplets(W, None, matrix.layer_id, "weights", plan)
        memory.previous, memory.previous_step = W.detach().to("cpu", copy=True), plan.step


def _damaged(seen: Look, memory: Memory, count: int, index: tuple[int, ...] | None) -> None:
    row = seen.row
    where = ", ".join(str(i) for i in index or ())
    row |= {"status": "nonfinite", "reason": f"{count} NaN or infinite entries, the first at ({where})"}
    if not memory.known.nonfinite:
        because = f"{row['reason']}; there were none at the look before."
        seen.alarms.append(Alarm(row["step"], row["layer_id"], "non-finite", count, 0.0, None, None, because))
    memory.known.nonfinite = True
    memory.previous = memory.previous_step = memory.weights = memory.update = None


def _triplets(W: Tensor, before: Triplets | None, layer: str, what: str, plan: Plan) -> Triplets:
    generator = torch.Generator().manual_seed(torch_seed(plan.seed, layer, what, plan.event))
    start = before.block if before is not None else None
    return top_triplets(W, plan.k, generator, start=start)


def _candidate(top: list[float], above: int, known: Known, plan: Plan) -> bool:
    """Whether more values pass the edge than are known to: only the whole spectrum and its nulls can tell."""
    if known.spikes is None or above <= known.spikes or known.spikes >= len(top):
        return False
    return top[known.spikes] > _RETRY * known.top_refuted and plan.affords()


def _follow(seen: Look, W: Tensor, now: Triplets, matrix: LayerMatrix, memory: Memory, plan: Plan) -> None:
    """What the update since the last look was: its size, its regime, its directions beside those of before."""
    row, (h, d) = seen.row, matrix.shape
    assert memory.previous is not None
    wide = torch.float64 if W.dtype == torch.float64 else torch.float32
    before = memory.previous.to(W.device)
    update = W.to(wide) - before.to(wide)
    found = _triplets(update, memory.update, matrix.layer_id, "update", plan)
    weights = memory.weights
    size = math.sqrt(weights.total) if weights is not None else 0.0
    norm = math.sqrt(found.total)
    row |= {
        "update_from": memory.previous_step,
        "update_norm": norm,
        "update_relative": norm / size if size > 0 else None,
        "update_sigma": float(found.sigma[0]) if found.rank else 0.0,
    }
    if weights is not None:
        variance, spikes = bulk_variance(weights.total, weights.sigma.square().tolist(), (h, d))
        inner = _inner(before, found, weights, spikes) if found.rank else 0.0
        relative = norm / size if size > 0 else (math.inf if norm > 0 else 0.0)
        judged = strength((h, d), row["update_sigma"], inner, variance, relative)
        row |= {
            "theta": judged.theta,
            "theta_effective": judged.theta_effective,
            "theta_critical": judged.theta_critical,
            "strength": judged.ratio,
            "lambda_predicted": judged.lambda_predicted,
            "lambda_observed": row["lambda_max"] / variance if variance > 0 else None,
            "spikes_before": spikes,
            "regime": judged.regime,
        }
    for pair, other in (("update-update", memory.update), ("update-weights", now)):
        if other is not None and other.rank and found.rank:
            _overlap(seen, pair, found, other)
    memory.update = found


def _inner(before: Tensor, update: Triplets, weights: Triplets, spikes: int) -> float:
    """uᵀWv of the update's top directions and the weights before it, without the weights' own spikes."""
    u, v = update.left[:, 0], update.right[:, 0]
    wide = torch.float64 if before.dtype == torch.float64 else torch.float32
    product = (before.to(wide) @ v.to(before.device, wide)).double().cpu()
    spiked = weights.sigma[:spikes] * (weights.left[:, :spikes].T @ u) * (weights.right[:, :spikes].T @ v)
    return float(u @ product) - float(spiked.sum())


def _overlap(seen: Look, pair: str, update: Triplets, other: Triplets) -> None:
    """Squared overlaps of single directions, and the share of the update's span that lies in the other one."""
    row = seen.row
    for side in ("left", "right"):
        A, B = getattr(update, side), getattr(other, side)
        O = overlap_matrix(A, B)  # noqa: E741
        word = "updates" if pair == "update-update" else "weights"
        row[f"overlap_{word}_{side}"] = float(min(O.sum() / A.shape[1], 1.0))
        row[f"overlap_{word}_{side}_null"] = B.shape[1] / B.shape[0]
        place = {"step": row["step"], "layer_id": row["layer_id"], "pair": pair, "side": side, "null": 1 / A.shape[0]}
        seen.overlaps += [{**place, "i": i, "j": j, "value": float(O[i, j])} for i, j in np.ndindex(*O.shape)]


def _add(seen: Look, whole: Whole, memory: Memory) -> None:
    """The whole spectrum's rows, and what is known from now on."""
    row = seen.row
    place = {"step": row["step"], "layer_id": row["layer_id"]}
    row |= whole.row
    seen.histogram = [{**place, **bin_} for bin_ in whole.histogram]
    seen.copies = [{**place, **copy} for copy in whole.copies]
    seen.alarms += [
        Alarm(row["step"], row["layer_id"], told.kind, told.value, told.null, told.p, told.level, told.because)
        for told in whole.alarms
    ]
    memory.known, memory.band = whole.known, whole.band
