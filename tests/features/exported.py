"""The tiny network in every form that a network comes in, one set of weights."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from tests.features.small import TinyNet, tiny_net

__all__ = ["FORMS", "write_form"]

FORMS = ("pt2", "ts", "ts-script", "onnx")


def write_form(form: str, folder: Path) -> Path:
    """The network `tests.features.small:tiny_net` as a file."""
    net, example = tiny_net(), torch.zeros(2, 3, 8, 8)
    path = folder / f"tiny.{form.partition('-')[0]}"
    if form == "pt2":
        program = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("b")},))
        torch.export.save(program, path)
    elif form in ("ts", "ts-script"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.trace(net, example) if form == "ts" else torch.jit.script(net), str(path))
    else:
        _write_onnx(net, path)
    return path


def _write_onnx(net: TinyNet, path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    held = {name: value.detach().numpy() for name, value in net.state_dict().items() if value.ndim}
    conv = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    norm = ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"]
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], name="/conv1/Conv", **conv),
        helper.make_node("BatchNormalization", ["c1", *norm], ["n1"], name="/norm/BatchNormalization", epsilon=1e-5),
        helper.make_node("Relu", ["n1"], ["r1"], name="/relu/Relu"),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], name="/conv2/Conv", **conv),
        helper.make_node("Tanh", ["c2"], ["t1"], name="/Tanh"),
        helper.make_node("ReduceMean", ["t1", "axes"], ["m1"], name="/ReduceMean", keepdims=0),
        helper.make_node("Gemm", ["m1", "head.weight", "head.bias"], ["y"], name="/head/Gemm", transB=1),
    ]
    import numpy as np

    held["axes"] = np.array([2, 3], dtype=np.int64)
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))
