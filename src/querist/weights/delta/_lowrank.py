"""Low-rank updates as their factors: read, scaled, turned, cut into the parts of a fused matrix, and put together."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, UnsupportedFormat
from querist.weights.spectrum import Interleaved, LayerMatrix, Sub, Triplets, lora_svd

__all__ = ["Adapter", "Factors", "LowRank", "stacked"]


@dataclass(frozen=True, slots=True)
class Factors:
    """The update B·A, scale included: A [r, d], B [h, r], float64."""

    A: Float[Tensor, "r d"]
    B: Float[Tensor, "h r"]

    @property
    def shape(self) -> tuple[int, int]:
        """(h, d) of the update."""
        return self.B.shape[0], self.A.shape[1]

    @property
    def rank(self) -> int:
        """r: the most that the rank of the update can be."""
        return self.A.shape[0]

    def product(self) -> Float[Tensor, "h d"]:
        """The update itself, float32: only to be added to a matrix of its shape, never to be decomposed."""
        return self.B.float() @ self.A.float()

    def triplets(self) -> Triplets:
        """Its singular triplets through the r x r core of two QR decompositions; those of rounding size left out."""
        found = lora_svd(self.A, self.B)
        # Against the factors, not against the largest value: two equal updates subtracted leave nothing but rounding.
        tiny = torch.finfo(torch.float64).eps * max(self.shape) * float(self.A.norm() * self.B.norm())
        k = int((tiny < found.S).sum())
        return Triplets(found.U[:, :k], found.S[:k], found.V[:, :k])


def stacked(terms: Sequence[Factors], signs: Sequence[float] | None = None) -> Factors | None:
    """Σ sign·B·A as one pair of factors of the summed ranks; None for no terms."""
    if not terms:
        return None
    signs = [1.0] * len(terms) if signs is None else signs
    A = torch.cat([term.A for term in terms])
    return Factors(A, torch.cat([sign * term.B for sign, term in zip(signs, terms, strict=True)], dim=1))


@dataclass(frozen=True, slots=True)
class Adapter:
    """How the pairs of a source are scaled: `lora_alpha` as asked for, else `config` (adapter_config.json), else 1.

    Raises UnsupportedFormat for an adapter that is no LoRA, BadOption for numbers that are none.
    """

    config: Mapping[str, Any]
    lora_alpha: float | None = None

    def __post_init__(self) -> None:
        kind = str(self.config.get("peft_type") or "LORA").upper().rpartition(".")[2]
        if kind != "LORA":
            raise UnsupportedFormat(
                "The adapter is no LoRA",
                value=f"peft_type {kind}",
                allowed="LORA",
                mend="Merge it into its base and compare the merged checkpoint",
            )
        alpha = self.config.get("lora_alpha")
        if alpha is not None and (isinstance(alpha, bool) or not isinstance(alpha, int | float) or not alpha):
            raise BadOption("lora_alpha of adapter_config.json is no number", value=alpha, allowed="a number but 0")

    @property
    def turned(self) -> bool:
        """Whether base weights are stored inputs first, the update outputs first."""
        return bool(self.config.get("fan_in_fan_out"))

    def scale(self, pair: LayerMatrix, stem: str) -> float | None:
        """alpha/r (alpha/√r with use_rslora) of a pair; None where nothing tells alpha."""
        rank = pair.refs[0].shape[0]
        alpha = self.lora_alpha
        if alpha is None and len(pair.refs) > 2:
            alpha = float(pair.refs[2].load())
        if alpha is None:
            alpha = _by_pattern(self.config.get("alpha_pattern"), stem)
        if alpha is None:
            alpha = self.config.get("lora_alpha")
        if alpha is None:
            return None
        return float(alpha) / (math.sqrt(rank) if self.config.get("use_rslora") else rank)


def _by_pattern(patterns: Any, stem: str) -> float | None:
    """The value of the first pattern that names this layer: its name, its end, or a regular expression of either."""
    for pattern, value in (patterns or {}).items():
        try:
            hit = stem == pattern or re.fullmatch(rf"(?:.*\.)?(?:{pattern})", stem)
        except re.error:
            hit = stem.endswith(f".{pattern}")
        if hit:
            return float(value)
    return None


@dataclass(frozen=True, slots=True)
class LowRank:
    """A pair of a source as an update of one matrix of BASE: picklable, nothing is read before `factors`.

    turned: the update is stored transposed to its matrix. part: the matrix of a fused tensor whose rows (or columns) it
    is to give, None for the whole tensor.
    """

    pair: LayerMatrix
    scale: float
    turned: bool = False
    part: LayerMatrix | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(h, d) of the whole update, turned as its matrix is."""
        h, d = self.pair.shape
        return (d, h) if self.turned else (h, d)

    def factors(self) -> Factors:
        """Its factors in float64, A multiplied by nothing and B by the scale."""
        a, b = (ref.load().detach().double().flatten(1) for ref in self.pair.refs[:2])
        if self.turned:
            a, b = b.T, a.T
        b = self.scale * b
        if self.part is None:
            return Factors(a, b)
        if self.part.rows is not None:
            return Factors(a, b[self.part.rows[0] : self.part.rows[1]])
        recipe = self.part.recipe
        if isinstance(recipe, Interleaved) or (isinstance(recipe, Sub) and recipe.axis == 0 and not recipe.lead):
            return Factors(a, recipe((b,)))
        return Factors(recipe((a,)), b)


def cuts(part: LayerMatrix) -> bool:
    """Whether a part is a choice of rows or columns, so that a pair of factors can be cut as it is."""
    if part.recipe is None:
        return len(part.tensor_shape) == 2 or part.conv == "flatten"
    return isinstance(part.recipe, Interleaved) or (isinstance(part.recipe, Sub) and not part.recipe.lead)
