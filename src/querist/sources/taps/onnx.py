"""ONNX models: the wanted values become outputs; run by onnx.reference, or by onnxruntime where it is installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from querist.errors import (
    BadInput,
    BadOption,
    MissingExtra,
    QueristError,
    ShapeMismatch,
    SourceNotFound,
    UnsupportedFormat,
)
from querist.sources.taps.activations import ONNX, ONNX_LAYOUT, ONNX_SOFTMAX
from querist.sources.taps.named import Step, chart
from querist.sources.taps.sites import Key, Receive, Site, Survey, surveyed
from querist.sources.tensors.onnx import read_onnx
from querist.sources.tensors.window import Window

__all__ = ["OnnxNetwork", "read_onnx_network"]

MEND = "Export the network with torch.export.save and give the .pt2 file"


def read_onnx_network(path: str | Path) -> OnnxNetwork:
    """The network of an `.onnx` file. Raises MissingExtra without the package onnx, UnsafeFile, CorruptFile."""
    if not Path(path).is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    read_onnx(Window.whole(path))  # refuses damaged files and weights outside the model's folder
    try:
        import onnx
    except ImportError:
        raise MissingExtra(
            "Running ONNX models needs the package onnx", value=str(path), mend="pip install 'querist[formats]'"
        ) from None
    return OnnxNetwork(onnx.load(str(path)), Path(path).name)


class OnnxNetwork:
    """A graph of ONNX operators, on the CPU. Sites are the arguments of activations, named by module paths where it has any."""

    form: str = "onnx"
    holds_all: bool = True

    def __init__(self, model: Any, name: str):
        self.model, self.name = model, name
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value for value in model.graph.input if value.name not in constants]
        if not self._inputs:
            raise UnsupportedFormat("The ONNX model takes no input", value=name)
        first = self._inputs[0].type.tensor_type.shape.dim
        self.fixed_batch = int(first[0].dim_value) if first and first[0].HasField("dim_value") else None
        self._runner: tuple[frozenset[str], Any] | None = None
        self._sites, self._silent = self._chart()

    @contextmanager
    def ready(self, device: str) -> Iterator[list[str]]:
        """The CPU only."""
        if torch.device(device).type != "cpu":
            raise BadOption("ONNX models run on the CPU", value=device, allowed="cpu or auto")
        yield []

    def _chart(self) -> tuple[list[Site], Any]:
        graph = self.model.graph
        weights = {tensor.name for tensor in graph.initializer}
        produced = {output: node for node in graph.node for output in node.output}
        end: Key = ("value", graph.output[0].name)
        steps, hidden = [], []
        paths = [_module_path(node) for node in graph.node]
        busy = {path for path, node in zip(paths, graph.node, strict=True) if node.op_type in ONNX_LAYOUT}
        for path in list(paths):
            busy |= {path[:end] for end, letter in enumerate(path) if letter == "."}
        for own, node in zip(paths, graph.node, strict=True):
            used = next((name for name in node.input if name in weights and "." in name), "")
            layout = ONNX_LAYOUT.get(node.op_type, "")
            active = ONNX.get(node.op_type, "") if node.input and _from_zero(node, self.model) else ""
            path = own if own else used.rpartition(".")[0] if layout else ""
            steps.append(
                Step(
                    path,
                    active,
                    layout,
                    ("value", node.input[0]) if active else (),
                    own != "" and own not in busy,
                    own != "",
                )
            )
            hidden += [inner.name or inner.op_type for inner in _inside(node) if inner.op_type in ONNX]
        last = produced.get(graph.output[0].name)
        if last is not None and (
            last.op_type in ONNX_SOFTMAX or (last.op_type in ONNX and _from_zero(last, self.model))
        ):
            end = ("value", last.input[0])
        return chart(steps, end, hidden=hidden)

    def survey(self, inputs: Any) -> Survey:
        """Sites with their shapes."""
        return surveyed(self._sites, self._silent, partial(self.run, inputs))

    def run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> None:
        """Run the model and hand over the values. Raises ShapeMismatch."""
        names = list(dict.fromkeys(key[1] for key in keys))
        feeds = self._feeds(inputs)
        inputs_wanted = [name for name in names if name in feeds]
        names = [name for name in names if name not in feeds]
        try:
            found = self._evaluate(names, feeds)
        except QueristError:
            raise
        except Exception as error:  # the runtimes raise classes of their own
            shape = [list(value.shape) for value in feeds.values()]
            raise ShapeMismatch(
                f"The ONNX model cannot take inputs of shape {shape}",
                value=(str(error).strip() or type(error).__name__).splitlines()[0][:200],
                mend="Give the shape it was made for: for pictures --channels and --size",
            ) from error
        values = dict(zip(names, found, strict=True)) | {name: feeds[name] for name in inputs_wanted}
        for key in dict.fromkeys(keys):
            value = values[key[1]]
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
                receive(key, torch.from_numpy(np.array(value)))

    def _evaluate(self, names: list[str], feeds: Mapping[str, np.ndarray]) -> list[Any]:
        wanted = frozenset(names)
        if self._runner is None or self._runner[0] != wanted:
            self._runner = (wanted, _runner(self.model, names))
        return list(self._runner[1](names, feeds))

    def _feeds(self, inputs: Any) -> dict[str, np.ndarray]:
        names = [value.name for value in self._inputs]
        if isinstance(inputs, Mapping):
            found = [inputs[name] for name in names if name in inputs]
        else:
            found = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
        if len(found) != len(names):
            raise BadInput("The ONNX model takes other inputs", value=f"{len(found)} inputs", allowed=", ".join(names))
        import onnx

        kinds = [onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in self._inputs]
        return {
            name: np.asarray(value.detach().cpu().numpy(), dtype=kind)
            for name, value, kind in zip(names, found, kinds, strict=True)
        }


def _runner(model: Any, names: list[str]) -> Any:
    """A function (names, feeds) -> values."""
    import onnx

    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
        return lambda names, feeds: evaluator.run(names, dict(feeds))
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    there = {output.name for output in wider.graph.output}
    wider.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in there)
    session = onnxruntime.InferenceSession(wider.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda names, feeds: session.run(names, dict(feeds))


def _module_path(node: Any) -> str:
    """`layer1.0.relu` of a node that torch's exporters named `/layer1/layer1.0/relu/Relu`, or whose metadata hold the scopes."""
    for item in node.metadata_props:
        if item.key == "pkg.torch.onnx.name_scopes":
            import ast

            try:
                scopes = ast.literal_eval(item.value)
                return next((str(scope) for scope in reversed(scopes[:-1]) if scope), "")
            except (ValueError, SyntaxError):
                return ""
    parts = node.name.split("/")
    if len(parts) < 3 or parts[0]:
        return ""
    path = parts[1]
    for inner in parts[2:-1]:
        path = inner if inner.startswith(f"{path}.") else f"{path}.{inner}"
    return path


def _inside(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield inner
                yield from _inside(inner)


def _from_zero(node: Any, model: Any) -> bool:
    """Whether a Clip begins at 0; True for every other operator."""
    if node.op_type != "Clip":
        return True
    import onnx

    low = next((attribute.f for attribute in node.attribute if attribute.name == "min"), None)
    if low is None and len(node.input) > 1:
        found = next((tensor for tensor in model.graph.initializer if tensor.name == node.input[1]), None)
        made = next(
            (inner for inner in model.graph.node if inner.op_type == "Constant" and node.input[1] in inner.output), None
        )
        if found is None and made is not None:
            found = next((attribute.t for attribute in made.attribute if attribute.name == "value"), None)
        low = float(onnx.numpy_helper.to_array(found)) if found is not None else None
    return low == 0
