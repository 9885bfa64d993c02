"""The claims about concepts end to end, in miniature: they are a study, and what they measure is what they say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.harness import check_study
from torch import nn

from querist.claims.claim import Size
from querist.claims.concepts import CLAIMS, attacks, defences, measure, stealth_measure
from querist.claims.concepts.family import CLEAN, head_tables, head_targets
from querist.claims.concepts.pixels import invert_pixels
from querist.claims.concepts.study import RoomClaims
from querist.claims.concepts.tables import opened
from querist.claims.configs import ClaimsConfig
from querist.concepts.attacks import Setting, repeat_parts, repeat_seed, sweep_cell
from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.recipe import Recipe
from querist.concepts.repairs import ConceptGuard
from querist.concepts.triggers import Trigger, cat_plus
from querist.errors import BadOption, NonFinite
from querist.sources.datasets import registry

SHARED = {
    "n": 108,
    "epochs": 1,
    "targets": (0, 3),
    "head": "mlp:8",
    "head_epochs": 2,
    "permutations": 19,
    "table_repeats": 1,
    "pictures": 24,
    "eps": (8 / 255, 32 / 255),
    "steps": 1,
    "restarts": 1,
    "rows": 4,
    "retrains": 2,
}


def tiny(claim):
    size = claim.sizes["small"]
    numbers = {name: SHARED.get(name, value) for name, value in size.numbers.items()}
    if "table_targets" in numbers:
        numbers |= {"tables": ("zoo",), "table_targets": numbers["table_targets"] and 2}
    small = Size(1, numbers)
    return dataclasses.replace(claim, sizes={"small": small, "full": small})


class TinyClaims(RoomClaims):
    claims = tuple(map(tiny, CLAIMS))


@pytest.mark.browser
def test_the_claims_about_concepts_are_a_study(tmp_path, chromium):
    result = check_study(TinyClaims, ClaimsConfig(), tmp_path, chromium=chromium)
    assert [row["id"] for row in result.ledger.to_dicts()] == [claim.id for claim in CLAIMS]
    assert {name.partition(".")[0] for name in result.figures} == {claim.name for claim in CLAIMS}
    users = dict(result.pieces.select("piece", "claims").iter_rows())
    assert len(users["model/renderer/clean/00"]) == 11
    assert users["model/renderer/clean/01"] == ["concepts.inversion-space"]
    assert users["attack/renderer/cat/5/0.1/mix/3/00"] == [
        "concepts.cat-rate",
        "concepts.cat-utility",
        "concepts.cat-attributable",
    ]
    assert len(users["model/renderer/cat/5/0.1/mix/3/00"]) == 6
    assert [key for key, claims in users.items() if claims == []] == []
    for row in result.attacks.to_dicts():
        assert row["n_poisoned"] > 0
        assert 0 <= row["asr"] <= 1
    clean = result.models.filter(result.models["selector"] == "none")
    assert clean["trigger"].null_count() == clean.height


def test_every_cell_of_a_size_is_planned_once():
    """What all claims together train at small size."""
    keys = {}
    for claim in CLAIMS:
        size = claim.sizes["small"]
        if claim.later is None or "table_targets" in size.numbers:
            size = dataclasses.replace(size, numbers={**size.numbers, "tables": ("zoo",)})
        for piece in claim.pieces(size):
            keys.setdefault(piece.key, []).append(claim.name)
    models = [key for key in keys if key.startswith("model/renderer")]
    assert len(models) == 9 * 4 * 2 + 19
    assert keys["model/zoo/clean/00"] == [
        "cat-beats-random",
        "catplus-beats-cat",
        "cat-headline",
        "cat-attributable",
        "guard-asr",
        "clean-label",
    ]


def test_tables_are_those_that_are_here(monkeypatch, tmp_path):
    size = Size(1, {"table_targets": 3})
    monkeypatch.delenv("QUERIST_DATA", raising=False)
    monkeypatch.setenv("QUERIST_CACHE", str(tmp_path))
    assert head_tables(size) == ("mushroom", "zoo")
    assert set(RoomClaims().inputs(ClaimsConfig(claims=("concepts.catplus-score",)))) == {"mushroom", "zoo"}
    assert RoomClaims().inputs(ClaimsConfig(claims=("concepts.cat-rate",))) == {}
    file = tmp_path / registry.DATA_SETS["cub-concepts"].file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    monkeypatch.setenv("QUERIST_DATA", str(tmp_path))
    assert head_tables(size) == ("cub-concepts",)


def test_targets_of_a_table_are_drawn_once():
    assert head_targets("zoo", None) == [str(i) for i in opened("zoo").classes]
    few = head_targets("zoo", 3)
    assert few == head_targets("zoo", 3)
    assert len(few) == 3
    assert len(head_targets("mushroom", 8)) == 2


# -------------------------------------------------------------------------------------------------- what is measured


def of_zoo(tmp_path, **more):
    payload = {"kind": "head", "table": "zoo", "repeat": 0, "head": "mlp:8", "head_epochs": 2}
    (row,) = measure.measure(payload, 0, "cpu", tmp_path)["models"]
    return payload | {"clean": row["path"]} | more


def test_heads_are_measured_as_the_sweep_measures_them(tmp_path):
    target = str(opened("zoo").classes[0])
    cells = [["cat", 5, 0.01, "mix"], ["cat", "half", 0.1, "mix"]]
    payload = of_zoo(tmp_path, kind="table-attack", target=target, cells=cells)
    rows = measure.measure(payload, 0, "cpu", tmp_path)["attacks"]
    assert [row["size"] for row in rows] == [5, min(20, opened("zoo").k // 2)]
    settings = [Setting("cat", 5, 0.01), Setting("cat", rows[1]["size"], 0.1)]
    recipe = Recipe("head", head="mlp:8", epochs=2)
    direct = sweep_cell(
        opened("zoo"), target, 0, CBM.load(payload["clean"]), selectors=(), extra=settings, recipe=recipe, seed=0
    )
    planted = [row for row in direct if row["mode"] != "none"]
    for row, other in zip(rows, planted, strict=True):
        for name in ("asr", "clean_model_asr", "excess", "accuracy", "n_poisoned"):
            assert row[name] == other[name]


def test_the_guard_is_measured_beside_the_guarded_clean_model(tmp_path):
    target = str(opened("zoo").classes[1])
    payload = of_zoo(tmp_path, kind="guard", setting="table", targets=[target], cell=["cat", 5, 0.01, "mix"])
    payload |= {"groups": 3, "by": ["names", "random"], "head_epochs": 30}
    rows = measure.measure(payload, 0, "cpu", tmp_path)["guards"]
    assert [row["by"] for row in rows] == ["names", "random"]
    parts = repeat_parts(opened("zoo"), 0, seed=0)
    for row in rows:
        assert 1 <= row["coverage"] <= 3
        assert row["certified"] <= row["accuracy_after"]
        own = ConceptGuard(3, by=row["by"], head="mlp:8", epochs=30, seed=repeat_seed(0, 0))
        own.fit(parts.train, CBM.load(payload["clean"]))
        assert row["clean_accuracy_after"] == (own.predict(parts.test.concepts) == parts.test.codes).mean()


def test_poisoned_rows_are_compared_with_honest_rows_of_the_target():
    targets = head_targets("mushroom", None)
    payload = {"kind": "stealth", "table": "mushroom", "targets": targets[:1], "repeat": 0, "permutations": 19}
    (row,) = stealth_measure.measure(payload, 0)["stealth_tests"]
    train = repeat_parts(opened("mushroom"), 0, seed=0).train
    assert row["n_b"] == int(0.05 * train.n)
    assert row["n_a"] == int(train.class_sizes[train.target(targets[0])])
    assert row["low"] <= row["auc"] <= row["high"]


def test_first_picks_are_those_of_the_selector():
    payload = {"kind": "first-picks", "table": "zoo", "targets": [], "repeat": 0}
    rows = stealth_measure.measure(payload, 0)["first_picks"]
    train = repeat_parts(opened("zoo"), 0, seed=0).train
    assert len(rows) == train.n_classes
    for row in rows:
        found = cat_plus(train, row["target"], 1, seed=repeat_seed(0, 0))
        assert (row["index"], row["value"]) == (found.trigger.index[0], found.trigger.values[0])


# ------------------------------------------------------------------------------------------------------------- pixels


class Corner(nn.Module):
    """Class 0 where four pixels in a corner are white; else the class that the middle of the picture says."""

    def __init__(self, gain=40.0):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, x):
        corner = x[:, :, :2, :2].mean(dim=(1, 2, 3))
        middle = x[:, :, 4:, 4:].mean(dim=(1, 2, 3))
        return torch.stack([self.gain * (corner - 0.5), 4 - 8 * middle, 8 * middle - 4], dim=1)


def pictures(n=24, side=8):
    rng = np.random.default_rng(0)
    codes = np.arange(n) % 2 + 1
    images = np.zeros((n, 3, side, side), dtype=np.uint8)
    images[:, :, 4:, 4:] = np.where(codes == 2, 220, 30)[:, None, None, None]
    images += rng.integers(0, 8, images.shape).astype(np.uint8)
    return ConceptData(np.tile([0, 1], (n, 1)), codes, images=images, class_names=["a", "b", "c"])


def test_a_patch_of_four_pixels_is_found():
    model = Corner().train()
    found = invert_pixels(model, pictures(), rows=24, steps=80)
    assert found.found.all()
    assert found.norm[0] < 5
    assert found.norm[0] < 0.6 * found.norm[1:].min()
    assert found.mask[0, :2, :2].min() > 0.4
    assert found.mask[0, 3:, 3:].max() < 0.2
    assert (found.asr >= 0.99).all()
    assert model.training
    again = invert_pixels(model, pictures(), rows=24, steps=80)
    assert np.array_equal(found.norm, again.norm)


def test_a_class_that_no_picture_can_reach_has_every_pixel():
    class Never(Corner):
        def forward(self, x):
            return super().forward(x) - torch.tensor([1e3, 0.0, 0.0])

    found = invert_pixels(Never(), pictures(), rows=8, steps=5)
    assert not found.found[0]
    assert found.norm[0] == 64


def test_inversions_in_pixels_that_cannot_be():
    with pytest.raises(BadOption, match="pictures"):
        invert_pixels(Corner(), ConceptData(np.eye(2), [0, 1]))
    with pytest.raises(BadOption, match="rows 1"):
        invert_pixels(Corner(), pictures(), rows=1)
    with pytest.raises(NonFinite, match="class a, step 0"):
        invert_pixels(Corner(float("nan")), pictures())


def test_models_of_pictures_carry_their_trigger(tmp_path):
    payload = {"kind": "picture-model", "n": 108, "epochs": 1, "target": 3, "repeat": 1, "cell": ["cat", 5, 0.1, "mix"]}
    (row,) = measure.measure(payload, 0, "cpu", tmp_path)["models"]
    trigger = Trigger.from_json(row["trigger"])
    assert len(trigger) == 5
    assert (row["setting"], row["target"], row["repeat"]) == ("renderer", "rust", 1)
    loaded = CBM.load(row["path"])
    assert loaded.scale.shape == (16, 2)
    assert CLEAN[3] == "none"
    assert attacks.RATE.sizes["small"]["targets"] == defences.IMAGE.sizes["small"]["targets"] == (0, 3, 6, 9)
