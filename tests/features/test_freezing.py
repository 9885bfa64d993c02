"""The parts of a sweep: blocks, arms, the prefix, rows, one cell, break-even."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.features.blocks import Block, Keen, Placed, Restless, Skipping, blocky, coloured, new, pictures, texts
from tests.harness import Bad, check_bad_input, check_coverage, check_level
from torch import nn

from querist.errors import BadOption, InvariantBroken, ShapeMismatch, TooFewRows, UnknownName
from querist.features.capturing import capture
from querist.features.freezing import (
    ARMS,
    Plan,
    Prefix,
    Room,
    break_even,
    check_frozen,
    end_layer,
    find_blocks,
    frozen_layers,
    hold,
    initial,
    latent,
    paired_effect,
    shuffled_blocks,
    train_cell,
    with_head,
)
from querist.features.freezing._latent import Latent
from querist.features.inputs import as_inputs
from querist.features.nets import cifar_resnet
from querist.features.profile._untested import untested, untested_move
from querist.features.random_nets import random_net, set_norms
from querist.sources.data import open_data

# ------------------------------------------------------------------------------------------------------------- blocks


def few(n=3, side=8):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_blocks_of_a_residual_network():
    found = find_blocks(cifar_resnet(20), few(side=32))
    assert found.names == tuple(f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3))
    assert found.stages == (3, 6, 9)
    assert found.head == "linear"
    assert found.frozen(0) == ()
    assert set(found.frozen(2)) == {"conv1", "bn1", "relu", "layer1.0", "layer1.1"}
    # a stage that is over is frozen as a whole
    assert set(found.frozen(4)) >= {"conv1", "bn1", "layer1", "layer2.0"}
    assert found.within(3)[-1] == "layer1.2"
    assert found.numbers(("stages",)) == (0, 3, 6, 9)
    assert found.numbers(("all",)) == tuple(range(10))
    assert found.numbers(("9", "0", "4")) == (0, 4, 9)


def test_stages_and_patterns_are_blocks_too():
    model = cifar_resnet(8)
    stages = find_blocks(model, few(side=32), "stages")
    assert stages.names == ("layer1", "layer2", "layer3")
    assert stages.stages == (1, 2, 3)
    assert find_blocks(model, few(side=32), "layer?").names == stages.names
    # of nested matches the outermost count
    assert find_blocks(model, few(side=32), "layer*.*").names == ("layer1.0", "layer2.0", "layer3.0")
    assert find_blocks(model, few(side=32), "layer3.*, conv1").names == ("conv1", "layer3.0")


def test_a_plain_network_has_its_layers_for_blocks():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
    found = find_blocks(model, torch.randn(3, 4))
    assert found.names == ("0", "3")
    assert found.head == "5"
    assert found.frozen(2) == ("0", "1", "2", "3")


def test_parameters_of_the_whole_network_are_frozen_where_a_block_depends_on_them():
    rows = {name: value[:3] for name, value in texts().items() if name != "labels"}
    found = find_blocks(Placed(), rows)
    assert found.names == ("layers.0", "layers.1", "layers.2")
    assert found.head is None
    assert set(found.frozen(1)) == {"words", "layers.0", "place"}
    assert "late" not in found.frozen(3)


def test_looking_for_blocks_changes_nothing():
    model = blocky()
    model.train()
    model.stage1[0].conv.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    find_blocks(model, few())
    assert all(part.training for part in model.modules())
    assert not model.stage1[0].conv.weight.requires_grad
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks for part in model.modules())


def test_bad_blocks():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.idle, self.fc = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(self.a(self.a(x)))

    model, rows = blocky(), few()
    check_bad_input(
        [
            Bad(lambda: find_blocks(model, rows, "stage9*"), UnknownName, ["stage9*", "stage1"]),
            Bad(lambda: find_blocks(model, rows, "fc"), BadOption, ["fc", "head", "last linear"][:1]),
            Bad(lambda: find_blocks(model, rows, ","), BadOption, ["patterns"]),
            Bad(lambda: find_blocks(model, rows, head="stage1"), UnknownName, ["stage1", "fc"]),
            Bad(lambda: find_blocks(model, rows).numbers(("5",)), BadOption, ["5", "0 to 4", "stage1.0"]),
            Bad(lambda: find_blocks(model, rows).numbers(("half",)), BadOption, ["half", "stages"]),
            Bad(lambda: find_blocks(Twice(), torch.randn(3, 3), "a"), BadOption, ["2 times"]),
            Bad(lambda: find_blocks(Twice(), torch.randn(3, 3), "idle"), BadOption, ["never"]),
        ]
    )


# --------------------------------------------------------------------------------------------------------------- arms


def test_arms_begin_with_what_they_say():
    model = blocky()
    own = {name: value.detach().clone() for name, value in model.named_parameters()}
    found = {arm: dict(initial(model, arm, repeat=0).named_parameters()) for arm in ARMS}
    for name, value in own.items():
        assert torch.equal(found["pretrained"][name], value)
        assert torch.equal(found["pretrained-kept"][name], value)
        assert torch.equal(found["shuffled"][name].flatten().sort().values, value.flatten().sort().values)
        if name.endswith("conv.weight"):
            for arm in ("random", "shuffled", "moments", "scratch"):
                assert not torch.equal(found[arm][name], value)
        if ".bn." in name:
            assert torch.equal(found["moments"][name], value)
        assert torch.equal(found["scratch"][name], found["random"][name])
    assert all(torch.equal(own[name], value) for name, value in model.named_parameters()), "the model was changed"


def test_moments_are_those_of_each_tensor():
    model = nn.Sequential(nn.Linear(400, 300), nn.LayerNorm(300))
    with torch.no_grad():
        model[0].weight.copy_(torch.rand(300, 400) ** 3 * 5 - 1)
    drawn = initial(model, "moments", repeat=0)[0].weight
    assert drawn.mean().item() == pytest.approx(model[0].weight.mean().item(), abs=0.02)
    assert drawn.std().item() == pytest.approx(model[0].weight.std().item(), rel=0.01)
    z = (drawn - drawn.mean()) / drawn.std()
    assert (z**4).mean().item() == pytest.approx(3.0, abs=0.1)  # normal, which its model is not


def test_random_arms_are_those_of_random_nets_and_differ_by_repeat():
    model, data = blocky(), open_data(new())
    one = initial(model, "random", repeat=3, seed=7)
    other = random_net(model, data, repeat=3, seed=7, n=20)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    for arm in ("random", "shuffled", "moments"):
        a, b = (initial(model, arm, repeat=r).conv.weight for r in (0, 1))
        assert not torch.equal(a, b)
        assert torch.equal(a, initial(model, arm, repeat=0).conv.weight)
    with pytest.raises(BadOption, match="pretraned"):
        initial(model, "pretraned", repeat=0)


def test_heads_are_shared_by_arms_and_drawn_by_repeat_and_target():
    def head(arm, repeat, target="t", seed=0):
        return with_head(
            initial(blocky(), arm, repeat=repeat), "fc", few(), 3, repeat=repeat, seed=seed, target=target
        ).net.fc

    first = head("pretrained", 0)
    assert first.out_features == 3
    assert torch.equal(first.weight, head("random", 0).weight)
    assert torch.equal(first.bias, head("moments", 0).bias)
    for other in (head("pretrained", 1), head("pretrained", 0, "u"), head("pretrained", 0, seed=1)):
        assert not torch.equal(first.weight, other.weight)
    state = torch.get_rng_state()
    head("pretrained", 0)
    assert torch.equal(state, torch.get_rng_state())


def test_a_head_is_appended_where_the_network_has_none():
    rows = {name: value[:5] for name, value in texts().items() if name != "labels"}
    model = with_head(Placed(), None, rows, 2, repeat=0)
    model.eval()
    with torch.no_grad():
        value = model.net(**rows)
        mask = rows["attention_mask"].float()[..., None]
        expected = model.head((value * mask).sum(1) / mask.sum(1))
        assert torch.allclose(model(rows), expected)
    with pytest.raises(BadOption, match="two classes"):
        with_head(blocky(), "fc", few(), 1, repeat=0)


# ------------------------------------------------------------------------------------------------------------- prefix


def held(data, n, classes=(0, 1, 2, 3), room=None):
    data = open_data(data)
    return hold(data, data.ids[:n], np.array(classes), room or Room(1 << 40), batch_size=16)


def prepared(model, k, arm="pretrained", inputs=None):
    blocks = find_blocks(model, few() if inputs is None else inputs)
    tuned = with_head(initial(model, arm, repeat=0), blocks.head, few() if inputs is None else inputs, 4, repeat=0)
    tuned.requires_grad_(True)
    return tuned, blocks


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_prefix_stands_in_for_what_is_frozen(k):
    model, blocks = prepared(blocky(), k)
    rows = held(new(), 40)
    prefix = Prefix(model, blocks.within(k))
    assert prefix.holds(rows, 16)
    kept = prefix.fill(rows, Room(1 << 40), 16)
    assert kept[0].shape == (40, 5, 8, 8)
    model.eval()
    batch = {**rows.tensors(slice(8, 24)), "z0": torch.from_numpy(kept[0][8:24])}
    with torch.no_grad():
        expected = model(batch["x"])
        whole = {name for name, _ in model.named_parameters()}
        with prefix.standing_in():
            prefix.load(batch)
            assert torch.allclose(model(batch["x"]), expected, atol=1e-6)
            assert {name for name, _ in model.named_parameters()} < whole
        assert {name for name, _ in model.named_parameters()} == whole
        assert torch.equal(model(batch["x"]), expected)


def test_a_network_that_looks_back_is_run_whole():
    model, blocks = prepared(Skipping(), 2)
    assert not Prefix(model, blocks.within(2)).holds(held(new(), 20), 8)
    # behind the stage there is nothing that does not pass through it, and the stem is looked at again
    trained = train_cell(model, blocks, 2, held(new(), 40), held(pictures(20), 20), Plan(epochs=1))
    assert not trained.cached
    assert trained.status == "ok"


def test_texts_and_blocks_that_return_tuples_are_cached():
    data = open_data(texts())
    rows = hold(data, data.ids, np.array([0, 1]), Room(1 << 40))
    inputs = as_inputs(rows.tensors(slice(0, 3)))
    blocks = find_blocks(Placed(), inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Placed()
    states = []
    for cache in (True, False):
        model = with_head(copy.deepcopy(net), None, inputs, 2, repeat=0)
        trained = train_cell(model, blocks, 2, rows, rows, Plan(epochs=2, cache=cache))
        assert trained.cached is cache
        states.append((trained.accuracy, trained.loss, model.state_dict()))
    assert states[0][0] == states[1][0]
    assert states[0][1] == pytest.approx(states[1][1], rel=1e-5)
    for name, value in states[0][2].items():
        assert torch.allclose(value, states[1][2][name], atol=1e-6), name


@pytest.mark.parametrize("k", [2, 4])
def test_cached_or_not_the_result_is_the_same(k, tmp_path):
    train, test = held(new(), 60), held(pictures(30, seed=8), 30)
    found = []
    for room in (None, Room(0, tmp_path / "held")):
        for cache in (True, False):
            model, blocks = prepared(blocky(), k)
            trained = train_cell(model, blocks, k, train, test, Plan(epochs=2, cache=cache), room=room)
            assert trained.cached is cache
            found.append((trained.accuracy, trained.loss, model.state_dict()))
    assert list((tmp_path / "held").glob("*.npy")), "nothing was mapped"
    for accuracy, loss, state in found[1:]:
        assert accuracy == found[0][0]
        assert loss == pytest.approx(found[0][1], rel=1e-5)
        for name, value in state.items():
            assert torch.allclose(value.float(), found[0][2][name].float(), atol=1e-6), name


def test_rows_above_the_bound_are_mapped_and_the_same(tmp_path):
    small, mapped = held(new(), 40), held(new(), 40, room=Room(0, tmp_path))
    assert isinstance(mapped.inputs["x"].base, np.memmap) or isinstance(mapped.inputs["x"], np.memmap)
    assert np.array_equal(small.inputs["x"], mapped.inputs["x"])
    assert np.array_equal(small.labels, mapped.labels)


# ------------------------------------------------------------------------------------------------------------- a cell


def test_a_cell_trains_what_is_not_frozen_and_nothing_else():
    train, test = held(new(), 60), held(pictures(30, seed=8), 30)
    model, blocks = prepared(blocky(), 2)
    before = copy.deepcopy(model.state_dict())
    trained = train_cell(model, blocks, 2, train, test, Plan(epochs=2))
    frozen = ("net.conv.", "net.bn.", "net.stage1.")
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(frozen), name
    expected = sum(p.numel() for name, p in model.named_parameters() if not name.startswith(frozen))
    assert trained.trained_parameters == expected
    assert (trained.n_train, trained.n_validation, trained.n_test, trained.epochs) == (60, 0, 30, 2)
    assert trained.rates[0].accuracy is None
    model.eval()
    with torch.no_grad():
        said = model(as_inputs(test.tensors(slice(None)))).argmax(1).numpy()
    assert trained.accuracy == pytest.approx((said == test.labels).mean())


def test_of_several_rates_the_best_on_validation_rows_is_taken():
    train, test = held(coloured(), 120), held(coloured(30, seed=8), 30)
    model, blocks = prepared(blocky(), 0)
    plan = Plan(epochs=4, rates=(1e-7, 1e-2, 1e-5))
    trained = train_cell(model, blocks, 0, train, test, plan)
    assert (trained.n_train, trained.n_validation) == (96, 24)
    assert [one.learning_rate for one in trained.rates] == [1e-7, 1e-2, 1e-5]
    best = max(trained.rates, key=lambda one: (one.accuracy, -one.loss))
    assert trained.learning_rate == best.learning_rate == 1e-2
    # the network is that of the chosen rate, as if it alone had been tried
    alone, _ = prepared(blocky(), 0)
    again = train_cell(alone, blocks, 0, train, test, Plan(epochs=4, rates=(1e-2, 1e-7)))
    assert again.accuracy == trained.accuracy
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), alone.parameters(), strict=True))


def test_a_diverged_training_is_kept():
    train, test = held(new(), 60), held(pictures(30, seed=8), 30)
    model, blocks = prepared(blocky(), 0)
    trained = train_cell(model, blocks, 0, train, test, Plan(epochs=3, optimizer="sgd", rates=(1e30,)))
    assert trained.status == "diverged"
    assert trained.accuracy is None
    assert trained.learning_rate is None
    assert "not finite" in trained.reason or "is nan" in trained.reason or "inf" in trained.reason
    # one of several rates that diverges costs its row
    model, blocks = prepared(blocky(), 0)
    trained = train_cell(model, blocks, 0, train, test, Plan(epochs=1, optimizer="sgd", rates=(1e30, 1e-2)))
    assert [one.status for one in trained.rates] == ["diverged", "ok"]
    assert (trained.status, trained.learning_rate) == ("ok", 1e-2)


def test_a_frozen_tensor_that_changes_stops_the_cell():
    model = Restless()
    blocks = find_blocks(model, few())
    tuned = with_head(copy.deepcopy(model), blocks.head, few(), 4, repeat=0)
    train, test = held(new(), 40), held(pictures(20, seed=8), 20)
    with pytest.raises(InvariantBroken, match=r"frozen tensor blocks\.0\.calls"):
        train_cell(tuned, blocks, 1, train, test, Plan(epochs=1))


def test_a_norm_that_stays_in_training_mode_stops_the_cell():
    model = blocky()
    keen = Keen(5)
    model.stage1[0].bn = keen
    blocks = find_blocks(model, few())
    tuned = with_head(copy.deepcopy(model), blocks.head, few(), 4, repeat=0)
    train, test = held(new(), 40), held(pictures(20, seed=8), 20)
    with pytest.raises(InvariantBroken, match=r"stage1\.0\.bn\.(running_mean|num_batches_tracked|running_var)"):
        train_cell(tuned, blocks, 2, train, test, Plan(epochs=1, cache=False))


def test_frozen_layers_must_hold_what_they_held():
    model, blocks = prepared(blocky(), 2)
    before = capture(model.net, new(), layers="blocks", n=40)
    fixed = frozen_layers(before, blocks, 2)
    assert fixed == {"<input>", "relu", "stage1.0", "stage1.1"}
    assert frozen_layers(before, blocks, 0) == {"<input>"}
    assert [end_layer(before, blocks, k) for k in range(5)] == [
        "<input>",
        "stage1.0",
        "stage1.1",
        "stage2.0",
        "stage2.1",
    ]
    with torch.no_grad():
        model.net.stage2[0].conv.weight.add_(1.0)
    after = capture(model.net, new(), layers="blocks", n=40)
    check_frozen(before, after, fixed)
    with torch.no_grad():
        model.net.stage1[1].bn.bias[0] += 1e-6
    moved = capture(model.net, new(), layers="blocks", n=40)
    with pytest.raises(InvariantBroken, match=r"stage1\.1"):
        check_frozen(before, moved, fixed)


def test_what_the_layers_hold_of_a_cell():
    model, blocks = prepared(blocky(), 1)
    before = capture(model.net, new(), layers="blocks", n=60)
    with torch.no_grad():
        model.net.stage2[1].conv.weight.mul_(3.0)
    after = capture(model.net, new(), layers="blocks", n=60)
    source = capture(model.net, pictures(70, seed=4), layers="blocks", n=60)
    rows = {one.layer: one for one in latent(before, after, source, frozen_layers(before, blocks, 1), projections=20)}
    assert all(isinstance(one, Latent) for one in rows.values())
    assert {name for name, one in rows.items() if one.move.value == 0.0} == {
        *("<input>", "relu", "stage1.0", "stage1.1", "stage2.0")
    }
    assert rows["stage2.1"].move.value > rows["stage2.1"].move.null_mean * 0.1
    assert [one.frozen for one in rows.values()] == [True, True, True, False, False, False, False]
    assert all(one.gap.value > 0 for one in rows.values())
    alone = list(latent(before, after, None, set(), projections=20))
    assert all(one.gap is None for one in alone)


# ---------------------------------------------------------------------------------------------------- block shuffling


def test_shuffled_blocks_keep_pixels_and_lose_places():
    data = open_data(pictures(30))
    cut = shuffled_blocks(data, 4, seed=1)
    plain, mixed = (one.read(one.ids).inputs for one in (data, cut))
    assert plain.shape == mixed.shape
    for i in range(30):
        blocks = [
            {tuple(picture[i, :, r : r + 4, c : c + 4].flatten().tolist()) for r in (0, 4) for c in (0, 4)}
            for picture in (plain, mixed)
        ]
        assert blocks[0] == blocks[1]
    assert sum(not torch.equal(plain[i], mixed[i]) for i in range(30)) > 20
    # a picture is cut the same whenever and beside whatever it is read
    assert torch.equal(cut.read([7]).inputs[0], mixed[7])
    assert not torch.equal(shuffled_blocks(data, 4, seed=2).read(data.ids).inputs, mixed)
    with pytest.raises(BadOption, match="8 x 8 pixels into blocks of 3"):
        shuffled_blocks(data, 3).read([0])
    with pytest.raises(BadOption, match="tokens"):
        shuffled_blocks(open_data(texts()), 4)


# --------------------------------------------------------------------------------------------- distances without tests


def test_an_untested_gap_is_the_mean_of_the_same_draws():
    from querist.features.profile import gap

    rng = np.random.default_rng(3)
    S, T = rng.standard_normal((80, 5)), rng.standard_normal((60, 5)) + 0.5
    found = untested(S, T, projections=30, splits=10)
    tested = gap(S, T, projections=30, splits=10, permutations=9)
    assert found.value == pytest.approx(tested.raw)
    assert found.null_mean == pytest.approx(tested.null_mean)
    assert found.excess == pytest.approx(tested.excess)
    assert found.n == tested.n_c


def test_rows_that_did_not_change_did_not_move():
    A = np.random.default_rng(0).standard_normal((61, 256)).astype(np.float32)
    assert untested_move(A, A.copy(), projections=50, splits=5).value == 0.0
    shifted = untested_move(A.astype(float), A + np.full(256, 2.0), projections=50, splits=5)
    # a shift by m: SW₂² = |m|²/d
    assert shifted.value == pytest.approx(2.0, rel=0.35)


# ---------------------------------------------------------------------------------------------------------- break-even


def test_break_even_by_hand():
    accuracy = np.array([[0.80, 0.82, 0.815, 0.60], [0.81, 0.80, 0.80, 0.62]])
    found = break_even(accuracy, (0, 3, 6, 9), delta=0.01)
    assert (found.best_k, found.k, found.n) == (3, 6, 2)  # means .805 .81 .8075 .61
    assert (found.low, found.high) == (6, 6)
    assert break_even(accuracy, (0, 3, 6, 9), delta=0.0).k == 3
    assert break_even(accuracy, (0, 3, 6, 9), delta=0.5).k == 9
    assert break_even([[0.5, 0.5, np.nan], [0.4, 0.6, 0.2]], (0, 1, 2)).n == 1
    one = break_even([[0.5, 0.49, 0.2]], (0, 1, 2))
    assert (one.k, one.low, one.high) == (1, None, None)  # exactly delta below is within it


def test_break_even_resamples_cells():
    rng = np.random.default_rng(0)
    cells = (
        0.7
        + 0.02 * rng.standard_normal((30, 1))
        + np.array([0.0, 0.0, -0.009, -0.2])
        + 0.01 * rng.standard_normal((30, 4))
    )
    found = break_even(cells, (0, 1, 2, 3))
    assert found.low <= found.k <= found.high <= 2
    # what cells share is no noise: their level moves all numbers of blocks alike
    still = break_even(0.7 + rng.standard_normal((30, 1)) + np.array([0.0, 0.0, -0.005, -0.2]), (0, 1, 2, 3))
    assert (still.low, still.k, still.high) == (2, 2, 2)


def test_paired_effects():
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.random(7), rng.random(7)
    found = paired_effect(a, b)
    known = stats.ttest_rel(a, b)
    low, high = known.confidence_interval()
    assert (found.estimate, found.p) == pytest.approx(((a - b).mean(), known.pvalue))
    assert (found.low, found.high) == pytest.approx((low, high))
    a[2] = np.nan
    assert paired_effect(a, b).n == 6
    assert paired_effect(a[:1], b[:1]).low is None
    assert paired_effect([np.nan], [0.5]).estimate is None


def test_equal_differences_are_not_certain():
    found = paired_effect([0.801, 0.701], [0.8, 0.7], resolution=1e-3)
    assert found.low < 0 < found.high
    assert paired_effect([0.81, 0.71], [0.7, 0.6], resolution=1e-3).low > 0.1
    # more spread than rounding: the resolution does not matter
    assert paired_effect([0.9, 0.7, 0.6], [0.5, 0.6, 0.6], resolution=1e-3) == paired_effect(
        [0.9, 0.7, 0.6], [0.5, 0.6, 0.6]
    )


def rounded(rng, n=1000, cells=2, shift=0.0, spread=0.0005):
    """Accuracies of few test rows and little spread: differences that are often equal."""
    level = rng.normal(0.8, 0.01, cells)
    pair = np.stack([level + shift, level]) + rng.normal(0, spread, (2, cells))
    return np.round(pair * n) / n


def test_two_cells_keep_their_level_and_coverage():
    check_level(
        lambda pair: paired_effect(*pair, resolution=1e-3).p, rounded, runs=2000, within=0.01, conservative=True
    )
    check_coverage(
        lambda pair: (lambda e: (e.low, e.high))(paired_effect(*pair, resolution=1e-3)),
        lambda rng: rounded(rng, shift=0.0123),
        0.0123,
        runs=2000,
        within=0.01,
        conservative=True,
    )
    with pytest.raises(AssertionError):  # without it they do not
        check_level(lambda pair: paired_effect(*pair).p, rounded, runs=2000, within=0.01)


def test_bad_analysis():
    check_bad_input(
        [
            Bad(lambda: paired_effect([0.1, 0.2], [0.1]), ShapeMismatch, ["2 and 1 cells"]),
            Bad(lambda: break_even([[0.1, 0.2]], (0, 1, 2)), ShapeMismatch, ["(1, 2)"]),
            Bad(lambda: break_even([[0.1, 0.2]], (1, 0)), BadOption, ["ascending"]),
            Bad(lambda: break_even([[0.1, 0.2]], (0, 1), delta=-1.0), BadOption, ["delta"]),
            Bad(lambda: break_even([[0.1, np.nan]], (0, 1)), TooFewRows, ["0"]),
        ]
    )


def test_norms_are_set_alike_in_every_arm():
    data = open_data(new())
    sizes = []
    for arm in ("pretrained", "shuffled"):
        net = initial(blocky(), arm, repeat=0)
        set_norms(net, data, n=None, batch_size=200)
        with torch.no_grad():
            value = net.conv(data.read(data.ids).inputs)
        assert torch.allclose(net.bn.running_mean, value.mean((0, 2, 3)), atol=1e-5)
        sizes.append(net.bn.running_var.clone())
    assert not torch.equal(*sizes)
    assert isinstance(net.stage1[0], Block)
