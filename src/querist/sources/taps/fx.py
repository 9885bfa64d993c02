"""Graphs of operators (`torch.export`), run node by node with `torch.fx.Interpreter` and read before a node can overwrite."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Interpreter, Node

from querist.errors import BadInput, QueristError, ShapeMismatch, UnsupportedFormat
from querist.sources.taps.activations import ATEN, ATEN_LAYOUT, ATEN_SOFTMAX
from querist.sources.taps.sites import Key, Receive, Site, Survey, block_of, renamed, surveyed

__all__ = ["ARITHMETIC", "GraphNetwork", "Program", "Stack", "operator_name"]


Stack = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A graph with everything it needs.

    `values` holds parameters, buffers and constants by the name of their placeholder; `inputs` the placeholders of the
    user's inputs and `names` their names as keywords; `output` the node whose value is the network's (first) output;
    `stacks` for each node the modules it was called in, outermost first, as (call, path, class): the call is another text
    each time a module is called.
    """

    graph: Graph
    values: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]
    output: Node
    stacks: Mapping[str, Stack]
    names: tuple[str, ...] = ()
    fixed_batch: int | None = None
    ranges: Mapping[str, Any] = field(default_factory=dict)


class GraphNetwork:
    """An exported program. Sites are the arguments of activation operators, blocks and outputs of modules, by module path."""

    form: str = "torch.export"
    holds_all: bool = False

    def __init__(self, program: Program, name: str):
        self.program, self.name = program, name
        self.fixed_batch = program.fixed_batch
        self._values: Mapping[str, torch.Tensor] = program.values
        self._device = "cpu"
        _refuse_training(program.graph, name)
        self._sites = _sites(program)
        self._written = {  # buffers that the program changes: each reading begins with a copy
            node.args[0].name
            for node in program.graph.nodes
            if operator_name(node).endswith("_") and node.args and isinstance(node.args[0], Node)
        }

    @contextmanager
    def ready(self, device: str) -> Iterator[list[str]]:
        """Parameters on the device for as long as this lasts."""
        tf32 = torch.backends.cudnn.allow_tf32
        try:
            torch.backends.cudnn.allow_tf32 = False
            self._values = {
                name: value.to(device, copy=name in self._written) for name, value in self.program.values.items()
            }
            self._device = device
            yield []
        finally:
            torch.backends.cudnn.allow_tf32 = tf32
            self._values, self._device = self.program.values, "cpu"

    def survey(self, inputs: Any) -> Survey:
        """Sites with their shapes. Raises ShapeMismatch where the program cannot take the inputs."""
        return surveyed(self._sites, (), partial(self.run, inputs))

    def run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> None:
        """Run the graph. Raises ShapeMismatch."""
        runner = _Runner(self.program.graph, set(keys), receive, self._device)
        given = self._given(inputs)
        args = [
            given[n.name] if n.name in given else self._values[n.name]
            for n in self.program.graph.find_nodes(op="placeholder")
        ]
        try:
            with torch.inference_mode():
                runner.run(*args, enable_io_processing=False)
        except QueristError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            words = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            shapes = ", ".join(str(list(value.shape)) for value in given.values() if isinstance(value, torch.Tensor))
            where = self.program.stacks.get(runner.at, ())
            raise ShapeMismatch(
                f"The program cannot take inputs of shape {shapes}: it failed at {where[-1][1] if where else runner.at}",
                value=words,
                mend="Give the shape it was exported for: for pictures --channels and --size",
            ) from error

    def _given(self, inputs: Any) -> dict[str, Any]:
        names = self.program.inputs
        if isinstance(inputs, Mapping):
            keys = self.program.names or names
            if missing := [key for key in keys if key not in inputs]:
                raise BadInput(
                    "The program needs an input that the data do not give", value=missing[0], allowed=", ".join(inputs)
                )
            found = [inputs[key] for key in keys]
        else:
            found = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        if len(found) != len(names):
            raise BadInput("The program takes another number of inputs", value=len(found), allowed=", ".join(names))
        like = next((value for value in self._values.values() if value.is_floating_point()), None)

        def one(value: Any) -> Any:
            floats = isinstance(value, torch.Tensor) and value.is_floating_point() and like is not None
            return (
                value.to(self._device, like.dtype if floats and like is not None else None)
                if isinstance(value, torch.Tensor)
                else value
            )

        return dict(zip(names, (one(value) for value in found), strict=True))


class _Runner(Interpreter):
    """Runs a graph; values are let go after their last use, so memory is that of the widest place."""

    def __init__(self, graph: Graph, wanted: set[Key], receive: Receive, device: str):
        super().__init__(torch.nn.Module(), graph=graph)
        self.wanted, self.receive, self.device, self.at = wanted, receive, torch.device(device), ""

    def run_node(self, n: Node) -> Any:
        """One node: the argument is handed over before, the value after."""
        self.at = n.name
        if ("argument", n.name) in self.wanted and n.args:
            value = self.env[n.args[0]] if isinstance(n.args[0], Node) else None
            if isinstance(value, torch.Tensor):
                self.receive(("argument", n.name), value)
        result = super().run_node(n)
        if ("value", n.name) in self.wanted:
            first = result[0] if isinstance(result, tuple | list) and result else result
            if isinstance(first, torch.Tensor):
                self.receive(("value", n.name), first)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An operator; one that makes a tensor on the device of the export makes it here."""
        if isinstance(kwargs.get("device"), torch.device):
            kwargs = {**kwargs, "device": self.device}
        return super().call_function(target, args, kwargs)


def operator_name(node: Node) -> str:
    """`relu_` for aten.relu_.default; "" for what is no operator of torch."""
    target: Any = node.target
    return target._schema.name.rpartition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""


def _sites(program: Program) -> list[Site]:
    """Every site of a program in forward order, shapes not known yet."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    kinds: dict[str, str] = {}
    children: dict[str, list[str]] = {}
    for node in nodes:
        for _, path, kind in program.stacks.get(node.name, ()):
            kinds[path] = kind if kind.startswith("torch.nn.") else f"?.{kind}"
            above, _, name = path.rpartition(".")
            if path and name not in children.setdefault(above, []):
                children[above].append(name)
    plain = {path: kind.rpartition(".")[2] if kind.startswith("torch.nn.") else "?" for path, kind in kinds.items()}
    last = {call: node.name for node in nodes for call, _, _ in program.stacks.get(node.name, ())}
    by_name = {node.name: node for node in nodes}
    found: list[Site] = []
    layout = "first"
    for node in nodes:
        name = operator_name(node)
        stack = program.stacks.get(node.name, ())
        _, path, kind = stack[-1] if stack else ("", "", "")
        block = block_of(path, plain, children) if path else ""
        if name in ATEN and (ATEN[name] != "clamp" or _from_zero(node)):
            own = kind.startswith("torch.nn.modules.activation.")
            site = path if own else f"{path}.{ATEN[name]}".removeprefix(".")
            found.append(Site(site, "preactivation", ATEN[name], (), ("argument", node.name), layout, block=block))  # pyright: ignore[reportArgumentType]
        layout = ATEN_LAYOUT.get(name, layout)
        for call, end, cls in stack:
            if end and last[call] == node.name:
                key = _before(node)
                if block_of(end, plain, children) == end:
                    found.append(Site(end, "block", cls.rpartition(".")[2], (), key, layout, block=end))  # pyright: ignore[reportArgumentType]
                found.append(Site(end, "output", cls.rpartition(".")[2], (), ("value", node.name), layout, block=block))  # pyright: ignore[reportArgumentType]
    output = by_name.get(program.output.name)
    key = ("value", program.output.name) if output is None else _before(output, softmax=True)
    found.append(Site("logits", "logits", "output", (), key, layout))  # pyright: ignore[reportArgumentType]
    return list(renamed(found))


def _before(node: Node, *, softmax: bool = False) -> Key:
    """Where the value of a node is read: as its argument, if it is an activation (or the softmax that ends the network)."""
    name = operator_name(node)
    if (name in ATEN and (ATEN[name] != "clamp" or _from_zero(node))) or (softmax and name in ATEN_SOFTMAX):
        return ("argument", node.name)
    return ("value", node.name)


def _from_zero(node: Node) -> bool:
    low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    return isinstance(low, int | float) and low == 0


def _refuse_training(graph: Graph, name: str) -> None:
    """Raise UnsupportedFormat for a program whose norms or dropouts were exported in training mode."""
    for node in graph.nodes:
        at = {"batch_norm": 5, "dropout": 2, "_native_batch_norm_legit_functional": 5, "native_dropout": 2}.get(
            operator_name(node)
        )
        if at is not None and len(node.args) > at and node.args[at] is True:
            raise UnsupportedFormat(
                f"The program was exported in training mode ({node.name})",
                value=name,
                mend="Call model.eval() before torch.export.export",
            )


ARITHMETIC: Mapping[str, Any] = {
    name: getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "pow",
        "le",
        "lt",
        "ge",
        "gt",
        "eq",
        "ne",
        "getitem",
        "and_",
        "or_",
    )
}
"""Functions of Python's operator module that an exported graph may call on sizes and lists."""
