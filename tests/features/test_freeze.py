"""The sweep as a study: the same answer from every engine, arms that share what they must, every verdict, every bad input."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.features.blocks import (
    HERE,
    QUICK,
    Epochs,
    Placed,
    Restless,
    blocky,
    coloured,
    freeze_config,
    freeze_study,
    held_freeze,
    new,
    pictures,
    texts,
)
from tests.harness import Bad, assert_same_tables, check_bad_input, check_study
from torch import nn

from querist.cli import main
from querist.errors import BadOption, InvariantBroken, ShapeMismatch, SourceNotFound, TooFewRows, UnknownName
from querist.features import Sweep, freeze
from querist.features.configs import FreezeConfig
from querist.features.errors import BadLabels, LabelsNeeded
from querist.features.freezing import break_even
from querist.features.nets import cifar_resnet
from querist.features.questions import WARNING
from querist.features.studies.freeze_data import addresses_of, target_of
from querist.features.studies.freeze_verdicts import depth_finding, reuse_finding
from querist.features.studies.opening import Material
from querist.runs.carry import UnitsFailed
from querist.sources.datasets.registry import DATA_SETS, places

CELL = ["target", "arm", "k", "repeat"]


def sweep(model=None, target=None, **fields) -> Sweep:
    given = {"target": new() if target is None else target, **QUICK, "arms": ("pretrained", "moments"), "ks": "0,2"}
    return freeze(model or blocky(), **{**given, **fields})


def test_freeze_is_a_study(tmp_path, chromium):
    result = check_study(freeze_study, freeze_config(), tmp_path, chromium=chromium)
    assert result.summary["warning"] == WARNING == result.layout.lead
    assert result.tables["cells"].height == 2 * 2 * 2
    assert result.tables["latent"].height == 8 * 7


def test_what_is_in_memory_crosses_processes(tmp_path):
    config = freeze_config(target=("drawn",), test=("other",), source="", repeats=1, ks="2", model="network")
    result = check_study(held_freeze, config, tmp_path, kill=False, engines=("local:1",))
    assert result.tables["latent"]["a"].null_count() == result.tables["latent"].height
    assert result.tables["cells"]["n_test"].to_list() == [44, 44]


# ------------------------------------------------------------------------------------------------------ one whole sweep


@pytest.fixture(scope="module")
def whole() -> Sweep:
    arms = ("pretrained", "random", "shuffled", "moments", "scratch", "pretrained-kept")
    return freeze(
        blocky(),
        target={"colours": coloured(), "shapes": new()},
        test={"colours": coloured(60, seed=5), "shapes": pictures(60, seed=5)},
        source=pictures(90),
        **{**QUICK, "arms": arms, "ks": "all", "train_n": 60, "test_n": None, "lr": (1e-2, 1e-3), "epochs": 2},
    )


def test_every_cell_is_there(whole):
    cells = whole.cells
    assert cells.height == 2 * (5 * 5 + 1) * 2
    assert cells.select(CELL).is_duplicated().sum() == 0
    assert cells["arm"].unique(maintain_order=True).to_list() == whole.summary["arms"]
    assert set(cells["status"]) == {"ok"}
    assert set(cells["n_train"]) == {48}
    assert set(cells["n_validation"]) == {12}
    assert cells.filter(pl.col("k") > 0)["cached"].all()
    parameters = cells.filter(pl.col("target") == "shapes").group_by("k").agg(pl.col("trained_parameters").unique())
    assert all(len(row) == 1 for row in parameters["trained_parameters"])
    counts = dict(parameters.with_columns(pl.col("trained_parameters").list.first()).iter_rows())
    assert [counts[k] for k in range(5)] == sorted(counts.values(), reverse=True)
    assert counts[4] == 5 * 4 + 4  # the head alone


def test_scratch_is_random_with_nothing_frozen(whole):
    names = ["target", "repeat", "accuracy", "loss"]
    scratch = whole.cells.filter(pl.col("arm") == "scratch")
    random = whole.cells.filter((pl.col("arm") == "random") & (pl.col("k") == 0))
    assert set(scratch["k"]) == {0}
    assert scratch.select(names).equals(random.select(names))
    alone = sweep(arms=("pretrained", "scratch"), ks="2")
    both = sweep(arms=("pretrained", "random"), ks="0")
    assert (
        alone.cells.filter(pl.col("arm") == "scratch")["loss"].to_list()
        == both.cells.filter(pl.col("arm") == "random")["loss"].to_list()
    )


def test_what_is_frozen_did_not_move(whole):
    latent = whole.latent
    frozen = latent.filter("frozen")
    assert (frozen["n"] == 0.0).all()
    assert set(frozen["layer"]) == {"<input>", "relu", "stage1.0", "stage1.1", "stage2.0", "stage2.1"}
    assert (latent.filter(~pl.col("frozen") & (pl.col("layer") == "logits"))["n"] > 0).all()
    assert (latent["a"] > 0).all()
    assert (latent["a_null"] > 0).all()
    assert whole.blocks["layer"].to_list() == ["<input>", "stage1.0", "stage1.1", "stage2.0", "stage2.1"]
    assert whole.blocks["stage"].to_list() == [False, False, True, False, True]


def test_the_pretrained_arm_of_all_blocks_is_that_of_its_kept_statistics_only_where_they_agree(whole):
    """Statistics are set anew in every arm but one: with all blocks frozen, features differ by them alone."""
    here = whole.cells.filter((pl.col("k") == 4) & (pl.col("target") == "colours")).sort("repeat")
    kept, anew = (here.filter(pl.col("arm") == arm)["loss"].to_list() for arm in ("pretrained-kept", "pretrained"))
    assert kept != anew


def test_effects_are_paired_differences(whole):
    from scipy import stats

    cells = whole.cells
    for row in whole.effects.to_dicts():
        other = row["contrast"].removeprefix("pretrained - ")
        mine = cells if row["target"] == "*" else cells.filter(pl.col("target") == row["target"])
        a = mine.filter((pl.col("arm") == "pretrained") & (pl.col("k") == row["k"])).sort("target", "repeat")
        b = mine.filter((pl.col("arm") == other) & (pl.col("k") == (0 if other == "scratch" else row["k"])))
        a, b = a["accuracy"].to_numpy(), b.sort("target", "repeat")["accuracy"].to_numpy()
        assert row["n"] == len(a) == (4 if row["target"] == "*" else 2)
        assert row["estimate"] == pytest.approx((a - b).mean())
        if np.std(a - b, ddof=1) > 0.01:
            low, high = stats.ttest_rel(a, b).confidence_interval()
            assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_the_summary_and_its_keys(whole):
    summary, cells = whole.summary, whole.cells
    assert summary["targets"] == ["colours", "shapes"]
    assert summary["target"] == "colours"
    assert summary["ks"] == [0, 1, 2, 3, 4]
    assert summary["frozen_invariant"] is True
    assert summary["capture"]["normalise"] == "iso"
    assert summary["capture"]["bytes_bound"] > 0
    assert len(summary["cells"]) == cells.height
    assert set(summary["cells"][0]) == {*CELL, "accuracy"}
    for row in summary["effects"]:
        assert set(row) == {"target", "k", "contrast", "estimate", "low", "high", "n"}
    mean = cells.filter((pl.col("arm") == "moments") & (pl.col("k") == 3) & (pl.col("target") == "shapes"))[
        "accuracy"
    ].mean()
    assert summary["mean_accuracy"]["shapes"]["moments"]["3"] == pytest.approx(mean)
    assert list(summary["mean_accuracy"]["shapes"]["scratch"]) == ["0"]
    pretrained = (
        cells.filter(pl.col("arm") == "pretrained").sort("target", "repeat", "k")["accuracy"].to_numpy().reshape(4, 5)
    )
    even = break_even(pretrained, range(5))
    assert (summary["best_k"], summary["break_even_k"]) == (even.best_k, even.k)
    assert summary["majority_accuracy"] == pytest.approx((20 / 60 + 15 / 60) / 2, abs=0.05)


def test_findings_of_every_question(whole):
    subjects = {(f.subject, f.question) for f in whole.findings}
    for group in ("all targets", "colours", "shapes"):
        assert (group, "features.freeze-depth") in subjects
        for k in range(5):
            assert (f"{group} k={k}", "features.reuse") in subjects
    assert ("model", "features.capture-health") in subjects
    assert {s for s, q in subjects if q == "features.overlapping-ids"} == {"source, colours", "source, shapes"}


def test_every_figure_is_drawn(whole):
    assert set(whole.figures) == {"accuracy.0", "latent.0", "accuracy.1", "latent.1", "effects"}
    accuracy = whole.figures["accuracy.0"]
    assert accuracy.layout["yaxis2"], "A_l has a panel of its own"
    names = {trace["name"] for trace in accuracy.data}
    assert {"pretrained", "random", "shuffled", "moments", "pretrained-kept"} <= names
    assert any(name.startswith("largest class") for name in names)
    assert any(name.startswith("scratch") for name in names)
    assert "60 test examples" in accuracy.caption
    assert len(whole.figures["effects"].layout["annotations"]) == 3


def test_the_warnings(whole):
    assert any("2 repeats" not in text and "4 cells" in text for text in whole.warnings)
    one = sweep(repeats=1)
    assert any("One cell" in text for text in one.warnings)
    assert any("One learning rate" in text for text in one.warnings)
    assert any("40 examples are few" in text for text in one.warnings)
    depth = next(f for f in one.findings if f.question == "features.freeze-depth")
    assert (depth.verdict, depth.low) == ("cannot say", None)


def test_the_command_line_of_a_sweep(whole, tmp_path):
    config = freeze_config(arms=("pretrained", "random"), block_shuffle=4, cache=False)
    words = freeze_study().argv(config)
    out = tmp_path / "again"
    assert main([*words, "--out", str(out), "--quiet"]) == 0
    assert json.loads((out / "run.json").read_text())["config"] == json.loads(config.model_dump_json())


# ----------------------------------------------------------------------------------------- what arms and repeats share


def test_arms_of_a_repeat_share_head_rows_and_order():
    """Arms that begin with the same weights end with the same: nothing else differs between them."""
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        plain[1].weight.fill_(0.01)
        plain[1].bias.zero_()  # equal entries: shuffled and moments are what they were
    found = sweep(plain, coloured(), arms=("pretrained", "shuffled", "moments"), blocks="1", ks="all")
    for _, mine in found.cells.group_by("k", "repeat"):
        assert mine["loss"].n_unique() == 1
    assert found.cells["loss"].n_unique() == 4


def test_repeats_and_seeds_differ_and_engines_do_not_matter():
    first, again = sweep(), sweep()
    assert_same_tables(first.tables, again.tables)
    assert first.cells.filter(pl.col("arm") == "pretrained")["loss"].n_unique() == 4
    assert sweep(seed=1).cells["loss"].to_list() != first.cells["loss"].to_list()


def test_the_network_and_the_generators_are_left_alone():
    model = blocky()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    sweep(model, repeats=1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert torch.equal(state, torch.get_rng_state())


def test_cached_or_not():
    cached, run = sweep(), sweep(cache=False)
    assert cached.cells.filter(pl.col("k") > 0)["cached"].all()
    assert not run.cells["cached"].any()
    assert cached.cells["accuracy"].to_list() == run.cells["accuracy"].to_list()
    assert cached.cells["loss"].to_list() == pytest.approx(run.cells["loss"].to_list(), rel=1e-5)


def test_a_group_of_processes_is_one_unit(tmp_path):
    """With every norm frozen, several processes give what one gives; what is in memory crosses to them."""
    how = {"ks": "4", "arms": ("pretrained",), "repeats": 1, "epochs": 3}
    group, alone = sweep(processes=2, out=tmp_path / "group", **how), sweep(**how)
    assert group.cells["loss"].to_list() == pytest.approx(alone.cells["loss"].to_list(), rel=1e-5)
    assert group.cells["accuracy"].to_list() == alone.cells["accuracy"].to_list()
    assert group.latent.height == alone.latent.height == 7
    assert not [path for path in (tmp_path / "group").rglob("*") if path.name.startswith(("held", "parcel"))]


def test_hooks_watch_every_training_of_the_whole_network():
    hook = Epochs()
    found = sweep(hooks=[hook], epochs=2, repeats=1, lr=(1e-3, 1e-2))
    assert hook.epochs == 2 * 2 * 2 * 2  # arms, numbers of blocks, rates, epochs
    assert "net.stage1.0.conv.weight" in hook.parameters
    assert not found.cells["cached"].any()


# ------------------------------------------------------------------------------------------------------- kinds of data


def test_texts_are_swept_too():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Placed()
    found = freeze(net, target=texts(120), **{**QUICK, "arms": ("pretrained",), "ks": "0,2", "layers": "layers.*"})
    assert set(found.cells["status"]) == {"ok"}
    assert found.cells.filter(pl.col("k") == 2)["cached"].all()
    assert set(found.blocks["block"]) == {"", "layers.0", "layers.1", "layers.2"}


def test_where_training_and_test_rows_come_from():
    def target(name, **fields):
        config = FreezeConfig(model="m", target=(name,), n=40, **fields)
        return target_of(config, Material(addresses_of(config), {}), 0)

    both = target("fashion-mnist-small")
    assert (both.train.name, both.test.name) == ("fashion-mnist-small#train", "fashion-mnist-small#test")
    assert (len(both.pool), len(both.test_ids)) == (2000, 1000)
    assert len(target("fashion-mnist-small#train", test_n=300).test_ids) == 300
    own = target("fashion-mnist-small#test")
    assert len(own.test_ids) == 200
    assert not np.intersect1d(own.pool, own.test_ids).size
    assert len(own.pool) == 800
    digits = target("digits", train_n=100)
    assert len(digits.test_ids) == 359
    rows = [digits.train_ids(repeat) for repeat in range(3)]
    assert {len(one) for one in rows} == {100}
    assert len(np.unique(np.concatenate(rows))) > 200  # each repeat draws its own
    assert not np.intersect1d(np.concatenate(rows), digits.test_ids).size
    assert np.array_equal(digits.measured(), target("digits", train_n=50).measured())


def test_shuffled_blocks_of_the_target():
    plain, cut = sweep(source=pictures(90)), sweep(source=pictures(90), block_shuffle=2)
    at_input = [one.latent.filter(pl.col("layer") == "<input>")["a"][0] for one in (plain, cut)]
    assert at_input[0] != at_input[1]
    assert plain.cells["loss"].to_list() != cut.cells["loss"].to_list()


# ------------------------------------------------------------------------------------------------------------ verdicts


def row(estimate, low, high, n=4):
    return {"k": 3, "estimate": estimate, "low": low, "high": high, "n": n, "p": 0.5}


def some_cells(statuses=("ok",) * 4):
    return pl.DataFrame(
        {
            "arm": ["pretrained", "pretrained", "moments", "moments"],
            "k": [3] * 4,
            "accuracy": [0.8, 0.7, 0.6, 0.5],
            "status": statuses,
            "n_test": [1000] * 4,
        }
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (row(0.2, 0.1, 0.3), "yes"),
        (row(0.0, -0.005, 0.005), "no"),
        (row(0.0, -0.05, 0.05), "cannot say"),
        (row(-0.2, -0.3, -0.1), "no"),
        (row(0.2, None, None, 1), "cannot say"),
        (row(None, None, None, 0), "cannot say"),
        (row(0.002, 0.001, 0.003), "yes"),
    ],
)
def test_verdicts_of_reuse(found, verdict):
    finding = reuse_finding(FreezeConfig(), "k=3", found, some_cells())
    assert finding.verdict == verdict
    assert finding.because.endswith(".")


def test_diverged_cells_are_told():
    finding = reuse_finding(FreezeConfig(), "k=3", row(0.2, 0.1, 0.3, 1), some_cells(("ok", "ok", "ok", "diverged")))
    assert "1 of 4 cells diverged" in finding.because
    found = sweep(lr=1e30, optimizer="sgd")
    assert set(found.cells["status"]) == {"diverged"}
    assert found.cells["accuracy"].null_count() == found.cells.height
    assert found.summary["break_even_k"] is None
    assert found.summary["mean_accuracy"]["target"]["moments"]["0"] is None
    assert {f.verdict for f in found.findings if f.question == "features.reuse"} == {"cannot say"}
    assert any("8 of 8 cells diverged" in text for text in found.warnings)
    json.dumps(found.summary, allow_nan=False)


@pytest.mark.parametrize(
    ("accuracy", "ks", "verdict"),
    [
        ([[0.8, 0.8, 0.5], [0.7, 0.7, 0.4]], (0, 1, 2), "yes"),
        ([[0.8, 0.8, 0.5], [0.7, 0.5, 0.7]], (0, 1, 2), "cannot say"),
        ([[0.8, 0.8, 0.5]], (0, 1, 2), "cannot say"),
        ([[0.8], [0.7]], (2,), "cannot say"),
    ],
)
def test_verdicts_of_depth(accuracy, ks, verdict):
    cells = pl.DataFrame(
        [
            {"arm": "pretrained", "k": k, "accuracy": value, "status": "ok", "n_test": 100}
            for line in accuracy
            for k, value in zip(ks, line, strict=True)
        ]
    )
    finding = depth_finding(FreezeConfig(), "t", break_even(accuracy, ks), cells)
    assert finding.verdict == verdict


def test_gates_read_the_summary(tmp_path):
    words = [*freeze_study().argv(freeze_config(repeats=1, arms=("pretrained",))), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "a"), "--fail-if", "break_even_k < 6"]) == 3
    assert main([*words, "--out", str(tmp_path / "b"), "--fail-if", "freeze-depth.estimate > 4"]) == 0


# ----------------------------------------------------------------------------------------------------------- bad input


def exported():
    return torch.export.export(blocky(), (torch.zeros(2, 3, 8, 8),))


def call(model=None, target=None, **fields):
    return lambda: sweep(model, target, **fields)


def test_bad_input_by_verb():
    X, y = pictures(120)
    few = np.where(np.arange(120) < 3, 9, y)
    check_bad_input(
        [
            Bad(call(target=X), LabelsNeeded, ["target", "labels"]),
            Bad(call(target=(X, few), seed=4, test_n=60), BadLabels, ["class 9"]),
            Bad(call(target=(X, np.zeros(120, int))), BadLabels, ["one class"]),
            Bad(call(target=(X[:30], y[:30])), TooFewRows, ["training rows", "0"]),
            Bad(call(target=(X[:90], y[:90]), test_n=None), TooFewRows, ["test rows", "18", "40 or more"]),
            Bad(call(train_n=10), TooFewRows, ["10", "20 or more"]),
            Bad(call(n=30), TooFewRows, ["30", "40 or more"]),
            Bad(call(source=(X[:25], y[:25])), TooFewRows, ["12", "20 or more per arm"]),
            Bad(call(target=(X[..., :1], y)), ShapeMismatch, ["channels"]),
            Bad(call(ks="0,7"), BadOption, ["7", "0 to 4"]),
            Bad(call(ks="half"), BadOption, ["half"]),
            Bad(call(blocks="stage7"), UnknownName, ["stage7", "stage1"]),
            Bad(call(blocks="fc"), BadOption, ["fc"]),
            Bad(call(head="stage1"), UnknownName, ["stage1", "fc"]),
            Bad(call(arms="random"), BadOption, ["pretrained"]),
            Bad(call(arms="pretrained,lucky"), BadOption, ["lucky"]),
            Bad(call(arms="pretrained,pretrained"), BadOption, ["pretrained", "once"]),
            Bad(call(lr=0.0), BadOption, ["above 0"]),
            Bad(call(lr=(1e-3, 1e-3)), BadOption, ["once"]),
            Bad(call(epochs=0), BadOption, ["epochs"]),
            Bad(call(delta=1.5), BadOption, ["delta"]),
            Bad(call(epoch=3), UnknownName, ["epoch", "epochs"]),
            Bad(call(block_shuffle=3), BadOption, ["8 x 8", "blocks of 3"]),
            Bad(call(layers="stage9*"), UnknownName, ["stage9*"]),
            Bad(call(spill=True), BadOption, ["spill"]),
            Bad(call(reduce="median"), BadOption, ["median"]),
            Bad(call(target="no-such-set"), UnknownName, ["no-such-set"]),
            Bad(call(target={"*": (X, y)}), BadOption, ["*"]),
            Bad(call(test=[(X, y), (X, y)]), BadOption, ["2 for 1"]),
            Bad(call(target="digits", test="digits", channels=3), BadOption, ["trained on and tested on"]),
            Bad(call(hooks=[Epochs()], engine="local:2"), BadOption, ["local:2", "serial"]),
            Bad(call(hooks=[Epochs()], processes=2), BadOption, ["2", "processes 1"]),
            Bad(call(processes=2, device="cuda:1"), BadOption, ["cuda:1"]),
            Bad(call(model=3.5), BadOption, ["float"]),
            Bad(call(model=exported()), BadOption, ["torch.export", "torch module"]),
        ]
    )


def test_bad_input_by_command(tmp_path):
    start = ["features", "freeze"]
    model, out = f"{HERE}:blocky", ["--out", str(tmp_path / "run")]
    check_bad_input(
        [
            Bad([*start, model, *out], 2, ["target"]),
            Bad([*start, model, "--target", "digits", *out], 2, ["--channels 3", "digits"]),
            Bad([*start, model, "--target", f"{HERE}:new", "--test-n", "50", "--ks", "9", *out], 2, ["0 to 4"]),
            Bad([*start, "nowhere:net", "--target", f"{HERE}:new", *out], 2, ["nowhere"]),
            Bad([*start, model, "--target", "npz:/nowhere.npz", *out], 2, ["nowhere.npz"]),
        ]
    )
    assert not (tmp_path / "run").exists()
    with pytest.raises(SourceNotFound):
        sweep(target="npz:/nowhere.npz")
    X, y = pictures(10)
    with pytest.raises(TooFewRows, match="no rows"):
        sweep(target=(X[:0], y[:0]))


def test_a_violated_invariant_stops_the_run(tmp_path):
    model = Restless()
    with pytest.raises(InvariantBroken, match=r"blocks\.0\.calls"):
        sweep(model, coloured(), ks="1", repeats=1, blocks="blocks.*")
    from querist.features.studies.freeze import FreezeStudy
    from querist.reports.ask import ask

    config = FreezeConfig.build(model="m", target=("t",), **{**QUICK, "arms": "pretrained", "ks": "1", "repeats": 1})
    with pytest.raises(UnitsFailed, match="frozen"):
        ask(FreezeStudy({"model": model, "train-0": coloured()}), config, out=tmp_path / "run", progress=False)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"


# ------------------------------------------------------------------------------------------------------- a real network


@pytest.mark.slow
def test_resnet20_to_fashion_mnist_at_the_size_of_the_claim():
    if not places(DATA_SETS["fashion-mnist-train-images"]):
        pytest.skip("the data folder is not here")
    found = freeze(
        "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10",
        target="fashion-mnist",
        source="cifar10-jpeg",
        arms=("pretrained", "random", "shuffled", "moments"),
        ks="0,3,6,9",
        repeats=2,
        epochs=3,
        train_n=600,
        test_n=1000,
        train_batch=32,
        lr=1e-3,
        size=32,
        channels=3,
        pad=True,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )
    assert found.cells.height == 32
    assert set(found.cells["status"]) == {"ok"}
    assert set(found.cells["n_train"]) == {600}
    assert set(found.cells["n_test"]) == {1000}
    assert found.cells.filter(pl.col("k") > 0)["cached"].all()
    assert (found.latent.filter("frozen")["n"] == 0.0).all()
    assert found.blocks["block"].to_list()[1:] == [f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3)]
    mean = found.summary["mean_accuracy"]["fashion-mnist"]
    for k in ("0", "3", "6"):
        assert mean["pretrained"][k] > 0.5, k  # far from the tenth that a constant reaches
        assert mean["pretrained"][k] > mean["moments"][k]
    total = sum(p.numel() for p in cifar_resnet(20).parameters())
    assert found.cells.filter(pl.col("k") == 0)["trained_parameters"][0] == total
    assert found.cells.filter(pl.col("k") == 9)["trained_parameters"][0] == 650
