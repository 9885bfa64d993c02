"""Files of torch.save against torch.load itself: layouts, nesting, prefixes, strides, old tensors, what is no tensor."""

from __future__ import annotations

import io
import zipfile
from collections import OrderedDict

import pytest
import torch
from tests.sources.samples import network, tensors

from querist.errors import CorruptFile, SourceNotFound, UnsupportedFormat
from querist.sources.tensors import open_source

BOTH = pytest.mark.parametrize("zipped", [True, False])


def save(value, path, zipped=True):
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


@BOTH
def test_equal_to_torch_load(tmp_path, zipped):
    base = torch.arange(240.0).reshape(12, 20)
    state = {
        "turned": base.T,
        "part": base[3:9, 2:15:3],
        "deep": torch.arange(120.0).reshape(2, 3, 4, 5).permute(3, 1, 0, 2),
        "row": base[4],
        "number": torch.tensor(3.5),
        "empty": torch.zeros(0, 5),
        "parameter": torch.nn.Parameter(torch.randn(3, 3, generator=torch.Generator().manual_seed(0))),
        "half": base.bfloat16(),
        "small": base.to(torch.float8_e4m3fn),
        "flags": base > 100,
        "expanded": torch.ones(1, 4).expand(6, 4),
    }
    if not zipped:
        del state["small"]  # torch cannot read back what it wrote there
    path = save(state, tmp_path / "a.pt", zipped)
    expected = torch.load(path, weights_only=True, map_location="cpu")
    source = open_source(path)
    assert [ref.name for ref in source] == list(expected)
    for ref in source:
        want = expected[ref.name]
        assert torch.equal(ref.load().float(), want.detach().float())
        if ref.shape and ref.shape[0] > 2:
            assert torch.equal(ref.rows(1, ref.shape[0] - 1).float(), want[1:-1].detach().float())
        in_memory = open_source({"x": want})["x"]
        assert ref.fingerprint() == in_memory.fingerprint()


@pytest.mark.parametrize("strides", [(1, 700), (700 * 3, 3), (2, 1500)])
def test_scattered_rows_are_gathered(tmp_path, strides):
    """A range far larger than its content is read piece by piece: a column-major matrix of 700 x 600, and two others."""
    base = torch.arange(700 * 2100.0)
    state = {"x": base.as_strided((700, 600), strides)}
    ref = open_source(save(state, tmp_path / "a.pt"))["x"]
    assert torch.equal(ref.load(), state["x"])
    assert torch.equal(ref.rows(350, 361), state["x"][350:361])


@BOTH
@pytest.mark.parametrize(
    ("wrap", "others"),
    [
        (lambda s: s, []),
        (lambda s: {"state_dict": s, "epoch": 3}, ["epoch"]),
        (lambda s: {"model_state": s, "step": 1}, ["step"]),
        (lambda s: {"model": {"state_dict": s}, "args": {"lr": 0.1, "names": ["a"]}}, ["args"]),
        (lambda s: {f"module.{k}": v for k, v in s.items()}, []),
        (lambda s: {"state_dict": {f"module._orig_mod.{k}": v for k, v in s.items()}, "best": None}, ["best"]),
        (lambda s: OrderedDict(module=OrderedDict(s)), []),
    ],
)
def test_wrappers_and_prefixes_are_undone(tmp_path, zipped, wrap, others):
    state = network(1).state_dict()
    path = save(wrap(state), tmp_path / "a.ckpt", zipped)
    source = open_source(path)
    assert [ref.name for ref in source] == list(tensors(1))
    assert [row.what for row in source.passed_over] == others
    assert all("tensor" in row.reason for row in source.passed_over)
    in_memory = open_source(wrap(state))
    assert [ref.name for ref in in_memory] == list(tensors(1))
    assert [row.what for row in in_memory.passed_over] == others


def test_an_optimizer_is_passed_over_and_said_so(tmp_path):
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    value = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "ema": {"mean": torch.zeros(3, 3)}}
    source = open_source(save(value, tmp_path / "a.pt"))
    assert [ref.name for ref in source] == [*tensors(), "ema.mean"]
    assert [(row.what, row.reason) for row in source.passed_over] == [
        ("optimizer", "state of an optimizer (33 tensors)")
    ]


def test_a_common_word_is_no_prefix():
    source = open_source({"module.a": torch.zeros(2, 2), "other.b": torch.zeros(2, 2)})
    assert [ref.name for ref in source] == ["module.a", "other.b"]


def test_lists_and_a_bare_tensor(tmp_path):
    assert [r.name for r in open_source(save([torch.zeros(2), {"b": torch.ones(3)}], tmp_path / "l.pt"))] == [
        "0",
        "1.b",
    ]
    assert [r.name for r in open_source(save(torch.zeros(2, 3), tmp_path / "t.pt"))] == ["tensor"]


@BOTH
def test_tied_tensors_are_one_ref(tmp_path, zipped):
    base = torch.zeros(20, 20)
    state = {"a": base, "b": base, "c": base[:10], "d": base.T, "e": torch.zeros(20, 20), "f": base.view(20, 20)}
    source = open_source(save(state, tmp_path / "a.pt", zipped))
    assert [(ref.name, ref.aliases) for ref in source] == [("a", ("b", "f")), ("c", ()), ("d", ()), ("e", ())]


def test_tensors_without_dense_content_have_a_reason(tmp_path):
    state = {
        "dense": torch.zeros(2, 2),
        "sparse": torch.eye(4).to_sparse(),
        "meta": torch.zeros(5, 6, device="meta"),
    }
    source = open_source(save(state, tmp_path / "a.pt"))
    assert {ref.name: (ref.shape, ref.reason) for ref in source if ref.reason} == {
        "sparse": ((4, 4), "a sparse tensor, which is not stored densely"),
        "meta": ((5, 6), "not materialised"),
    }
    with pytest.raises(UnsupportedFormat, match="not materialised"):
        source["meta"].load()


def test_no_tensor_at_all(tmp_path):
    with pytest.raises(SourceNotFound, match=r"no weights.*epoch"):
        open_source(save({"epoch": 3}, tmp_path / "a.pt"))


@pytest.mark.parametrize("layout", ["2.8", "2.6"])
def test_older_archives_of_torch_export(tmp_path, layout):
    """torch 2.8 kept one state dict of torch.save per model; torch 2.1 to 2.7 an archive with fixed member names."""

    def saved(value):
        data = io.BytesIO()
        torch.save(value, data)
        return data.getvalue()

    state = network(2).state_dict()
    program = '{"graph_module": {}}'
    path = tmp_path / "a.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        if layout == "2.6":
            archive.writestr("serialized_exported_program.json", program)
            archive.writestr("serialized_state_dict.pt", saved(state))
            archive.writestr("serialized_constants.pt", saved({"mask": torch.ones(3)}))
            archive.writestr("serialized_example_inputs.pt", b"not read")
            archive.writestr("version", "8.5")
        else:
            archive.writestr("archive/archive_format", "pt2")
            archive.writestr("archive/models/model.json", program)
            archive.writestr("archive/data/weights/model.pt", saved(state))
            archive.writestr("archive/data/constants/model.pt", saved({"mask": torch.ones(3)}))
            archive.writestr("archive/data/sample_inputs/model.pt", b"not read")
    source = open_source(path)
    assert source.format == "torch.export"
    assert [ref.name for ref in source] == [*tensors(2), "mask"]
    assert source["embed.weight"].aliases == ("head.weight",)
    for name, expected in tensors(2).items():
        assert torch.equal(source[name].load(), expected)
        if expected.ndim:
            assert torch.equal(source[name].rows(3, 9), expected[3:9])


@BOTH
def test_a_cut_off_file_says_expected_and_found(tmp_path, zipped):
    path = save({"w": torch.zeros(100, 100)}, tmp_path / "a.pt", zipped)
    whole = path.read_bytes()
    path.write_bytes(whole[:20000])
    with pytest.raises(CorruptFile, match=r"needs \d+ bytes, found 20000"):
        open_source(path)
    path.write_bytes(whole)
    ref = open_source(path)["w"]
    path.write_bytes(whole[:20000])
    with pytest.raises(CorruptFile, match="found 20000"):
        ref.load()


def test_big_endian_storages(tmp_path):
    import sys

    assert sys.byteorder == "little"
    path = save({"w": torch.arange(6.0).reshape(2, 3)}, tmp_path / "a.pt")
    turned = tmp_path / "b.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(turned, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("/byteorder"):
                data = b"big"
            elif "/data/" in info.filename:
                data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
            new.writestr(info.filename, data)
    ref = open_source(turned)["w"]
    assert torch.equal(ref.load(), torch.arange(6.0).reshape(2, 3))
    assert ref.fingerprint() == open_source(path)["w"].fingerprint()
