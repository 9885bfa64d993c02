"""Layer-wise learning rates and sparsities from tail exponents; a layer whose exponent is its null's is left alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from querist.errors import BadOption, BadValues, UnknownName, near

__all__ = ["Advised", "Form", "LayerTail", "alpha_pruning", "param_groups", "temp_balance"]

Form = Literal["linear", "sqrt", "log2", "step"]
SMALLEST_SIDE = 50
"""Exponents of matrices with a shorter side rest on too few eigenvalues to compare layers by."""
MOST = 0.99
_AT_NULL = "its exponent cannot be told from its null"


@dataclass(frozen=True, slots=True)
class LayerTail:
    """What the advice needs of one layer: its exponent and the same exponent on its null.

    low, high: interval of alpha. alpha_null: the exponent of the null; null_low, null_high: its band, where it was drawn
    more than once. side: shorter side. block: name of the block whose mean decides (`alpha_pruning`), by default the layer
    itself. estimator: "hill", "farms" or "csn"; one call takes layers of one estimator only, because a csn exponent is
    about twice a Hill exponent of the same spectrum.
    """

    name: str
    alpha: float | None
    alpha_null: float | None
    low: float | None
    high: float | None
    side: int
    parameters: int
    block: str | None = None
    estimator: str = "hill"
    null_low: float | None = None
    null_high: float | None = None

    @property
    def distinguishable(self) -> bool:
        """Whether the intervals of the exponent and of its null have no point in common."""
        if self.alpha is None or self.alpha_null is None or self.low is None or self.high is None:
            return False
        bottom = self.alpha_null if self.null_low is None else self.null_low
        top = self.alpha_null if self.null_high is None else self.null_high
        return top < self.low or bottom > self.high


@dataclass(frozen=True, slots=True)
class Advised:
    """A value for one layer (multiplier or sparsity); `reason` says why the layer was left alone, None where it was not."""

    name: str
    value: float
    reason: str | None = None


def temp_balance(
    layers: Sequence[LayerTail], *, form: Form = "linear", low: float = 0.5, high: float = 1.5
) -> list[Advised]:
    """Learning-rate multipliers, in the layers' order: the smaller the exponent, the smaller the rate.

    form: "linear", from [min α, max α] to [low, high]; "step", evenly spaced from low to high in the order of α, equal
    exponents sharing the mean of their places; "sqrt" √α and "log2" log₂α over their mean, which low and high do not
    touch. The matrices of the first and of the last tensor, sides below 50 and layers whose exponent is its null's keep
    1, and have no part in the scale. Where all exponents are equal every multiplier is 1.

    Raises BadOption for other forms, ends that do not hold 1 and mixed estimators, BadValues for exponents of 1 or less.

    Source: TempBalance, Zhou et al. (NeurIPS 2023), with the assignments of its ablation; leaving layers at their null
    alone is ours.
    """
    if form not in ("linear", "sqrt", "log2", "step"):
        raise BadOption("No such form", value=form, allowed="linear, sqrt, log2, step")
    if not 0 < low <= 1 <= high < math.inf:
        raise BadOption("The multipliers' range must hold 1", value=(low, high), allowed="0 < low <= 1 <= high")
    _checked(layers)
    tensors = list(dict.fromkeys(_tensor(layer.name) for layer in layers))
    ends = {tensors[0]: "the first layer", tensors[-1]: "the last layer"} if len(tensors) > 2 else {}
    reasons = [_left_alone(layer, ends) for layer in layers]
    used = [
        layer.alpha for layer, reason in zip(layers, reasons, strict=True) if not reason and layer.alpha is not None
    ]
    values = iter(_multipliers(used, form, low, high))
    return [
        Advised(layer.name, 1.0 if reason else next(values), reason)
        for layer, reason in zip(layers, reasons, strict=True)
    ]


def _checked(layers: Sequence[LayerTail]) -> None:
    estimators = sorted({layer.estimator for layer in layers})
    if len(estimators) > 1:
        raise BadOption(
            "Exponents of different estimators cannot be compared",
            value=", ".join(estimators),
            allowed="one estimator for all layers",
        )
    for layer in layers:
        if layer.alpha is not None and not 1 < layer.alpha < math.inf:
            raise BadValues(f"The exponent of {layer.name} is none", value=layer.alpha, allowed="finite, above 1")


def _tensor(name: str) -> str:
    """The tensor that a matrix is part of: `in_proj_weight:q` is of `in_proj_weight`."""
    return name.rpartition(":")[0] or name


def _left_alone(layer: LayerTail, ends: Mapping[str, str]) -> str | None:
    if layer.alpha is None:
        return "no exponent"
    if _tensor(layer.name) in ends:
        return ends[_tensor(layer.name)]
    if layer.side < SMALLEST_SIDE:
        return f"its shorter side {layer.side} is below {SMALLEST_SIDE}"
    return None if layer.distinguishable else _AT_NULL


def _multipliers(alphas: Sequence[float], form: Form, low: float, high: float) -> list[float]:
    if len(set(alphas)) < 2:
        return [1.0] * len(alphas)
    if form in ("sqrt", "log2"):
        shaped = [math.sqrt(alpha) if form == "sqrt" else math.log2(alpha) for alpha in alphas]
        mean = sum(shaped) / len(shaped)
        return [value / mean for value in shaped]
    if form == "linear":
        bottom, top = min(alphas), max(alphas)
        return [low + (high - low) * (alpha - bottom) / (top - bottom) for alpha in alphas]
    order = sorted(alphas)
    places = [order.index(alpha) + (order.count(alpha) - 1) / 2 for alpha in alphas]
    return [low + (high - low) * place / (len(alphas) - 1) for place in places]


def alpha_pruning(layers: Sequence[LayerTail], target: float, *, low: float = 0.8, high: float = 1.2) -> list[Advised]:
    """Sparsities, in the layers' order, whose parameter-weighted mean is `target`: the larger the exponent, the more is pruned.

    Block means of α are mapped linearly from [min, max] to [low, high] and multiplied by a common factor so that the
    weighted mean is the target; what exceeds .99 is cut there and its excess shared out among the others in proportion, so
    that the mean stays exact. Layers without an exponent, or whose exponent is its null's, take part with the middle of
    the scale and do not set its ends. Raises BadOption for a target outside (0, .99] and for mixed estimators, BadValues.

    Source: AlphaPruning, Lu et al. (NeurIPS 2024); the exact redistribution and the null are ours.
    """
    if not 0 < target <= MOST:
        raise BadOption("The target sparsity lies outside its range", value=target, allowed=f"above 0, at most {MOST}")
    if not 0 < low <= high < math.inf:
        raise BadOption("The scale's ends must be positive and in order", value=(low, high), allowed="0 < low <= high")
    _checked(layers)
    reasons = [
        "no exponent" if layer.alpha is None else None if layer.distinguishable else _AT_NULL for layer in layers
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
    """Optimizer parameter groups: one per advised tensor with its own `lr`, and one for all others.

    parameters: `model.named_parameters()`. Every parameter is in exactly one group. Parts of a fused tensor (`name:q`)
    share the mean of their multipliers, since one tensor has one learning rate; advice on a composed weight goes to the
    tensors it is composed of (weight normalisation, low-rank pairs). Raises UnknownName for advice on a parameter that the
    model does not have, BadOption unless lr is positive.
    """
    if not 0 < lr < math.inf:
        raise BadOption("The learning rate must be positive", value=lr, allowed="lr > 0")
    named = dict(parameters)
    multipliers: dict[str, list[float]] = {}
    members: dict[str, list[str]] = {}
    for one in advised:
        name = one.name if _members(one.name, named) else _tensor(one.name)
        members[name] = _members(name, named)
        if not members[name]:
            raise UnknownName("The model has no such parameter", value=one.name, allowed=near(one.name, named, 8))
        multipliers.setdefault(name, []).append(one.value)
    groups = [
        {"params": [named[member] for member in members[name]], "lr": lr * sum(values) / len(values), "name": name}
        for name, values in multipliers.items()
    ]
    taken = {member for found in members.values() for member in found}
    rest = [value for name, value in named.items() if name not in taken]
    return [*groups, {"params": rest, "lr": lr, "name": "others"}] if rest else groups


def _members(name: str, named: Mapping[str, Any]) -> list[str]:
    """The parameters behind the name of a matrix: itself, or what it is composed of."""
    if name in named:
        return [name]
    stem, _, leaf = name.rpartition(".")
    dot = f"{stem}." if stem else ""
    composed = [f"{name}_g", f"{name}_v"]
    composed += [f"{dot}parametrizations.{leaf}.original{i}" for i in (0, 1)]
    base, found, adapter = name.rpartition(".lora")
    if found:
        middle = re.escape(adapter) + r"(\.weight)?"
        pattern = re.compile(rf"{re.escape(base)}[._]lora[._](embedding_)?(A|B|down|up){middle}")
        composed += [member for member in named if pattern.fullmatch(member)]
    return [member for member in composed if member in named]
