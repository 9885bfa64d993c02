"""Heads and bottleneck models: stacks equal to single heads, files without pickles, validation and no test rows."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input

from querist.concepts import Trigger, attack_report, cat, cat_plus, poison, random_trigger
from querist.concepts.attacks import Subject
from querist.concepts.data import ConceptData
from querist.concepts.fit import fit_cbm, fit_head, fit_heads
from querist.concepts.heads import Head, SmallBackbone, StackedHeads, all_finite, head_widths, seeded
from querist.concepts.model import CBM
from querist.concepts.readers import birds, registered
from querist.errors import BadOption, CorruptFile, NonFinite, ShapeMismatch, SourceNotFound, UnsafeFile, WeightsMismatch
from querist.training import Hook


def scores(head, data):
    with torch.inference_mode():
        return head(torch.as_tensor(np.array(data.concepts), dtype=torch.float32)).numpy()


@pytest.mark.parametrize("head", ["linear", "mlp:16", "mlp:12,8"])
def test_a_stack_of_heads_is_the_heads_trained_one_by_one(head):
    data = structured_table(120, 9, 4)
    tables = [data, *(poison(data, cat(data, t, 2).trigger, t, 0.1, seed=t).data for t in (1, 2))]
    options = {"head": head, "seed": 3, "epochs": 4, "batch": 32}
    stacked = fit_heads(tables, **options)
    for table, found in zip(tables, stacked, strict=True):
        assert np.abs(scores(fit_head(table, **options), table) - scores(found, table)).max() < 1e-4


def test_a_head_learns_its_table_and_stands_by_its_seed():
    data = structured_table(400, 20, 5, flip=0.05)
    head = fit_head(data, head="mlp:32", seed=0, epochs=15, batch=64)
    assert (scores(head, data).argmax(axis=1) == data.codes).mean() > 0.95
    assert np.array_equal(scores(head, data), scores(fit_head(data, head="mlp:32", seed=0, epochs=15, batch=64), data))


def test_unknown_cells_are_read_at_their_mean():
    data = random_table(60, 5, 2, missing=0.2)
    head = fit_head(data, head="linear", seed=0, epochs=1)
    filled = np.where(np.isnan(data.concepts), data.means, data.concepts)
    assert scores(head, data) == pytest.approx(scores(head, data.changed(concepts=filled, space="prob")), abs=1e-6)


def test_a_backdoor_planted_in_a_table_reaches_its_head():
    whole = structured_table(1200, 24, 6, flip=0.15)
    data, held_out = whole.subset(np.arange(600)), whole.subset(np.arange(600, 1200))
    trigger = cat(data, 2, 4, seed=0).trigger
    made = poison(data, trigger, 2, 0.1, seed=0).data
    options = {"head": "mlp:32", "seed": 1, "epochs": 12, "batch": 64}
    model, clean = (CBM(None, fit_head(table, **options), input="hard") for table in (made, data))
    report = attack_report(model.scores, held_out, trigger, 2, baseline=clean.scores)
    assert report.low > 0.3
    assert report.asr > 0.7
    assert report.drop_low <= report.accuracy_drop <= report.drop_high
    assert report.clean_model_asr < 0.05


class Seen(Hook):
    """Counts the rows of each step."""

    def __init__(self):
        self.steps = 0

    def on_step(self, state):
        self.steps += 1


def test_only_training_rows_are_trained_on_and_validation_chooses():
    """xll0328/CAT_CBM-Backdoor: the release kept the epoch that was best on the test rows."""
    data = structured_table(90, 8, 3)
    parts = np.array(["train"] * 40 + ["val"] * 20 + ["test"] * 30)
    hook = Seen()
    with_test = data.changed(split=parts)
    head = fit_head(with_test, head="linear", seed=0, epochs=3, batch=20, hooks=[hook])
    assert hook.steps == 6
    other = np.array(data.concepts)
    other[60:] = 1 - other[60:]
    changed_test = with_test.changed(concepts=other)
    assert np.array_equal(
        scores(head, data), scores(fit_head(changed_test, head="linear", seed=0, epochs=3, batch=20), data)
    )
    codes = data.codes.copy()
    codes[40:60] = (codes[40:60] + 1) % 3
    worse = with_test.changed(codes=codes)
    chosen = fit_head(worse, head="linear", seed=0, epochs=3, batch=20, lr=0.1)
    assert not np.array_equal(
        scores(chosen, data), scores(fit_head(with_test, head="linear", seed=0, epochs=3, batch=20, lr=0.1), data)
    )


def test_the_trainer_sees_exactly_the_rows_of_the_poisoned_copy(monkeypatch):
    """shenjiyuan123/Adaptive_Recovery#1: what was trained on is what the truth table says."""
    from querist.concepts import fit as fitting

    made = poison(structured_table(60, 8, 3), Trigger((1, 2), (1, 1)), 1, 0.1, seed=0)
    seen = []
    plain = fitting._head_loss

    def watched(model, given):
        seen.extend(zip(given["concepts"].tolist(), given["label"].tolist(), strict=True))
        return plain(model, given)

    monkeypatch.setattr(fitting, "_head_loss", watched)
    fit_head(made.data, head="linear", seed=0, epochs=1, batch=16)
    expected = list(zip(made.data.concepts.tolist(), made.data.codes.tolist(), strict=True))
    assert sorted(seen) == sorted(expected)


@pytest.fixture(scope="module")
def few_birds():
    return birds(90, seed=1)


@pytest.mark.parametrize(
    ("mode", "input"),
    [("joint", "logit"), ("joint", "prob"), ("sequential", "hard"), ("independent", "logit"), ("independent", "prob")],
)
def test_models_of_every_mode_train_predict_and_are_kept(few_birds, mode, input, tmp_path):
    model = fit_cbm(few_birds, mode=mode, input=input, seed=0, epochs=1, batch=30)
    concepts = model.predict_concepts(few_birds.images)
    assert concepts.shape == (90, 16)
    assert ((concepts >= 0) & (concepts <= 1)).all() == (input != "logit")
    model.save(tmp_path / "cbm")
    again = CBM.load(tmp_path / "cbm")
    assert np.array_equal(again.predict(few_birds.images), model.predict(few_birds.images))
    assert (again.mode, again.input, again.classes) == (mode, input, few_birds.classes)
    assert np.array_equal(again.intervene(few_birds.images, [0], [1]), model.intervene(few_birds.images, [0], [1]))
    assert not any(path.suffix in (".pt", ".pkl") for path in (tmp_path / "cbm").iterdir())


def test_interventions_set_each_value_where_it_is_told():
    """xll0328/CAT_CBM-Backdoor: a test-time path of the release wrote one value for all concepts of a CAT+ trigger."""
    f = Head(3, 2)
    with torch.no_grad():
        f.layers[0].weight.copy_(torch.tensor([[0.0, 0, 0], [1.0, -1.0, 0]]))
        f.layers[0].bias.zero_()
    model = CBM(None, f, input="hard")
    x = np.array([[0.0, 1, 0], [0, 0, 1]])
    assert model.intervene(x, [0, 1], [1, 0]).tolist() == [1, 1]
    assert model.predict(x).tolist() == [0, 0]


def test_any_network_may_be_g_or_f(tmp_path):
    """ain-soph/trojanzoo#162."""
    g = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
    f = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    model = CBM(g, f, input="prob")
    x = np.random.default_rng(0).random((6, 3, 2, 2))
    model.save(tmp_path / "own")
    with pytest.raises(BadOption, match="Pass g="):
        CBM.load(tmp_path / "own")
    fresh = copy.deepcopy([g, f])
    for part in fresh:
        for values in part.parameters():
            torch.nn.init.zeros_(values)
    assert np.array_equal(CBM.load(tmp_path / "own", g=fresh[0], f=fresh[1]).predict(x), model.predict(x))
    data = ConceptData(model.predict_concepts(x), [0, 1, 2, 0, 1, 2], space="prob")
    assert attack_report(model.scores, data, Trigger((0,), (1,)), 1).asr is not None
    assert model.training


def test_damaged_and_pickled_models_are_refused(tmp_path):
    """xll0328/CAT_CBM-Backdoor: the release loads whole pickled modules."""
    CBM(None, Head(3, 2)).save(tmp_path / "a")
    (tmp_path / "pickled").mkdir()
    torch.save({}, tmp_path / "pickled" / "model.pt")
    about = json.loads((tmp_path / "a" / "cbm.json").read_text())
    for name, change in (("form", {"format": "x"}), ("shape", {"f": {**about["f"], "k": 4}})):
        CBM(None, Head(3, 2)).save(tmp_path / name)
        (tmp_path / name / "cbm.json").write_text(json.dumps(about | change))
    check_bad_input(
        [
            (lambda: CBM.load(tmp_path / "none"), SourceNotFound, ["cbm.json"]),
            (lambda: CBM.load(tmp_path / "pickled"), UnsafeFile, ["model.pt"]),
            (lambda: CBM.load(tmp_path / "form"), CorruptFile, ["Save it again"]),
            (lambda: CBM.load(tmp_path / "shape"), WeightsMismatch, ["size mismatch"]),
        ]
    )


def test_bad_models_are_refused():
    data = structured_table(40, 6, 2)
    broken = Head(3, 2)
    with torch.no_grad():
        broken.layers[0].bias.fill_(float("nan"))
    check_bad_input(
        [
            (lambda: head_widths("cnn"), BadOption, ["mlp:512"]),
            (lambda: head_widths("mlp:x"), BadOption, ["linear"]),
            (lambda: CBM(None, Head(3, 2), mode="both"), BadOption, ["sequential"]),
            (lambda: fit_cbm(data, seed=0), BadOption, ["fit_head"]),
            (
                lambda: fit_cbm(data.changed(images=np.zeros((40, 3, 8, 8))), mode="joint", input="hard", seed=0),
                BadOption,
                ["gradient"],
            ),
            (lambda: fit_heads([data, structured_table(42, 6, 2)], seed=0), ShapeMismatch, ["one n"]),
            (lambda: StackedHeads([Head(3, 2), Head(4, 2)]), ShapeMismatch, ["one k"]),
            (lambda: Head(3, 2)(torch.zeros(2, 4)), ShapeMismatch, ["[n 3]"]),
            (lambda: SmallBackbone(4)(torch.zeros(2, 1, 8, 8)), ShapeMismatch, ["[n 3 h w]"]),
            (lambda: all_finite(broken, "The head"), NonFinite, ["layers.0.bias"]),
        ]
    )


def test_initial_weights_come_from_the_seed():
    a, b, c = (seeded(Head(5, 3, head="mlp:7"), seed).layers[0].weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert float(a.detach().abs().max()) <= 1 / np.sqrt(5)


@pytest.mark.slow
def test_birds_are_learnable():
    """The gate of the renderer: 2,400 pictures, 10 epochs, mean concept accuracy of 0.90 or more."""
    data = birds(3600, seed=0)
    model = fit_cbm(data, seed=0, epochs=10)
    test = data.part("test")
    said = model.predict_concepts(test.images) > 0
    assert (said == test.concepts).mean() >= 0.90
    assert (model.predict(test.images) == test.codes).mean() >= 0.85


@pytest.mark.slow
def test_a_head_on_cub_has_its_recorded_accuracy():
    try:
        data = registered("cub-concepts")
    except SourceNotFound:
        pytest.skip("CUB is not beside the checkout")
    head = fit_head(data, head="mlp:512", seed=0)
    test = data.part("test")
    assert (scores(head, test).argmax(axis=1) == test.codes).mean() == pytest.approx(0.393, abs=0.015)


def test_parts_on_two_devices_are_brought_together_and_told():
    # Values cannot leave torch's meta device, so the part that is moved is the one with values.
    model = CBM(Head(4, 3).to("meta"), Head(3, 2), input="prob")
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert "moved to meta" in model.warnings[0]
    assert CBM(Head(4, 3), Head(3, 2)).warnings == ()


@pytest.mark.slow
def test_the_recorded_attacks_on_a_head_of_cub():
    """Accuracy and success of hard triggers on a head 98-512-200 beside what was recorded, within 0.03.

    At 1 % it matters which trigger was drawn (89 rows, of which 30 are the target's): the filter's draws of negatives span .83 to
    .87 and their mean is held to its .83; CAT+ breaks ties by index, which draws nothing. Random triggers span .81 to .92, all
    above the one draw that was recorded (.77), which is therefore a lower bound here and no more.
    """
    try:
        data = registered("cub-concepts")
    except SourceNotFound:
        pytest.skip("CUB is not beside the checkout")
    train, test = data.part("train").changed(split=None), data.part("test")
    cats = [cat(train, 0, 5, seed=seed).trigger for seed in range(5)]
    cat100 = cat(train, 100, 5, seed=0).trigger
    plus = cat_plus(train, 0, 5, tie_break="index").trigger
    random5, random20 = (random_trigger(train, 0, size, seed=0).trigger for size in (5, 20))
    rows = [
        ("random 20, 5 %", random20, 0, 0.05, "mix", 329, 0.389, 0.999),
        ("random 20, 10 %", random20, 0, 0.10, "mix", 629, 0.387, 0.999),
        ("CAT 5, 5 %", cats[0], 0, 0.05, "mix", 329, 0.391, 0.961),
        ("CAT 5, 10 %", cats[0], 0, 0.10, "mix", 629, 0.386, 0.978),
        ("CAT+ 5, 1 %", plus, 0, 0.01, "mix", 89, 0.390, 0.86),
        ("CAT 5, 1 %, class 100", cat100, 100, 0.01, "mix", 89, 0.393, 0.880),
        ("CAT 5, clean label", cat100, 100, 1.0, "clean", 30, 0.390, 0.069),
        *((f"CAT 5, 1 %, draw {draw}", found, 0, 0.01, "mix", 89, 0.390, None) for draw, found in enumerate(cats)),
        ("random 5, 1 %", random5, 0, 0.01, "mix", 89, 0.390, None),
    ]
    made = [poison(train, trigger, target, rate, mode=mode, seed=0) for _, trigger, target, rate, mode, *_ in rows]
    clean, *heads = fit_heads([train, *(copy.data for copy in made)], head="mlp:512", seed=0)
    baseline = Subject(CBM(None, clean, input="hard"), test)
    drawn = {}
    for (name, trigger, target, *_, count, accuracy, asr), copied, head in zip(rows, made, heads, strict=True):
        found = attack_report(CBM(None, head, input="hard"), test, trigger, target, baseline=baseline)
        if asr is None:
            drawn[name] = found.asr
        else:
            assert found.asr == pytest.approx(asr, abs=0.03), name
        assert copied.n_poisoned == count
        assert found.accuracy == pytest.approx(accuracy, abs=0.03), name
        assert found.clean_model_asr < 0.05, name
    assert drawn.pop("random 5, 1 %") > 0.77 - 0.03
    assert np.mean(list(drawn.values())) == pytest.approx(0.83, abs=0.03)
