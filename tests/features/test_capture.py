"""Capture: rows are what the network holds, whatever the batch size, within the bound; what is missing has a reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.sources.taps.networks import Branch, Masked, Residual
from torch import nn

from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    MemoryBound,
    NonFinite,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
)
from querist.features import Capture, capture
from querist.features.capturing import free_memory
from querist.features.nets import cifar_resnet
from querist.features.random_nets import random_net, set_norms
from querist.features.reduction import projection
from querist.sources.data import choose_ids, open_data
from querist.sources.datasets.registry import DATA_SETS, places
from querist.sources.images.transform import Transform
from querist.sources.models import build_module

CIFAR = Transform(size=32, channels=3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), pad=True)
RESNET20 = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
BLOCKS = [f"layer{stage}.{place}" for stage in (1, 2, 3) for place in range(3)]


@pytest.fixture(scope="module")
def clothes():
    return open_data("fashion-mnist-small", transform=CIFAR)


def needs(*names):
    if not all(places(DATA_SETS[name]) for name in names):
        pytest.skip("the data folder is not here")


# ------------------------------------------------------------------------------------------------- the real networks


def test_the_published_network_scores_what_it_scores_on_jpeg_files():
    """81.03 % on all 10,000 lossy files; the first 500 in hash order within their binomial error."""
    needs("cifar10-jpeg-test")
    found = capture(RESNET20, open_data("cifar10-jpeg", transform=CIFAR), layers="blocks", n=500)
    assert found.names == ["<input>", "relu", *BLOCKS, "logits"]
    accuracy = float((found["logits"].rows.argmax(1) == found.labels).mean())
    assert accuracy == pytest.approx(0.8103, abs=3 * np.sqrt(0.81 * 0.19 / 500))
    assert [layer.rows.shape[1] for layer in found] == [256, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 10]
    assert found.health.captured == found.health.found == 11
    assert found.classes[:2] == ("airplane", "automobile")


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "expected"), [(20, 81.03), (56, 83.20)])
def test_published_networks_on_the_whole_test_file(depth, expected):
    needs("cifar10-jpeg-test", f"resnet{depth}-cifar10")
    model = f"querist.features.nets:cifar_resnet?depth={depth}@resnet{depth}-cifar10"
    found = capture(model, open_data("cifar10-jpeg", transform=CIFAR), layers="logits", n=None, batch_size=250)
    accuracy = 100 * float((found["logits"].rows.argmax(1) == found.labels).mean())
    assert accuracy == pytest.approx(expected, abs=0.05)


def by_hand(model, x):
    """Every pre-activation of the residual network, from its weights alone."""

    def norm(y, bn):
        return (y - bn.running_mean[:, None, None]) / (bn.running_var[:, None, None] + 1e-5).sqrt() * bn.weight[
            :, None, None
        ] + bn.bias[:, None, None]

    found = {}
    z = norm(nn.functional.conv2d(x, model.conv1.weight, padding=1), model.bn1)
    found["relu"] = z
    x = z.clamp(min=0)
    for stage in (1, 2, 3):
        for place, block in enumerate(getattr(model, f"layer{stage}")):
            stride = 2 if stage > 1 and place == 0 else 1
            z = norm(nn.functional.conv2d(x, block.conv1.weight, stride=stride, padding=1), block.bn1)
            found[f"layer{stage}.{place}.relu1"] = z
            z = norm(nn.functional.conv2d(z.clamp(min=0), block.conv2.weight, padding=1), block.bn2)
            if stride == 2:
                grown = torch.zeros_like(z)
                extra = (z.shape[1] - x.shape[1]) // 2
                grown[:, extra : extra + x.shape[1]] = x[:, :, ::2, ::2]
                x = grown
            z = z + x
            found[f"layer{stage}.{place}.relu2"] = z
            x = z.clamp(min=0)
    found["logits"] = x.mean((2, 3)) @ model.linear.weight.T + model.linear.bias
    return found


def test_rows_are_means_over_space_of_pre_activations(clothes):
    model = build_module(RESNET20)
    found = capture(model, clothes, n=20)
    inputs = clothes.read(found.ids).inputs
    with torch.no_grad():
        hand = by_hand(model, inputs)
    assert found.names == ["<input>", *hand]
    for name, value in hand.items():
        expected = value.flatten(2).mean(2) if value.ndim == 4 else value
        np.testing.assert_allclose(found[name].rows, expected, atol=2e-5, rtol=1e-4)
    assert np.array_equal(found.labels, clothes.read(found.ids).labels)
    matrix = projection(3072, 256, 0)
    np.testing.assert_allclose(found["<input>"].rows, inputs.flatten(1).numpy() @ matrix, atol=1e-4, rtol=1e-4)


def test_batch_size_does_not_matter(clothes):
    """1e-5 of a unit's scale in float32, for means and for sites."""
    for reduce, n in (("mean", 60), ("sites:3", 20)):
        one = capture(RESNET20, clothes, layers="blocks", reduce=reduce, n=n, batch_size=1)
        many = capture(RESNET20, clothes, layers="blocks", reduce=reduce, n=n, batch_size=250)
        for a, b in zip(one, many, strict=True):
            scale = np.abs(b.rows).max(0)
            assert np.abs(a.rows - b.rows).max() <= 1e-5 * scale.max(), (reduce, a.name)
            assert np.array_equal(a.images, b.images)
            np.testing.assert_allclose(a.cov, b.cov, atol=1e-5 * np.abs(b.cov).max())


def test_moments_are_those_of_the_rows(clothes):
    found = capture(RESNET20, clothes, layers="layer3.2", n=200, batch_size=64)
    layer = found["layer3.2"]
    rows = layer.rows.astype(np.float64)
    np.testing.assert_allclose(layer.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(layer.cov, np.cov(rows.T), rtol=1e-9, atol=1e-15)


def test_the_same_rows_for_every_layer_and_network(clothes):
    one = capture(RESNET20, clothes, n=50, layers="relu", seed=4)
    other = capture(cifar_resnet(8), clothes, n=50, layers="logits", seed=4)
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.ids, choose_ids(clothes, 50, seed=4))
    assert one.ids_hash == other.ids_hash
    assert not np.array_equal(one.ids, capture(cifar_resnet(8), clothes, n=50, layers="logits", seed=5).ids)
    np.testing.assert_array_equal(one["<input>"].rows, other["<input>"].rows)
    some = capture(RESNET20, clothes, ids=[7, 3, 900], layers="relu")
    assert some.ids.tolist() == [3, 7, 900]
    with pytest.raises(BadOption, match="1 ids are not in"):
        capture(RESNET20, clothes, ids=[5, 1000], layers="relu")
    for ids in (["seven"], [1.5], [[1, 2]]):
        with pytest.raises(BadOption, match="whole numbers"):
            capture(RESNET20, clothes, ids=ids, layers="relu")


# ---------------------------------------------------------------------------------------------------------- reductions


def test_sites_are_places_of_the_value_and_clusters():
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(6, 3, 5, 5)
    found = capture(model, x, layers="layer1.1", reduce="sites:4", seed=2)
    layer = found["layer1.1"]
    assert layer.rows.shape == (24, 4)
    assert layer.clustered
    assert np.array_equal(layer.images, np.repeat(np.arange(6), 4))
    value = model.by_hand(x)["layer1.1.relu#2"].detach().flatten(2).transpose(1, 2).numpy()
    for image in range(6):
        rows = layer.rows[layer.images == image]
        gap = np.abs(rows[:, None] - value[image][None]).max(2)
        places = gap.argmin(1)
        assert gap.min(1).max() < 1e-5
        assert len(set(places.tolist())) == 4
    every = capture(model, x, layers="layer1.1, logits", reduce="sites:100")
    assert every["layer1.1"].rows.shape == (150, 4)
    assert every["logits"].rows.shape == (6, 3)
    assert not every["logits"].clustered
    drawn = [capture(model, x, layers="layer1.1", reduce="sites:1", seed=s)["layer1.1"].rows for s in range(3)]
    assert not np.array_equal(drawn[0], drawn[1])


def test_sites_are_uniform_over_places():
    rows = torch.arange(400, dtype=torch.float32).reshape(1, 1, 20, 20).repeat(300, 1, 1, 1)
    found = capture(nn.Sequential(nn.Identity(), nn.ReLU(), nn.Identity()), rows, layers="1", reduce="sites:10")
    drawn = found["1"].rows.ravel()
    # 3,000 draws from 0..399: the mean has a standard error of 115.5/sqrt(3000) = 2.1.
    assert abs(drawn.mean() - 199.5) < 4 * 2.1
    assert len(np.unique(drawn)) > 380


def test_flat_values_are_projected():
    torch.manual_seed(1)
    model, x = Residual().eval(), torch.randn(40, 3, 5, 5)
    layer = capture(model, x, layers="layer1.0", reduce="flat", proj_dim=16)["layer1.0"]
    value = model.by_hand(x)["layer1.0.relu#2"].detach().flatten(1).numpy()
    assert (layer.width, layer.rows.shape) == (100, (40, 16))
    np.testing.assert_allclose(layer.rows, value @ projection(100, 16, 0), atol=1e-4)
    with pytest.raises(BadOption, match="proj_dim"):
        capture(model, x, reduce="flat")
    # Lengths are kept on average: the mean of ||xR||²/||x||² over 200 matrices has a standard error of sqrt(2/16/200).
    ratio = [((value[0] @ projection(100, 16, s)) ** 2).sum() / (value[0] ** 2).sum() for s in range(200)]
    assert np.mean(ratio) == pytest.approx(1, abs=4 * np.sqrt(2 / 16 / 200))
    assert projection(16, 16, 0) is None


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("mean", lambda rows: rows.mean(0, keepdims=True)),
        ("cls", lambda rows: rows[:1]),
        ("last", lambda rows: rows[-1:]),
        ("sites:9", lambda rows: rows),
    ],
)
def test_tokens_are_those_that_the_mask_keeps(reduce, expected):
    torch.manual_seed(2)
    model = Masked().eval()
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
    inputs = {"input_ids": torch.randint(1, 20, (3, 4)), "attention_mask": mask}
    found = capture(model, inputs, reduce=reduce)
    assert found.names == ["encoder.gelu", "logits"]  # token ids have no input layer
    for name, value in model.by_hand(**inputs).items():
        kept = [value[one].detach().numpy()[mask[one].numpy() == 1] for one in range(3)]
        np.testing.assert_allclose(found[name].rows, np.concatenate([expected(one) for one in kept]), atol=1e-5)
    alone = capture(model, {key: value[:, :] for key, value in inputs.items()}, reduce=reduce, batch_size=1)
    np.testing.assert_allclose(alone["logits"].rows, found["logits"].rows, atol=1e-5)
    inputs["attention_mask"][1] = 0
    if reduce == "mean":
        with pytest.raises((BadValues, NonFinite), match=r"ids \[1"):
            capture(model, inputs)


def test_reductions_that_do_not_fit():
    x = torch.randn(6, 3, 5, 5)
    for wrong in ("median", "sites:0", "sites", 3):
        with pytest.raises(BadOption, match="reduction"):
            capture(Residual(), x, reduce=wrong)
    found = capture(Residual(), x, reduce="cls")
    assert [layer.name for layer in found] == ["<input>", "logits"]
    assert "no tokens" in found.passed_over[0].reason
    assert (found.health.found, found.health.captured) == (5, 1)
    with pytest.raises(BadOption, match=r"None of the layers.*no tokens"):
        capture(Residual(), x, reduce="cls", layers="layer1.0")


def test_wide_layers_need_a_projection():
    model, x = nn.Sequential(nn.Linear(4, 3000), nn.ReLU(), nn.Linear(3000, 2)), torch.randn(9, 4)
    found = capture(model, x)
    assert found.names == ["<input>", "logits"]
    assert "3000 units" in found.passed_over[0].reason
    wide = capture(model, x, proj_dim=50)["1"]
    assert (wide.width, wide.rows.shape) == (3000, (9, 50))
    assert capture(model, x, proj_dim=50)["logits"].rows.shape == (9, 2)


# --------------------------------------------------------------------------------------------------- state, data, bounds


def test_a_network_in_memory_is_left_as_it_was(clothes):
    model = cifar_resnet(8).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = capture(model, clothes, n=20)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert "training mode" in found.notes[0]


def test_a_branch_that_some_batches_do_not_take_is_passed_over():
    class Turns(nn.Module):
        def forward(self, x):
            return torch.relu(x) * 2 if float(x.sum()) > 0 else torch.tanh(x) * 3

    x = torch.ones(40, 3)
    x[30:] = -1
    found = capture(Turns(), x, batch_size=10)
    assert found.names == ["<input>", "logits"]
    assert found.passed_over[0].reason == "it was reached for 30 of 40 rows"
    assert capture(Branch(), torch.randn(20, 4)).names == ["<input>", "relu", "logits"]


def test_values_that_are_not_finite_name_set_layer_and_ids():
    x = torch.randn(30, 4)
    x[17, 2] = torch.nan
    x[25] = torch.inf
    with pytest.raises(NonFinite, match=r"<input> of array, in 2 rows.*ids \[17, 25\]"):
        capture(Branch(), x)

    class Divides(nn.Module):
        def forward(self, x):
            return torch.relu(1 / x[:, :1])

    zeros = torch.randn(30, 4)
    zeros[11] = 0
    with pytest.raises(NonFinite, match=r"logits of array.*ids \[11\]"):
        capture(Divides(), zeros, layers="logits")


def test_memory_is_computed_before_anything_is_read(clothes):
    with pytest.raises(MemoryBound) as error:
        capture(RESNET20, clothes, n=1000, max_bytes=100_000)
    text = str(error.value)
    assert "100000 bytes" in text
    assert all(way in text for way in ("n)", "proj_dim", "spill", "fewer layers", "batch_size"))
    needed = error.value.value
    d = np.array([16, *[16] * 6, *[32] * 6, *[64] * 6, 10, 256])
    rows, batch = 1000 * 4 * d.sum(), 128 * (2 * 4 * 3072 + 3 * 4 * 16 * 32 * 32)
    assert needed == rows + 8 * (d**2).sum() + 4 * 3072 * 256 + batch
    with pytest.raises(BadOption):
        capture(RESNET20, clothes, max_bytes=0)
    assert 1 << 20 < free_memory() < 1 << 50
    few = capture(RESNET20, clothes, n=100, max_bytes=needed)
    assert few.bytes_bound < needed


def test_peak_memory_stays_within_the_bound(clothes):
    capture(RESNET20, clothes, n=300)  # libraries take their buffers
    found = capture(RESNET20, clothes, n=300)
    if found.bytes_peak is None:
        assert not Path("/proc/self/statm").exists()
    else:
        batch = 128 * (2 * 4 * 3072 + 3 * 4 * 16 * 32 * 32)
        assert found.bytes_peak <= 1.5 * found.bytes_bound + batch


def test_rows_can_be_spilled_to_files(clothes, tmp_path):
    kept = capture(RESNET20, clothes, n=60, layers="blocks")
    spilled = capture(RESNET20, clothes, n=60, layers="blocks", spill=tmp_path / "rows")
    assert spilled.bytes_bound < kept.bytes_bound
    assert len(list((tmp_path / "rows").glob("*.npy"))) == 12
    for a, b in zip(kept, spilled, strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert isinstance(b.rows, np.memmap)


def test_captures_are_written_whole_and_read_back(clothes, tmp_path):
    found = capture(RESNET20, clothes, n=40, layers="blocks", reduce="sites:2", proj_dim=20)
    path = found.write(tmp_path / "a" / "capture")
    back = Capture.read(path)
    for name in ("model", "form", "data", "source", "reduce", "proj_dim", "seed", "classes", "bytes_bound", "notes"):
        assert getattr(back, name) == getattr(found, name)
    assert np.array_equal(back.ids, found.ids)
    assert np.array_equal(back.labels, found.labels)
    for a, b in zip(found, back, strict=True):
        assert (a.name, a.index, a.kind, a.operation, a.width) == (b.name, b.index, b.kind, b.operation, b.width)
        for part in ("rows", "images", "mean", "cov"):
            assert np.array_equal(getattr(a, part), getattr(b, part))
    found.write(path)  # again, over what is there
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["capture"]
    with pytest.raises(SourceNotFound):
        Capture.read(tmp_path)
    (path / "layers" / "0003.npy").write_bytes((path / "layers" / "0003.npy").read_bytes()[:200])
    with pytest.raises(CorruptFile):
        Capture.read(path)
    (path / "capture.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(CorruptFile, match="format"):
        Capture.read(path)
    with pytest.raises(UnknownName, match=r"layer2\.1"):
        found["layer2_1"]


def test_passed_over_survives_the_folder(tmp_path):
    found = capture(nn.Sequential(nn.Linear(4, 3000), nn.ReLU(), nn.Linear(3000, 2)), torch.randn(9, 4))
    assert Capture.read(found.write(tmp_path / "c")).passed_over == found.passed_over
    assert Capture.read(tmp_path / "c").health == found.health
    assert Capture.read(tmp_path / "c").labels is None


def test_what_is_wrong_with_data_and_options(clothes):
    with pytest.raises(ShapeMismatch, match=r"conv1 takes 3 channels.*\[3, 1, 28, 28\].*--channels 3"):
        capture(RESNET20, "fashion-mnist-small", n=10)
    for options in ({"n": 0}, {"batch_size": 0}, {"proj_dim": 0}, {"proj_dim": 5000}, {"device": "tpu9"}):
        with pytest.raises(BadOption):
            capture(Branch(), torch.randn(5, 4), **options)
    with pytest.raises(UnknownName, match=r"layer3\.2"):
        capture(RESNET20, clothes, n=10, layers="layer3.3")
    with pytest.raises(TooFewRows):
        capture(Branch(), torch.randn(0, 4))
    with pytest.raises(TooFewRows):
        capture(Branch(), torch.randn(5, 4), ids=[])


def test_unread_pictures_are_told(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for place in range(150):
        Image.fromarray(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)).save(tmp_path / f"{place:03d}.png")
    (tmp_path / "000.png").write_bytes(b"broken")
    found = capture(Residual(), f"folder:{tmp_path}", n=None)
    assert (found.n, found.labels) == (149, None)
    assert [row.what for row in found.unread] == ["000.png"]
    assert 0 not in found.ids


@pytest.mark.parametrize("form", ["program", "script"])
def test_exported_networks_hold_the_same(form):
    import warnings

    torch.manual_seed(3)
    model, x = Residual().eval(), torch.randn(20, 3, 6, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.export.export(model, (x[:4],)) if form == "program" else torch.jit.script(model)
    found, plain = capture(made, x, batch_size=7), capture(model, x)
    assert found.names == plain.names
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a.rows, b.rows, atol=1e-5)


# ----------------------------------------------------------------------------------------------------- random networks


def test_random_networks_are_new_seeded_and_normalised(clothes):
    trained = build_module(RESNET20)
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    one = random_net(trained, clothes, repeat=1, n=256)
    again = random_net(RESNET20, clothes, repeat=1, n=256)
    other = random_net(trained, clothes, repeat=2, n=256)
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())
    states = [net.state_dict() for net in (one, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    for name, value in one.named_parameters():
        if name.endswith("weight") and value.ndim > 1:
            assert not torch.equal(value, before[name])
            assert not torch.equal(value, states[2][name])
            fan = value[0].numel()
            assert float(value.detach().std()) == pytest.approx((2 / fan) ** 0.5, rel=5 / value.numel() ** 0.5)
    # After the pass the norms see what they were set on: mean 0 and variance 1 before scale and shift.
    first = capture(one, clothes, layers="relu", n=256, reduce="sites:64")["relu"].rows
    assert np.abs(first.mean(0)).max() < 0.05
    assert np.abs(first.std(0) - 1).max() < 0.1
    assert not one.training or trained.training
    with pytest.raises(BadOption, match="initialised again"):
        random_net(torch.export.export(Residual().eval(), (torch.randn(4, 3, 6, 6),)), clothes, repeat=0)


def test_norms_are_set_by_one_cumulative_pass():
    torch.manual_seed(4)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
    model[0].momentum = 0.3
    x = torch.randn(40, 3) * torch.tensor([1.0, 2, 3]) + 5
    flags = [part.training for part in model.modules()]
    assert set_norms(model, x, batch_size=10) == 1
    np.testing.assert_allclose(model[0].running_mean, x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(model[0].running_var, x.reshape(4, 10, 3).var(1).mean(0), rtol=1e-5)
    assert model[0].momentum == 0.3
    assert [part.training for part in model.modules()] == flags
    assert set_norms(nn.Linear(3, 2), x) == 0


def test_parameters_without_an_initialisation_of_their_own_are_drawn():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.scale = nn.Parameter(torch.ones(50, 40)), nn.Parameter(torch.full((7,), 3.0))
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x)

    fresh = random_net(Token(), torch.randn(10, 4), repeat=0)
    assert float(fresh.token.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(fresh.scale, torch.ones(7))


def test_residual_networks_have_the_published_size():
    for depth, millions in {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85}.items():  # table 6 of He et al.
        count = sum(value.numel() for value in cifar_resnet(depth).parameters())
        assert count / 1e6 == pytest.approx(millions, abs=0.006)
    assert cifar_resnet(8, classes=3)(torch.randn(2, 3, 32, 32)).shape == (2, 3)
    for wrong in (21, 2, "20", 20.0):
        with pytest.raises(BadOption):
            cifar_resnet(wrong)
    with pytest.raises(BadOption):
        cifar_resnet(20, classes=0)
