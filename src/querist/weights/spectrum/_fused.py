"""Which matrices a fused tensor holds: gates of recurrent layers, queries, keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from querist.sources.tensors.ref import TensorRef
from querist.weights.spectrum._recipes import Interleaved, Sub

__all__ = ["Part", "parts_of"]

_THIRDS = re.compile(r"(^|\.)(qkv|to_qkv|in_proj_weight)(\.|$)")
"""Always three equal blocks of rows."""
_BLOCKS = re.compile(r"(^|\.)(Wqkv|W_pack|qkv_proj|c_attn|attn_qkv)(\.|$)")
"""Blocks of rows; keys and values may have fewer heads than queries."""
_MIXED = re.compile(r"(^|\.)(query_key_value|wqkv)(\.|$)")
"""Blocks in some networks, interleaved head by head in others: only the network's configuration can tell."""
_BY_HEADS = ("gpt_neox", "gpt_neox_japanese", "bloom", "falcon", "RefinedWeb", "RefinedWebModel", "internlm2")
"""Values of `model_type` whose fused rows are interleaved: for every key head its queries, then the key, then the value."""
_QKV = ("q", "k", "v")


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix of a fused tensor: `size` rows from `start` (of axis 1 where `axis` is 1), or as `recipe` takes them out."""

    name: str
    size: int
    start: int = 0
    axis: int = 0
    recipe: Interleaved | Sub | None = None


def parts_of(ref: TensorRef, config: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of a 2-D tensor [rows, columns]; empty where it holds one matrix, or where how it is stacked cannot be told.

    Hints of the source decide; then the name says whether parts are fused, and `config` (the network's own, with
    num_attention_heads, num_key_value_heads, head_dim, model_type) or the shape says how: three equal blocks where rows =
    3·columns, else columns rows of queries and the rest shared by keys and values. Projections that some networks
    interleave by heads (query_key_value) are left whole without a configuration: thirds of them would mix q, k and v.
    """
    axis = int(ref.hints.get("gate_axis") or 0)
    gates = int(ref.hints.get("gates") or 1)
    if gates > 1 and axis < 2 and ref.shape[axis] % gates == 0:
        names = ref.hints.get("gate_order") or range(gates)
        return _cut([(f"gate_{name}", ref.shape[axis] // gates) for name in names], axis)
    for key, axis in (("parts", 0), ("columns", 1)):
        sizes = [(str(name), int(size)) for name, size in ref.hints.get(key) or ()]
        if sizes and sum(size for _, size in sizes) == ref.shape[axis]:
            return _cut(sizes, axis)
    rows, columns = ref.shape
    if _THIRDS.search(ref.name):
        return _cut([(name, rows // 3) for name in _QKV]) if rows % 3 == 0 else ()
    mixed = _MIXED.search(ref.name)
    if not (mixed or _BLOCKS.search(ref.name)):
        return ()
    # GPT-2 stores its inputs first.
    if ref.hints.get("layout") == "in-out" or ("c_attn" in ref.name and columns == 3 * rows):
        return _cut([(name, columns // 3) for name in _QKV], 1) if columns % 3 == 0 else ()
    kind, heads = config.get("model_type"), config.get("num_attention_heads") or config.get("n_head")
    if mixed:
        if not kind or not heads:
            return ()
        if kind in _BY_HEADS:
            return _by_heads(rows, int(heads), _key_heads(config, int(heads)))
    return _cut(_blocks(rows, columns, config, heads))


def _blocks(rows: int, columns: int, config: Mapping[str, Any], heads: Any) -> list[tuple[str, int]]:
    """Sizes of q, k and v: by the configuration where it accounts for every row, else by shape."""
    if heads:
        side = int(config.get("head_dim") or columns // int(heads))
        q, k = int(heads) * side, _key_heads(config, int(heads)) * side
        if q + 2 * k == rows:
            return [("q", q), ("k", k), ("v", k)]
    if columns < rows < 3 * columns and (rows - columns) % 2 == 0:
        return [("q", columns), ("k", (rows - columns) // 2), ("v", (rows - columns) // 2)]
    return [(name, rows // 3) for name in _QKV] if rows % 3 == 0 else []


def _key_heads(config: Mapping[str, Any], heads: int) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    return int(config.get("num_key_value_heads") or config.get("num_kv_heads") or config.get("n_head_kv") or heads)


def _by_heads(rows: int, heads: int, key_heads: int) -> tuple[Part, ...]:
    if heads % key_heads or rows % (heads + 2 * key_heads):
        return ()
    side, per = rows // (heads + 2 * key_heads), heads // key_heads
    cuts = (("q", 0, per), ("k", per, per + 1), ("v", per + 1, per + 2))
    return tuple(
        Part(name, key_heads * (stop - start) * side, recipe=Interleaved(key_heads, per + 2, start, stop))
        for name, start, stop in cuts
    )


def _cut(sizes: Sequence[tuple[str, int]], axis: int = 0) -> tuple[Part, ...]:
    parts, at = [], 0
    for name, size in sizes:
        recipe = Sub(axis=1, start=at, stop=at + size) if axis else None
        parts.append(Part(name, size, at, axis, recipe))
        at += size
    return tuple(parts)
