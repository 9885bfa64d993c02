"""What kind of layer a tensor belongs to: by what its source knows, else by its name and shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from querist.sources.tensors.ref import TensorRef

__all__ = ["Kind", "kind_of", "parts_of"]

_FUSED = re.compile(r"(^|[._])(in_proj_weight|c_attn|qkv|wqkv|qkv_proj|query_key_value|to_qkv|attn_qkv)([._]|$)", re.I)
_RECURRENT = re.compile(r"(^|[._])weight_(ih|hh)(_l\d+)?(_reverse)?$")
_EMBEDDING = re.compile(r"(^|[._])(\w*embed\w*|wte|wpe|token_embd|position_embd|tok_embeddings)([._]|$)", re.I)
_ATTENTION = re.compile(
    r"(^|[._])(attn\w*|\w*attention|self_attn|q_proj|k_proj|v_proj|o_proj|query|key|value|attn_[qkv]|attn_output)([._]|$)",
    re.I,
)
_EXPERTS = re.compile(r"(^|[._])(experts?|\w*_exps)([._]|$)", re.I)
_PARTS = {3: ("q", "k", "v"), 4: ("i", "f", "g", "o")}
_GRU = ("r", "z", "n")


@dataclass(frozen=True, slots=True)
class Kind:
    """Layer kind, and whether the tensor is a convolution (spatial axes after out, in) or an expert stack."""

    name: str
    convolution: bool = False
    experts: bool = False


def kind_of(ref: TensorRef) -> Kind:
    """linear, conv1d/2d/3d, embedding, lstm, gru, rnn, attention, experts or unknown."""
    hinted = ref.hints.get("kind")
    n = len(ref.shape)
    if hinted:
        return Kind(hinted, convolution=hinted.startswith("conv"), experts=hinted == "experts")
    if n == 2:
        if _RECURRENT.search(ref.name):
            return Kind(_recurrent(ref))
        if _EMBEDDING.search(ref.name):
            return Kind("embedding")
        if _FUSED.search(ref.name) or _ATTENTION.search(ref.name):
            return Kind("attention")
        return Kind("linear" if ref.name.endswith(("weight", "kernel")) else "unknown")
    if n == 3:
        if _EXPERTS.search(ref.name):
            return Kind("experts", experts=True)
        # A last axis this short is a kernel; a longer one is a stack of matrices.
        return Kind("conv1d", convolution=True) if ref.shape[-1] <= 31 else Kind("unknown", experts=True)
    if n in (4, 5):
        return Kind(f"conv{n - 2}d", convolution=True)
    return Kind("unknown")


def _recurrent(ref: TensorRef) -> str:
    """By shape: weight_hh is [gates·H, H]."""
    rows, columns = ref.shape
    if "weight_hh" in ref.name and columns and rows % columns == 0:
        return {4: "lstm", 3: "gru", 1: "rnn"}.get(rows // columns, "recurrent")
    return "recurrent"


def parts_of(ref: TensorRef, kind: Kind, siblings: Mapping[str, TensorRef]) -> tuple[tuple[str, int, int], ...]:
    """(part, start, stop) along axis 0 of a fused tensor; empty where it holds one matrix.

    Hints decide; without them the name says that parts are fused and the shape which: gates by the sibling weight_hh, q, k
    and v as thirds. Fused projections whose parts have different sizes (grouped queries) cannot be told apart by shape
    alone and are left whole.
    """
    rows = ref.shape[0]
    sizes = ref.hints.get("parts")
    if sizes:
        return _cut(tuple((name, int(size)) for name, size in sizes))
    gates = ref.hints.get("gates")
    if gates is None and ref.hints.get("kind") is None and _RECURRENT.search(ref.name):
        other = siblings.get(re.sub(r"weight_ih", "weight_hh", ref.name), ref)
        hidden = other.shape[1]
        gates = rows // hidden if hidden and rows % hidden == 0 and rows // hidden in (3, 4) else None
    if gates and gates > 1 and rows % gates == 0 and not ref.hints.get("gate_axis"):
        names = ref.hints.get("gate_order") or (_GRU if gates == 3 else _PARTS.get(gates, tuple(range(gates))))
        return _cut(tuple((f"gate_{name}", rows // gates) for name in names))
    fused = _FUSED.search(ref.name) and len(ref.shape) == 2
    known = ref.hints.get("role") == "in_proj"
    # By name alone only 3·D x D is cut: other shapes can hold queries, keys and values of different sizes.
    if (known and rows % 3 == 0) or (fused and rows == 3 * ref.shape[1]):
        return _cut(tuple((name, rows // 3) for name in _PARTS[3]))
    return ()


def _cut(sizes: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int, int], ...]:
    cuts, at = [], 0
    for name, size in sizes:
        cuts.append((str(name), at, at + size))
        at += size
    return tuple(cuts)
