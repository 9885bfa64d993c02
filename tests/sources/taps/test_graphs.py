"""Exported networks give the values, and the names, of the module they came from; what cannot be read says so."""

from __future__ import annotations

import json
import sys
import warnings
import zipfile

import pytest
import torch
from tests.sources.taps.networks import InPlace, Masked, Residual, Twice
from tests.sources.taps.test_hooks import agree, tapped
from torch import nn
from torch.nn import functional as F

from querist.errors import (
    BadInput,
    BadOption,
    CorruptFile,
    MissingExtra,
    ShapeMismatch,
    SourceNotFound,
    UnsafeFile,
    UnsupportedFormat,
)
from querist.sources.models import open_model
from querist.sources.taps import Tap


def export(model, path, inputs, *, fixed=False, kwargs=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = torch.export.Dim("batch")
        names = kwargs or ()
        dynamic = {name: {0: batch} for name in names} if kwargs else tuple({0: batch} for _ in inputs)
        program = torch.export.export(model, inputs, kwargs, dynamic_shapes=None if fixed else dynamic)
        if path is not None:
            torch.export.save(program, path)
    return program


def script(model, path, trace=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.jit.trace(model, trace) if trace is not None else torch.jit.script(model)
        if path is not None:
            made.save(str(path))
    return made


@pytest.mark.parametrize("cls", [InPlace, Residual, Twice])
@pytest.mark.parametrize("fixed", [False, True])
def test_exported_programs(cls, fixed, tmp_path):
    torch.manual_seed(0)
    model = cls().eval()
    x = torch.randn(5, 5) if cls is Twice else torch.randn(5, 3, 6, 6)
    program = export(model, tmp_path / "net.pt2", (x,), fixed=fixed)
    more = torch.cat([x, x[:2] + 1])  # a program of one batch size takes them in two pieces, the second filled up
    for source in (tmp_path / "net.pt2", program):
        rows = {}
        with Tap(open_model(source)) as tap:
            tap.look(more)
            tap.run(more, lambda site, value, start: rows.setdefault(site.name, []).append(value.clone()))  # noqa: B023
        agree({name: torch.cat(parts) for name, parts in rows.items()}, model.by_hand(more))
    assert open_model(program).fixed_batch == (5 if fixed else None)
    if cls is Residual:
        hand = model.by_hand(x)
        found = tapped(tmp_path / "net.pt2", x, "blocks, layer1.0.bn")
        assert list(found) == ["layer1.0.bn", "layer1.0", "layer1.1", "logits"]
        torch.testing.assert_close(found["layer1.0"], hand["layer1.0.relu#2"].detach(), atol=1e-5, rtol=1e-4)


def test_an_exported_program_with_keywords_and_mask(tmp_path):
    torch.manual_seed(1)
    model = Masked().eval()
    inputs = {"input_ids": torch.randint(0, 20, (3, 4)), "attention_mask": torch.tensor([[1, 1, 1, 0]] * 3)}
    export(model, tmp_path / "net.pt2", (), kwargs=inputs)
    found = tapped(tmp_path / "net.pt2", {"attention_mask": inputs["attention_mask"], "input_ids": inputs["input_ids"]})
    agree(found, model.by_hand(**inputs))
    with Tap(open_model(tmp_path / "net.pt2")) as tap, pytest.raises(BadInput, match="attention_mask"):
        tap.look({"input_ids": inputs["input_ids"]})


def test_exported_programs_that_write_into_buffers_start_anew(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            self.calls.add_(1)
            return F.relu(self.fc(x) + self.calls)

    model = Counts().eval()
    export(model, tmp_path / "net.pt2", (torch.randn(4, 3),))
    x = torch.randn(4, 3)
    network = open_model(tmp_path / "net.pt2")
    first, second = tapped(network, x), tapped(network, x)
    assert torch.equal(first["logits"], second["logits"])


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("cls", [InPlace, Residual])
def test_torchscript(cls, trace, tmp_path):
    torch.manual_seed(2)
    model, x = cls().eval(), torch.randn(5, 3, 6, 6)
    scripted = script(model, tmp_path / "net.ts", x if trace else None)
    hand = model.by_hand(x)
    for source in (tmp_path / "net.ts", scripted):
        # Modules are forgotten: an activation is named after its block, or the module above the weights before it.
        found = tapped(source, x)
        names = ["relu", "logits"] if cls is InPlace else list(hand)
        agree({name: found[name] for name in names}, dict(zip(names, hand.values(), strict=True)))
        assert len(found) == len(names)
    if cls is Residual:
        assert list(tapped(scripted, x, "blocks")) == ["layer1.0", "layer1.1", "logits"]


def test_torchscript_in_training_mode_is_copied_and_left_alone():
    model, x = Residual().train(), torch.randn(4, 3, 6, 6)
    scripted = script(model, None)
    with Tap(open_model(scripted)) as tap:
        tap.look(x)
    assert scripted.training
    assert "training mode" in tap.notes[0]
    with pytest.raises(BadOption, match="stays on its device"), Tap(open_model(scripted), device="meta"):
        pass


def test_torchscript_that_changes_in_place_behind_a_view(tmp_path):
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            y = self.fc(x)
            y[:, :2].relu_()
            return torch.tanh(y)

    torch.manual_seed(3)
    model, x = Views().eval(), torch.randn(5, 4)
    found = tapped(script(model, None), x)
    linear = model.fc(x).detach()
    torch.testing.assert_close(found["relu"], linear[:, :2])
    torch.testing.assert_close(found["logits"], torch.cat([linear[:, :2].clamp(min=0), linear[:, 2:]], 1))


def test_torchscript_that_cannot_be_read_names_pt2(tmp_path):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.state = torch.zeros(1)

        def forward(self, x):
            self.state = self.state + 1
            return torch.relu(x) + self.state

    with pytest.raises(UnsupportedFormat, match=r"\.pt2"):
        open_model(script(Remembers(), None))

    class Writes(nn.Module):
        def forward(self, x):
            torch.save(x, "somewhere")
            return torch.relu(x)

    script(Writes(), tmp_path / "writes.ts")
    with pytest.raises(UnsafeFile, match=r"torch\.save"):
        open_model(tmp_path / "writes.ts")

    class Inside(nn.Module):
        def forward(self, x):
            if bool(x.sum() > 0):
                return torch.relu(x)
            return torch.tanh(x)

    with Tap(open_model(script(Inside(), None))) as tap:
        tap.look(torch.randn(3, 4))
        assert {row.reason for row in tap.passed_over} == {"it is inside a branch or loop of the graph"}


@pytest.mark.parametrize("form", ["pt2", "ts"])
def test_graphs_refuse_other_shapes(form, tmp_path):
    model, x = Residual().eval(), torch.randn(4, 3, 6, 6)
    path = tmp_path / f"net.{form}"
    if form == "pt2":
        export(model, path, (x,))
    else:
        script(model, path)
    with Tap(open_model(path)) as tap, pytest.raises(ShapeMismatch, match=r"\[3, 1, 6, 6\].*--channels"):
        tap.look(torch.randn(3, 1, 6, 6))


def changed(path, member, change):
    """A copy of an archive with one member changed."""
    other = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, change(content) if name.endswith(member) else content)
    return other


def test_programs_that_cannot_be_read_say_why(tmp_path):
    path = tmp_path / "net.pt2"
    export(Twice().eval(), path, (torch.randn(4, 5),))

    def with_target(target):
        def change(content):
            program = json.loads(content)
            program["graph_module"]["graph"]["nodes"][0]["target"] = target
            return json.dumps(program).encode()

        return change

    for target, error in (
        ("torch.ops.aten.from_file.default", UnsafeFile),
        ("torch.ops.mine.relu.default", UnsupportedFormat),
        ("os.system", UnsupportedFormat),
        ("torch.ops.higher_order.cond", UnsupportedFormat),
        ("torch.ops.aten.no_such.default", UnsupportedFormat),
    ):
        with pytest.raises(error, match=target.replace(".", r"\.")):
            open_model(changed(path, "models/model.json", with_target(target)))
    with pytest.raises(CorruptFile, match=r"model\.json"):
        open_model(changed(path, "models/model.json", lambda content: content[:100]))
    with pytest.raises(CorruptFile):
        open_model(changed(path, "models/model.json", lambda _: b'{"graph_module": {}}'))
    with pytest.raises(SourceNotFound):
        open_model(tmp_path / "none.pt2")
    export(Residual().train(), tmp_path / "train.pt2", (torch.randn(4, 3, 6, 6),))
    with pytest.raises(UnsupportedFormat, match="training mode"):
        open_model(tmp_path / "train.pt2")


def onnx_of_residual(model, path, *, fixed=None):
    """The residual network, written operator by operator."""
    from onnx import TensorProto, helper, numpy_helper, save

    nodes, weights = [], []

    def weight(name, value):
        weights.append(numpy_helper.from_array(value.detach().numpy(), name))
        return name

    def conv(name, module, given, out, pads):
        inputs = [given, weight(f"{name}.weight", module.weight), weight(f"{name}.bias", module.bias)]
        nodes.append(helper.make_node("Conv", inputs, [out], pads=[pads] * 4))

    conv("stem", model.stem, "x", "s", 0)
    x = "s"
    for place, block in enumerate(model.layer1):
        name = f"layer1.{place}"
        conv(f"{name}.conv", block.conv, x, f"c{place}", 1)
        keys = ("weight", "bias", "running_mean", "running_var")
        given = [f"c{place}", *(weight(f"{name}.bn.{key}", getattr(block.bn, key)) for key in keys)]
        nodes.append(helper.make_node("BatchNormalization", given, [f"n{place}"]))
        nodes.append(helper.make_node("Relu", [f"n{place}"], [f"r{place}"]))
        nodes.append(helper.make_node("Add", [f"r{place}", x], [f"a{place}"]))
        nodes.append(helper.make_node("Relu", [f"a{place}"], [f"o{place}"]))
        x = f"o{place}"
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    gemm = ["flat", weight("fc.weight", model.fc.weight), weight("fc.bias", model.fc.bias)]
    nodes.append(helper.make_node("Gemm", gemm, ["scores"], transB=1))
    nodes.append(helper.make_node("Softmax", ["scores"], ["y"]))
    size = fixed if fixed else "batch"
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size, 3])],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize("fixed", [None, 2])
def test_onnx(fixed, tmp_path):
    torch.manual_seed(4)
    model, x = Residual().eval(), torch.randn(5, 3, 6, 6)
    onnx_of_residual(model, tmp_path / "net.onnx", fixed=fixed)
    rows = {}
    with Tap(open_model(tmp_path / "net.onnx")) as tap:
        tap.look(x)
        tap.run(x, lambda site, value, start: rows.setdefault(site.name, []).append(value.clone()))
    agree({name: torch.cat(parts) for name, parts in rows.items()}, model.by_hand(x))
    blocks = tapped(tmp_path / "net.onnx", x[:2], "blocks")
    assert list(blocks) == ["layer1.0", "layer1.1", "logits"]
    with Tap(open_model(tmp_path / "net.onnx")) as tap, pytest.raises(ShapeMismatch, match="--channels"):
        tap.look(torch.randn(2, 1, 6, 6))
    with pytest.raises(BadOption, match="on the CPU"), Tap(open_model(tmp_path / "net.onnx"), device="meta"):
        pass


def test_onnx_needs_its_extra(tmp_path, monkeypatch):
    onnx_of_residual(Residual(), tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"querist\[formats\]"):
        open_model(tmp_path / "net.onnx")


def test_onnx_names_of_torchs_exporters():
    from onnx import helper

    from querist.sources.taps.onnx import _module_path

    assert _module_path(helper.make_node("Relu", ["a"], ["b"], name="/layer1/layer1.0/relu/Relu")) == "layer1.0.relu"
    assert _module_path(helper.make_node("Relu", ["a"], ["b"], name="/layer1/layer1.0/Relu_1")) == "layer1.0"
    assert _module_path(helper.make_node("Relu", ["a"], ["b"], name="/Relu")) == ""
    node = helper.make_node("Relu", ["a"], ["b"], name="node_relu")
    scopes = node.metadata_props.add()
    scopes.key, scopes.value = "pkg.torch.onnx.name_scopes", "['', 'layer1', 'layer1.0', 'layer1.0.relu', 'relu']"
    assert _module_path(node) == "layer1.0.relu"
