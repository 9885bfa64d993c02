"""The exposure sweep: what differs between its cells, what does not, and what it comes to over targets."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from scipy.stats import norm, t
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input

from querist.concepts import ConceptData, Trigger, attack_report, cat, cat_plus, poison, random_trigger
from querist.concepts.attacks import (
    Setting,
    Subject,
    choose_targets,
    clean_cell,
    concept_quality,
    exposure_headline,
    exposure_summary,
    grid,
    model_quality,
    over_targets,
    protocol,
    repeat_parts,
    repeat_seed,
    selector_difference,
    size_reaching,
    sweep,
    sweep_cell,
)
from querist.concepts.fit import fit_head
from querist.concepts.model import CBM
from querist.concepts.readers import birds, registered
from querist.concepts.recipe import Recipe
from querist.errors import BadOption, SourceNotFound, TooFewRows, UnknownName
from querist.statistics import bootstrap, stream

RECIPE = Recipe(head="mlp:24", epochs=20, batch=64)
SMALL = {"selectors": ("cat", "random"), "sizes": (2, 4), "rates": (0.05, 0.2), "recipe": RECIPE, "seed": 5}


@pytest.fixture(scope="module")
def data():
    return structured_table(400, 20, 8)


@pytest.fixture(scope="module")
def clean(data):
    return clean_cell(data, 0, recipe=RECIPE, seed=5)


@pytest.fixture(scope="module")
def rows(data, clean):
    return sweep_cell(data, 3, 0, clean, modes=("mix", "clean"), **SMALL)


def test_a_cell_has_every_setting_once_and_its_clean_rows(rows):
    """THUYimingLi/BackdoorBox#113: beside the attacks stand the rows of nothing planted."""
    asked = {(one.selector, one.size, one.rate, one.mode) for one in grid(("cat", "random"), (2, 4), (0.05, 0.2))}
    found = [(row["selector"], row["size"], row["rate"], row["mode"]) for row in rows]
    assert len(set(found)) == len(found) == 8 + 8 + 4
    assert asked < set(found)
    for row in rows:
        if row["mode"] == "none":
            assert (row["rate"], row["n_poisoned"], row["accuracy_drop"]) == (0.0, 0, 0)
            assert row["excess"] <= 0
            assert row["asr"] == row["clean_model_asr"]
        if row["asr"] is not None and row["mode"] != "none":
            assert row["excess"] == pytest.approx(row["asr"] - max(row["untriggered"], row["clean_model_asr"]))
            assert row["low"] <= row["excess"] <= row["high"]


def test_a_backdoor_shows_in_the_sweep(rows):
    held = {(row["selector"], row["size"], row["rate"], row["mode"]): row for row in rows}
    assert held["cat", 4, 0.2, "mix"]["asr"] > 0.8
    assert held["cat", 4, 0.2, "mix"]["low"] > 0.5
    assert held["cat", 4, 0.05, "clean"]["asr"] is None or held["cat", 4, 0.05, "clean"]["asr"] < 0.5


def test_what_a_repeat_draws_does_not_hang_on_the_rest_of_the_grid(data, clean, rows):
    one = sweep_cell(data, 3, 0, clean, **{**SMALL, "selectors": ("random",), "sizes": (2,), "rates": (0.2,)})
    alone = {row["mode"]: row for row in one}
    together = {
        row["mode"]: row
        for row in rows
        if (row["selector"], row["size"]) == ("random", 2) and row["rate"] in (0.0, 0.2)
    }
    for mode in ("none", "mix"):
        for name in ("asr", "accuracy", "n_poisoned", "clean_model_asr", "natural"):
            assert alone[mode][name] == pytest.approx(together[mode][name], abs=0.02), (mode, name)
        assert alone[mode]["n_poisoned"] == together[mode]["n_poisoned"]


def test_a_cell_is_what_its_parts_give_one_by_one(data, clean, rows):
    parts, seed = repeat_parts(data, 0, seed=5), repeat_seed(5, 0)
    trigger = cat(parts.train, 3, 2, seed=seed).trigger
    made = poison(parts.train, trigger, 3, 0.2, seed=seed)
    head = fit_head(made.data.changed(split=None), head="mlp:24", epochs=20, batch=64, seed=seed)
    found = attack_report(CBM(None, head, input="hard"), parts.test, trigger, 3, baseline=clean)
    row = next(
        row for row in rows if (row["selector"], row["size"], row["rate"], row["mode"]) == ("cat", 2, 0.2, "mix")
    )
    assert row["n_poisoned"] == made.n_poisoned
    assert row["asr"] == pytest.approx(found.asr, abs=0.015)
    assert row["clean_model_asr"] == found.clean_model_asr
    assert row["natural"] == found.natural


def test_the_trainer_sees_exactly_the_rows_of_the_poisoned_copies(data, clean, monkeypatch):
    """shenjiyuan123/Adaptive_Recovery#1: every head of the stack sees its own copy once an epoch, and no other row."""
    from querist.concepts import fit as fitting

    seen, plain = [], fitting._stack_loss

    def watched(model, given):
        seen.append((given["concepts"].detach().numpy(), given["label"].numpy()))
        return plain(model, given)

    monkeypatch.setattr(fitting, "_stack_loss", watched)
    recipe = RECIPE.changed(epochs=1)
    sweep_cell(data, 3, 0, clean, **{**SMALL, "selectors": ("cat",), "sizes": (2,), "recipe": recipe})
    parts, seed = repeat_parts(data, 0, seed=5), repeat_seed(5, 0)
    trigger = cat(parts.train, 3, 2, seed=seed).trigger
    for place, rate in enumerate(SMALL["rates"]):
        made = poison(parts.train, trigger, 3, rate, seed=seed).data
        fed = sorted(
            (*row, label)
            for concepts, labels in seen
            for row, label in zip(concepts[:, place].tolist(), labels[:, place].tolist(), strict=True)
        )
        assert fed == sorted(
            (*row, code) for row, code in zip(made.concepts.tolist(), made.codes.tolist(), strict=True)
        )


@pytest.mark.parametrize("selector", [cat, cat_plus, random_trigger])
def test_a_smaller_trigger_is_the_beginning_of_a_larger_one(selector):
    table = random_table(80, 9, 3, seed=4)
    large = selector(table, 1, 7, seed=2)
    for size in (1, 3, 7):
        small = selector(table, 1, size, seed=2)
        assert large.first(size).trigger == small.trigger
        assert large.first(size).saturated_at == small.saturated_at
        assert np.array_equal(large.first(size).cnt, small.cnt)


def test_the_poisoned_rows_of_a_repeat_are_nested_in_the_rate(data):
    part, trigger = repeat_parts(data, 1, seed=5).train, Trigger((1, 2), (1, 1))
    few, many = (poison(part, trigger, 3, rate, seed=repeat_seed(5, 1)).mask for rate in (0.05, 0.2))
    assert (few <= many).all()
    assert not np.array_equal(few, poison(part, trigger, 3, 0.05, seed=repeat_seed(5, 0)).mask)


def test_a_setting_that_a_class_cannot_have_says_why(data, clean):
    """One row a class at most: 1 % of a class of 35 is no row at all."""
    rows = sweep_cell(data, 3, 0, clean, **{**SMALL, "rates": (0.01,)}, modes=("clean",))
    lost = [row for row in rows if row["mode"] == "clean"]
    assert lost
    assert all(row["asr"] is None and "no row to poison" in row["reason"] for row in lost)
    codes = np.where(data.codes == 7, np.where(np.cumsum(data.codes == 7) == 1, 7, 6), data.codes)
    split = np.where(np.arange(data.n) % 4 == 3, "test", "train")
    lone = data.changed(codes=codes, split=split)
    rows = sweep_cell(lone, 7, 0, clean, **SMALL)
    assert all("no training row" in row["reason"] for row in rows)
    with pytest.raises(BadOption, match="auto, table, target"):
        sweep_cell(data, 3, 0, clean, base="rows", **SMALL)
    with pytest.raises(BadOption, match="usable"):
        sweep_cell(data, 3, 0, clean, **{**SMALL, "sizes": (21,)})


def test_a_class_without_test_rows_is_still_a_target(data):
    split = np.where(np.arange(data.n) % 4 == 3, "test", "train")
    split[data.codes == 2] = "train"
    table = data.changed(split=split)
    rows = sweep_cell(table, 2, 0, clean_cell(table, 0, recipe=RECIPE), **SMALL)
    assert all(row["asr"] is not None for row in rows)


def test_sources_count_their_own_rows(data, clean):
    """THUYimingLi/BackdoorBox#60."""
    test = repeat_parts(data, 0, seed=5).test
    wanted = {**SMALL, "selectors": ("cat",), "sizes": (2,), "rates": (0.2,)}
    rows = sweep_cell(data, 3, 0, clean, sources=[1], **wanted)
    n = int((test.codes == 1).sum())
    assert all(abs(row["asr"] * n - round(row["asr"] * n)) < 1e-9 for row in rows)
    assert rows == sweep_cell(data, 3, 0, clean, sources=[1, 3], **wanted)
    alone = sweep_cell(data, 3, 0, clean, sources=[3], **wanted)
    assert all(row["asr"] is None and "among the sources" in row["reason"] for row in alone)


def test_the_split_of_the_table_is_kept_and_else_drawn(data):
    parts = repeat_parts(data, 0, seed=1)
    assert (parts.train.n, parts.val.n, parts.test.n) == (280, 40, 80)
    assert not np.array_equal(parts.test.concepts, repeat_parts(data, 1, seed=1).test.concepts)
    named = data.changed(split=np.repeat(["train", "val", "test"], [200, 100, 100]))
    assert repeat_parts(named, 3).val.n == 100
    assert repeat_parts(named.subset(np.arange(300)), 0).test.n == 100
    assert repeat_parts(named.subset(np.arange(300)), 0).val is None
    with pytest.raises(TooFewRows):
        repeat_parts(data.subset(np.arange(9)), 0)


def test_targets_span_the_class_sizes_with_a_middle_and_the_last():
    sizes = np.arange(2, 122)
    table = ConceptData(
        np.eye(sizes.sum(), 3) * 0 + stream(0, "t").random((sizes.sum(), 3)).round(), np.repeat(np.arange(120), sizes)
    )
    for seed in range(40):
        for how, count in (("fast", 10), ("full", 20), (3, 3), (2, 2), (7, 7)):
            found = choose_targets(table, how, seed=seed)
            assert len(found) == len(set(found)) == count
            assert {60, 119} <= set(found)
            assert found == sorted(found)
        # one target in each tenth of the classes, which here lie in the order of their sizes
        tenths = [target // 12 for target in choose_targets(table, "fast", seed=seed)]
        assert sorted(set(tenths)) == list(range(10))
    assert choose_targets(table, "all") == list(range(120))
    assert choose_targets(structured_table(), "fast") == list(range(8))
    assert choose_targets(table, [5, "3", 5]) == [3, 5]
    assert choose_targets(table, 1) == [119]
    check_bad_input(
        [
            (lambda: choose_targets(table, 0), BadOption, ["1 or more"]),
            (lambda: choose_targets(table, []), BadOption, ["one or more"]),
            (lambda: choose_targets(table, "x"), UnknownName, ["x"]),
            (lambda: Setting("best", 2, 0.1), BadOption, ["cat+"]),
            (lambda: Setting("cat", 2, 1.5), BadOption, ["0 < rate"]),
        ]
    )


def made_rows(rng, targets, repeats, size=5, asr=lambda rng, t: rng.random()):
    return [
        {"target": t, "repeat": r, "selector": "cat", "size": size, "rate": 0.1, "mode": "mix", "asr": asr(rng, t)}
        | {"excess": 0.1, "clean_model_asr": 0.0, "untriggered": 0.0, "natural": 0.0, "accuracy_drop": 0.0}
        for t in range(targets)
        for r in range(repeats)
    ]


def test_the_summary_is_over_targets():
    rng = np.random.default_rng(0)
    rows = made_rows(rng, 6, 3)
    each = np.array([np.mean([row["asr"] for row in rows if row["target"] == t]) for t in range(6)])
    (found,) = exposure_summary(rows, seed=2)
    assert (found["targets"], found["repeats"]) == (6, 3)
    expected = [each.mean(), np.median(each), np.quantile(each, 0.9), each.max()]
    assert [found[name] for name in ("mean", "median", "p90", "max")] == pytest.approx(expected)
    plain = bootstrap(
        np.array([row["asr"] for row in rows]),
        np.mean,
        clusters=[np.array([row["target"] for row in rows]), np.array([row["repeat"] for row in rows])],
        level=2 * norm.cdf(t.ppf(0.975, 5) * np.sqrt(6 / 5)) - 1,
        seed=2,
    )
    assert (found["low"], found["high"]) == pytest.approx((plain.low, plain.high))


def test_the_summary_of_one_target_has_no_interval_and_nulls_are_left_out():
    (one,) = exposure_summary(made_rows(np.random.default_rng(0), 1, 3))
    assert one["mean"] is not None
    assert (one["low"], one["high"]) == (None, None)
    (none,) = exposure_summary(made_rows(np.random.default_rng(0), 2, 1, asr=lambda rng, t: None))
    assert (none["targets"], none["mean"], none["low"]) == (0, None, None)
    assert over_targets([]) is None


@pytest.mark.slow
def test_the_interval_over_targets_covers_the_mean_of_all_targets():
    """Targets with rates of their own, repeats around them: 24 targets and 3 repeats."""
    inside = 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        own = rng.beta(2, 3, 24)
        rows = made_rows(rng, 24, 3, asr=lambda rng, t, own=own: float(rng.binomial(80, own[t]) / 80))
        found = over_targets(rows, replicates=400, seed=trial)
        inside += found.low <= 0.4 <= found.high
    assert 0.90 <= inside / 300 <= 0.98


def test_sizes_and_headline_come_from_the_summary():
    rng = np.random.default_rng(0)
    rows = [
        row
        for size, rate in ((2, 0.2), (5, 0.55), (8, 0.95))
        for row in made_rows(rng, 4, 2, size=size, asr=lambda rng, t, rate=rate: rate + 0.01 * t)
    ]
    summary = exposure_summary(rows, replicates=50)
    assert size_reaching(summary, 0.5, selector="cat", rate=0.1, mode="mix") == 5
    assert size_reaching(summary, 0.99, selector="cat", rate=0.1, mode="mix") is None
    head = exposure_headline(rows, Setting("cat", 5, 0.1), replicates=100)
    assert head["headline"] == {"selector": "cat", "size": 5, "rate": 0.1, "mode": "mix"}
    assert (head["targets"], head["repeats"], head["max_target"]) == (4, 2, 3)
    assert (head["size_for_50"], head["size_for_90"]) == (5, 8)
    assert head["mean_asr"] == pytest.approx(0.565)
    assert head["mean_excess"] == pytest.approx(0.1)
    assert exposure_headline(rows, Setting("random", 5, 0.1), replicates=100)["mean_asr"] is None


def test_selectors_are_compared_by_pairs():
    rng = np.random.default_rng(0)
    rows = made_rows(rng, 8, 2)
    more = [row | {"selector": "random", "asr": row["asr"] - 0.1} for row in rows]
    found = selector_difference(iter(rows + more), "cat", size=5, rate=0.1, seed=0)
    assert found.estimate == pytest.approx(0.1)
    assert found.high - found.low < 1e-9
    assert selector_difference(rows, "cat", size=5, rate=0.1) is None


def test_a_sweep_in_memory_is_its_cells(data):
    swept = sweep(data, [3, 7], 2, selectors=("random",), sizes=(2,), rates=(0.2,), recipe=RECIPE, seed=5)
    assert {(row["target"], row["repeat"]) for row in swept.rows} == {(t, r) for t in (3, 7) for r in (0, 1)}
    clean = clean_cell(data, 1, recipe=RECIPE, seed=5)
    again = sweep_cell(data, 7, 1, clean, selectors=("random",), sizes=(2,), rates=(0.2,), recipe=RECIPE, seed=5)
    assert [row for row in swept.rows if (row["target"], row["repeat"]) == (7, 1)] == again


def test_a_sweep_of_pictures_goes_through_the_bottleneck():
    drawn = birds(270, seed=0)
    swept = sweep(drawn, ["rust"], 1, selectors=("cat",), sizes=(3,), rates=(0.2,), recipe=Recipe.of(drawn, epochs=2))
    (none, row) = swept.rows
    assert swept.recipe.kind == "cbm"
    assert swept.clean[0].g is not None
    assert row["n_poisoned"] == int((drawn.part("train").labels == "rust").sum()) + 36
    assert 0 <= row["asr"] <= 1
    assert none["asr"] == row["clean_model_asr"]
    test = drawn.part("test")
    subject = Subject(swept.clean[0], test, strength="rowmax")
    assert subject.space == "logit"
    trigger = Trigger((0, 1), (1, 0))
    assert np.array_equal(
        subject.after(trigger), swept.clean[0].intervene(test.images, [0, 1], [1, 0], strength="rowmax")
    )
    assert subject.wrong_side_share(trigger) is not None


def test_pictures_and_models_that_do_not_meet_are_told(data):
    model = CBM(torch.nn.Flatten(), torch.nn.Linear(20, 8))
    with pytest.raises(BadOption, match="table has none"):
        attack_report(model, data, Trigger((1,), (1,)), 1)


def test_custom_networks_and_bare_heads_are_reported_on(data):
    """ain-soph/trojanzoo#162."""
    torch.manual_seed(0)
    f = torch.nn.Sequential(torch.nn.Linear(20, 12), torch.nn.GELU(), torch.nn.Linear(12, 8))
    trigger = Trigger((1, 2), (1, 0))
    bare = attack_report(f, data, trigger, 3, baseline=f)
    assert bare.excess == pytest.approx(bare.asr - max(bare.asr, bare.untriggered))
    pictures = data.changed(images=data.concepts.reshape(400, 1, 4, 5))
    pair = attack_report(
        CBM(torch.nn.Flatten(), f, input="logit", scale=np.tile([0.0, 1.0], (20, 1))), pictures, trigger, 3
    )
    assert (pair.asr, pair.untriggered) == (bare.asr, bare.untriggered)
    assert model_quality(f, data).concept_accuracy is None


def test_quality_stands_beside_the_constant_answer():
    """mateoespinosa/cem#5: a concept that is on in 95 % of rows, and a g that always says on."""
    values = np.ones((200, 2))
    values[:10, 0] = 0
    values[:100, 1] = np.nan
    of = concept_quality(np.ones((200, 2)), ConceptData(values, np.arange(200) % 4), cut=0.5)
    assert of.accuracy[0] == of.majority[0] == pytest.approx(0.95)
    assert of.balanced[0] == 0.5
    assert of.accuracy[1] == 1
    assert np.isnan(of.balanced[1])


def test_quality_of_a_model_is_counted_by_class(data, clean):
    of = model_quality(clean, data)
    said = clean.scores(data.concepts).argmax(axis=1)
    assert of.accuracy == (said == data.codes).mean()
    assert of.balanced_accuracy == pytest.approx(np.mean([(said[data.codes == c] == c).mean() for c in range(8)]))
    assert of.majority_accuracy == 1 / 8
    assert of.as_dict()["kind"] == "head"


def test_the_protocol_says_what_may_be_done_and_that_clean_is_weak():
    """ain-soph/trojanzoo#164."""
    said = protocol(["mix", "clean"], space="logit", targets=[0, 1], repeats=3, seed=7)
    for part in (
        "annotations and labels",
        "quantile",
        "2 targets, 3 repeats, seed 7",
        "expected to be weak",
        "bottleneck",
    ):
        assert part in said
    only = protocol(["clean"], space="hard", targets=[0], repeats=1, seed=0, sources=["a"])
    assert "and labels" not in only
    assert "classes a" in only
    one = protocol(["mix"], space="hard", targets=[0], repeats=1, seed=0)
    assert "weak" not in one
    assert "(mode mix)" in one
    assert "1 target, 1 repeat, seed 0" in one


def test_recipes_are_checked_and_sweeps_see_no_truth():
    with pytest.raises(BadOption, match="head, cbm"):
        Recipe(kind="tree")
    assert "truth" not in inspect.signature(sweep_cell).parameters


def cub():
    try:
        return registered("cub-concepts")
    except SourceNotFound:
        return pytest.skip("CUB is not beside the checkout")


def test_one_cell_on_cub_reaches_its_recorded_success():
    """Two recorded rows of the head 98-512-200, at fewer epochs: 5 % of rows and random 20 gave 329 rows and .999."""
    data = cub()
    recipe = Recipe(epochs=4)
    (_, row) = sweep_cell(
        data, 0, 0, clean_cell(data, 0, recipe=recipe), selectors=("random",), sizes=(20,), rates=(0.05,), recipe=recipe
    )
    assert (row["n_poisoned"], row["base"]) == (329, "table")
    assert row["asr"] > 0.97
    assert row["clean_model_asr"] < 0.06
    assert row["low"] > 0.9
