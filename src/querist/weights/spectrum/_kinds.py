"""What kind of layer a tensor belongs to: by what its source knows, else by its name and shape."""

from __future__ import annotations

import re

from querist.sources.tensors.ref import TensorRef

__all__ = ["kind_of", "unfit"]

FLOATS = ("float64", "float32", "float16", "bfloat16")

_EMBEDDING = re.compile(r"(^|[._])(\w*embed\w*|wte|wpe|token_embd|position_embd)([._]|$)", re.I)
_ATTENTION = re.compile(
    r"(^|[._])(\w*attn\w*|\w*attention|q_proj|k_proj|v_proj|o_proj|query|key|value|c_attn|w?qkv|W_pack)([._]|$)", re.I
)
_EXPERT = re.compile(r"(^|[._])(experts?|\w*_exps)([._]|$)", re.I)
_CONVOLUTION = re.compile(r"conv", re.I)
_MASK = re.compile(r"(^|[._])((attn|attention|causal)?_?mask|masked_bias)$", re.I)
_LONGEST_KERNEL = 31
"""A last axis this short is a kernel; a longer one, where no name says convolution, the columns of a stack of matrices."""


def kind_of(ref: TensorRef) -> str:
    """linear, conv1d/2d/3d, embedding, lstm, gru, rnn, attention, expert or unknown."""
    hinted = ref.hints.get("kind")
    if hinted:
        return str(hinted)
    name, n = ref.name, len(ref.shape)
    if n in (4, 5):
        return "expert" if _EXPERT.search(name) else f"conv{n - 2}d"
    if n == 3:
        if _EXPERT.search(name):
            return "expert"
        if _CONVOLUTION.search(name) or (ref.shape[0] > 1 and ref.shape[-1] <= _LONGEST_KERNEL):
            return "conv1d"
    if n in (2, 3):
        if _EMBEDDING.search(name):
            return "embedding"
        if _ATTENTION.search(name):
            return "attention"
        if n == 2 and name.endswith(("weight", "kernel")):
            return "linear"
    return "unknown"


def unfit(ref: TensorRef) -> str | None:
    """Why a tensor holds no matrix whose spectrum means anything, or None where it may."""
    if ref.reason is not None:
        return ref.reason
    if ref.hints.get("buffer"):
        return "a buffer, not a weight"
    quantised = ref.dtype[:1] == "q" and not ref.dtype.startswith(("qint", "quint"))
    if not (ref.dtype in FLOATS or ref.dtype.startswith("float8") or quantised):
        return f"entries of type {ref.dtype} have no spectrum of weights"
    if len(ref.shape) < 2:
        return f"{len(ref.shape)}-dimensional"
    if 0 in ref.shape:
        return "empty"
    role = str(ref.hints.get("role", ""))
    if role == "bias" or role.startswith("bias_"):
        return "a bias"
    if ref.hints.get("kind") == "norm":
        return "scales of a normalisation, not a matrix"
    if _MASK.search(ref.name):
        return "a mask by its name, not a weight"
    if len(ref.shape) > 2 and sum(side > 1 for side in ref.shape) < 2:
        return f"a vector stored as {' x '.join(map(str, ref.shape))}"
    return None
