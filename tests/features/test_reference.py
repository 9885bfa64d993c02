"""References and monitors: later data beside quantiles, without the source; a training followed layer by layer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from tests.features.small import QUICK, Pixels, normal, pictures, tiny_net
from tests.harness import Bad, check_bad_input, check_level

from querist.errors import BadOption, CorruptFile, SourceNotFound, TooFewRows
from querist.features import LatentMonitor, Reference, compare, sliced_wasserstein
from querist.features.reference import BINS, joined
from querist.statistics import stream
from querist.training import fit


def made(n: int = 200, d: int = 3, **options) -> Reference:
    rng = stream(1, "reference", n, d)
    layers = {name: rng.standard_normal((n, d)).astype(np.float32) for name in ("one", "two")}
    return Reference.of(layers, **{"projections": 16, "permutations": 59, **options})


def draw(rng, n: int = 100, shift: float = 0.0) -> dict[str, np.ndarray]:
    return {name: (rng.standard_normal((n, 3)) + shift).astype(np.float32) for name in ("one", "two")}


def gaps_of(reference: Reference, rows, level: float = 0.05, kind="sliced"):
    return joined({name: reference.draws(name, one, level=level, kind=kind) for name, one in rows.items()}, level=level)


def test_a_reference_is_written_and_read_whole(tmp_path):
    one = made(normalise="unit", ids=np.arange(200) * 3, source="digits", captured="blocks")
    two = Reference.read(one.write(tmp_path / "r.npz"))
    assert (two.source, two.captured, two.sizes, two.names) == ("digits", "blocks", (25, 50, 100), ["one", "two"])
    np.testing.assert_array_equal(two.ids, one.ids)
    for layer in one.layers:
        for name in ("directions", "lines", "units", "null"):
            np.testing.assert_array_equal(getattr(two[layer.name], name), getattr(layer, name))
    rows = draw(np.random.default_rng(5))
    assert gaps_of(two, rows) == gaps_of(one, rows)
    assert one["one"].lines.shape == (16, BINS)


def test_the_quantiles_give_the_distance_of_the_rows_they_were_made_of():
    rng = np.random.default_rng(0)
    source = rng.standard_normal((2000, 4)).astype(np.float32)
    later = (rng.standard_normal((500, 4)) * 1.5 + 0.3).astype(np.float32)
    reference = Reference.of({"z": source}, normalise="none", projections=64, permutations=3)
    layer = reference["z"]
    exact = sliced_wasserstein(source, later, directions=layer.directions)
    assert layer.terms(later, 2.0, "sliced").mean() == pytest.approx(exact.power, rel=0.01)
    same = layer.terms(source, 2.0, "sliced").mean()
    assert same < 1e-3 * exact.power


def test_later_data_of_another_law_are_found_and_of_the_same_are_not():
    reference = made()
    far = gaps_of(reference, draw(np.random.default_rng(2), shift=0.7))
    assert far["one"].p_adj == pytest.approx(1 / 60)
    assert far["one"].low < 0.7 < far["one"].high
    near = gaps_of(reference, draw(np.random.default_rng(3)))
    assert near["one"].p_adj > 0.05
    assert near["one"].low == 0
    units = gaps_of(reference, draw(np.random.default_rng(2), shift=0.7), kind="per-unit")
    assert units["two"].p_adj == pytest.approx(1 / 60)


def test_chunks_are_adjusted_for_and_never_more_than_the_draws_can_judge():
    reference = made()
    rows = draw(np.random.default_rng(4), n=1000, shift=0.7)
    found = reference.draws("one", rows["one"])
    assert (found.n_c, len(found.chunks)) == (100, 3)  # 60 draws judge three chunks at .05
    assert joined({"one": found})["one"].p_adj == pytest.approx(3 / 60)
    assert len(reference.draws("one", rows["one"], level=0.01).chunks) == 1
    assert joined({"one": found}, sets=2)["one"].p_adj == pytest.approx(6 / 60)


@pytest.mark.slow
def test_the_level_over_layers_is_kept():
    def p(seed: int) -> float:
        rng = np.random.default_rng([7, seed])
        layers = {name: rng.standard_normal((120, 2)).astype(np.float32) for name in ("one", "two", "three")}
        reference = Reference.of(layers, projections=4, permutations=39, seed=seed)
        later = {name: rng.standard_normal((60, 2)).astype(np.float32) for name in layers}
        return min(gap.p_adj for gap in gaps_of(reference, later).values())

    check_level(p, lambda rng: int(rng.integers(1 << 30)), runs=400, conservative=True)


def test_bad_references(tmp_path):
    reference = made()
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 nothing")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(TooFewRows):
        reference.draws("one", np.zeros((10, 3), np.float32))
    check_bad_input(
        [
            Bad(lambda: Reference.read(tmp_path / "no.npz"), SourceNotFound, ["no.npz"]),
            Bad(lambda: Reference.read(tmp_path / "broken.npz"), CorruptFile, ["broken.npz"]),
            Bad(lambda: Reference.read(tmp_path / "other.npz"), CorruptFile, ["described"]),
            Bad(lambda: made(n=30), TooFewRows, ["30", "50"]),
            Bad(
                lambda: reference.draws("one", np.zeros((100, 3), np.float32), kind="gaussian"), BadOption, ["gaussian"]
            ),
            Bad(lambda: LatentMonitor(reference, every=0), BadOption, ["0"]),
        ]
    )


# ------------------------------------------------------------------------------------------------------ in a comparison


def test_a_comparison_saves_a_reference_and_a_later_one_uses_it(tmp_path):
    X, T = pictures(120), pictures(60, shift=1.0, seed=1)
    path = tmp_path / "source.npz"
    net = tiny_net()
    options = {**QUICK, "n": 120}
    first = compare(net, source=X, target=T, save_reference=str(path), **options)
    assert path.is_file()
    later = compare(net, target={"shifted": T, "same": pictures(60, seed=4)}, reference=str(path), **options)
    assert later.table["layer"].n_unique() == first.table["layer"].n_unique()
    shifted = later.table.filter(pl.col("target") == "shifted")
    assert (shifted["p_adj"] <= 0.05).all()
    old = dict(zip(first.table["layer"], first.table["excess"], strict=True))
    for row in shifted.to_dicts():
        assert row["excess"] == pytest.approx(old[row["layer"]], rel=0.25)
    assert (later.table.filter(pl.col("target") == "same")["p_adj"] > 0.05).all()
    assert later.summary["source"]["n"] == 120
    assert later.summary["consistency"] == []
    assert "profile-1" in later.figures
    assert {f.question for f in later.findings} >= {"features.gap", "features.gap-any", "features.capture-health"}
    looked = compare(net, target=T, reference=str(path), looks=10, **options)
    assert "39 draws of the reference cannot reach p = 0.005" in " ".join(looked.summary["warnings"])
    assert {f.verdict for f in looked.findings if f.question == "features.gap"} == {"cannot say"}
    with pytest.raises(BadOption, match="source data"):
        compare(net, target=T, reference=str(path), random_nets=3, **options)
    with pytest.raises(BadOption, match="--distance sliced"):
        compare(net, source=X, target=T, save_reference=str(path), distance="gaussian", **options)


# --------------------------------------------------------------------------------------------------------- the monitor


def training(hooks, steps: int = 6, freeze: bool = False, seed: int = 0):
    X, y = pictures(64)
    net = tiny_net(seed=seed)
    if freeze:
        for part in (net.conv1, net.norm, net.conv2):
            part.requires_grad_(False)

    def loss(model, batch):
        return {
            "cross-entropy": (
                torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"),
                len(batch[1]),
            )
        }

    fit(
        net,
        loss,
        (X, torch.from_numpy(y)),
        batch_size=16,
        max_steps=steps,
        optimizer="sgd",
        lr=0.5,
        hooks=hooks,
        seed=seed,
    )
    return net


@pytest.fixture(scope="module")
def reference():
    from querist.features import capture

    X, _ = pictures(120)
    found = capture(tiny_net(), X, n=None)
    rows = {layer.name: layer.rows for layer in found}
    return Reference.of(rows, projections=32, permutations=39)


def test_the_monitor_logs_how_far_layers_moved(reference):
    monitor = LatentMonitor(reference, pictures(60)[0], every=2, n=60)
    training([monitor])
    table = monitor.table()
    assert table["step"].unique().sort().to_list() == [0, 2, 4, 6]
    assert set(table["layer"]) == {"<input>", "relu", "tanh", "logits"}
    start = table.filter(pl.col("step") == 0)
    assert (start["moved"] == 0).all()
    assert (start["p_adj"] > 0.05).all()
    end = table.filter(pl.col("step") == 6)
    moved = dict(zip(end["layer"], end["moved"], strict=True))
    assert moved["<input>"] == 0
    assert moved["logits"] > 0.1
    with pytest.raises(BadOption, match=r"watches one training.*training\.Each"):
        training([monitor])  # its rows would be held against the start of another network


def test_the_monitor_changes_nothing_of_the_training(reference):
    plain = training([])
    watched = training([LatentMonitor(reference, pictures(60)[0], every=1, n=60)])
    for one, other in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_monitor_goes_on_after_a_restart(reference):
    whole = LatentMonitor(reference, pictures(60)[0], every=2, n=60)
    training([whole])
    state = whole.state()
    again = LatentMonitor(reference, pictures(60)[0], every=2, n=60)
    again.load_state(state)
    assert again.log == whole.log
    assert again.state()["first"].keys() == state["first"].keys()


def test_the_monitor_opens_the_references_own_source():
    reference = Reference.of({"relu": normal(100).numpy()}, source="digits", projections=8, permutations=9)
    monitor = LatentMonitor(reference, every=1, n=30, layers=["1.relu"])
    net = torch.nn.Sequential(torch.nn.Flatten(), Pixels(64))
    assert "1.relu" in monitor._capture(net).names
