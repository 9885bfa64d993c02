"""`.pt2` files of torch.export: the program is read as JSON and the weights as data, nothing is unpickled or evaluated.

torch's own loader unpickles and evaluates text; here only operators of torch's own library are looked up by name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from querist.errors import CorruptFile, QueristError, SourceNotFound, UnsafeFile, UnsupportedFormat
from querist.sources.taps.fx import ARITHMETIC, GraphNetwork, Program, Stack
from querist.sources.tensors.archive import Archive
from querist.sources.tensors.exported import ELEMENT_TYPES, is_exported, read_exported
from querist.sources.tensors.window import Window

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["of_program", "read_exported_program"]

_OLD = "serialized_exported_program.json"
_MEMORY = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format}
_TARGET = re.compile(r"torch\.ops\.(aten)\.(\w+)\.(\w+)")
_REFUSED = frozenset({"from_file", "save", "load", "set_data", "item_"})
_ELSE = "Give the network as package.module:factory@weights"


def of_program(program: ExportedProgram, name: str = "program") -> GraphNetwork:
    """A program in memory."""
    signature = program.graph_signature
    state, constants = program.state_dict, program.constants
    values: dict[str, torch.Tensor] = {}
    for spec in signature.input_specs:
        if spec.target is not None:
            found: Any = state[spec.target] if spec.target in state else constants[spec.target]
            values[spec.arg.name] = found
    inputs = tuple(spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT")
    stacks = {
        node.name: tuple(
            (call, path, str(kind)) for call, (path, kind) in (node.meta.get("nn_module_stack") or {}).items()
        )
        for node in program.graph.nodes
    }
    nodes = {node.name: node for node in program.graph.nodes}
    output = nodes[next(spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT")]
    value = nodes[inputs[0]].meta["val"]
    size = value.shape[0] if value.ndim else None
    fixed = int(size) if isinstance(size, int) else None
    names = tuple(getattr(program.module_call_graph[0].signature, "forward_arg_names", None) or inputs)
    return GraphNetwork(Program(program.graph, values, inputs, output, stacks, names, fixed), name)


def read_exported_program(path: str | Path) -> GraphNetwork:
    """The program of a `.pt2` file.

    Raises SourceNotFound, CorruptFile, UnsafeFile (an operator that touches files), UnsupportedFormat (operators outside
    torch's own library, control flow, training mode).
    """
    path = Path(path)
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    archive = Archive(Window.whole(path))
    if not is_exported(archive):
        raise UnsupportedFormat("The archive holds no program of torch.export", value=str(path), mend=_ELSE)
    member = _OLD
    if not archive.has(_OLD):
        models = sorted(n for n in archive.names() if n.startswith("models/") and n.endswith(".json"))
        if len(models) != 1:
            raise UnsupportedFormat(f"The archive holds {len(models)} programs", value=str(path), allowed="one program")
        member = models[0]
    try:
        program = json.loads(archive.read(member))
        return GraphNetwork(_Reader(program, path, archive).program(), path.name)
    except QueristError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise CorruptFile(
            f"The program in {member} cannot be read ({type(error).__name__}: {error})", value=str(path)
        ) from None


class _Reader:
    """From JSON to a graph."""

    def __init__(self, program: Mapping[str, Any], path: Path, archive: Archive):
        self.module = program["graph_module"]
        self.path = path
        self.archive = archive
        self.graph = Graph()
        self.env: dict[str, Node] = {}
        self.stacks: dict[str, Stack] = {}

    def program(self) -> Program:
        described = self.module["graph"]
        refs = {ref.name: ref for ref in read_exported(self.archive).refs}
        values: dict[str, torch.Tensor] = {}
        inputs: list[str] = []
        for spec in self.module["signature"]["input_specs"]:
            (what, given), *_ = spec.items()
            name = given["arg"].get("name") or next(iter(given["arg"].values()))["name"]
            self.env[name] = self.graph.placeholder(name)
            if what == "user_input":
                inputs.append(name)
            elif what in ("parameter", "buffer", "tensor_constant"):
                target = given[f"{what}_name"]
                if target not in refs:
                    raise CorruptFile("The archive lacks a tensor of the program", value=target)
                values[name] = refs[target].load()
            else:
                raise UnsupportedFormat(
                    f"The program has an input of the kind {what}", value=str(self.path), mend=_ELSE
                )
        for row in described["nodes"]:
            self._node(row)
        ends = [
            spec["user_output"]["arg"] for spec in self.module["signature"]["output_specs"] if "user_output" in spec
        ]
        output = next((self.env[arg["as_tensor"]["name"]] for arg in ends if "as_tensor" in arg), None)
        if output is None:
            raise UnsupportedFormat("The program returns no tensor", value=str(self.path))
        self.graph.output(output)
        first = (
            described["tensor_values"][inputs[0]]["sizes"] if inputs and inputs[0] in described["tensor_values"] else []
        )
        fixed = first[0].get("as_int") if first else None
        names = (self.module.get("module_call_graph") or [{}])[0].get("signature") or {}
        keywords = tuple(names.get("forward_arg_names") or inputs)
        if len(keywords) != len(inputs):
            keywords = tuple(inputs)
        return Program(self.graph, values, tuple(inputs), output, self.stacks, keywords, fixed)

    def _node(self, row: Mapping[str, Any]) -> None:
        target = self._target(row["target"])
        args, kwargs = [], {}
        for item in row["inputs"]:
            value = self._argument(item["arg"])
            if (
                item.get("kind", 1) == 2
                or (isinstance(target, torch._ops.OpOverload) and _keyword(target, item["name"]))
                or kwargs
            ):
                kwargs[item["name"]] = value
            else:
                args.append(value)
        outputs = row["outputs"]
        single = outputs[0] if len(outputs) == 1 else None
        name = _output_name(single) if single else None
        node = self.graph.create_node("call_function", target, tuple(args), kwargs, name=name)
        stack = _stack(row.get("metadata", {}).get("nn_module_stack", ""))
        self._keep(name or node.name, node, stack)
        if name is None:
            parts = single["as_tensors"] if single and "as_tensors" in single else outputs
            for place, part in enumerate(parts):
                if inner := part.get("name") or _output_name(part):
                    item = self.graph.create_node("call_function", ARITHMETIC["getitem"], (node, place), name=inner)
                    self._keep(inner, item, stack)

    def _keep(self, name: str, node: Node, stack: Stack) -> None:
        self.env[name] = node
        self.stacks[node.name] = stack

    def _target(self, text: str) -> Any:
        if match := _TARGET.fullmatch(text):
            if match[2] in _REFUSED:
                raise UnsafeFile("The program has an operator that touches files", value=text, mend=_ELSE)
            packet = getattr(torch.ops.aten, match[2], None)
            if packet is not None and match[3] in packet.overloads():
                return getattr(packet, match[3])
        home, _, name = text.rpartition(".")
        if home in ("_operator", "operator") and name in ARITHMETIC:
            return ARITHMETIC[name]
        if home == "math" and name in ("ceil", "floor", "trunc", "sqrt"):
            return getattr(math, name)
        if home == "torch" and name.startswith("sym_") and hasattr(torch, name):
            return getattr(torch, name)
        raise UnsupportedFormat(
            f"The program has an operator that cannot be run from a file: {text}",
            value=str(self.path),
            allowed="operators of torch.ops.aten",
            mend=_ELSE,
        )

    def _argument(self, arg: Any) -> Any:
        (what, value), *_ = arg.items()
        if what == "as_none":
            return None
        if what == "as_tensor":
            return self.env[value["name"]]
        if what == "as_tensors":
            return [self.env[item["name"]] for item in value]
        if what in ("as_optional_tensors", "as_optional_tensor"):
            return [self._argument(item) for item in value]
        if what in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            return self._symbol(value)
        if what in ("as_sym_ints", "as_sym_floats"):
            return [self._symbol(item) for item in value]
        if what in ("as_int", "as_ints", "as_bool", "as_bools", "as_string", "as_strings", "as_int_lists"):
            return value
        if what == "as_float":
            return float(value)
        if what == "as_floats":
            return [float(item) for item in value]
        if what == "as_scalar_type":
            return getattr(torch, ELEMENT_TYPES[value])
        if what == "as_memory_format":
            return _MEMORY[value]
        if what == "as_layout":
            return torch.strided
        if what == "as_device":
            return torch.device(value["type"])
        raise UnsupportedFormat(f"The program has an argument of the kind {what[3:]}", value=str(self.path), mend=_ELSE)

    def _symbol(self, value: Any) -> Any:
        return self.env[value["as_name"]] if "as_name" in value else next(iter(value.values()))


def _keyword(target: Any, name: str) -> bool:
    return any(argument.name == name and argument.kwarg_only for argument in target._schema.arguments)


def _output_name(output: Mapping[str, Any]) -> str | None:
    for what in ("as_tensor", "as_sym_int", "as_sym_bool", "as_sym_float"):
        if what in output:
            return output[what].get("name") or output[what].get("as_name")
    return None


def _stack(text: str) -> Stack:
    """`L__self__,,a.Net;L__self___0,blocks.0,a.Block` as paths and classes."""
    rows = [row.split(",") for row in text.split(";") if row]
    return tuple((row[0], row[1], ",".join(row[2:])) for row in rows if len(row) >= 3)
