"""What the names and shapes of a state dict tell of its tensors: parts of weight normalisation, gates, fused projections.

Only names that torch itself writes are used, and only where the shapes agree with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from querist.sources.tensors.ref import TensorRef

__all__ = ["RECURRENT_ORDER", "with_name_hints"]

RECURRENT_ORDER: Mapping[int, tuple[str, str]] = {4: ("lstm", "ifgo"), 3: ("gru", "rzn"), 1: ("rnn", "h")}
"""Gates stacked in torch's recurrent weights: count to kind and the gates' names in order."""

_NORM_PARTS = ((".parametrizations.", ".original0", ".original1"), ("", "_g", "_v"))
_RECURRENT = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def with_name_hints(refs: Iterable[TensorRef]) -> list[TensorRef]:
    """The refs with hints that names and shapes give. What the source knows itself is never replaced."""
    refs = list(refs)
    by_name = {ref.name: ref for ref in refs}
    extra: dict[str, dict[str, Any]] = {}
    for ref in refs:
        extra.setdefault(ref.name, {}).update(
            _weight_norm(ref, by_name, extra) or _recurrent(ref, by_name) or _attention(ref)
        )
    return [replace(ref, hints={**extra[ref.name], **ref.hints}) if extra[ref.name] else ref for ref in refs]


def _weight_norm(ref: TensorRef, by_name: Mapping[str, TensorRef], extra: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """g and v of a weight-normalised tensor, where g has one side of v and 1 elsewhere (or one entry in all)."""
    for infix, g_end, v_end in _NORM_PARTS:
        if not ref.name.endswith(v_end):
            continue
        stem = ref.name.removesuffix(v_end)
        base = stem.replace(infix, ".") if infix and infix in stem else stem.removeprefix(infix[1:]) if infix else stem
        g = by_name.get(stem + g_end)
        if g is None or (infix and infix not in "." + stem):
            continue
        dim = _kept_axis(g.shape, ref.shape)
        if dim is False:
            continue
        pair = {"base": base, "g": g.name, "v": ref.name, "dim": dim}
        extra.setdefault(g.name, {}).update({"weight_norm": {**pair, "part": "g"}})
        return {"weight_norm": {**pair, "part": "v"}}
    return {}


def _kept_axis(g: tuple[int, ...], v: tuple[int, ...]) -> int | bool | None:
    """The axis along which g has its own entries, None where g is one number, False where the shapes do not fit."""
    if not v or g in ((), (1,) * len(v)):
        return (0 if len(g) == len(v) and v[0] == 1 else None) if v else False
    kept = [i for i, side in enumerate(g) if side != 1]
    return kept[0] if len(g) == len(v) and len(kept) == 1 and g[kept[0]] == v[kept[0]] else False


def _recurrent(ref: TensorRef, by_name: Mapping[str, TensorRef]) -> dict[str, Any]:
    """Gates of an LSTM, GRU or RNN from `weight_hh_l0` of shape (gates h, h), or (gates h, p) beside `weight_hr_l0` (p, h)."""
    prefix, _, last = ref.name.rpartition(".")
    role = next((role for role in _RECURRENT if last == role or last.startswith(role + "_l")), None)
    if role is None:
        return {}
    end = last.removeprefix(role)
    dot = prefix + "." if prefix else ""
    recurrent = by_name.get(f"{dot}weight_hh{end}")
    inner = by_name.get(f"{dot}weight_hr{end}")
    if recurrent is None or len(recurrent.shape) != 2:
        return {}
    side = inner.shape[-1] if inner is not None and inner.shape else recurrent.shape[1]
    gates, rest = divmod(recurrent.shape[0], side) if side else (0, 1)
    if rest or gates not in RECURRENT_ORDER or not ref.shape or ref.shape[0] != gates * side:
        return {}
    kind, order = RECURRENT_ORDER[gates]
    return {"kind": kind, "role": role, "gates": gates, "gate_order": tuple(order)}


def _attention(ref: TensorRef) -> dict[str, Any]:
    """The fused projection of torch's MultiheadAttention: query, key and value in equal blocks of rows."""
    if ref.name.rpartition(".")[2] not in ("in_proj_weight", "in_proj_bias") or not ref.shape or ref.shape[0] % 3:
        return {}
    side = ref.shape[0] // 3
    if len(ref.shape) == 2 and ref.shape[1] != side:
        return {}
    return {"kind": "attention", "role": "in_proj", "parts": (("q", side), ("k", side), ("v", side))}
