"""ONNX against the onnx package: every field a tensor can lie in, subgraphs, external files, what nodes tell."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from querist.errors import CorruptFile, SourceNotFound, UnsafeFile
from querist.sources.tensors import open_source


def save(path, initializers=(), nodes=(), functions=()):
    nodes = list(nodes) or [helper.make_node("Identity", ["x"], ["y"])]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], functions=list(functions))
    path.write_bytes(model.SerializeToString())
    return path


def element_types():
    skip = {TensorProto.UNDEFINED, TensorProto.STRING}
    return [kind for name, kind in TensorProto.DataType.items() if kind not in skip]


NARROW = {"uint4", "int4", "float4e2m1", "uint2", "int2", "float6e2m3", "float6e3m2"}


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", element_types())
def test_every_element_type_raw_and_typed(tmp_path, kind, raw):
    name = TensorProto.DataType.Name(kind).lower()
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    values = np.arange(12).reshape(3, 4).astype(np.float32) % 2 if name in NARROW else np.arange(12).reshape(3, 4)
    values = (
        -values if name in ("int64", "int32", "int16", "int8", "float32", "bfloat16", "float16") else values
    ).astype(dtype)
    if raw:
        proto = numpy_helper.from_array(values, "w")
    else:
        flat = values.astype(np.complex128 if "complex" in name else np.float64).flatten().tolist()
        whole = "int" in name or name == "bool"
        if name in NARROW:
            return  # the package writes these as raw bytes only
        proto = helper.make_tensor("w", kind, [3, 4], [int(v) for v in flat] if whole else flat)
        if proto.HasField("raw_data"):
            return
    ref = open_source(save(tmp_path / "m.onnx", [proto]))["w"]
    if name in NARROW:
        assert ref.reason == f"elements of type {name} are not read"
        return
    expected = numpy_helper.to_array(proto)
    assert ref.shape == (3, 4)
    got = ref.load()
    assert got.view(torch.uint8).numpy().tobytes() == expected.tobytes()
    assert ref.rows(1, 3).contiguous().view(torch.uint8).numpy().tobytes() == expected[1:3].tobytes()


def test_texts_are_passed_over(tmp_path):
    proto = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"])
    source = open_source(save(tmp_path / "m.onnx", [proto, numpy_helper.from_array(np.ones((2, 2)), "w")]))
    assert [(row.what, row.reason) for row in source.passed_over] == [("words", "texts and no numbers")]


def test_long_typed_numbers(tmp_path):
    values = np.array([0, 1, 127, 128, 2**31, 2**62, -1, -(2**63)], dtype=np.int64)
    proto = helper.make_tensor("w", TensorProto.INT64, [8], values.tolist())
    assert np.array_equal(open_source(save(tmp_path / "m.onnx", [proto]))["w"].load().numpy(), values)


def test_unpacked_numbers_are_read(tmp_path):
    """Writers of protocol buffers of the second version put each number of a field by itself."""
    body = b"\x08\x03" + b"\x10\x01" + b"".join(b"\x25" + np.float32(v).tobytes() for v in (1.5, -2, 3)) + b"\x42\x01w"
    ints = b"\x08\x02\x10\x07" + b"\x38\x05\x38\xac\x02" + b"\x42\x01n"
    graph = b"".join(b"\x2a" + bytes([len(part)]) + part for part in (body, ints))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x09" + b"\x3a" + bytes([len(graph)]) + graph)
    source = open_source(path)
    assert source["w"].load().tolist() == [1.5, -2, 3]
    assert source["n"].load().tolist() == [5, 300]


def test_subgraphs_functions_and_constants(tmp_path):
    def branch(name, value):
        inner = [numpy_helper.from_array(np.full((2, 3), value, np.float32), "inner.weight")]
        node = helper.make_node("Identity", ["inner.weight"], ["out"])
        return helper.make_graph(
            [node], name, [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)], inner
        )

    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full((4, 2), 3.0), "ignored"))
    function = helper.make_function(
        "d",
        "F",
        ["a"],
        ["fc"],
        [helper.make_node("Constant", [], ["fc"], value=numpy_helper.from_array(np.full((1, 2), 9.0)))],
        [helper.make_opsetid("", 17)],
    )
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=branch("t", 1), else_branch=branch("e", 2)), constant]
    source = open_source(save(tmp_path / "m.onnx", nodes=nodes, functions=[function]))
    assert sorted((ref.name, ref.shape, ref.load().flatten()[0].item()) for ref in source) == [
        ("c", (4, 2), 3.0),
        ("fc", (1, 2), 9.0),
        ("inner.weight", (2, 3), 2.0),  # attributes are sorted by name: else before then
        ("inner.weight#2", (2, 3), 1.0),
    ]


def one(op, weight, at=1, before=(), **attributes):
    """The hints of `w` as the input number `at` of one node."""
    inputs = ["x"] * 4
    inputs[at] = "w" if not before else "t"
    nodes = [*before, helper.make_node(op, inputs[: max(at + 1, 2)], ["y"], **attributes)]
    return nodes, [numpy_helper.from_array(np.zeros(weight, np.float32), "w")]


TURN = (helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),)
CAST = (helper.make_node("Cast", ["w"], ["t"], to=1),)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (one("Conv", (8, 2, 3), group=4), {"kind": "conv1d", "groups": 4, "transposed": False}),
        (one("ConvTranspose", (8, 2, 3, 3)), {"kind": "conv2d", "groups": 1, "transposed": True}),
        (one("MatMul", (4, 5)), {"kind": "linear", "layout": "in-out"}),
        (one("MatMul", (4, 5), before=TURN), {"kind": "linear", "layout": None}),
        (one("MatMul", (4, 5), before=CAST), {"kind": "linear", "layout": "in-out"}),
        (one("MatMul", (4, 5), at=0), {"kind": "linear", "layout": None}),
        (one("Gemm", (4, 5)), {"kind": "linear", "layout": "in-out"}),
        (one("Gemm", (4, 5), transB=1), {"kind": "linear", "layout": None}),
        (one("Gemm", (4, 5), transB=1, before=TURN), {"kind": "linear", "layout": "in-out"}),
        (one("Gather", (4, 5), at=0), {"kind": "embedding"}),
        (
            one("GRU", (2, 12, 5)),
            {"kind": "gru", "gates": 3, "gate_axis": 1, "gate_order": tuple("zrn"), "directions": True},
        ),
        (one("LSTM", (1, 16, 4), at=2), {"kind": "lstm", "role": "weight_hh", "gate_order": tuple("iofg")}),
        (one("BatchNormalization", (4,), at=3), {"kind": "norm", "buffer": True}),
    ],
)
def test_nodes_give_hints(tmp_path, made, expected):
    nodes, initializers = made
    hints = open_source(save(tmp_path / "m.onnx", initializers, nodes))["w"].hints
    assert {key: hints.get(key) for key in expected} == expected


@pytest.fixture
def external(tmp_path):
    tensors = [numpy_helper.from_array(np.full((4, 6), i, np.float32), f"w{i}") for i in range(3)]
    save(tmp_path / "plain.onnx", tensors)
    folder = tmp_path / "m"
    folder.mkdir()
    model = onnx.load(tmp_path / "plain.onnx")
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    return folder


def test_a_missing_external_file_is_named_and_can_be_left_out(external):
    (external / "w1").unlink()
    with pytest.raises(SourceNotFound, match=r"w1 is missing.*--include"):
        open_source(external / "m.onnx")
    source = open_source(external / "m.onnx", include="w0,w2")
    assert [ref.name for ref in source] == ["w0", "w2"]
    assert ("w1", (4, 6), "float32", "its file w1 is missing") in source.passed_over


def test_a_short_external_file_is_corrupt(external):
    (external / "w1").write_bytes(b"\0" * 50)
    with pytest.raises(CorruptFile, match="needs 96 bytes, found 50"):
        open_source(external / "m.onnx")


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "a/../../b", "C:\\x", ""])
def test_an_external_file_outside_the_folder_is_refused(external, place):
    model = onnx.load(external / "m.onnx", load_external_data=False)
    model.graph.initializer[1].external_data[0].value = place
    (external / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsafeFile, match="outside its folder"):
        open_source(external / "m.onnx")


def test_a_cut_off_model(tmp_path):
    path = save(tmp_path / "m.onnx", [numpy_helper.from_array(np.zeros((50, 50)), "w")])
    whole = path.read_bytes()
    path.write_bytes(whole[:9000])
    with pytest.raises(CorruptFile, match=r"needs \d+ bytes, found 9000"):
        open_source(path)


def test_raw_bytes_that_do_not_fit_the_shape(tmp_path):
    proto = numpy_helper.from_array(np.zeros((3, 3), np.float32), "w")
    proto.dims[0] = 2**40
    with pytest.raises(CorruptFile, match=f"expected {2**40 * 12} bytes, found 36"):
        open_source(save(tmp_path / "m.onnx", [proto]))
