"""Tensors that are one matrix only together: weight normalisation (g, v) and low-rank pairs (A, B)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from querist.errors import ShapeMismatch
from querist.sources.tensors.ref import TensorRef
from querist.weights.spectrum._recipes import Composed, LoraProduct

__all__ = ["Pair", "Pairs", "low_rank_stem", "pairs_of"]

_LORA = re.compile(
    r"^(?P<base>.*?)(?:^|[._])lora(?:_linear_layer)?[._](?:embedding_)?(?P<side>A|B|down|up)(?P<rest>(?:\..*)?)$"
)
_OTHER = {"A": "B", "B": "A", "down": "up", "up": "down"}


def low_rank_stem(name: str) -> str | None:
    """The layer whose update a tensor is half of, by its name alone; None for any other name.

    >>> low_rank_stem("encoder.q_proj.lora_A.weight"), low_rank_stem("encoder.q_proj.weight")
    ('encoder.q_proj', None)
    """
    match = _LORA.match(name)
    return None if match is None else match["base"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Tensors composed into one: its name, the tensors in the order that the recipe takes, and for low rank (h, d) and r."""

    base: str
    refs: tuple[TensorRef, ...]
    recipe: Composed | LoraProduct
    shape: tuple[int, int] | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs of a source.

    `at`: name of the tensor at whose place pairs stand (several where it is shared); `absorbed`: their other tensors;
    `lone`: why a tensor has no partner.
    """

    at: Mapping[str, tuple[Pair, ...]]
    absorbed: frozenset[str]
    lone: Mapping[str, str]


def pairs_of(refs: Sequence[TensorRef], lora_alpha: float | None = None) -> Pairs:
    """Pairs by hints (weight normalisation) and names (low rank). Raises ShapeMismatch where the ranks of a pair differ."""
    by_name = {name: ref for ref in refs for name in (*ref.aliases, ref.name)}
    at: dict[str, tuple[Pair, ...]] = {}
    absorbed: set[str] = set()
    lone: dict[str, str] = {}
    for ref in refs:
        norm = ref.hints.get("weight_norm")
        if norm:
            _normed(ref, norm, by_name, at, absorbed, lone)
            continue
        for name in (ref.name, *ref.aliases):
            match = _LORA.match(name)
            if match is None or len(ref.shape) < 2:
                continue
            side, start = match["side"], match.start("side")
            partner = name[:start] + _OTHER[side] + name[start + len(side) :]
            if partner not in by_name:
                lone[ref.name] = f"half of a low-rank pair: {partner} is missing"
            elif side in ("A", "down"):
                pair = _low_rank(ref, by_name[partner], match, by_name, lora_alpha)
                at[ref.name] = (*at.get(ref.name, ()), pair)
                absorbed |= {other.name for other in pair.refs[1:]}
    return Pairs(at, frozenset(absorbed), lone)


def _normed(
    ref: TensorRef,
    norm: Mapping[str, Any],
    by_name: Mapping[str, TensorRef],
    at: dict[str, tuple[Pair, ...]],
    absorbed: set[str],
    lone: dict[str, str],
) -> None:
    other = norm["g"] if norm["part"] == "v" else norm["v"]
    if other not in by_name:
        lone[ref.name] = f"half of a normalised weight: {other} is missing"
    elif norm["part"] == "v":
        at[ref.name] = (Pair(str(norm["base"]), (by_name[other], ref), Composed(norm.get("dim"))),)
    else:
        absorbed.add(ref.name)


def _low_rank(
    a: TensorRef, b: TensorRef, match: re.Match[str], by_name: Mapping[str, TensorRef], lora_alpha: float | None
) -> Pair:
    rank, d, h = a.shape[0], math.prod(a.shape[1:]), b.shape[0]
    if math.prod(b.shape[1:]) != rank:
        raise ShapeMismatch(
            "The ranks of a low-rank pair differ",
            value=f"{a.name} {list(a.shape)}, {b.name} {list(b.shape)}",
            allowed="A [r, in] and B [out, r]",
        )
    middle = match["rest"].removesuffix(".weight").strip(".")  # PEFT puts the adapter's name there
    base = ".".join(part for part in (match["base"], "lora", middle) if part)
    alpha = by_name.get(f"{match['base']}.alpha")
    if alpha is not None and math.prod(alpha.shape) == 1 and lora_alpha is None:
        return Pair(base, (a, b, alpha), LoraProduct(), (h, d), rank)
    # An alpha tensor that is overruled still belongs to the pair: its recipe leaves it alone.
    scale = 1.0 if lora_alpha is None else lora_alpha / rank
    return Pair(base, (a, b), LoraProduct(scale), (h, d), rank)
