"""GGUF and numpy files against their own packages: types, axes, orders, what is passed over."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch

from querist.errors import CorruptFile, UnsafeFile, UnsupportedFormat
from querist.sources.tensors import open_source

RNG = np.random.default_rng(0)


def gguf_file(path, tensors, endianess=None, **metadata):
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama", **({"endianess": endianess} if endianess else {}))
    for key, value in metadata.items():
        getattr(writer, f"add_{key}")(value)
    for name, array, kind in tensors:
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int16", "int32", "int64"])
def test_plain_types_of_gguf(tmp_path, dtype):
    array = (RNG.normal(size=(3, 4, 32)) * 50).astype(dtype)
    ref = open_source(gguf_file(tmp_path / "a.gguf", [("w", array, None)]))["w"]
    assert (ref.shape, ref.dtype) == ((3, 4, 32), dtype)
    assert np.array_equal(ref.load().numpy(), array)
    assert np.array_equal(ref.rows(1, 3).numpy(), array[1:3])


@pytest.mark.parametrize("name", ["Q8_0", "BF16"])
@pytest.mark.parametrize("shape", [(64,), (5, 96), (2, 3, 32)])
def test_quantised_types_of_gguf_equal_the_package(tmp_path, name, shape):
    import gguf

    kind = gguf.GGMLQuantizationType[name]
    blocks = gguf.quantize(RNG.normal(size=shape).astype(np.float32), kind)
    ref = open_source(gguf_file(tmp_path / "a.gguf", [("w", blocks, kind)]))["w"]
    expected = gguf.dequantize(blocks, kind)
    assert ref.shape == shape
    assert ref.dtype == {"Q8_0": "q8_0", "BF16": "bfloat16"}[name]
    assert np.array_equal(ref.load().float().numpy(), expected)
    for start, stop in ((0, 1), (shape[0] // 3, shape[0]), (1, 1)):
        assert np.array_equal(ref.rows(start, stop).float().numpy(), expected[start:stop])
    assert ref.fingerprint().startswith("sha256:")


def test_other_quantisations_are_passed_over_by_name(tmp_path):
    import gguf

    kind = gguf.GGMLQuantizationType.Q4_0
    blocks = gguf.quantize(RNG.normal(size=(4, 64)).astype(np.float32), kind)
    path = gguf_file(tmp_path / "a.gguf", [("w", blocks, kind), ("v", np.ones((2, 32), np.float32), None)])
    source = open_source(path)
    assert source["w"].reason == "quantised as q4_0, which is not read"
    assert source["w"].shape == (4, 64)
    assert source["v"].load().sum() == 64


def test_every_type_of_the_package_has_the_same_name_here():
    import gguf

    from querist.sources.tensors.gguf import _NAMES

    assert {kind.value: kind.name.lower() for kind in gguf.GGMLQuantizationType}.items() <= _NAMES.items()


def test_big_endian_gguf(tmp_path):
    import gguf

    array = RNG.normal(size=(2, 32)).astype(np.float32)
    path = gguf_file(tmp_path / "a.gguf", [("w", array, None)], endianess=gguf.GGUFEndian.BIG)
    ref = open_source(path)["w"]
    assert np.array_equal(ref.load().numpy(), array)
    assert ref.fingerprint() == open_source(torch.from_numpy(array))["array"].fingerprint()


def test_metadata_and_fused_projections_of_gguf(tmp_path):
    array = np.zeros((64, 32), np.float32)
    path = gguf_file(
        tmp_path / "a.gguf",
        [("blk.0.attn_qkv.weight", array, None), ("token_embd.weight", array, None)],
        embedding_length=32,
        head_count=4,
        head_count_kv=2,
        token_list=["a"] * 100,
        custom_alignment=64,
    )
    source = open_source(path)
    assert source.metadata["gguf"]["llama.attention.head_count_kv"] == 2
    assert source["blk.0.attn_qkv.weight"].hints["parts"] == (("q", 32), ("k", 16), ("v", 16))
    assert source["token_embd.weight"].hints["kind"] == "embedding"


def test_versions_and_ends_of_gguf(tmp_path):
    path = gguf_file(tmp_path / "a.gguf", [("w", np.zeros((40, 32), np.float32), None)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\1\0\0\0" + whole[8:])
    with pytest.raises(UnsupportedFormat, match="versions 2 and 3"):
        open_source(path)
    path.write_bytes(whole[:1000])
    with pytest.raises(CorruptFile, match="expected 5120 bytes, found"):
        open_source(path)
    path.write_bytes(whole[:40])
    with pytest.raises(CorruptFile, match=r"needs \d+ bytes, found 40"):
        open_source(path)


ARRAYS = [
    np.arange(24.0).reshape(4, 6),
    np.asfortranarray(RNG.normal(size=(40, 30))),
    np.asfortranarray(RNG.normal(size=(4, 5, 6)).astype(np.float32)),
    np.arange(24, dtype=">i4").reshape(4, 6),
    np.asfortranarray(np.arange(24, dtype=">f8").reshape(4, 6)),
    np.array([True, False, True]),
    np.array(2.5, np.float16),
    np.arange(5) + 1j,
    np.zeros((0, 4), np.uint16),
]


@pytest.mark.parametrize("how", ["npy", "npz", "compressed"])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{a.shape}")
def test_numpy_files(tmp_path, array, how):
    path = tmp_path / "a.dat"
    with path.open("wb") as file:
        if how == "npy":
            np.save(file, array)
        else:
            (np.savez if how == "npz" else np.savez_compressed)(file, array=array)
    ref = open_source(path)["array"]
    assert ref.dtype == array.dtype.name
    assert np.array_equal(ref.load().numpy(), array)
    if array.ndim:
        for start, stop in ((0, array.shape[0]), (array.shape[0] // 3, array.shape[0] // 2), (0, 0)):
            assert np.array_equal(ref.rows(start, stop).numpy(), array[start:stop])
    assert ref.fingerprint() == open_source(array)["array"].fingerprint()


def test_arrays_that_are_no_numbers(tmp_path):
    path = tmp_path / "a.npz"
    records = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    np.savez(path, w=np.ones((2, 2)), names=np.array(["a"]), objects=np.array([None], object), records=records)
    source = open_source(path)
    assert [ref.name for ref in source] == ["w"]
    assert {row.what: row.reason.split(",")[0] for row in source.passed_over} == {
        "names": "elements of type <U1 are no numbers",
        "objects": "Python objects",
        "records": "elements of type [('a'",
    }


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays_of_objects_alone_are_unsafe(tmp_path, name):
    path = tmp_path / name
    (np.save if name.endswith("y") else np.savez)(path, np.array([{"a": 1}], object))
    with pytest.raises(UnsafeFile, match="Python objects"):
        open_source(path)


def test_a_cut_off_array(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((100, 10)))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptFile, match="expected 8000 bytes, found 372"):
        open_source(path)


@pytest.mark.parametrize(
    "shape", ["(99999999999999, 9999999)", "(9999999999999999999999999999,)", "(-3, 2)", "(2, 'a')", "x()"]
)
def test_headers_that_lie(tmp_path, shape):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(64))
    with pytest.raises(CorruptFile):
        open_source(path)


def test_a_member_that_claims_more_than_it_can_hold(tmp_path):
    data = io.BytesIO()
    np.save(data, np.zeros((1000, 1000)))
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", data.getvalue())
    raw = bytearray(path.read_bytes())
    at = raw.rindex(b"PK\1\2")
    raw[at + 24 : at + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(CorruptFile, match="claims 2147483648 bytes"):
        open_source(path)
