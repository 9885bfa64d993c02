"""A real frozen network on real pictures: what is known of it must be found again."""

from __future__ import annotations

import runpy
from pathlib import Path

import polars as pl
import pytest

from querist.errors import SourceNotFound
from querist.features import compare
from querist.sources.datasets.registry import locate

NET = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
PICTURES = {"size": 32, "channels": 3, "pad": True, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


@pytest.fixture(scope="module")
def found():
    for name in ("cifar10-jpeg-test", "fashion-mnist-t10k-images", "mnist-t10k-images"):
        try:
            locate(name)
        except SourceNotFound:
            pytest.skip(f"{name} is not here")
    return compare(
        NET,
        source="cifar10-jpeg",
        target=["fashion-mnist", "mnist"],
        layers="blocks",
        n=250,
        projections=300,
        splits=10,
        permutations=99,
        random_nets=1,
        **PICTURES,
    )


def test_every_layer_sees_other_pictures_as_other_and_the_logits_least(found):
    assert found.table["p_adj"].max() == 0.01
    assert set(found.table["layer"]) == {"<input>", "relu", "logits"} | {
        f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3)
    }
    for target in ("fashion-mnist", "mnist"):
        inner = found.table.filter((pl.col("target") == target) & (pl.col("index") > 0)).sort("excess")
        assert inner["layer"][0] == "logits"
        blocks = inner.filter(pl.col("layer").str.starts_with("layer3"))
        assert inner.filter(pl.col("layer") == "logits")["probe_accuracy"][0] < blocks["probe_accuracy"].min()
        assert found.summary["slope"][target] < 0


def test_the_distance_does_not_predict_the_probe_as_depth_does(found):
    for row in found.summary["association"].values():
        assert row["n_layers"] == 11
        assert abs(row["tau_w_probe"]) < 0.45
        assert row["difference"] < 0


def test_the_excess_agrees_with_what_was_measured_before(found):
    excess = {(r["target"], r["layer"]): r["excess"] for r in found.table.to_dicts()}
    assert excess["fashion-mnist", "layer2.1"] == pytest.approx(1.6, rel=0.1)
    floors = [r["floor"] for r in found.consistency.to_dicts() if r["statistic"] == "C"]
    assert max(floors) < 0.3
    own = [r["value"] for r in found.consistency.to_dicts() if r["statistic"] == "C" and r["frame"] == "own"]
    assert all(0.5 < value < 1 for value in own)


def test_the_example_runs(capsys):
    main = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "profile_layers.py"))["main"]
    result = main(n=60, projections=40, splits=4, permutations=19)
    said = capsys.readouterr().out
    assert result.summary["warning"] in said
    assert "features.gap-any (digits): yes" in said
    assert "over directions" in said
