"""Everything that can be wrong with a comparison ends in one message that says what, the value, and how to mend it."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from tests.features.small import QUICK, Pixels, normal, pictures, tiny_net
from tests.harness import Bad, check_bad_input

from querist.errors import (
    BadOption,
    CorruptFile,
    MemoryBound,
    NonFinite,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    WeightsMismatch,
)
from querist.features import compare
from querist.features.errors import DimensionMismatch, LabelsNeeded

NET = "tests.features.small:tiny_net"


def call(model=None, source=None, target=None, **fields):
    X = pictures(60)
    given = {"source": X if source is None else source, "target": pictures(60, seed=1) if target is None else target}
    return lambda: compare(model or tiny_net(), **given, **{**QUICK, **fields})


def test_bad_options_and_data_by_verb():
    X, y = pictures(60)
    check_bad_input(
        [
            Bad(call(p=0.5), BadOption, ["0.5"]),
            Bad(call(epsilon=0.0), BadOption, ["0.0"]),
            Bad(call(epsilon=1.0), BadOption, ["sinkhorn"]),
            Bad(call(projections=0), BadOption, ["projections", "0"]),
            Bad(call(distance="gaussian", p=1.0), BadOption, ["p = 2"]),
            Bad(call(distance="slice"), BadOption, ["slice", "sliced"]),
            Bad(call(normalise="z"), BadOption, ["'iso'"]),
            Bad(call(channels=2), BadOption, ["1 or 3"]),
            Bad(call(projektions=3), UnknownName, ["projektions", "projections"]),
            Bad(call(reduce="median"), BadOption, ["median", "sites:k"]),
            Bad(call(layers="conv9*"), UnknownName, ["conv9*", "conv1"]),
            Bad(call(source=(X[:30], y[:30])), TooFewRows, ["15", "20 or more per arm"]),
            Bad(call(target=(X[:12], y[:12])), TooFewRows, ["12"]),
            Bad(call(target=X[:0]), TooFewRows, ["no rows"]),
            Bad(call(distance="otdd", target=X), LabelsNeeded, ["target", "labels"]),
            Bad(call(target=(X[:, :1], y)), ShapeMismatch, ["target", "channels"]),
            Bad(call(against=tiny_net(width=7)), DimensionMismatch, ["5 and 7", "spectrum"]),
            Bad(call(evolution="joint"), DimensionMismatch, ["relu: 5", "pooled"]),
            Bad(call(max_bytes=1000), MemoryBound, ["1000", "fewer rows"]),
            Bad(call(target={"source": (X, y)}), BadOption, ["source", "taken"]),
            Bad(call(looks=3), BadOption, ["3", "reference"]),
            Bad(call(save_reference="nowhere/at/all.npz"), SourceNotFound, ["nowhere"]),
            Bad(call(reference="x.npz"), BadOption, ["reference"]),
            Bad(call(target="no-such-set"), UnknownName, ["no-such-set"]),
            Bad(call(model=3.5), BadOption, ["float"]),
            Bad(call(device="gpu"), BadOption, ["gpu", "cuda"]),
        ]
    )


@pytest.mark.parametrize("where", ["source", "target", "layer"])
def test_values_that_are_not_finite_name_set_layer_and_rows(where):
    X, T = normal(60), normal(60, seed=1)
    net = Pixels()
    if where == "layer":
        with torch.no_grad():
            net.same.weight[0, 0] = float("inf")
    else:
        (X if where == "source" else T)[17, 2] = float("nan")
    name = {"source": "<input> of source", "target": "<input> of target", "layer": "relu of"}[where]
    with pytest.raises(NonFinite, match=name) as caught:
        compare(net, source=X, target=T, **QUICK)
    if where != "layer":
        assert "17" in str(caught.value)


def test_bad_command_lines(tmp_path):
    good = [
        "features",
        "compare",
        NET,
        "--source",
        "tests.features.small:known",
        "--channels",
        "3",
        "--size",
        "8",
        "--n",
        "60",
    ]
    out = ["--out", str(tmp_path / "run"), "--quiet"]
    torch.save({"conv1.weight": torch.zeros(2)}, tmp_path / "other.pt")
    short = tmp_path / "short-idx3-ubyte.gz"
    short.write_bytes(
        gzip.compress(bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (50, 4, 4)) + bytes(99))
    )
    np.savez(tmp_path / "nan.npz", x=np.full((60, 3, 8, 8), np.nan, np.float32))
    check_bad_input(
        [
            Bad([*good, *out], 2, ["--target"]),
            Bad(["features", "compare", NET, "--target", "digits", *out], 2, ["--source", "--reference"]),
            Bad([*good, "--target", "digits", "--target", "digits", *out], 2, ["digits", "one name"]),
            Bad([*good, "--target", "digits", "--layers", "relux", *out], 2, ["relux", "relu"]),
            Bad([*good, "--target", f"idx:{short}", *out], 2, ["ends early", "50"]),
            Bad([*good, "--target", f"npz:{tmp_path / 'nan.npz'}?x=x", *out], 2, ["NaN", "60"]),
            Bad(
                [
                    "features",
                    "compare",
                    f"{NET}@{tmp_path / 'other.pt'}",
                    "--source",
                    "digits",
                    "--target",
                    "tiny-images",
                    *out,
                ],
                2,
                ["conv1"],
            ),
            Bad(
                ["features", "compare", "no.such:net", "--source", "digits", "--target", "tiny-images", *out],
                2,
                ["no.such"],
            ),
            Bad([*good[:5], "--target", "digits", *out], 2, ["--channels"]),
            Bad([*good, "--target", "digits", "--fail-if", "gapp.verdict == yes", *out], 2, ["gapp", "gap"]),
            Bad([*good, "--target", "digits", "--distance", "wasserstein", *out], 2, ["wasserstein"]),
        ]
    )


def test_an_exported_network_is_compared_and_has_no_random_ones(tmp_path):
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    program = torch.export.export(tiny_net(), (X[0][:2],), dynamic_shapes=({0: torch.export.Dim("b")},))
    torch.export.save(program, tmp_path / "tiny.pt2")
    one = compare(str(tmp_path / "tiny.pt2"), source=X, target=T, **QUICK)
    other = compare(tiny_net(), source=X, target=T, **QUICK)
    assert one.table["width"].to_list() == other.table["width"].to_list()
    np.testing.assert_allclose(one.table["raw"].to_numpy(), other.table["raw"].to_numpy(), rtol=1e-4)
    with pytest.raises(BadOption, match="random-nets"):
        compare(str(tmp_path / "tiny.pt2"), source=X, target=T, random_nets=2, **QUICK)


def test_weights_that_are_not_the_networks(tmp_path):
    state = tiny_net().state_dict()
    del state["norm.bias"]
    torch.save({"state_dict": {f"module.{k}": v for k, v in tiny_net().state_dict().items()}}, tmp_path / "good.pt")
    torch.save(state, tmp_path / "bad.pt")
    X, T = pictures(60), pictures(60, seed=1)
    assert compare(f"{NET}@{tmp_path / 'good.pt'}", source=X, target=T, **QUICK).table.height == 4
    with pytest.raises(WeightsMismatch, match=r"norm\.bias"):
        compare(f"{NET}@{tmp_path / 'bad.pt'}", source=X, target=T, **QUICK)


def test_a_folder_with_a_broken_picture_goes_on_and_one_with_many_stops(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        for i in range(101):
            path = tmp_path / name / f"{i:03d}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    (tmp_path / "a" / "007.png").write_bytes(b"no picture")
    found = compare(NET, source=f"folder:{tmp_path}", target="digits", channels=3, size=8, **{**QUICK, "n": 202})
    assert found.tables["passed_over"]["what"].str.contains("007.png").any()
    assert "1 examples could not be read" in " ".join(found.summary["warnings"])
    for i in range(20):
        (tmp_path / "b" / f"{i:03d}.png").write_bytes(b"no picture")
    with pytest.raises(CorruptFile, match="cannot be read"):
        compare(NET, source=f"folder:{tmp_path}", target="digits", channels=3, size=8, **{**QUICK, "n": 202})


def test_a_network_in_training_mode_is_put_back_and_told():
    net = tiny_net().train()
    found = compare(net, source=pictures(60), target=pictures(60, seed=1), **QUICK)
    assert net.training
    assert "training mode" in " ".join(found.summary["warnings"])
