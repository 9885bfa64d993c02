"""What the nodes of an ONNX graph tell of the tensors they use: convolutions, gates, which axis holds the outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Node", "node_hints"]

_GATES = {"LSTM": ("lstm", "iofg"), "GRU": ("gru", "zrn"), "RNN": ("rnn", "h")}
"""Kind and the gates' names in ONNX's order (its c is torch's g, its h of a GRU torch's n)."""
_SAME = ("Identity", "Cast", "DequantizeLinear")


@dataclass(slots=True)
class Node:
    """One operation: names of what goes in and out, whole-number attributes."""

    operator: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, list[int]] = field(default_factory=dict)

    def number(self, name: str, default: int) -> int:
        """An attribute that is one whole number."""
        values = self.attributes.get(name)
        return values[0] if values else default


def node_hints(nodes: Iterable[Node], tensors: set[str]) -> dict[str, dict[str, Any]]:
    """Hints by tensor name. A tensor is followed through copies, casts and a transposition of its two axes.

    A tensor that two kinds of operation use, as a tied embedding is, keeps the hints of the first.
    """
    origin: dict[str, tuple[str, bool]] = {name: (name, False) for name in tensors}
    nodes = list(nodes)
    for node in nodes:
        if not node.inputs or not node.outputs or node.inputs[0] not in origin or node.outputs[0] in origin:
            continue
        name, turned = origin[node.inputs[0]]
        if node.operator in _SAME:
            origin[node.outputs[0]] = (name, turned)
        elif node.operator == "Transpose" and node.attributes.get("perm", [1, 0]) == [1, 0]:
            origin[node.outputs[0]] = (name, not turned)
    hints: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for at, used in enumerate(node.inputs):
            if used not in origin:
                continue
            name, turned = origin[used]
            hint = _use(node, at, turned)
            if hint and name not in hints:
                hints[name] = hint
    return hints


def _use(node: Node, at: int, turned: bool) -> dict[str, Any]:
    """What using a tensor as this input means; `turned` where its two axes were swapped on the way."""
    operator = node.operator
    if operator in ("Conv", "ConvTranspose") and at in (1, 2):
        axes = len(node.attributes.get("kernel_shape", node.attributes.get("strides", [])))
        hint: dict[str, Any] = {"kind": f"conv{axes}d"} if axes else {}
        hint["role"] = "weight" if at == 1 else "bias"
        return {**hint, "groups": node.number("group", 1), "transposed": operator == "ConvTranspose"}
    if operator in _GATES and at in (1, 2, 3):
        kind, order = _GATES[operator]
        role = ("weight_ih", "weight_hh", "bias")[at - 1]
        return {
            "kind": kind,
            "role": role,
            "gates": len(order),
            "gate_axis": 1,
            "gate_order": tuple(order),
            "directions": True,
        }
    if operator == "MatMul" and at in (0, 1):
        return _linear(inputs_first=(at == 1) != turned)
    if operator == "Gemm" and at in (0, 1):
        return _linear(inputs_first=(at == 1) != (turned != bool(node.number("transB" if at == 1 else "transA", 0))))
    if operator == "Gemm" and at == 2:
        return {"kind": "linear", "role": "bias"}
    if operator == "Gather" and at == 0 and node.number("axis", 0) == 0:
        return {"kind": "embedding", "role": "weight"}
    if operator in ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization") and at:
        role = {1: "weight", 2: "bias"}.get(at)
        return {"kind": "norm", "role": role} if role else {"kind": "norm", "buffer": True}
    return {}


def _linear(*, inputs_first: bool) -> dict[str, Any]:
    return {"kind": "linear", "role": "weight", **({"layout": "in-out"} if inputs_first else {})}
