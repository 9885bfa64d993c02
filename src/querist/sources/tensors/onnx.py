"""ONNX models: initializers and constants of the graph, its subgraphs and functions; hints from the nodes that use them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from querist.errors import CorruptFile
from querist.sources.tensors.found import Found, Missing
from querist.sources.tensors.onnx_hints import Node, node_hints
from querist.sources.tensors.onnx_tensor import read_tensor
from querist.sources.tensors.protobuf import BYTES, Field, Message, fields
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.window import Window

__all__ = ["looks_like_onnx", "read_onnx"]

DEEPEST = 32
_GRAPH, _FUNCTIONS = 7, 25
_MODEL_WIRES = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}


@dataclass(slots=True)
class _Graphs:
    """Everything collected while walking over graphs."""

    tensors: list[tuple[str, TensorRef | PassedOver | Missing]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def looks_like_onnx(window: Window) -> bool:
    """Whether the bytes are a message with the fields of an ONNX model, a graph among them. ONNX has no magic bytes."""
    try:
        numbers = []
        for item in fields(Message(window)):
            if _MODEL_WIRES.get(item.number) != item.wire:
                return False
            numbers.append(item.number)
    except CorruptFile:
        return False
    return _GRAPH in numbers


def read_onnx(window: Window) -> Found:
    """Every tensor of a model. Raises CorruptFile, and UnsafeFile for external data outside the model's folder."""
    graphs = _Graphs()
    metadata: dict[str, Any] = {}
    seen = False
    for item in fields(Message(window)):
        if item.number == _GRAPH and item.wire == BYTES:
            seen = True
            _graph(item.message, "", 0, graphs)
        elif item.number == _FUNCTIONS and item.wire == BYTES:
            _function(item.message, graphs)
        elif item.number in (2, 3) and item.wire == BYTES:
            metadata["producer" if item.number == 2 else "producer_version"] = item.text()
    if not seen:
        raise CorruptFile("The file holds no graph: it is no ONNX model, or it ends early", value=window.path)
    hints = node_hints(graphs.nodes, {name for name, _ in graphs.tensors})
    found = Found("onnx", metadata=metadata)
    for name, tensor in graphs.tensors:
        if isinstance(tensor, TensorRef):
            hint = hints.get(name, {})
            if "groups" in hint and hint["role"] == "weight":
                hint = {**hint, "kind": f"conv{len(tensor.shape) - 2}d"}
            found.refs.append(replace(tensor, hints={**tensor.hints, **hint}))
        elif isinstance(tensor, Missing):
            found.missing.append(tensor)
        else:
            found.passed_over.append(tensor)
    return found


def _graph(message: Message, place: str, depth: int, graphs: _Graphs) -> None:
    """Initializers and nodes of one graph, subgraphs included."""
    if depth > DEEPEST:
        raise CorruptFile(f"Graphs inside graphs, deeper than {DEEPEST}", value=message.window.path)
    for item in fields(message):
        if item.wire != BYTES:
            continue
        if item.number == 1:
            _node(item.message, place, depth, graphs)
        elif item.number == 5:
            _add(graphs, read_tensor(item.message, None))
        elif item.number == 15:
            graphs.tensors.append((place, PassedOver(f"{place}sparse_initializer", None, None, "a sparse tensor")))


def _function(message: Message, graphs: _Graphs) -> None:
    name = next((item.text() for item in fields(message) if item.number == 1 and item.wire == BYTES), "function")
    for item in fields(message):
        if item.number == 7 and item.wire == BYTES:
            _node(item.message, f"{name}/", 1, graphs)


def _add(graphs: _Graphs, tensor: TensorRef | PassedOver | Missing) -> None:
    graphs.tensors.append((tensor.what if isinstance(tensor, PassedOver) else tensor.name, tensor))


def _node(message: Message, place: str, depth: int, graphs: _Graphs) -> None:
    node = Node()
    attributes: list[Field] = []
    for item in fields(message):
        if item.wire != BYTES:
            continue
        if item.number == 1:
            node.inputs.append(item.text())
        elif item.number == 2:
            node.outputs.append(item.text())
        elif item.number == 3:
            node.name = item.text()
        elif item.number == 4:
            node.operator = item.text()
        elif item.number == 5:
            attributes.append(item)
    for attribute in attributes:
        _attribute(attribute.message, node, place, depth, graphs)
    graphs.nodes.append(node)


def _attribute(message: Message, node: Node, place: str, depth: int, graphs: _Graphs) -> None:
    name, numbers, values = "", [], []
    for item in fields(message):
        if item.number == 1 and item.wire == BYTES:
            name = item.text()
        elif item.number in (3, 8):
            numbers.extend(item.numbers())
        elif item.number in (5, 6, 11, 22) and item.wire == BYTES:
            values.append(item)
    if numbers:
        node.attributes[name] = numbers
    for item in values:
        if item.number in (6, 11):
            _graph(item.message, f"{place}{node.name or node.operator}/", depth + 1, graphs)
        elif node.operator == "Constant" and node.outputs:
            if item.number == 5:
                _add(graphs, read_tensor(item.message, node.outputs[0]))
            else:
                graphs.tensors.append(("", PassedOver(node.outputs[0], None, None, "a sparse tensor")))
