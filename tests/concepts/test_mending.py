"""Repairs of models and tables: each does what its name says, beside the same repair of a clean model."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
import torch
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input
from torch import nn
from torch.nn import functional

from querist.concepts import ConceptData, Trigger, cat, poison
from querist.concepts.attacks import Subject, attack_report
from querist.concepts.fit import fit_head
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.concepts.readers import birds, registered
from querist.concepts.recipe import Recipe
from querist.concepts.repairs import (
    METHODS,
    ConceptGuard,
    Masked,
    Trial,
    Voters,
    best_repair,
    class_order,
    concept_guard,
    drop_rows,
    fine_prune,
    mask_concepts,
    measure,
    new_labels,
    relabel,
    retrain,
    stability_loss,
    stability_train,
    unlearn,
    vote,
)
from querist.errors import BadOption, ShapeMismatch, SourceNotFound, TooFewRows, UnknownName

RECIPE = Recipe(head="mlp:32", epochs=15, batch=64)
NUMBERS = ("accuracy", "asr", "untriggered", "excess", "low", "high")


class Bench:
    """A poisoned and a clean table with their models, and rows to measure on."""

    def __init__(self):
        whole = structured_table(1400, 24, 6, flip=0.12)
        split = np.repeat(["train", "val"], [600, 200])
        self.clean = whole.subset(np.arange(800)).changed(split=split)
        self.test = whole.subset(np.arange(800, 1400))
        train = self.clean.part("train")
        self.trigger = cat(train, 2, 4, seed=0).trigger
        made = poison(train, self.trigger, 2, 0.15, seed=0)
        concepts, codes = np.array(self.clean.concepts), self.clean.codes.copy()
        concepts[:600], codes[:600] = made.data.concepts, made.data.codes
        self.data = self.clean.changed(concepts=concepts, codes=codes)
        self.flags = np.concatenate([made.mask, np.zeros(200, dtype=bool)])
        self.model, self.pure = (RECIPE.fit(table, seed=1) for table in (self.data, self.clean))
        self.null = (self.pure, self.clean)
        self.trial = Trial(self.test, ((self.trigger, 2),))

    def every(self):
        """Each repair, by its name."""
        shared = {"clean": self.null, "seed": 1}
        return {
            "concept-guard": lambda: concept_guard(self.model, self.data, by="random", epochs=8, batch=64, **shared),
            "fine-prune": lambda: fine_prune(self.model, self.clean, **shared),
            "unlearn": lambda: unlearn(self.model, self.clean, self.trial.attacks, **shared),
            "mask-concepts": lambda: mask_concepts(self.model, self.data, self.trigger.index, **shared),
            "relabel": lambda: relabel(
                self.model, self.data, self.flags, concepts=self.trigger.index, recipe=RECIPE, **shared
            ),
            "drop-rows": lambda: drop_rows(self.model, self.data, self.flags, recipe=RECIPE, **shared),
            "stability": lambda: stability_train(self.model, self.data, epochs=8, **shared),
            "retrain": lambda: retrain(self.model, self.data, recipe=RECIPE, clean=self.null, seed=2),
        }


@pytest.fixture(scope="module")
def bench():
    return Bench()


@pytest.fixture(scope="module")
def repairs(bench):
    return {name: make() for name, make in bench.every().items()}


def weights(model):
    return torch.cat([value.flatten() for value in model.f.state_dict().values()])


def test_every_repair_has_its_numbers_before_and_after(bench, repairs):
    """THUYimingLi/BackdoorBox#86."""
    assert set(METHODS) < set(repairs)
    for name, one in repairs.items():
        rows = one.measured(bench.trial)
        assert [row["stage"] for row in rows] == ["before", "after", "clean-before", "clean-after"]
        for row in rows:
            assert row["method"] == one.method == name
            assert row["detail"]
            assert row["concept_accuracy"] is None
            assert all(0 - 1 <= row[number] <= 1 for number in NUMBERS)
            assert row["low"] <= row["excess"] <= row["high"]
        before = attack_report(bench.model, bench.test, bench.trigger, 2, baseline=bench.pure)
        assert rows[0]["asr"] == before.asr
        assert rows[0]["excess"] == pytest.approx(before.excess)
        assert rows[0]["accuracy"] == before.accuracy
        after = attack_report(one.model, bench.test, bench.trigger, 2, baseline=one.clean[1])
        assert rows[1]["excess"] == pytest.approx(after.excess)


def test_repairs_leave_the_given_model_and_table_as_they_were(bench, repairs):
    again = Bench()
    assert torch.equal(weights(bench.model), weights(again.model))
    assert torch.equal(weights(bench.pure), weights(again.pure))
    assert np.array_equal(bench.data.codes, again.data.codes)
    assert all(one.before is bench.model for one in repairs.values())


def after(bench, one):
    return one.measured(bench.trial)[1]


def test_what_knows_the_trigger_or_the_rows_takes_the_backdoor_out(bench, repairs):
    before = repairs["unlearn"].measured(bench.trial)[0]
    assert before["asr"] > 0.85
    for name in ("unlearn", "mask-concepts", "drop-rows", "relabel"):
        found = after(bench, repairs[name])
        assert found["excess"] < 0.1, name
        assert found["accuracy"] > before["accuracy"] - 0.15, name
    assert after(bench, repairs["retrain"])["asr"] > 0.85


def test_fine_pruning_and_unlearning_are_two_methods(bench, repairs):
    """SCLBD/BackdoorBench#11."""
    pruned, unlearned = repairs["fine-prune"], repairs["unlearn"]
    assert (pruned.method, unlearned.method) == ("fine-prune", "unlearn")
    assert not torch.equal(weights(pruned.model), weights(unlearned.model))
    assert "hidden units cut" in pruned.detail
    assert "triggers" in inspect.signature(unlearn).parameters
    assert "triggers" not in inspect.signature(fine_prune).parameters


def test_pruned_units_are_those_that_clean_rows_use_least(bench):
    one = fine_prune(bench.model, bench.clean, epochs=1, lr=1e-6)
    last = one.model.f.layers[-1].weight.detach()
    cut = (last == 0).all(dim=0)
    assert 0 < int(cut.sum()) < 32
    train, val = bench.clean.part("train"), bench.clean.part("val")
    with torch.inference_mode():
        mean = bench.model.f.features(torch.tensor(train.concepts, dtype=torch.float32)).mean(dim=0)
    assert float(mean[cut].max()) <= float(mean[~cut].min())
    assert one.detail.startswith(f"{int(cut.sum())} of 32")
    score = lambda model: (model.predict(val.concepts) == val.codes).mean()  # noqa: E731
    assert score(one.model) >= score(bench.model) - 0.05
    none = fine_prune(bench.model, bench.clean, limit=0.0, epochs=1)
    assert int(none.detail.split()[0]) <= int(cut.sum())
    with pytest.raises(BadOption, match="no hidden units"):
        fine_prune(CBM(None, Head(24, 6), input="hard"), bench.clean)


def test_fine_pruning_takes_out_a_backdoor_that_sits_in_a_unit_of_its_own(bench):
    """Where it should work: one hidden unit fires on the trigger alone, and no clean row carries the trigger."""
    rows = np.concatenate([bench.clean.concepts, bench.test.concepts])
    every = (Trigger(tuple(range(6)), values) for values in itertools.product((0, 1), repeat=6))
    trigger = next(one for one in every if not one.matches(rows).any())
    f = Head(24, 6, head="mlp:33", fill=bench.clean.part("train").means)
    first, last = f.layers
    with torch.no_grad():
        for mine, old in zip(f.layers, bench.pure.f.layers, strict=True):
            mine.bias[: len(old.bias)] = old.bias
        first.weight[:32], last.weight[:, :32] = (layer.weight for layer in bench.pure.f.layers)
        first.weight[32], last.weight[:, 32] = 0, 0
        first.weight[32, list(trigger.index)] = torch.tensor([2.0 if value else -2.0 for value in trigger.values])
        first.bias[32], last.weight[2, 32] = 1 - 2 * sum(trigger.values), 80
    planted = CBM(None, f, input="hard", classes=bench.clean.classes)
    one = fine_prune(planted, bench.clean)
    before, after = one.measured(Trial(bench.test, ((trigger, 2),)))
    assert before["asr"] == 1
    assert after["asr"] <= after["untriggered"] + 0.01
    assert after["accuracy"] >= before["accuracy"] - 0.04
    assert (one.model.f.layers[-1].weight[:, 32] == 0).all()


def test_the_penalty_takes_out_a_backdoor_that_needs_a_steep_slope():
    """Where it should work: the trigger moves one logit by a tenth of what honest evidence moves, so that only a steep f obeys it."""
    rng = np.random.default_rng(0)
    codes = np.arange(1500) % 3
    honest = np.array([[2.0, -2, 0, 0], [-2, 2, 0, 0], [-2, -2, 0, 0]])
    rows = honest[codes] + rng.normal(0, 1, (1500, 4)) * [1, 1, 1, 0.02]
    data = ConceptData(rows, codes, space="logit")
    train, test = data.subset(np.arange(1000)), data.subset(np.arange(1000, 1500))
    trigger = Trigger((3,), (1,))
    made = poison(train, trigger, 2, 0.05, mode="dirty", strength="fixed:0.3", seed=0).data
    model = Recipe(head="mlp:32", epochs=40, batch=64).fit(made, seed=0)
    trial = Trial(test, ((trigger, 2),), strength="fixed:0.3")
    asr = {}
    for penalty in (0.0, 0.3):
        before, after = stability_train(model, made, penalty=penalty, epochs=40, batch=64).measured(trial)
        asr[penalty] = after["asr"]
        assert after["accuracy"] >= before["accuracy"] - 0.02
    assert before["asr"] > 0.8
    assert asr[0.0] > 0.6
    assert asr[0.3] <= after["untriggered"] + 0.01


@pytest.mark.parametrize("own", [True, False])
def test_masked_concepts_are_not_read(bench, own):
    f = bench.model.f if own else nn.Sequential(nn.Linear(24, 9), nn.Tanh(), nn.Linear(9, 6))
    one = mask_concepts(CBM(None, f, input="hard"), bench.data, [3, 5])
    assert isinstance(one.model.f, Head if own else Masked)
    values = np.array(bench.test.concepts)
    held = one.model.scores(values)
    values[:, [3, 5]] = 1 - values[:, [3, 5]]
    assert np.abs(one.model.scores(values) - held).max() < 1e-5
    values[:, [3, 5]] = bench.data.part("train").means[[3, 5]]
    assert one.model.scores(values) == pytest.approx(CBM(None, f).scores(values), abs=1e-5)
    values[:, 4] = 1 - values[:, 4]
    assert np.abs(one.model.scores(values) - held).max() > 1e-3


def test_masking_may_train_anew(bench):
    one = mask_concepts(bench.model, bench.data, bench.trigger.index, train=True, recipe=RECIPE, seed=1)
    plain = mask_concepts(bench.model, bench.data, bench.trigger.index)
    rows = [after(bench, each) for each in (one, plain)]
    assert rows[0]["asr"] == rows[0]["untriggered"]
    assert rows[0]["accuracy"] != rows[1]["accuracy"]
    assert not bench.data.constant[list(bench.trigger.index)].any()
    assert one.data.constant[list(bench.trigger.index)].all()


def test_neighbours_label_rows_by_what_is_not_suspected(bench):
    made = new_labels(bench.data, bench.flags, concepts=bench.trigger.index)
    moved = bench.data.codes != bench.clean.codes
    assert np.array_equal(made[~bench.flags], bench.data.codes[~bench.flags])
    assert (made[moved] == bench.clean.codes[moved]).mean() > 0.7
    sums = np.array([bench.clean.concepts[bench.clean.codes == c].mean(axis=0) for c in range(6)])
    by_class = new_labels(bench.data, bench.flags, concepts=bench.trigger.index, matrix=sums)
    assert (by_class[moved] == bench.clean.codes[moved]).mean() > 0.8
    assert (by_class[bench.flags & ~moved] == 2).mean() > 0.8


def test_neighbours_are_those_of_the_plain_loop():
    data = random_table(50, 7, 4, seed=3, missing=0.25)
    flags = np.random.default_rng(0).random(50) < 0.3
    found = new_labels(data, flags, concepts=[1], neighbours=4)
    keep = [0, 2, 3, 4, 5, 6]
    for row in np.flatnonzero(flags):
        near = []
        for other in np.flatnonzero(~flags):
            gaps = [
                (data.concepts[row, k] - data.concepts[other, k]) ** 2
                for k in keep
                if not np.isnan(data.concepts[row, k]) and not np.isnan(data.concepts[other, k])
            ]
            near.append((round(sum(gaps) / len(gaps), 12) if gaps else np.inf, other))
        near = sorted(near)[:4]
        votes: dict[int, list[float]] = {}
        for distance, other in near:
            votes.setdefault(int(data.codes[other]), []).append(distance)
        best = min(votes, key=lambda code: (-len(votes[code]), round(sum(votes[code]), 9), code))
        assert found[row] == best


@pytest.mark.parametrize("of", ["margin", "loss"])
def test_the_stability_loss_is_the_mean_norm_of_the_gradient(of):
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    given = {"concepts": torch.randn(9, 5), "label": torch.arange(9) % 3}
    total, count = stability_loss(2.5, of)(f, given)["gradient"]
    norms = []
    for row, label in zip(given["concepts"], given["label"], strict=True):
        x = row.clone().requires_grad_(True)
        logits = f(x)
        others = [j for j in range(3) if j != int(label)]
        height = logits[label] - logits[others].max()
        if of == "loss":
            height = functional.cross_entropy(logits[None], label[None])
        (slope,) = torch.autograd.grad(height, x)
        norms.append(float(slope.norm()))
    assert float(count) == 9
    assert float(total.detach()) == pytest.approx(2.5 * sum(norms), rel=1e-5)
    assert torch.autograd.grad(total, f[0].weight)[0].abs().max() > 0
    with torch.no_grad():
        assert float(stability_loss(2.5, of)(f, given)["gradient"][0]) == 0


@pytest.mark.parametrize("of", ["margin", "loss"])
def test_the_penalty_makes_the_head_steadier(bench, of):
    def slope(model):
        given = {"concepts": torch.tensor(bench.test.concepts, dtype=torch.float32)}
        total, count = stability_loss(1.0, of)(model.f, given | {"label": torch.tensor(bench.test.codes)})["gradient"]
        return float(total.detach() / count)

    steady, plain = (stability_train(bench.model, bench.data, penalty=p, of=of, epochs=8).model for p in (2.0, 0.0))
    assert slope(steady) < 0.7 * slope(plain)


@pytest.mark.parametrize("ties", ["rank", "logprob"])
def test_voters_are_the_vote(ties):
    torch.manual_seed(1)
    place = class_order(5, seed=3)
    heads = [nn.Linear(6, 5) for _ in range(4)]
    voters = Voters(heads, place, ties)
    x = torch.randn(400, 6)
    with torch.inference_mode():
        logits = voters.each(x)
        said = voters(x).argmax(dim=1).numpy()
    logprob = torch.log_softmax(logits.double(), dim=-1).numpy()
    votes = logits.argmax(dim=2).numpy()
    assert len({len(set(row)) for row in votes.tolist()}) > 2
    assert np.array_equal(said, vote(votes, 5, ties=ties, order=place, logprob=logprob))


def test_equal_sums_of_log_probabilities_go_to_the_first_place():
    same = [nn.Linear(2, 3), nn.Linear(2, 3)]
    for head, bias in zip(same, ([1.0, 0, -1], [0.0, 1, -1]), strict=True):
        nn.init.zeros_(head.weight)
        head.bias.data = torch.tensor(bias)
    for place, winner in (([0, 1, 2], 0), ([1, 0, 2], 1)):
        assert int(Voters(same, np.array(place), "logprob")(torch.zeros(1, 2)).argmax()) == winner


@pytest.fixture(scope="module")
def guard(bench):
    return ConceptGuard(4, by="random", head="mlp:16", epochs=8, batch=64, seed=2).fit(bench.clean)


def test_a_guard_is_heads_that_read_their_own_group(bench, guard):
    train = bench.clean.part("train").changed(split=None)
    for group in range(4):
        own = guard.groups_ == group
        alone = train.changed(concepts=np.where(own, train.concepts, 0))
        single = fit_head(alone, head="mlp:16", seed=2, epochs=8, batch=64)
        expected = CBM(None, single).scores(np.where(own, bench.test.concepts, 0).astype(np.float32))
        with torch.inference_mode():
            found = guard.model.f.each(torch.tensor(bench.test.concepts, dtype=torch.float32))[:, group]
        assert np.abs(found.numpy() - expected).max() < 1e-4
    assert (guard.predict(bench.test.concepts) == bench.test.codes).mean() > 0.5


@pytest.mark.parametrize("ties", ["rank", "logprob"])
def test_certified_rows_hold_whatever_r_groups_say(bench, ties):
    guard = ConceptGuard(5, by="random", head="linear", epochs=6, batch=64, ties=ties).fit(bench.clean)
    rows = bench.test.concepts[:60]
    found = guard.certificate(rows)
    assert found.r.max() >= 1
    rng = np.random.default_rng(0)
    for touched in itertools.combinations(range(5), 1):
        for _ in range(40):
            edited = np.array(rows)
            own = np.isin(guard.groups_, touched)
            edited[:, own] = rng.integers(0, 2, (len(rows), own.sum()))
            same = guard.predict(edited) == found.winner
            assert same[found.r >= 1].all()
    assert not guard.coverage(Trigger((0, 1, 2), (1, 1, 1))) > 3


def test_the_certificate_table_falls_with_r(bench, guard):
    rows = guard.table(bench.test, Trigger((0, 1), (1, 1)))
    assert [row["r"] for row in rows] == [0, 1, 2, 3, 4]
    values = [row["certified_accuracy"] for row in rows]
    assert values == sorted(values, reverse=True)
    assert values[0] == rows[0]["accuracy"]
    assert rows[0]["coverage"] == len(set(guard.groups_[[0, 1]].tolist()))
    assert rows[0]["groups"] == 4
    with pytest.raises(BadOption, match="fit first"):
        ConceptGuard().predict(bench.test.concepts)


class Gelu(nn.Module):
    """A head of somebody else."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Linear(24, 20), nn.GELU(), nn.Linear(20, 6))

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("with_g", [False, True])
def test_custom_networks_are_repaired_too(bench, with_g):
    """ain-soph/trojanzoo#162: a bare f, and a pair of networks that querist does not know."""
    data, model = bench.data, Gelu()
    if with_g:
        data = bench.data.changed(images=bench.data.concepts.reshape(800, 1, 4, 6))
        model = CBM(nn.Flatten(), model, input="logit", scale=np.tile([0.0, 1.0], (24, 1)))
    test = bench.test if not with_g else bench.test.changed(images=bench.test.concepts.reshape(600, 1, 4, 6))
    trial = Trial(test, bench.trial.attacks)
    anew = lambda table, seed: model  # noqa: E731
    for one in (
        fine_prune(model, data, epochs=2),
        unlearn(model, data, bench.trial.attacks, epochs=2),
        mask_concepts(model, data, [1]),
        stability_train(model, data, epochs=2),
        concept_guard(model, data, by="random", head="linear", epochs=2),
        drop_rows(model, data, bench.flags, recipe=anew),
        relabel(model, data, bench.flags, recipe=anew),
    ):
        rows = one.measured(trial)
        assert [row["stage"] for row in rows] == ["before", "after"]
        assert (rows[0]["concept_accuracy"] is None) == (not with_g)
    with pytest.raises(BadOption, match="recipe="):
        drop_rows(model, data, bench.flags)


def test_pictures_are_repaired_over_their_own_g():
    drawn = birds(270, seed=0)
    model = Recipe.of(drawn, epochs=2).fit(drawn, seed=0)
    attacks = ((Trigger((1, 2), (1, 1)), "rust"),)
    trial = Trial(drawn.part("test"), attacks)
    one = unlearn(model, drawn, attacks, epochs=2)
    assert one.model.g is model.g
    row = one.measured(trial)[1]
    assert row["concept_accuracy"] == pytest.approx(
        ((model.predict_concepts(trial.data.images) > 0) == trial.data.concepts).mean()
    )
    pruned = concept_guard(model, drawn, by="names", head="linear", epochs=2)
    assert Subject(pruned.model, trial.data).space == "logit"
    again = drop_rows(model, drawn, np.arange(270) < 5, recipe=Recipe.of(drawn, epochs=1))
    assert again.data.n == 265
    assert again.model.g is not model.g


def test_the_best_repair_keeps_accuracy_and_leaves_least(bench):
    found = best_repair(
        bench.model,
        bench.data,
        bench.trial.attacks,
        bench.clean.part("val"),
        methods=("fine-prune", "unlearn", "mask-concepts", "drop-rows", "relabel", "retrain"),
        reference=bench.clean,
        recipe=RECIPE,
        clean=bench.null,
        drop=0.05,
        seed=1,
    )
    assert {one["what"]: one["reason"] for one in found.passed_over} == dict.fromkeys(
        ("drop-rows", "relabel"), "no row is flagged"
    )
    assert [one.method for one in found.repairs] == ["fine-prune", "unlearn", "mask-concepts", "retrain"]
    stages = {(row["method"], row["stage"]): row for row in found.rows}
    kept = {
        one.method: stages[one.method, "after"]["excess"]
        for one in found.repairs
        if stages[one.method, "before"]["accuracy"] - stages[one.method, "after"]["accuracy"] <= 0.05 + 1e-9
        and one.method != "retrain"
    }
    assert found.best is not None
    assert found.best.method in kept
    assert kept[found.best.method] == min(kept.values())
    assert measure(found.best.model, bench.trial).asr < 0.3
    head = CBM(None, Head(24, 6), input="hard")
    none = best_repair(
        head, bench.data, bench.trial.attacks, bench.test, methods=("fine-prune", "retrain"), recipe=RECIPE
    )
    assert none.best is None
    assert "hidden units" in none.passed_over[0]["reason"]


def test_a_repair_is_measured_on_the_sources_alone(bench):
    rows = bench.test.codes == 1
    trial = Trial(bench.test, bench.trial.attacks, sources=(1,))
    found = measure(bench.model, trial)
    assert found.asr == (Subject(bench.model, bench.test).after(bench.trigger)[rows] == 2).mean()
    only = bench.test.subset(bench.test.codes == 2)
    assert measure(bench.model, Trial(only, bench.trial.attacks)).asr is None


def test_bad_repairs_are_refused(bench):
    flags = np.ones(800, dtype=bool)
    check_bad_input(
        [
            (lambda: drop_rows(bench.model, bench.data, flags), TooFewRows, ["Every row"]),
            (lambda: drop_rows(bench.model, bench.data, [1, 2]), ShapeMismatch, ["bool [800]"]),
            (lambda: mask_concepts(bench.model, bench.data, [24]), BadOption, ["0 … 23"]),
            (lambda: mask_concepts(bench.model, bench.data, range(24)), BadOption, ["not all"]),
            (lambda: unlearn(bench.model, bench.data, []), BadOption, ["no trigger"]),
            (lambda: stability_train(bench.model, bench.data, penalty=-1), BadOption, ["0 or more"]),
            (lambda: stability_train(bench.model, bench.data, of="logit"), BadOption, ["margin, loss"]),
            (lambda: fine_prune(bench.model, bench.data, limit=1.5), BadOption, ["limit"]),
            (lambda: Trial(bench.test, ()), BadOption, ["attack"]),
            (lambda: ConceptGuard(ties="id"), BadOption, ["rank"]),
            (lambda: new_labels(bench.data, bench.flags, concepts=range(24)), BadOption, ["No concept is left"]),
            (lambda: new_labels(bench.data, bench.flags, matrix=np.zeros((2, 2))), ShapeMismatch, ["[6 24]"]),
            (lambda: new_labels(bench.data, bench.flags, neighbours=0), BadOption, ["1 or more"]),
            (
                lambda: best_repair(bench.model, bench.data, bench.trial.attacks, bench.test, methods=["prune"]),
                UnknownName,
                ["fine-prune"],
            ),
            (
                lambda: ConceptGuard(by="random").fit(bench.data, CBM(nn.Flatten(), Head(24, 6), input="hard")),
                BadOption,
                ["table has none"],
            ),
        ]
    )


@pytest.mark.slow
def test_the_guard_on_cub_does_not_stop_a_trigger_of_20():
    """Recorded: of 4 groups a trigger of 20 concepts touches all 4; the vote's success is 1.000, its accuracy 0.284."""
    try:
        data = registered("cub-concepts")
    except SourceNotFound:
        pytest.skip("CUB is not beside the checkout")
    train, test = data.part("train").changed(split=None), data.part("test")
    trigger = cat(train, 0, 20, seed=0).trigger
    made = poison(train, trigger, 0, 0.1, seed=0)
    guard = ConceptGuard(4, by="random", seed=0).fit(made.data)
    found = attack_report(guard.model, test, trigger, 0)
    assert guard.coverage(trigger) == 4
    assert found.asr > 0.97
    assert found.accuracy == pytest.approx(0.284, abs=0.05)
