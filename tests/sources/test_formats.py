"""One network in every format: equal tensors, equal fingerprints, rows that are slices, tied tensors, wrong endings."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import torch
from tests.sources.samples import TIED, canonical, network, onnx_model, tensors, tokens, write_all, write_safetensors

from querist.errors import BadOption, UnknownName, UnsupportedFormat
from querist.sources.tensors import open_source
from querist.sources.tensors import write_safetensors as ours

FORMATS = {
    "pt": "torch",
    "pt-legacy": "torch",
    "safetensors": "safetensors",
    "sharded": "sharded safetensors",
    "sharded-bin": "sharded torch",
    "folder": "folder of safetensors",
    "npz": "npz",
    "npz-compressed": "npz",
    "onnx": "onnx",
    "onnx-external": "onnx",
    "gguf": "gguf",
    "torchscript": "torchscript",
    "torch.export": "torch.export",
}
KEEPS_ALIASES = ("pt", "pt-legacy", "torchscript", "torch.export")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("network"), seed=3)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same_tensors(paths, name):
    source = open_source(paths[name])
    assert source.format == FORMATS[name]
    found = canonical(source)
    for key, expected in tensors(3).items():
        assert torch.equal(found[key].reshape(expected.shape), expected), key
    assert set(found) - set(tensors(3)) <= {"last", "direction"}
    assert {ref.name: ref.aliases for ref in source if ref.aliases} == (
        {TIED[0]: (TIED[1],)} if name in KEEPS_ALIASES else {}
    )


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_slices_and_refs_cross_processes(paths, name):
    for ref in open_source(paths[name]):
        whole = ref.load()
        assert tuple(whole.shape) == ref.shape
        assert str(whole.dtype) == f"torch.{ref.dtype}"
        again = pickle.loads(pickle.dumps(ref))
        assert again == ref
        assert torch.equal(again.load(), whole)
        if not ref.shape:
            with pytest.raises(BadOption):
                ref.rows(0, 0)
            continue
        n = ref.shape[0]
        for start, stop in ((0, n), (0, 1), (n - 1, n), (n // 3, n // 2), (n, n)):
            assert torch.equal(ref.rows(start, stop), whole[start:stop])
        for start, stop in ((-1, 1), (0, n + 1), (2, 1)):
            with pytest.raises(BadOption, match="no such rows"):
                ref.rows(start, stop)


def test_equal_content_has_equal_fingerprints(paths):
    prints = {name: {ref.name: ref.fingerprint() for ref in open_source(paths[name])} for name in FORMATS}
    expected = {ref.name: ref.fingerprint() for ref in open_source(network(3))}
    for name in (
        "pt",
        "pt-legacy",
        "safetensors",
        "sharded",
        "folder",
        "npz",
        "npz-compressed",
        "torchscript",
        "torch.export",
    ):
        assert prints[name] == expected
    same = [key for key in expected if not key.startswith("lstm") and key not in ("linear.weight", "scale")]
    for name in ("onnx", "onnx-external", "gguf"):
        assert {key: prints[name][key] for key in same} == {key: expected[key] for key in same}
    assert len(set(expected.values())) == len(expected)
    assert open_source(network(4))["conv.weight"].fingerprint() != expected["conv.weight"]


def test_a_fingerprint_tells_dtype_and_shape_apart():
    a = torch.zeros(4, 6)
    prints = {open_source(x)["array"].fingerprint() for x in (a, a.reshape(6, 4), a.double(), a.reshape(24), a.int())}
    assert len(prints) == 5


def test_the_onnx_sample_computes_what_the_network_does():
    from onnx.checker import check_model
    from onnx.reference import ReferenceEvaluator

    model = onnx_model(tensors(3))
    check_model(model, full_check=True)
    scores = ReferenceEvaluator(model).run(None, {"tokens": tokens().numpy()})[0]
    assert np.allclose(scores, network(3)(tokens()).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "name", ["pt", "pt-legacy", "safetensors", "npz", "gguf", "torchscript", "torch.export", "onnx"]
)
@pytest.mark.parametrize("ending", ["bin", "safetensors", "txt", "npz"])
def test_content_decides_and_not_the_ending(paths, tmp_path, name, ending):
    path = tmp_path / f"weights.{ending}"
    shutil.copy(paths[name], path)
    assert open_source(path).format == FORMATS[name]


@pytest.mark.parametrize("name", ["torchscript", "torch.export", "onnx"])
def test_graphs_give_hints(paths, name):
    hints = {ref.name: ref.hints for ref in open_source(paths[name])}
    assert hints["mix.weight"]["groups"] == 2
    assert hints["mix.weight"]["kind"] == "conv1d"
    assert (hints["conv.weight"]["groups"], hints["conv.weight"]["transposed"]) == (1, False)
    assert hints["embed.weight"]["kind"] == "embedding"
    assert hints["linear.weight"]["kind"] == "linear"
    assert hints["linear.weight"].get("layout") == ("in-out" if name == "onnx" else None)
    assert hints["lstm.weight_hh_l0"]["gates"] == 4


@pytest.mark.parametrize("name", ["torchscript", "torch.export"])
def test_archives_tell_buffers(paths, name):
    assert [ref.name for ref in open_source(paths[name]) if ref.hints.get("buffer")] == ["scale"]


def test_patterns_select_and_every_tensor_left_out_is_told(paths):
    source = open_source(paths["pt"], include="lstm.*,*.weight", exclude=["*bias*", "head*"])
    assert sorted(ref.name for ref in source) == [
        "conv.weight",
        "embed.weight",
        "linear.weight",
        "lstm.weight_hh_l0",
        "lstm.weight_ih_l0",
        "mix.weight",
    ]
    assert source["embed.weight"].aliases == ()
    told = {row.what: row.reason for row in source.passed_over}
    assert told["head.weight"] == "left out by --exclude head*"
    assert told["scale"] == "not among --include lstm.*,*.weight"
    assert len(source) + len(told) == len(network(3).state_dict()) + 1  # and the epoch


def test_nothing_selected_lists_the_first_twenty():
    state = {f"layer{i}": torch.zeros(3, 4) for i in range(25)}
    with pytest.raises(UnknownName) as caught:
        open_source(state, include="encoder.*")
    text = str(caught.value)
    assert "layer0 [3, 4]: not among --include encoder.*" in text
    assert "layer19" in text
    assert "layer20" not in text
    assert "and 5 more" in text


def test_an_unknown_tensor_names_its_neighbours(paths):
    with pytest.raises(UnknownName, match=r"conv\.weight"):
        open_source(paths["safetensors"])["conv.wieght"]


@pytest.mark.parametrize("name", FORMATS)
def test_written_again_as_safetensors(paths, tmp_path, name):
    from safetensors.torch import load_file

    source = open_source(paths[name])
    path = ours(tmp_path / "again.safetensors", source)
    read = load_file(path)
    assert sorted(read) == sorted(ref.name for ref in source)
    assert all(torch.equal(read[ref.name], ref.load()) for ref in source)


DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_survives(tmp_path, dtype):
    kind = getattr(torch, dtype)
    value = torch.arange(24).reshape(4, 6).remainder(5).to(torch.float32).to(kind)
    torch.save({"w": value}, tmp_path / "w.pt")
    write_safetensors(tmp_path / "w.safetensors", {"w": value})
    ours(tmp_path / "ours.safetensors", open_source({"w": value}))
    prints = {open_source({"w": value})["w"].fingerprint()}
    for name in ("w.pt", "w.safetensors", "ours.safetensors"):
        ref = open_source(tmp_path / name)["w"]
        assert ref.dtype == dtype
        assert torch.equal(ref.load().view(torch.uint8), value.view(torch.uint8))
        assert torch.equal(ref.rows(1, 3).view(torch.uint8), value[1:3].contiguous().view(torch.uint8))
        prints.add(ref.fingerprint())
    assert len(prints) == 1


def test_a_type_without_a_name_in_safetensors_is_refused(tmp_path):
    with pytest.raises(UnsupportedFormat, match="complex128"):
        ours(tmp_path / "w.safetensors", open_source({"w": torch.zeros(2, 2, dtype=torch.complex128)}))
    assert list(tmp_path.iterdir()) == []


def test_opening_reads_no_torch_for_headers():
    import subprocess
    import sys

    code = "import sys, querist.sources.tensors, querist.sources.address; print([m for m in ('torch','onnx','gguf') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
