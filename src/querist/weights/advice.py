"""Layer-wise learning rates and sparsities from tail exponents, with a layer left alone where its exponent is its null's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from querist.errors import BadOption, UnknownName, near

__all__ = ["Advised", "LayerTail", "alpha_pruning", "param_groups", "temp_balance"]

Form = Literal["linear", "sqrt", "log2", "step"]
SMALLEST_SIDE = 50
"""Exponents of matrices with a shorter side rest on too few eigenvalues to compare layers by."""
MOST = 0.99


@dataclass(frozen=True, slots=True)
class LayerTail:
    """What the advice needs of one layer: its exponent (one estimator for all layers) and the same exponent on its null.

    low, high: interval of alpha; the layer is distinguishable where alpha_null lies outside it. block: name of the block whose
    mean decides (alpha_pruning), by default the layer itself.
    """

    name: str
    alpha: float | None
    alpha_null: float | None
    low: float | None
    high: float | None
    side: int
    parameters: int
    block: str | None = None

    @property
    def distinguishable(self) -> bool:
        """Whether the null's exponent lies outside the interval."""
        known = None not in (self.alpha, self.alpha_null, self.low, self.high)
        return known and not (self.low <= self.alpha_null <= self.high)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Advised:
    """A value for one layer (multiplier or sparsity); `reason` says why the layer was left alone, None where it was not."""

    name: str
    value: float
    reason: str | None = None


def temp_balance(
    layers: Sequence[LayerTail], *, form: Form = "linear", low: float = 0.5, high: float = 1.5
) -> list[Advised]:
    """Learning-rate multipliers: the smallest exponent gets `low`, the largest `high`, between them by `form`.

    form: "linear" in α, "sqrt" of α, "log2" of α, or "step" (ranks, evenly spaced). The first and last layer, sides below 50 and
    layers whose exponent is its null's keep 1, and do not set the ends of the scale. Raises BadOption.

    Source: TempBalance, Zhou et al. (NeurIPS 2023); leaving layers at their null alone is ours.
    """
    if not 0 < low <= 1 <= high:
        raise BadOption("The multipliers' range must hold 1", value=(low, high), allowed="0 < low <= 1 <= high")
    if form not in ("linear", "sqrt", "log2", "step"):
        raise BadOption("No such form", value=form, allowed="linear, sqrt, log2, step")
    reasons = [_left_alone(layer, i, len(layers)) for i, layer in enumerate(layers)]
    used = [layer for layer, reason in zip(layers, reasons, strict=True) if reason is None]
    scale = _scale([layer.alpha for layer in used if layer.alpha is not None], form)
    advised = []
    for layer, reason in zip(layers, reasons, strict=True):
        if reason is not None or layer.alpha is None:
            advised.append(Advised(layer.name, 1.0, reason))
        else:
            place = scale(layer.alpha)
            advised.append(Advised(layer.name, 1.0 if place is None else low + (high - low) * place))
    return advised


def _left_alone(layer: LayerTail, position: int, count: int) -> str | None:
    if layer.alpha is None:
        return "no exponent"
    if position in (0, count - 1) and count > 2:
        return "the first layer" if position == 0 else "the last layer"
    if layer.side < SMALLEST_SIDE:
        return f"its shorter side {layer.side} is below {SMALLEST_SIDE}"
    if not layer.distinguishable:
        return "its exponent cannot be told from its null"
    return None


def _scale(alphas: Sequence[float], form: str):
    """α to its place in [0, 1]; None where all are equal."""
    if form == "step":
        ranks = sorted(set(alphas))
        return lambda alpha: ranks.index(alpha) / (len(ranks) - 1) if len(ranks) > 1 else None
    shape = {"linear": float, "sqrt": math.sqrt, "log2": math.log2}[form]
    shaped = [shape(alpha) for alpha in alphas]
    bottom, top = min(shaped, default=0.0), max(shaped, default=0.0)
    return lambda alpha: (shape(alpha) - bottom) / (top - bottom) if top > bottom else None


def alpha_pruning(layers: Sequence[LayerTail], target: float, *, low: float = 0.8, high: float = 1.2) -> list[Advised]:
    """Sparsities per layer whose parameter-weighted mean is `target`.

    Block means of α are mapped linearly from [min, max] to [low, high] and multiplied by a common factor so that the
    weighted mean is the target; what exceeds .99 is cut there and its excess is shared out among the others. Layers left alone
    take part with the middle of the scale. Raises BadOption for a target outside (0, .99].

    Source: AlphaPruning, Lu et al. (NeurIPS 2024); the exact redistribution and the null are ours.
    """
    if not 0 < target <= MOST:
        raise BadOption("The target sparsity lies outside its range", value=target, allowed=f"above 0, at most {MOST}")
    if not 0 < low <= high:
        raise BadOption("The scale's ends must be positive and in order", value=(low, high), allowed="0 < low <= high")
    reasons = ["no exponent" if layer.alpha is None else None for layer in layers]
    reasons = [
        reason or (None if layer.distinguishable else "its exponent cannot be told from its null")
        for layer, reason in zip(layers, reasons, strict=True)
    ]
    means = _block_means(layers, reasons)
    bottom, top = min(means.values(), default=0.0), max(means.values(), default=0.0)
    shares = []
    for layer, reason in zip(layers, reasons, strict=True):
        if reason is not None or top == bottom:
            shares.append((low + high) / 2)
        else:
            shares.append(low + (high - low) * (means[layer.block or layer.name] - bottom) / (top - bottom))
    values = _rescaled(shares, [layer.parameters for layer in layers], target)
    return [Advised(layer.name, value, reason) for layer, value, reason in zip(layers, values, reasons, strict=True)]


def _block_means(layers: Sequence[LayerTail], reasons: Sequence[str | None]) -> dict[str, float]:
    blocks: dict[str, list[float]] = {}
    for layer, reason in zip(layers, reasons, strict=True):
        if reason is None and layer.alpha is not None:
            blocks.setdefault(layer.block or layer.name, []).append(layer.alpha)
    return {name: sum(values) / len(values) for name, values in blocks.items()}


def _rescaled(shares: Sequence[float], sizes: Sequence[int], target: float) -> list[float]:
    """share·factor, at most .99, with the factor that makes the weighted mean the target: exact after at most n cuts."""
    total = target * sum(sizes)
    cut: set[int] = set()
    while True:
        free = [i for i in range(len(shares)) if i not in cut]
        weight = sum(shares[i] * sizes[i] for i in free)
        left = total - MOST * sum(sizes[i] for i in cut)
        factor = left / weight if weight > 0 else 0.0
        over = {i for i in free if shares[i] * factor > MOST}
        if not over:
            return [MOST if i in cut else shares[i] * factor for i in range(len(shares))]
        cut |= over


def param_groups(
    parameters: Iterable[tuple[str, Any]], advised: Iterable[Advised], *, lr: float
) -> list[dict[str, Any]]:
    """Optimizer parameter groups: one per advised parameter with its own `lr`, and one for all others.

    parameters: `model.named_parameters()`. Raises UnknownName for advice on a parameter that the model does not have; parts of a
    fused tensor (`name:q`) share the mean of their multipliers, since one tensor has one learning rate.
    """
    named = dict(parameters)
    multipliers: dict[str, list[float]] = {}
    for one in advised:
        name = one.name if one.name in named else one.name.rpartition(":")[0]
        if name not in named:
            raise UnknownName("The model has no such parameter", value=one.name, allowed=near(one.name, named, 8))
        multipliers.setdefault(name, []).append(one.value)
    groups = [
        {"params": [named[name]], "lr": lr * sum(values) / len(values), "name": name}
        for name, values in multipliers.items()
    ]
    rest = [value for name, value in named.items() if name not in multipliers]
    return [*groups, {"params": rest, "lr": lr, "name": "others"}] if rest else groups


def by_name(advised: Iterable[Advised]) -> Mapping[str, Advised]:
    """Advice by layer name."""
    return {one.name: one for one in advised}
