"""TorchScript: modules take no hooks, so the values wanted become outputs of the graph, inlined and freed of mutation."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from querist.errors import (
    BadInput,
    BadOption,
    CorruptFile,
    QueristError,
    ShapeMismatch,
    SourceNotFound,
    UnsafeFile,
    UnsupportedFormat,
)
from querist.sources.taps.activations import ATEN, ATEN_LAYOUT, ATEN_SOFTMAX
from querist.sources.taps.functions import first_tensor
from querist.sources.taps.named import Step, chart
from querist.sources.taps.sites import Key, Receive, Site, Survey, surveyed
from querist.sources.tensors.archive import Archive
from querist.sources.tensors.torchscript import is_torchscript, read_torchscript
from querist.sources.tensors.window import Window

__all__ = ["ScriptNetwork", "read_script"]

MEND = "Export the network with torch.export.save and give the .pt2 file"
_PRODUCTS = frozenset(name for name in ATEN_LAYOUT if "norm" not in name)
_FILES = re.compile(r"\btorch\.(save|load|from_file)\b|\bops\.(?!(?:aten|prim|prepacked|quantized)\b)\w+")
"""Functions of TorchScript that touch files, and operators from outside torch."""


def read_script(path: str | Path) -> ScriptNetwork:
    """The network of a TorchScript file. Its pickle is read as data first; its code is TorchScript, not Python.

    Raises UnsafeFile for code that touches files or calls operators from outside torch, CorruptFile, UnsupportedFormat.
    """
    path = Path(path)
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    archive = Archive(Window.whole(path))
    if not is_torchscript(archive):
        raise UnsupportedFormat("The archive holds no TorchScript", value=str(path), mend=MEND)
    read_torchscript(archive)  # refuses what is damaged or names foreign classes
    for name in archive.names():
        code = (
            archive.read(name).decode("utf-8", "replace") if name.startswith("code/") and name.endswith(".py") else ""
        )
        if found := _FILES.search(code):
            raise UnsafeFile(f"The TorchScript code calls {found[0]}", value=f"{path}: {name}", mend=MEND)

    def load(device: str) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                return torch.jit.load(str(path), map_location=device)
        except RuntimeError as error:
            raise CorruptFile(
                f"TorchScript cannot read the file ({str(error).splitlines()[0][:150]})", value=str(path)
            ) from None

    return ScriptNetwork(load("cpu"), path.name, load)


class ScriptNetwork:
    """A scripted or traced module. Sites are the arguments of activations, named by the weights used before them."""

    form: str = "torchscript"
    fixed_batch: int | None = None
    holds_all: bool = True

    def __init__(self, module: Any, name: str, load: Callable[[str], Any] | None = None):
        self.name = name
        self._load = load
        self._device = str(next((p.device for p in module.parameters()), torch.device("cpu")))
        self._home, self._home_device = module, self._device
        self._prepare(module)

    def _prepare(self, module: Any) -> None:
        self._script = copy.copy(module)  # shares tensors, not flags
        self._script.eval()
        self._graph = _inlined(self._script, self.name)
        self._nodes: dict[str, Any] = {}
        self._tapped: dict[frozenset[Key], Any] = {}
        self._sites, self._silent = self._chart()

    @contextmanager
    def ready(self, device: str) -> Iterator[list[str]]:
        """On another device than its own the file is read again onto that one."""
        other = torch.device(device) != torch.device(self._home_device)
        if other:
            if self._load is None:
                raise BadOption(
                    "A TorchScript module in memory stays on its device", value=device, allowed=self._home_device
                )
            self._prepare(self._load(device))
            self._device = device
        training = sum(part.training for part in self._home.modules())
        told = [f"{training} modules were in training mode; a copy in evaluation mode was read"] if training else []
        try:
            yield told
        finally:
            if other:
                self._prepare(self._home)
                self._device = self._home_device

    def _chart(self) -> tuple[list[Site], Any]:
        steps, hidden = [], []
        outputs = list(self._graph.outputs())
        end: Key = ("output",)
        for number, node in enumerate(self._graph.nodes()):
            kind = node.kind().removeprefix("aten::")
            names = [value.debugName() for value in node.inputs()]
            weights = next((n for n in names if n.startswith("self.")), "")
            # Equal constants are pooled, so norms may carry the name of another's weights: only products are asked.
            path = re.sub(r"\.\d+$", "", weights).removeprefix("self.").rpartition(".")[0] if kind in _PRODUCTS else ""
            key = ("argument", number)
            active = kind in ATEN and (ATEN[kind] != "clamp" or _from_zero(node))
            steps.append(Step(path, ATEN[kind] if active else "", ATEN_LAYOUT.get(kind, ""), key))
            ends = len(outputs) == 1 and outputs[0].debugName() in [value.debugName() for value in node.outputs()]
            if (active or kind in ATEN_SOFTMAX) and ends:
                end = key
            hidden += [
                f"{inner.kind()} ({inner.output().debugName()})" for inner in _inside(node) if inner.kind()[6:] in ATEN
            ]
        return chart(steps, end, hidden=hidden)

    def survey(self, inputs: Any) -> Survey:
        """Sites with their shapes. Raises UnsupportedFormat where the output changes as outputs are added."""
        output = None

        def run(keys: list[Key], receive: Receive) -> None:
            nonlocal output
            output = self._run(inputs, keys, receive)

        found = surveyed(self._sites, self._silent, run)
        with torch.inference_mode():
            plain = first_tensor(self._script(*self._given(inputs)))
        if plain is None or output is None or not torch.allclose(plain, output, rtol=1e-5, atol=1e-6, equal_nan=True):
            raise UnsupportedFormat("The TorchScript output changes when values are read", value=self.name, mend=MEND)
        return found

    def run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> None:
        """Run with the wanted values as further outputs."""
        self._run(inputs, keys, receive)

    def _run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> Any:
        order = [key for key in dict.fromkeys(keys) if key != ("output",)]
        wanted = frozenset(order)
        if wanted not in self._tapped:
            self._tapped[wanted] = _with_outputs(self._graph, sorted(number for _, number in order))
        try:
            with torch.inference_mode(), torch.jit.optimized_execution(False):
                found = self._tapped[wanted](*self._given(inputs))
        except QueristError:
            raise
        except (RuntimeError, ValueError, TypeError) as error:
            shape = list(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
            raise ShapeMismatch(
                f"The TorchScript network cannot take inputs of shape {shape}",
                value=(str(error).strip() or "error").splitlines()[-1][:200],
                mend="Give the shape it was made for: for pictures --channels and --size",
            ) from error
        output = first_tensor(found[0])
        if ("output",) in keys and output is not None:
            receive(("output",), output)
        for number, value in zip(sorted(number for _, number in order), found[1:], strict=True):
            receive(("argument", number), value)
        return output

    def _given(self, inputs: Any) -> list[Any]:
        names = [value.debugName().partition(".")[0] for value in list(self._graph.inputs())[1:]]
        if isinstance(inputs, Mapping):
            found = [inputs[name] for name in names if name in inputs]
        else:
            found = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        if len(found) != len(names):
            raise BadInput(
                "The TorchScript network takes other inputs", value=f"{len(found)} inputs", allowed=", ".join(names)
            )
        like = next((value for value in self._script.parameters() if value.is_floating_point()), None)
        kind = like.dtype if like is not None else None
        return [value.to(self._device, kind if value.is_floating_point() else None) for value in found]


def _inlined(module: Any, name: str) -> Any:
    """The graph of forward with every module inlined, parameters as constants, and no changes in place where possible."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = torch.jit.freeze(module, optimize_numerics=False).graph.copy()
            torch._C._jit_pass_inline(graph)
            torch._C._jit_pass_remove_mutation(graph)
    except RuntimeError as error:
        words = (str(error).strip() or "error").splitlines()[0][:150]
        raise UnsupportedFormat(
            f"This TorchScript network cannot be read inside ({words})", value=name, mend=MEND
        ) from None
    if next(iter(graph.inputs())).uses():
        raise UnsupportedFormat("This TorchScript network changes its own attributes", value=name, mend=MEND)
    return graph


def _with_outputs(graph: Any, numbers: list[int]) -> Any:
    """A function of the graph's inputs that returns its output and the first arguments of these nodes."""
    graph = graph.copy()
    nodes = list(graph.nodes())
    outputs = list(graph.outputs())
    if len(outputs) != 1:
        raise UnsupportedFormat(
            "This TorchScript network has several outputs in its graph", value=len(outputs), mend=MEND
        )
    values = []
    for number in numbers:
        value = next(iter(nodes[number].inputs()))
        if nodes[number].kind().endswith("_"):  # left in place: the buffer is about to be overwritten
            nothing = graph.create("prim::Constant", [], 1)
            nothing.output().setType(torch._C.NoneType.get())
            cloned = graph.create("aten::clone", [value, nothing.output()], 1)
            nothing.insertBefore(nodes[number])
            cloned.insertBefore(nodes[number])
            value = cloned.output()
        values.append(value)
    both = graph.create("prim::TupleConstruct", [*outputs, *values], 1)
    both.output().setType(torch._C.TupleType([value.type() for value in (*outputs, *values)]))
    graph.appendNode(both)
    graph.eraseOutput(0)
    graph.registerOutput(both.output())
    graph.eraseInput(0)
    return torch._C._create_function_from_graph("tapped", graph)


def _inside(node: Any) -> Iterator[Any]:
    for block in node.blocks():
        for inner in block.nodes():
            yield inner
            yield from _inside(inner)


def _from_zero(node: Any) -> bool:
    given = list(node.inputs())
    if len(given) < 2:
        return False
    constant = given[1].toIValue()
    return isinstance(constant, int | float) and constant == 0
