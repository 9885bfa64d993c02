"""One small network written in every format, for the tests of the readers and of the rooms that read weights.

Six layers: an embedding, a two-dimensional and a grouped one-dimensional convolution, an LSTM, a linear layer, and a linear
layer tied to the embedding. Every side is at least 16.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

VOCABULARY, WIDTH, CHANNELS, HIDDEN = 48, 16, 32, 24
TIED = ("embed.weight", "head.weight")
LINEAR = "linear.weight"
GATES = "ifgo"
ONNX_GATES = "iofg"


class Network(nn.Module):
    """Token numbers [batch, time] to scores [batch, time, vocabulary]."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.conv = nn.Conv2d(WIDTH, CHANNELS, 3, padding=1)
        self.mix = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1, groups=2)
        self.lstm = nn.LSTM(CHANNELS, HIDDEN, batch_first=True)
        self.linear = nn.Linear(HIDDEN, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((), 0.5))

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2).unsqueeze(-1)
        x = self.mix(self.conv(x).squeeze(-1)).transpose(1, 2)
        x, _ = self.lstm(x)
        return self.head(self.linear(x) * self.scale)


def network(seed: int = 0) -> Network:
    """The network with weights of this seed; torch's own stream is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network().eval()


def tokens() -> torch.Tensor:
    """An input of the network."""
    return torch.arange(20).reshape(2, 10) % VOCABULARY


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Every tensor of the network by its first name: the tied layer once."""
    state = network(seed).state_dict()
    return {name: tensor for name, tensor in state.items() if name != TIED[1]}


def write_all(folder: Path, seed: int = 0) -> dict[str, Path]:
    """The network of this seed in every format below `folder`: name of the format to the path to open."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    net, once = network(seed), tensors(seed)
    paths = {
        "pt": folder / "network.pt",
        "pt-legacy": folder / "legacy.pth",
        "safetensors": folder / "network.safetensors",
        "sharded": folder / "sharded" / "model.safetensors.index.json",
        "sharded-bin": folder / "sharded-bin" / "pytorch_model.bin.index.json",
        "folder": folder / "hugging-face",
        "npz": folder / "network.npz",
        "npz-compressed": folder / "compressed.npz",
        "onnx": folder / "network.onnx",
        "onnx-external": folder / "external" / "network.onnx",
        "gguf": folder / "network.gguf",
        "torchscript": folder / "network.ts",
        "torch.export": folder / "network.pt2",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"epoch": 3, "state_dict": net.state_dict()}, paths["pt"])
    torch.save(net.state_dict(), paths["pt-legacy"], _use_new_zipfile_serialization=False)
    write_safetensors(paths["safetensors"], once)
    write_shards(paths["sharded"], once, "safetensors")
    write_shards(paths["sharded-bin"], once, "bin")
    paths["folder"].mkdir(exist_ok=True)
    write_safetensors(paths["folder"] / "model.safetensors", once)
    torch.save({"embed.weight": torch.zeros(2, 2)}, paths["folder"] / "pytorch_model.bin")  # must lose to safetensors
    (paths["folder"] / "config.json").write_text(json.dumps({"model_type": "sample", "hidden_size": WIDTH}))
    arrays = {name: tensor.numpy() for name, tensor in once.items()}
    np.savez(paths["npz"], **arrays)
    np.savez_compressed(paths["npz-compressed"], **arrays)
    write_onnx(paths["onnx"], once)
    write_onnx(paths["onnx-external"], once, external="network.bin")
    write_gguf(paths["gguf"], once)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates its own tracer, which people's files come from
        torch.jit.save(torch.jit.trace(net, (tokens(),)), str(paths["torchscript"]))
        torch.export.save(torch.export.export(net, (tokens(),)), str(paths["torch.export"]))
    return paths


def write_safetensors(path: Path, state: dict[str, torch.Tensor]) -> None:
    """By the format's own package."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in state.items()}, str(path), metadata={"format": "pt"})


def write_shards(index: Path, state: dict[str, torch.Tensor], kind: str) -> None:
    """Three shards and their index."""
    names = list(state)
    stem = "model" if kind == "safetensors" else "pytorch_model"
    weight_map = {}
    for i in range(3):
        shard = f"{stem}-{i + 1:05d}-of-00003.{kind}"
        part = {name: state[name] for name in names[i::3]}
        weight_map |= dict.fromkeys(part, shard)
        if kind == "safetensors":
            write_safetensors(index.parent / shard, part)
        else:
            torch.save(part, index.parent / shard)
    order = {name: weight_map[name] for name in names}
    size = sum(tensor.nbytes for tensor in state.values())
    index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": order}))


def write_gguf(path: Path, state: dict[str, torch.Tensor]) -> None:
    """F32, by the format's own package."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "sample")
    writer.add_context_length(10)
    writer.add_array("sample.words", ["a", "bc", ""])
    for name, tensor in state.items():
        writer.add_tensor(name, np.atleast_1d(tensor.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def onnx_model(state: dict[str, torch.Tensor]):
    """The network as an ONNX graph, with the layouts that exporters choose: LSTM gates as i, o, f, g; a MatMul by in x out."""
    from onnx import TensorProto, helper, numpy_helper

    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    arrays[LINEAR] = np.ascontiguousarray(arrays[LINEAR].T)
    for name in ("lstm.weight_ih_l0", "lstm.weight_hh_l0"):
        arrays[name] = reordered(arrays[name], GATES, ONNX_GATES)[None]
    biases = [reordered(arrays.pop(f"lstm.bias_{part}_l0"), GATES, ONNX_GATES) for part in ("ih", "hh")]
    arrays["lstm.bias"] = np.concatenate(biases)[None]
    node = helper.make_node
    nodes = [
        node("Gather", ["embed.weight", "tokens"], ["embedded"]),
        node("Transpose", ["embedded"], ["channels"], perm=[0, 2, 1]),
        node("Constant", [], ["last"], value=numpy_helper.from_array(np.array([-1]), "last")),
        node("Unsqueeze", ["channels", "last"], ["image"]),
        node("Conv", ["image", "conv.weight", "conv.bias"], ["filtered"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Squeeze", ["filtered", "last"], ["signal"]),
        node("Conv", ["signal", "mix.weight", "mix.bias"], ["mixed"], pads=[1, 1], group=2),
        node("Transpose", ["mixed"], ["steps"], perm=[2, 0, 1]),
        node("LSTM", ["steps", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias"], ["states"], hidden_size=HIDDEN),
        node("Constant", [], ["direction"], value=numpy_helper.from_array(np.array([1]), "direction")),
        node("Squeeze", ["states", "direction"], ["state"]),
        node("Transpose", ["state"], ["batched"], perm=[1, 0, 2]),
        node("MatMul", ["batched", LINEAR], ["product"]),
        node("Add", ["product", "linear.bias"], ["sum"]),
        node("Mul", ["sum", "scale"], ["scaled"]),
        node("Transpose", ["embed.weight"], ["unembed"], perm=[1, 0]),
        node("MatMul", ["scaled", "unembed"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [2, 10])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [2, 10, VOCABULARY])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_onnx(path: Path, state: dict[str, torch.Tensor], external: str | None = None) -> None:
    """By the format's own package; with `external`, every tensor in that file beside the model."""
    import onnx

    model = onnx_model(state)
    if external is None:
        onnx.save(model, str(path))
    else:
        onnx.save(model, str(path), save_as_external_data=True, location=external, size_threshold=0)


def reordered(stacked: np.ndarray, have: str, want: str) -> np.ndarray:
    """Blocks of axis 0, named by the letters of `have`, in the order of `want`."""
    blocks = dict(zip(have, np.split(stacked, len(have)), strict=True))
    return np.concatenate([blocks[letter] for letter in want])


def canonical(source) -> dict[str, torch.Tensor]:
    """The tensors of an opened source in torch's layout, by what their hints say: names to tensors."""
    out = {}
    for ref in source.refs:
        tensor = ref.load()
        if ref.hints.get("layout") == "in-out":
            tensor = tensor.T
        if ref.hints.get("directions"):
            tensor = tensor[0]
            order = "".join(ref.hints["gate_order"])
            if ref.hints["role"] == "bias":
                for name, half in zip(("ih", "hh"), tensor.chunk(2), strict=True):
                    out[f"lstm.bias_{name}_l0"] = torch.from_numpy(reordered(half.numpy(), order, GATES))
                continue
            tensor = torch.from_numpy(reordered(tensor.numpy(), order, GATES))
        out[ref.name] = tensor
    return out
