"""Taps of torch modules: every value is what a forward pass written out by hand gives, and nothing is left behind."""

from __future__ import annotations

import pytest
import torch
from tests.sources.taps.networks import PICTURES, VECTORS, Branch, Functional, InPlace, Masked, Residual, Several, Twice
from torch import nn

from querist.errors import BadInput, BadOption, ShapeMismatch, TooFewRows, UnknownName
from querist.sources.models import open_model
from querist.sources.taps import Tap
from querist.sources.taps.sites import block_of, numbered


def tapped(model, inputs, layers="preactivation", **options):
    """Name to value, copied as it is handed over."""
    found = {}
    with Tap(open_model(model), layers=layers, **options) as tap:
        tap.look(inputs)
        tap.run(inputs, lambda site, value, start: found.setdefault(site.name, value.detach().clone()))
        order = [site.name for site in tap.sites]
    assert set(order) == set(found)
    return {name: found[name] for name in order}


def agree(found, expected, **close):
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value.detach(), atol=1e-5, rtol=1e-4, **close)


@pytest.mark.parametrize("name", [*PICTURES, *VECTORS])
def test_arguments_of_activations_are_those_of_a_forward_by_hand(name):
    torch.manual_seed(0)
    if name in PICTURES:
        model, x = PICTURES[name](), torch.randn(5, 3, 6, 6)
    else:
        cls, side = VECTORS[name]
        model, x = cls(), torch.randn(5, side)
    agree(tapped(model.eval(), x), model.by_hand(x))


def test_an_activation_in_place_is_read_before_it_overwrites():
    torch.manual_seed(1)
    found = tapped(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), torch.randn(4, 3, 8, 8))
    assert list(found) == ["logits"]  # the argument of the activation that ends the network
    assert float(found["logits"].min()) < 0
    assert float(tapped(InPlace(), torch.randn(4, 3, 8, 8))["act"].min()) < 0


def test_a_module_and_a_function_of_one_name_are_told_apart():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.relu = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

        def forward(self, x):
            return self.b(self.relu(self.b(torch.relu(self.a(x)))))

    torch.manual_seed(10)
    model, x = Both().eval(), torch.randn(4, 4)
    first = model.a(x).detach()
    second = model.b(first.clamp(min=0)).detach()
    agree(tapped(model, x), {"relu#1": first, "relu#2": second, "logits": model(x).detach()})
    # One site alone is read with its module's hook only, and must not be taken for the other.
    agree(tapped(model, x, "relu#2"), {"relu#2": second})


def test_outputs_of_several_tensors_and_time_first():
    torch.manual_seed(2)
    model, x = Several().eval(), torch.randn(5, 6)
    agree(tapped(model, x, ["pair", "pair:twice:0", "lstm", "logits"]), model.by_hand(x))
    states = tapped(model, x, "lstm:1:0")["lstm:1:0"]
    assert tuple(states.shape) == (5, 1, 7)  # the batch axis comes first, whatever place it had


def test_masked_attention_is_not_fused_away():
    torch.manual_seed(3)
    model = Masked().eval()
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]])
    inputs = {"input_ids": torch.randint(0, 20, (3, 4)), "attention_mask": mask}
    fast = torch.backends.mha.get_fastpath_enabled()
    found = tapped(model, inputs)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    agree(found, model.by_hand(**inputs))


def test_blocks_are_read_before_the_activation_that_ends_them():
    torch.manual_seed(4)
    model, x = Residual().eval(), torch.randn(4, 3, 6, 6)
    hand = model.by_hand(x)
    agree(
        tapped(model, x, "blocks"),
        {"layer1.0": hand["layer1.0.relu#2"], "layer1.1": hand["layer1.1.relu#2"], "logits": hand["logits"]},
    )
    assert list(tapped(model, x, "layer1.1.*")) == ["layer1.1.relu#1", "layer1.1.relu#2"]
    assert list(tapped(model, x, "layer1.?, logits")) == ["layer1.0", "layer1.1", "logits"]
    bn = tapped(model, x, "layer1.0.bn")["layer1.0.bn"]
    torch.testing.assert_close(bn, hand["layer1.0.relu#1"].detach(), atol=1e-5, rtol=1e-4)


def test_a_block_changed_after_its_activation_is_read_at_its_end():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            y = torch.relu_(self.fc(x))
            y += x
            return y

    torch.manual_seed(5)
    model, x = nn.Sequential(Late(), Late()), torch.randn(5, 4)
    first = tapped(model, x, "0")["0"]
    torch.testing.assert_close(first, model[0](x).detach())


def test_dense_wrappers_are_taken_off():
    torch.manual_seed(6)
    model, x = Residual().eval(), torch.randn(4, 3, 6, 6)
    agree(tapped(nn.DataParallel(model), x), model.by_hand(x))
    agree(tapped(torch.compile(model, backend="eager"), x), model.by_hand(x))


def test_distributed_wrapper_is_taken_off(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        torch.manual_seed(7)
        model, x = Residual().eval(), torch.randn(4, 3, 6, 6)
        agree(tapped(nn.parallel.DistributedDataParallel(model), x), model.by_hand(x))
    finally:
        dist.destroy_process_group()


def test_modes_hooks_buffers_and_gradients_are_put_back():
    class Counts(nn.Module):
        """Changes a buffer although it is in evaluation mode."""

        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.conv, self.bn, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)

        def forward(self, x):
            self.calls += 1
            self.bn.running_mean = self.bn.running_mean + 1
            return torch.relu(self.drop(self.bn(self.conv(x)))).mean((2, 3))

    torch.manual_seed(8)
    model = Counts().train()
    model.bn.eval()
    calls = []
    model.conv.register_forward_hook(lambda *_: calls.append(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [part.training for part in model.modules()]
    buffer = model.calls
    with Tap(open_model(model)) as tap:
        tap.look(torch.randn(4, 3, 6, 6))
        assert not model.training
        with pytest.raises(RuntimeError, match="of the receiver"):
            tap.run(torch.randn(4, 3, 6, 6), lambda *_: (_ for _ in ()).throw(RuntimeError("of the receiver")))
    assert [part.training for part in model.modules()] == flags
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.calls is buffer
    assert all(not part._forward_pre_hooks for part in model.modules())
    assert [len(part._forward_hooks) for part in model.modules()] == [0, 1, 0, 0]
    assert len(calls) == 3  # a user's own hook still runs
    assert any("training mode" in note for note in tap.notes)
    assert any("buffers changed" in note for note in tap.notes)
    assert all(p.requires_grad for p in model.parameters())
    model(torch.randn(2, 3, 6, 6)).sum().backward()  # no tensor of inference mode is left inside


def test_what_is_never_called_or_has_no_rows_is_told():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.unused, self.words, self.none = nn.Linear(4, 4), nn.ReLU(), Words(), Empty()

        def forward(self, x):
            self.words(x)
            self.none(x)
            return torch.relu(self.a(x).mean(0)).expand(len(x), 4)

    class Words(nn.Module):
        def forward(self, x):
            return "words"

    class Empty(nn.Module):
        def forward(self, x):
            return x[:, :0]

    with Tap(open_model(Odd())) as tap:
        tap.look(torch.randn(4, 4))
        reasons = {row.what: row.reason for row in tap.passed_over}
        assert "never called" in reasons["unused"]
        assert "no axis" in reasons["relu"]
    for layer, word in (("words", "no tensor"), ("none", "length 0")):
        with Tap(open_model(Odd()), layers=layer) as tap:
            tap.look(torch.randn(4, 4))
            assert tap.sites == ()
            assert word in tap.passed_over[0].reason


def test_layers_that_are_not_there_name_the_nearest():
    with Tap(open_model(Residual()), layers="layer1.0.rellu*") as tap, pytest.raises(UnknownName) as error:
        tap.look(torch.randn(3, 3, 6, 6))
    assert "layer1.0.relu#1" in str(error.value)
    assert len(error.value.allowed.split(", ")) == 5
    with Tap(open_model(Residual()), layers=[]) as tap, pytest.raises(BadOption, match="No layers"):
        tap.look(torch.randn(3, 3, 6, 6))


def test_wrong_shapes_say_both_and_the_option():
    with Tap(open_model(Residual())) as tap:
        with pytest.raises(ShapeMismatch, match=r"takes 3 channels.*\[3, 1, 8, 8\].*--channels 3"):
            tap.look(torch.randn(3, 1, 8, 8))
        with pytest.raises(TooFewRows):
            tap.look(torch.randn(0, 3, 8, 8))
    with Tap(open_model(Functional())) as tap, pytest.raises(ShapeMismatch, match=r"6 features.*\[3, 9\]"):
        tap.look(torch.randn(3, 9))
    flat = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    with Tap(open_model(flat)) as tap, pytest.raises(ShapeMismatch, match=r"16 features.*--size"):
        tap.look(torch.randn(3, 3, 9, 9))

    class Fails(nn.Module):
        def forward(self, x):
            raise IndexError("nothing here")

    with Tap(open_model(Fails())) as tap, pytest.raises(BadInput, match=r"IndexError.*nothing here"):
        tap.look(torch.randn(3, 4))


def test_devices():
    with pytest.raises(BadOption, match="No such device"):
        Tap(open_model(Branch()), device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(BadOption, match="no CUDA"):
            Tap(open_model(Branch()), device="cuda")


def test_half_precision_networks_take_single_precision_data():
    torch.manual_seed(9)
    model, x = Twice().eval(), torch.randn(4, 5)
    found = tapped(model.bfloat16(), x)
    assert found["act#1"].dtype == torch.bfloat16
    torch.testing.assert_close(found["act#1"].float(), model.float().by_hand(x)["act#1"].detach(), atol=0.1, rtol=0.1)


def test_parts_in_torchscript_are_told():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.Linear(4, 4), torch.jit.trace(nn.Linear(4, 4), torch.randn(2, 4)), nn.ReLU())
    with Tap(open_model(model)) as tap:
        tap.look(torch.randn(3, 4))
        assert any("TorchScript" in note for note in tap.notes)


def test_names_of_calls_and_blocks():
    assert numbered(["a", "b", "a"]) == ["a#1", "b", "a#2"]
    kinds = {
        "stages": "Sequential",
        "stages.0": "Sequential",
        "stages.0.1": "?",
        "features.3": "?",
        "net1": "Sequential",
    }
    children = {"stages.0": ["0", "1"], "stages.0.1": ["fc"], "features.3": ["fc"], "net1": ["0", "1"]}
    assert block_of("stages.0.1.fc", kinds, children) == "stages.0.1"
    assert block_of("features.3.fc", kinds, children) == "features.3"
    assert block_of("net1.0", kinds, children) == "net1"  # a numbered Sequential of leaves is a block
    assert block_of("fc1", kinds, children) == ""
