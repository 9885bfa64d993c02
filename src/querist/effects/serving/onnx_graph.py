# An fx node's arguments may be of any type.
# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportOptionalIterable=false, reportOperatorIssue=false
"""A program of torch.export as an ONNX model: operator by operator, what depends on weights alone computed once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from querist.errors import BadOption

__all__ = ["OPSET", "onnx_bytes"]

OPSET = 18

Value = Any
"""What a node of the program is here: a name in the ONNX graph, a tensor known already, a whole number, or several of these."""

_TYPES = {torch.float32: 1, torch.int32: 6, torch.int64: 7, torch.bool: 9, torch.float64: 11}
"""Numbers of element types in ONNX."""
_PLAIN = {
    "isnan": "IsNaN",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "exp": "Exp",
    "neg": "Neg",
    "logical_not": "Not",
    "bmm": "MatMul",
    "mm": "MatMul",
}
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow"}
_COMPARED = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}
_LOGICAL = {"bitwise_and": "And", "logical_and": "And", "bitwise_or": "Or", "logical_or": "Or"}
_SAME = {"clone", "alias", "contiguous", "lift_fresh_copy", "detach"}
_SIZES = {operator.mul: "Mul", operator.add: "Add", operator.sub: "Sub", operator.floordiv: "Div"}


def onnx_bytes(program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The serialised model; the first dimension of every input and output is called rows.

    The operators are those that networks and linear models come down to; what the program computes from weights alone is worked
    out here. Raises BadOption for another operator. Needs the package onnx.
    """
    return _Builder(program.run_decompositions()).model(inputs, outputs)


class _Builder:
    def __init__(self, program: torch.export.ExportedProgram):
        self.program = program
        self.env: dict[Node, Value] = {}
        self.nodes: list[Any] = []
        self.held: dict[str, np.ndarray] = {}
        self.known: dict[tuple[int, str], str] = {}
        self.alive: list[torch.Tensor] = []

    def model(self, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        import onnx
        from onnx import helper, numpy_helper

        signature, tensors = self.program.graph_signature, {**self.program.state_dict, **self.program.constants}
        targets = {spec.arg.name: spec.target for spec in signature.input_specs}
        names, given = iter(inputs), []
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and targets[node.name] is not None:
                self.env[node] = tensors[targets[node.name]].detach()
            elif node.op == "placeholder":
                self.env[node] = name = next(names)
                value = node.meta["val"]
                given.append(helper.make_tensor_value_info(name, _TYPES[value.dtype], ["rows", *value.shape[1:]]))
            elif node.op == "call_function":
                self.env[node] = self._call(node)
        told = []
        for name, node in zip(outputs, self.program.graph.output_node().args[0], strict=True):
            self._add("Identity", [self._name(self.env[node])], into=name)
            value = node.meta["val"]
            told.append(helper.make_tensor_value_info(name, _TYPES[value.dtype], ["rows", *value.shape[1:]]))
        weights = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(self.nodes, "effects", given, told, weights)
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9, producer_name="querist"
        )
        onnx.checker.check_model(made)
        return made.SerializeToString()

    # ------------------------------------------------------------------------------------------------------ plumbing

    def _add(self, kind: str, inputs: Sequence[str], count: int = 1, into: str | None = None, **attributes: Any) -> Any:
        from onnx import helper

        place = len(self.nodes)
        out = [into] if into else [f"{kind}_{place}" if count == 1 else f"{kind}_{place}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), out, name=f"{kind}_{place}", **attributes))
        return out[0] if count == 1 else out

    def _name(self, value: Value, dtype: torch.dtype | None = None) -> str:
        """The name of a value in the graph; what is known becomes a weight of it."""
        if isinstance(value, str):
            return value
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=dtype)
        kind = value.dtype if dtype is None else dtype
        key = (id(value), str(kind))
        if key not in self.known:
            self.known[key] = name = f"weight_{len(self.held)}"
            self.held[name] = value.to(kind).contiguous().cpu().numpy()  # 0-d ones stay so
            self.alive.append(value)  # its id must not go to another
        return self.known[key]

    def _whole(self, values: Sequence[Any]) -> str:
        """Sizes as one vector of int64, known or not."""
        found = [self.env[one] if isinstance(one, Node) else one for one in values]
        if all(isinstance(one, int) for one in found):
            return self._name(torch.tensor(found, dtype=torch.int64))
        parts = [one if isinstance(one, str) else self._name(torch.tensor([one])) for one in found]
        return self._add("Concat", parts, axis=0) if len(parts) > 1 else parts[0]

    def _as(self, arg: Any, dtype: torch.dtype) -> str:
        """An operand, cast where it has another type."""
        value = self.env[arg] if isinstance(arg, Node) else arg
        if isinstance(value, str) and isinstance(arg, Node) and arg.meta["val"].dtype != dtype:
            return self._add("Cast", [value], to=_TYPES[dtype])
        return self._name(value, dtype)

    def _at(self, arg: Any) -> str:
        return self._name(self.env[arg] if isinstance(arg, Node) else arg)

    def _call(self, node: Node) -> Value:
        target: Any = node.target
        if target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]
        if target in _SIZES:
            given = [self.env[one] if isinstance(one, Node) else one for one in node.args]
            return self._add(
                _SIZES[target], [one if isinstance(one, str) else self._name(torch.tensor([one])) for one in given]
            )
        name = target._schema.name.rpartition("::")[2] if isinstance(target, torch._ops.OpOverload) else str(target)
        if name == "_assert_tensor_metadata":
            return None
        args = torch.fx.node.map_arg(node.args, lambda one: self.env[one])
        flat: list[Any] = []
        torch.fx.node.map_arg((node.args, node.kwargs), lambda one: flat.append(self.env[one]))
        if all(isinstance(one, torch.Tensor | int) for one in flat):
            return target(*args, **torch.fx.node.map_arg(node.kwargs, lambda one: self.env[one]))
        made: Callable[[Node], Value] | None = getattr(self, f"_op_{name.strip('_')}", None)
        out = node.meta.get("val")
        if name in _BINARY:
            if node.kwargs.get("alpha", 1) != 1:
                raise _no_form(target)
            return self._add(_BINARY[name], [self._as(one, out.dtype) for one in node.args[:2]])
        if name in _COMPARED or name in _LOGICAL:
            kinds = [one.meta["val"] if isinstance(one, Node) else one for one in node.args[:2]]
            common = torch.result_type(*(torch.empty(0, dtype=k.dtype) if hasattr(k, "dtype") else k for k in kinds))
            return self._add((_COMPARED | _LOGICAL)[name], [self._as(one, common) for one in node.args[:2]])
        if name in _PLAIN:
            return self._add(_PLAIN[name], [self._at(one) for one in node.args])
        if name in _SAME:
            return self._at(node.args[0])
        if made is None:
            raise _no_form(target)
        return made(node)

    # ----------------------------------------------------------------------------------------------------- operators

    def _op_to_copy(self, node: Node) -> str:
        kind: Any = node.kwargs.get("dtype")
        return self._at(node.args[0]) if kind is None else self._as(node.args[0], kind)

    def _op_addmm(self, node: Node) -> str:
        bias, x, weight = node.args
        return self._add("Add", [self._add("MatMul", [self._at(x), self._at(weight)]), self._at(bias)])

    def _op_softmax(self, node: Node) -> str:
        return self._add("Softmax", [self._at(node.args[0])], axis=node.args[1])

    def _op_elu(self, node: Node) -> str:
        if len(node.args) > 2 and any(one != 1 for one in node.args[2:]):
            raise _no_form(node.target)
        return self._add("Elu", [self._at(node.args[0])], alpha=float(node.args[1] if len(node.args) > 1 else 1.0))

    def _op_gelu(self, node: Node) -> str:
        if node.kwargs.get("approximate", "none") != "none":
            raise _no_form(node.target)
        x, kind = self._at(node.args[0]), node.meta["val"].dtype
        erf = self._add("Erf", [self._add("Mul", [x, self._name(0.5**0.5, kind)])])
        half = self._add("Mul", [x, self._name(0.5, kind)])
        return self._add("Mul", [half, self._add("Add", [erf, self._name(1.0, kind)])])

    def _op_clamp(self, node: Node) -> str:
        kind, limits = node.meta["val"].dtype, [*node.args[1:], None, None][:2]
        low, high = (node.kwargs.get(name, one) for name, one in zip(("min", "max"), limits, strict=True))
        ends = ["" if one is None else self._name(one, kind) for one in (low, high)]
        return self._add("Clip", [self._as(node.args[0], kind), *ends])

    def _op_where(self, node: Node) -> str:
        kind = node.meta["val"].dtype
        return self._add("Where", [self._at(node.args[0]), *(self._as(one, kind) for one in node.args[1:])])

    def _op_full_like(self, node: Node) -> str:
        from onnx import helper

        value = helper.make_tensor("value", _TYPES[node.meta["val"].dtype], [1], [node.args[1]])
        return self._add("ConstantOfShape", [self._add("Shape", [self._at(node.args[0])])], value=value)

    def _op_cat(self, node: Node) -> str:
        parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
        kind = node.meta["val"].dtype
        return self._add("Concat", [self._as(one, kind) for one in parts], axis=axis)

    def _op_any(self, node: Node) -> str:
        number = self._add("Cast", [self._at(node.args[0])], to=_TYPES[torch.int32])
        axes = self._name(torch.tensor([node.args[1]]))
        most = self._add("ReduceMax", [number, axes], keepdims=int(len(node.args) > 2 and bool(node.args[2])))
        return self._add("Cast", [most], to=_TYPES[torch.bool])

    def _reduced(self, kind: str, node: Node, at: int = 1) -> str:
        dims: Any = node.args[at]
        keep = int(len(node.args) > at + 1 and bool(node.args[at + 1]))
        axes = self._name(torch.tensor(list(dims) if isinstance(dims, list | tuple) else [dims]))
        return self._add(kind, [self._as(node.args[0], node.meta["val"].dtype), axes], keepdims=keep)

    def _op_mean(self, node: Node) -> str:
        return self._reduced("ReduceMean", node)

    def _op_sum(self, node: Node) -> str:
        return self._reduced("ReduceSum", node)

    def _op_linalg_vector_norm(self, node: Node) -> str:
        if len(node.args) < 3 or node.args[1] != 2:
            raise _no_form(node.target)
        return self._reduced("ReduceL2", node, 2)

    def _op_embedding(self, node: Node) -> str:
        return self._add("Gather", [self._at(node.args[0]), self._at(node.args[1])], axis=0)

    def _op_index_select(self, node: Node) -> str:
        return self._add("Gather", [self._at(node.args[0]), self._at(node.args[2])], axis=node.args[1])

    def _op_gather(self, node: Node) -> str:
        return self._add("GatherElements", [self._at(node.args[0]), self._at(node.args[2])], axis=node.args[1])

    def _op_select(self, node: Node) -> str:
        return self._add("Gather", [self._at(node.args[0]), self._name(node.args[2], torch.int64)], axis=node.args[1])

    def _op_index(self, node: Node) -> str:
        places: Any = node.args[1]
        real = [k for k, one in enumerate(places) if one is not None]
        if len(real) != 1:
            raise _no_form(node.target)
        return self._add("Gather", [self._at(node.args[0]), self._at(places[real[0]])], axis=real[0])

    def _op_slice(self, node: Node) -> str:
        axis, start, end, step = [*node.args[1:], *(0, 0, torch.iinfo(torch.int64).max, 1)[len(node.args) - 1 :]]
        start = 0 if start is None else start
        end = torch.iinfo(torch.int64).max if end is None else end
        if (start, end, step) == (0, torch.iinfo(torch.int64).max, 1):
            return self._at(node.args[0])
        limits = [self._whole([one]) for one in (start, end, axis, step)]
        return self._add("Slice", [self._at(node.args[0]), *limits])

    def _op_split_with_sizes(self, node: Node) -> list[str]:
        sizes: Any = node.args[1]
        axis: Any = node.args[2] if len(node.args) > 2 else 0
        found = self._add("Split", [self._at(node.args[0]), self._whole(sizes)], count=len(sizes), axis=axis)
        return [found] if isinstance(found, str) else found

    def _op_permute(self, node: Node) -> str:
        dims: Any = node.args[1]
        return self._add("Transpose", [self._at(node.args[0])], perm=[one % len(dims) for one in dims])

    def _op_unsqueeze(self, node: Node) -> str:
        return self._add("Unsqueeze", [self._at(node.args[0]), self._name(torch.tensor([node.args[1]]))])

    def _op_squeeze(self, node: Node) -> str:
        dims: Any = node.args[1]
        shape = node.args[0].meta["val"].shape
        gone = [one for one in (dims if isinstance(dims, list | tuple) else [dims]) if shape[one] == 1]
        return self._add("Squeeze", [self._at(node.args[0]), self._name(torch.tensor(gone))])

    def _op_view(self, node: Node) -> str:
        sizes: Any = list(node.args[1])
        open_ones = [k for k, one in enumerate(sizes) if isinstance(one, Node)]
        if len(open_ones) == 1 and -1 not in sizes:  # the rows follow from the rest
            sizes[open_ones[0]] = -1
        return self._add("Reshape", [self._at(node.args[0]), self._whole(sizes)])

    _op_reshape = _op_unsafe_view = _op_view

    def _op_expand(self, node: Node) -> str:
        sizes: Any = node.args[1]
        return self._add(
            "Expand", [self._at(node.args[0]), self._whole([1 if isinstance(s, int) and s == -1 else s for s in sizes])]
        )

    def _op_sym_size(self, node: Node) -> str:
        at: Any = node.args[1]
        shape = self._add("Shape", [self._at(node.args[0])])
        return self._add("Gather", [shape, self._name(torch.tensor([at]))], axis=0)

    def _op_diagonal(self, node: Node) -> str:
        offset, one, two = [*node.args[1:], *(0, 0, 1)[len(node.args) - 1 :]]
        shape = node.args[0].meta["val"].shape
        if offset != 0 or shape[one] != shape[two]:
            raise _no_form(node.target)
        rest, size = [k for k in range(len(shape)) if k not in (one, two)], int(shape[one])
        turned = self._add("Transpose", [self._at(node.args[0])], perm=[*rest, one, two])
        flat = self._add("Reshape", [turned, self._whole([*[0] * len(rest), size * size])])
        return self._add("Gather", [flat, self._name(torch.arange(size) * (size + 1))], axis=len(rest))

    def _op_native_layer_norm(self, node: Node) -> list[Any]:
        x, shape, weight, bias, eps = node.args
        kind = node.meta["val"][0].dtype
        scale = torch.ones(list(shape), dtype=kind) if weight is None else self.env[weight]
        more = [] if bias is None else [self._at(bias)]
        inputs = [self._at(x), self._name(scale), *more]
        return [self._add("LayerNormalization", inputs, axis=-len(shape), epsilon=float(eps)), None, None]

    def _op_native_group_norm(self, node: Node) -> list[Any]:
        x, weight, bias, _, channels, length, groups, eps = node.args
        kind = node.meta["val"][0].dtype
        parted = self._add("Reshape", [self._at(x), self._whole([0, groups, -1])])
        ones, zeros = torch.ones(groups, dtype=kind), torch.zeros(groups, dtype=kind)
        even = self._add("InstanceNormalization", [parted, self._name(ones), self._name(zeros)], epsilon=float(eps))
        even = self._add("Reshape", [even, self._whole([0, channels, length])])
        for how, by in (("Mul", weight), ("Add", bias)):
            if by is not None:
                even = self._add(how, [even, self._name(self.env[by].reshape(-1, 1))])
        return [even, None, None]

    def _op_native_batch_norm_legit_no_training(self, node: Node) -> list[Any]:
        x, weight, bias, mean, variance, _, eps = node.args
        inputs = [self._at(one) for one in (x, weight, bias, mean, variance)]
        return [self._add("BatchNormalization", inputs, epsilon=float(eps)), None, None]

    def _op_convolution(self, node: Node) -> str:
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        if transposed:
            raise _no_form(node.target)
        pads: Any = [*padding, *padding]
        inputs = [self._at(one) for one in (x, weight, bias) if one is not None]
        return self._add("Conv", inputs, strides=stride, pads=pads, dilations=dilation, group=groups)

    def _op_max_pool2d_with_indices(self, node: Node) -> list[Any]:
        kernel, stride = node.args[1], node.args[2] if len(node.args) > 2 else node.args[1]
        if len(node.args) > 3:
            raise _no_form(node.target)
        return [self._add("MaxPool", [self._at(node.args[0])], kernel_shape=kernel, strides=stride), None]


def _no_form(target: Any) -> BadOption:
    return BadOption("This model uses an operator without a form in ONNX", value=str(target), allowed="format torch")
