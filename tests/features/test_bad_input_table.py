"""Every kind of bad input by the command: one message, exit 2, no traceback; or a finding, a warning, a line in `passed_over`."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from tests.features.wrong import Remembers
from tests.harness import Bad, check_bad_input

from querist.cli import main

W = "tests.features.wrong"
NET, ROWS = "tests.features.small:tiny_net", "tests.features.small:Pixels"
QUICK = ["--n", "60", "--projections", "40", "--splits", "4", "--permutations", "19", "--engine", "serial", "--quiet"]
PICTURES = ["--channels", "3", "--size", "8"]


@pytest.fixture
def out(tmp_path):
    return ["--out", str(tmp_path / "run")]


def compare(model, source, target, *more):
    quick = list(QUICK)
    for name in set(more) & set(quick):
        place = quick.index(name)
        del quick[place : place + 2]
    return ["features", "compare", model, "--source", source, "--target", target, *quick, *more]


def done(argv, capfd):
    assert main([*argv, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_what_stops_a_comparison(out, tmp_path):
    pictures = (f"{W}:unlabelled", "tests.features.small:known")
    torch.save({"conv1.weight": torch.zeros(2), "extra": torch.zeros(1)}, tmp_path / "other.pt")
    np.savez(tmp_path / "cut.npz", x=np.zeros((60, 8, 8, 3), np.uint8))
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing else")
    check_bad_input(
        [
            # NaN or infinity
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:holed"), *out], 2, ["NaN", "<input>", "holed", "17"]),
            Bad(
                [*compare(f"{W}:infinite", f"{W}:rows", f"{W}:other_rows"), "--out", str(tmp_path / "layer")],
                2,
                ["relu", "60 rows", "ids"],
            ),
            # too little
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:few"), *out], 2, ["12", "20 or more per arm"]),
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:none"), *out], 2, ["no rows"]),
            # widths
            Bad([*compare(NET, *pictures, "--against", f"{W}:wide"), *out], 2, ["5 and 7", "spectrum", "pooled"]),
            # options out of range
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:other_rows", "--p", "0.5"), *out], 2, ["option p", "0.5"]),
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:other_rows", "--epsilon", "0"), *out], 2, ["epsilon", "0"]),
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:other_rows", "--projections", "0"), *out], 2, ["projections", "0"]),
            Bad([*compare(ROWS, f"{W}:rows", f"{W}:other_rows", "--repeats", "0"), *out], 2, ["repeats", "0"]),
            # layers
            Bad([*compare(NET, *pictures, "--layers", "conv9*"), *out], 2, ["conv9*", "conv1"]),
            # labels
            Bad([*compare(NET, *pictures[::-1], "--distance", "otdd"), *out], 2, ["labels", "folder:"]),
            Bad(
                ["features", "rank", NET, "--target", pictures[0], "--n", "60", "--quiet", *out],
                2,
                ["labels", "folder:"],
            ),
            Bad(
                ["features", "freeze", NET, "--target", pictures[0], "--test-n", "40", "--quiet", *out],
                2,
                ["labels", "folder:"],
            ),
            # weights, shapes
            Bad(
                [*compare(f"{NET}@{tmp_path / 'other.pt'}", *pictures), *out],
                2,
                ["missing", "unexpected", "extra", "conv1.bias"],
            ),
            Bad([*compare(NET, pictures[0], "digits"), *out], 2, ["[3, 1, 8, 8]", "3 channels", "--channels"]),
            # broken files
            Bad(
                [*compare(NET, pictures[0], f"npz:{tmp_path / 'cut.npz'}?x=x"), "--out", str(tmp_path / "npz")],
                2,
                ["cut.npz"],
            ),
            Bad(
                [
                    *compare(NET, pictures[0], f"parquet:{tmp_path / 'cut.parquet'}?x=a"),
                    "--out",
                    str(tmp_path / "parquet"),
                ],
                2,
                ["cut.parquet"],
            ),
            # memory
            Bad(
                [*compare(NET, *pictures, "--max-bytes", "1000"), "--out", str(tmp_path / "memory")],
                2,
                ["1000 bytes", "fewer rows", "proj_dim"],
            ),
        ]
    )


def test_a_class_that_is_tested_and_never_trained_on(out, tmp_path):
    x = np.zeros((80, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "train.npz", x=x, y=np.arange(80) % 2)
    np.savez(tmp_path / "test.npz", x=x, y=np.arange(80) % 3)
    argv = ["features", "freeze", NET, "--target", f"npz:{tmp_path / 'train.npz'}?x=x&y=y", "--blocks", "conv*"]
    argv += ["--test", f"npz:{tmp_path / 'test.npz'}?x=x&y=y", "--quiet", *out]
    check_bad_input([Bad(argv, 2, ["class 2", "26 test rows", "--train-n"])])


def test_a_missing_extra_gives_the_line_to_type(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "geomloss", None)
    argv = compare(ROWS, f"{W}:rows", f"{W}:other_rows", "--distance", "sinkhorn")
    check_bad_input([Bad([*argv, *out], 2, ["pip install", "transport"])])


def test_a_script_that_cannot_be_tapped_names_another_form(out, tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Remembers().eval()), str(tmp_path / "other.ts"))
    argv = compare(str(tmp_path / "other.ts"), f"{W}:rows", f"{W}:other_rows", "--layers", "preactivation")
    check_bad_input([Bad([*argv, *out], 2, [".pt2"])])


# ------------------------------------------------------------------------------------------------ what goes on and is told


def test_few_rows_few_directions_and_a_constant_unit_are_told(out, capfd):
    argv = compare(f"{W}:constant", f"{W}:rows", f"{W}:other_rows", "--normalise", "unit", "--projections", "20")
    told = " ".join(done([*argv, *out], capfd)["warnings"])
    assert "30 examples per arm" in told
    assert "Only 20 projections" in told
    assert "mc_se" in told
    import polars as pl

    layers = pl.read_parquet(f"{out[1]}/tables/layers.parquet")
    assert layers.filter(pl.col("layer") == "relu")["dropped_units"].to_list() == [1, 1]


def test_a_set_against_itself_is_exactly_nothing(out, capfd):
    found = done([*compare(NET, "tests.features.small:known", "tests.features.small:known"), *out], capfd)
    overlap = next(f for f in found["findings"] if f["question"] == "features.overlapping-ids")
    assert (overlap["verdict"], overlap["estimate"]) == ("yes", 60.0)
    assert {row["raw"] for row in found["layers"]} == {row["null_mean"] for row in found["layers"]} or all(
        row["excess"] == 0 for row in found["layers"]
    )


def test_small_classes_and_idle_layers_are_passed_over_by_name(out, capfd, tmp_path):
    found = done([*compare(NET, "tests.features.small:known", f"{W}:rare"), *out], capfd)
    reasons = {row["what"]: row["reason"] for row in found["passed_over"]}
    assert any(
        what.startswith("class 3") and "probe" in what and "fewer than five" in why for what, why in reasons.items()
    )
    found = done(compare(f"{W}:idle", f"{W}:rows", f"{W}:other_rows", "--out", str(tmp_path / "idle")), capfd)
    reasons = {row["what"]: row["reason"] for row in found["passed_over"]}
    assert "called" in reasons["unused"]
    assert "nothing" in reasons
    health = next(f for f in found["findings"] if f["question"] == "features.capture-health")
    assert health["verdict"] == "no"


def test_broken_pictures_are_counted_and_too_many_stop(out, capfd, tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(101):
            image = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
            image.save(tmp_path / "pictures" / name / f"{i:03d}.png")
    (tmp_path / "pictures" / "a" / "007.png").write_bytes(b"no picture")
    argv = [
        "features",
        "compare",
        NET,
        "--source",
        f"folder:{tmp_path / 'pictures'}",
        "--target",
        "tests.features.small:new",
    ]
    argv += ["--n", "202", *QUICK[2:]]
    found = done([*argv, *out], capfd)
    assert any("007.png" in row["what"] for row in found["passed_over"])
    for i in range(20):
        (tmp_path / "pictures" / "b" / f"{i:03d}.png").write_bytes(b"no picture")
    check_bad_input(
        [Bad([*argv, "--out", str(tmp_path / "again")], 2, ["cannot be read", "one unreadable row in a hundred"])]
    )


def test_a_cell_that_diverges_is_kept_and_counted(out, capfd):
    argv = [
        "features",
        "freeze",
        NET,
        "--target",
        "tests.features.small:known",
        "--blocks",
        "conv*",
        "--ks",
        "0",
        "--repeats",
        "1",
    ]
    argv += [
        "--epochs",
        "2",
        "--lr",
        "1e30",
        "--optimizer",
        "sgd",
        "--arms",
        "pretrained,moments",
        "--n",
        "40",
        "--test-n",
        "40",
    ]
    found = done([*argv, "--engine", "serial", "--quiet", *out], capfd)
    assert {cell["accuracy"] for cell in found["cells"]} == {None}
    assert "2 of 2 cells diverged" in " ".join(found["warnings"])
    depth = next(f for f in found["findings"] if f["question"] == "features.freeze-depth")
    assert "diverged" in depth["because"]
