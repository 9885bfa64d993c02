"""Which functions, modules and operators are activations, and which say how units are laid out."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ATEN",
    "ATEN_LAYOUT",
    "ATEN_SOFTMAX",
    "ONNX",
    "ONNX_LAYOUT",
    "ONNX_SOFTMAX",
    "functions",
    "is_activation",
    "layout_of",
    "softmaxes",
]

_NAMES = (
    *(
        "relu",
        "relu6",
        "gelu",
        "silu",
        "mish",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "prelu",
        "rrelu",
        "hardtanh",
        "hardswish",
    ),
    *(
        "hardsigmoid",
        "softplus",
        "softsign",
        "tanhshrink",
        "softshrink",
        "hardshrink",
        "threshold",
        "logsigmoid",
        "glu",
    ),
    *("tanh", "sigmoid"),
)
ATEN: Mapping[str, str] = {
    **{name: name for name in _NAMES if name not in ("logsigmoid", "relu6", "softsign", "tanhshrink")},
    **{f"{name}_": name for name in _NAMES},
    "log_sigmoid": "logsigmoid",
    "relu6": "relu6",
    "clamp_min": "clamp",
    "clamp": "clamp",
    "clamp_": "clamp",
    "clamp_min_": "clamp",
}
"""Operators of torch that are activations, to their plain names. `clamp` only counts from 0 on."""
ATEN_SOFTMAX = frozenset({"softmax", "log_softmax", "_softmax", "_log_softmax"})
ATEN_LAYOUT: Mapping[str, str] = {
    **dict.fromkeys(("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "batch_norm", "group_norm"), "first"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "instance_norm"), "first"),
    **dict.fromkeys(("_native_batch_norm_legit_no_training", "native_batch_norm", "native_group_norm"), "first"),
    **dict.fromkeys(("linear", "addmm", "mm", "matmul", "bmm", "layer_norm", "native_layer_norm", "embedding"), "last"),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), "last"),
}
"""Operators after which units are on the first axis of a row, or on its last."""
ONNX: Mapping[str, str] = {
    **{name: name.lower() for name in ("Relu", "Gelu", "Mish", "Elu", "Selu", "Celu", "PRelu", "Softplus", "Softsign")},
    **{
        name: name.lower()
        for name in ("Tanh", "Sigmoid", "HardSwish", "HardSigmoid", "ThresholdedRelu", "Shrink", "Swish")
    },
    "LeakyRelu": "leaky_relu",
    "Clip": "clamp",
}
ONNX_SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
ONNX_LAYOUT: Mapping[str, str] = {
    **dict.fromkeys(
        ("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization"), "first"
    ),
    **dict.fromkeys(("Gemm", "MatMul", "LayerNormalization", "Gather", "LSTM", "GRU", "RNN"), "last"),
}

_CLASS = re.compile(
    r"(?:relu\d*|[gs]elu\w*|celu|elu|swish|mish|silu|sigmoid|tanh|softplus|activation|glu)$", re.IGNORECASE
)
_NO_ACTIVATION = ("MultiheadAttention", "Softmax", "Softmax2d", "LogSoftmax", "Softmin")


@functools.cache
def functions() -> Mapping[Any, str]:
    """Functions of torch that are activations, to their plain names."""
    import torch
    from torch.nn import functional

    found: dict[Any, str] = {}
    for place in (functional, torch, torch.Tensor):
        for name in _NAMES:
            for spelled in (name, f"{name}_"):
                if callable(function := getattr(place, spelled, None)):
                    found[function] = name
        for spelled in ("clamp", "clamp_", "clamp_min", "clamp_min_", "clip", "clip_"):
            if callable(function := getattr(place, spelled, None)):
                found[function] = "clamp"
    return found


@functools.cache
def softmaxes() -> frozenset[Any]:
    """Functions of torch that turn logits into probabilities or their logarithms."""
    import torch
    from torch.nn import functional

    names = ("softmax", "log_softmax")
    return frozenset(getattr(place, name) for place in (functional, torch, torch.Tensor) for name in names)


def is_activation(module: Any) -> bool:
    """Whether a module is an activation: one of torch's, or a childless one whose class is named like one."""
    cls = type(module)
    if cls.__module__ == "torch.nn.modules.activation":
        return cls.__name__ not in _NO_ACTIVATION
    return not list(module.children()) and _CLASS.search(cls.__name__) is not None


def layout_of(module: Any) -> str | None:
    """Where a module's output has its units: "first" or "last"; None where it does not decide."""
    from torch import nn
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.conv import _ConvNd

    if isinstance(module, _ConvNd | _NormBase | nn.GroupNorm | nn.LocalResponseNorm):
        return "first"
    if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding | nn.RNNBase | nn.MultiheadAttention):
        return "last"
    # transformers' Conv1D is a linear layer
    return "last" if type(module).__name__ in ("Conv1D", "RMSNorm") or "RMSNorm" in type(module).__name__ else None
