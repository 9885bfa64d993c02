"""Live modules, state dicts and arrays: hints of every layer class, composed weights, tied and lazy parameters."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from querist.errors import BadOption, ShapeMismatch, SourceNotFound, UnknownName
from querist.sources.tensors import open_source


def hints_of(module, name):
    return open_source(module)[name].hints


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (nn.Linear(3, 4), "weight", {"kind": "linear", "role": "weight"}),
        (nn.Conv1d(4, 6, 3, groups=2), "weight", {"kind": "conv1d", "groups": 2, "transposed": False}),
        (nn.Conv3d(2, 4, 3), "bias", {"kind": "conv3d", "groups": 1, "role": "bias"}),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), "weight", {"kind": "conv2d", "groups": 2, "transposed": True}),
        (nn.Embedding(5, 4), "weight", {"kind": "embedding"}),
        (nn.LSTM(4, 6), "weight_ih_l0", {"kind": "lstm", "role": "weight_ih", "gates": 4, "gate_order": tuple("ifgo")}),
        (nn.LSTM(4, 6, proj_size=3), "weight_hr_l0", {"kind": "linear"}),
        (nn.LSTM(4, 6, proj_size=3), "weight_hh_l0", {"kind": "lstm", "gates": 4}),
        (
            nn.GRU(4, 6, bidirectional=True),
            "weight_hh_l0_reverse",
            {"kind": "gru", "gates": 3, "gate_order": tuple("rzn")},
        ),
        (nn.GRUCell(4, 6), "weight_hh", {"kind": "gru", "role": "weight_hh", "gates": 3}),
        (nn.RNN(4, 6), "weight_ih_l0", {"kind": "rnn", "gates": 1}),
        (
            nn.MultiheadAttention(8, 2),
            "in_proj_weight",
            {"kind": "attention", "role": "in_proj", "parts": (("q", 8), ("k", 8), ("v", 8))},
        ),
        (nn.MultiheadAttention(8, 2, kdim=4, vdim=4), "k_proj_weight", {"kind": "attention", "role": "k_proj"}),
        (nn.MultiheadAttention(8, 2), "out_proj.weight", {"kind": "linear"}),
        (nn.BatchNorm2d(3), "running_mean", {"kind": "norm", "buffer": True}),
        (nn.LayerNorm(3), "weight", {"kind": "norm", "role": "weight"}),
    ],
)
def test_hints_of_module_classes(module, name, expected):
    found = hints_of(module, name)
    assert {key: found.get(key) for key in expected} == expected
    assert found["module"].startswith("torch.nn")


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_parts_compose_to_the_weight(new, dim):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates the old spelling, which old checkpoints hold
        norm = nn.utils.parametrizations.weight_norm if new else nn.utils.weight_norm
        net = nn.Sequential(nn.ReLU(), norm(nn.Linear(5, 7), dim=dim))
    for source in (open_source(net), open_source(net.state_dict())):
        pairs = {ref.hints["weight_norm"]["part"]: ref for ref in source if "weight_norm" in ref.hints}
        pair = pairs["v"].hints["weight_norm"]
        assert pair["base"] == "1.weight"
        assert pair["dim"] == dim
        g, v = source[pair["g"]].load(), source[pair["v"]].load()
        assert pairs["g"].name == pair["g"]
        norms = v.norm() if dim is None else v.norm(dim=1 - dim, keepdim=True)
        assert torch.allclose(g * v / norms, net[1].weight)
    assert open_source(net)["1.bias"].hints["kind"] == "linear"
    assert pairs["v"].hints.get("kind") in (None, "linear")
    assert hints_of(net, pair["v"])["kind"] == "linear"


def test_names_that_only_look_like_weight_norm_are_left_alone():
    state = {"a_v": torch.zeros(4, 5), "a_g": torch.zeros(3, 1), "b_v": torch.zeros(4, 5), "c": torch.zeros(2)}
    assert all("weight_norm" not in ref.hints for ref in open_source(state))


def test_other_parametrizations_say_so():
    net = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5))
    found = hints_of(net, "parametrizations.weight.original")
    assert found["parametrized"]["base"] == "weight"
    assert hints_of(net, "parametrizations.weight.0._u")["buffer"] is True


def test_gates_of_a_state_dict_by_names_and_shapes():
    net = nn.ModuleDict({"a": nn.LSTM(4, 6, proj_size=3), "b": nn.GRU(4, 6), "c": nn.LSTMCell(4, 6)})
    hints = {ref.name: ref.hints for ref in open_source(net.state_dict())}
    assert hints["a.weight_ih_l0"]["gates"] == hints["c.bias_hh"]["gates"] == 4
    assert hints["b.weight_hh_l0"]["gate_order"] == ("r", "z", "n")
    assert hints["a.weight_hr_l0"] == {}


def test_tied_parameters_are_aliases():
    net = nn.ModuleDict({"embed": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False)})
    net["head"].weight = net["embed"].weight
    shared = nn.Linear(4, 4)
    net["twice"] = nn.ModuleList([shared, shared])
    source = open_source(net)
    assert [(ref.name, ref.aliases) for ref in source] == [
        ("embed.weight", ("head.weight",)),
        ("twice.0.weight", ("twice.1.weight",)),
        ("twice.0.bias", ("twice.1.bias",)),
    ]
    assert source["head.weight"].name == "embed.weight"


def test_what_is_not_materialised_has_a_reason():
    net = nn.Sequential(nn.LazyLinear(3), nn.Linear(2, 3, device="meta"), nn.Linear(2, 3))
    reasons = {ref.name: (ref.shape, ref.reason) for ref in open_source(net)}
    assert reasons["0.weight"] == ((), "not materialised")
    assert reasons["1.weight"] == ((3, 2), "not materialised")
    assert reasons["2.weight"] == ((3, 2), None)


def test_wrappers_around_a_module_are_undone():
    net = nn.Linear(2, 3)
    assert [ref.name for ref in open_source(nn.DataParallel(net))] == ["weight", "bias"]


def test_a_module_is_left_as_it_was():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    for ref in open_source(net):
        assert not ref.load().requires_grad
        ref.fingerprint()
    assert net.training
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(3, 4)[::-1, ::2],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.arange(12, dtype=np.int16).reshape(3, 4),
        np.array(2.5),
        np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])["b"],
    ],
)
def test_arrays(array):
    array.flags.writeable = False
    before = array.copy()
    ref = open_source(array)["array"]
    assert np.array_equal(ref.load().numpy(), array)
    assert np.array_equal(array, before)
    if array.ndim:
        assert np.array_equal(ref.rows(1, 2).numpy(), array[1:2])
    assert (
        ref.fingerprint()
        == open_source(torch.from_numpy(np.array(array, array.dtype.newbyteorder("="))))["array"].fingerprint()
    )


def test_what_is_no_array_of_numbers_is_passed_over():
    source = open_source(
        {"w": np.zeros((2, 3)), "names": np.array(["a"]), "objects": np.array([None, 1], dtype=object)}
    )
    assert [row.reason for row in source.passed_over] == [
        "elements of type <U1 are no numbers",
        "Python objects and no numbers",
    ]


@pytest.mark.parametrize("bad", [3, None, object()])
def test_no_source_at_all(bad):
    with pytest.raises(BadOption, match="a torch module"):
        open_source(bad)


class TestFactory:
    @pytest.fixture(autouse=True)
    def package(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "querist_sample_nets.py").write_text(
            "from torch import nn\n"
            "def build(width=3, name='x', deep=False):\n    return nn.Sequential(*[nn.Linear(width, 2)] * (1 + deep))\n"
            "net = nn.Linear(5, 6)\nnumber = 3\ndef wrong():\n    return 3\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

    def test_built_with_options(self):
        assert open_source("querist_sample_nets:build?width=7&name=wide")["0.weight"].shape == (2, 7)
        assert open_source("querist_sample_nets:net")["weight"].shape == (6, 5)

    def test_weights_are_loaded(self, tmp_path):
        state = {"0.weight": torch.ones(2, 4), "0.bias": torch.zeros(2)}
        torch.save({"state_dict": state}, tmp_path / "w.pt")
        ref = open_source("querist_sample_nets:build?width=4@w.pt")["0.weight"]
        assert torch.equal(ref.load(), torch.ones(2, 4))
        assert ref.hints["kind"] == "linear"
        with pytest.raises(ShapeMismatch, match=r"0\.weight is \[2, 4\] and should be \[2, 9\]"):
            open_source("querist_sample_nets:build?width=9@w.pt")

    def test_mistakes(self):
        with pytest.raises(SourceNotFound, match="cannot be imported"):
            open_source("querist_no_such_module:build")
        with pytest.raises(UnknownName, match="build"):
            open_source("querist_sample_nets:biuld")
        with pytest.raises(BadOption, match="width, name, deep"):
            open_source("querist_sample_nets:build?wdth=3")
        with pytest.raises(BadOption, match="torch module"):
            open_source("querist_sample_nets:wrong")
        with pytest.raises(BadOption, match="cannot be called"):
            open_source("querist_sample_nets:number")
