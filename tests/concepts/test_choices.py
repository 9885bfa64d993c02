"""No row that something is chosen by was in a training set of the model that it is chosen for, whatever the table's split."""

from __future__ import annotations

import importlib
from collections import defaultdict

import numpy as np
import pytest
from tests.concepts.rooms import QUICK, animals

from querist.concepts import ConceptData, fit_head
from querist.concepts.attacks import Parts, joined, repeat_parts, with_validation
from querist.concepts.detectors import RuntimeMonitor
from querist.concepts.repairs import _prune, _training
from querist.concepts.studies import audit_units, repair_measure, repair_work
from querist.concepts.studies.audit import audit
from querist.concepts.studies.poison import poisoned_copy
from querist.concepts.studies.repair import repair
from querist.errors import TooFewRows

STEP = 5e-4
SPLITS = {
    "no split": None,
    "train and test": ("train", "train", "test"),
    "train and val": ("train", "train", "val"),
    "all three": ("train", "train", "train", "val", "test"),
}
EVERY = "fine-prune,unlearn,stability,guard-random,mask-concepts"


def marked(n=480, *, split):
    """Concepts as probabilities, each row at a distance from 0 and 1 of its own, by which it is known whatever is planted in it."""
    table = animals(n, split=False)
    away = STEP * np.arange(1, n + 1)[:, None]
    parts = None if split is None else np.resize(np.array(split), (n // 6 + 1) * len(split))[np.arange(n) // 6]
    return table.changed(concepts=np.abs(table.concepts - away), space="prob", split=parts)


def known(concepts):
    """Places of rows [... k] in the table of `marked`."""
    values = np.asarray(concepts, dtype=float)
    away = np.minimum(values, 1 - values).max(axis=-1)  # cells of a trigger are 0 or 1
    return set((np.rint(away / STEP).astype(int) - 1).ravel().tolist())


class Seen:
    """What each unit trains on, chooses by and counts on."""

    def __init__(self, monkeypatch):
        self.unit = ""
        self.trained, self.chosen, self.counted, self.thresholds = (defaultdict(list) for _ in range(4))
        for module in (importlib.import_module("querist.concepts.fit"), _training):
            monkeypatch.setattr(module, "fit", self._fit(module.fit))
        monkeypatch.setattr(_prune, "accuracy", self._guard(_prune.accuracy))
        monkeypatch.setattr(repair_measure, "Trial", self._trial(repair_measure.Trial))
        monkeypatch.setattr(RuntimeMonitor, "fit", self._monitor(RuntimeMonitor.fit))
        for module, name in (
            (audit_units, "carry_out_unit"),
            (repair_work, "model_unit"),
            (repair_work, "method_unit"),
        ):
            monkeypatch.setattr(module, name, self._unit(name, getattr(module, name)))

    def _unit(self, name, real):
        def call(config, material, *rest):
            if name == "carry_out_unit":
                self.unit = rest[1].key
            else:
                self.unit = "model" if name == "model_unit" else f"repair/{rest[0]['method']}"
            return real(config, material, *rest)

        return call

    def _fit(self, real):
        def call(model, loss, rows, *, validation=None, **options):
            mine = known(rows["concepts"])
            self.trained[self.unit].append(mine)
            if validation is not None:
                held = known(validation["concepts"])
                assert not held & mine, "an epoch is chosen by rows of the same training"
                self.chosen[self.unit].append(held)
            return real(model, loss, rows, validation=validation, **options)

        return call

    def _guard(self, real):
        def call(model, table):
            self.chosen[self.unit].append(known(table.concepts))
            return real(model, table)

        return call

    def _trial(self, real):
        def call(data, attacks, **options):
            # The first trial of a method counts, the second chooses.
            held = (
                self.chosen if len(self.counted[self.unit]) > len(self.chosen[f"{self.unit} trial"]) else self.counted
            )
            held[self.unit].append(known(data.concepts))
            if held is self.chosen:
                held[f"{self.unit} trial"].append(known(data.concepts))
            return real(data, attacks, **options)

        return call

    def _monitor(self, real):
        def call(monitor, data, model=None, reference=None, *, unseen=None):
            self.thresholds[monitor.rule].append(known((data if unseen is None else unseen).concepts))
            return real(monitor, data, model, reference, unseen=unseen)

        return call

    def union(self, held, unit):
        return set().union(*held[unit])

    def check_repairs(self, first, test):
        """first: what the model under repair, and the clean one, learnt from."""
        methods = [unit for unit in self.counted if unit.startswith("repair/")]
        for unit in methods:
            chosen, trained = self.union(self.chosen, unit), self.union(self.trained, unit)
            assert self.chosen[f"{unit} trial"], f"{unit} was not ranked"
            assert not chosen & (first | trained), f"{unit} is chosen by rows that its model learnt from"
            assert not self.union(self.counted, unit) & (first | trained | chosen), f"{unit} is counted on such rows"
            assert self.union(self.counted, unit) <= test
        return methods


@pytest.fixture
def seen(monkeypatch):
    return Seen(monkeypatch)


def places(data, part):
    return set(np.flatnonzero(data.split == part).tolist())


@pytest.mark.parametrize("split", SPLITS)
def test_an_audit_chooses_repairs_and_thresholds_by_rows_that_the_attacked_model_has_not_seen(seen, split):
    data = marked(split=SPLITS[split])
    result = audit(
        data,
        **{**QUICK, "epochs": 20},
        repair="all",
        binarise="0.5",
        targets="1",
        selectors=("random",),
        headline="size=4,rate=.2,selector=random",
        sizes=(4,),
        rates=(0.2,),
        groups=3,
    )
    parts = repeat_parts(data, 0, seed=0)
    first = seen.union(seen.trained, "attacked")
    test = known(parts.test.concepts)
    methods = seen.check_repairs(first, test)
    assert {"repair/fine-prune", "repair/unlearn", "repair/stability", "repair/guard-random"} <= set(methods)
    every, row = known(parts.train.concepts), {one["model"]: one for one in result.models.to_dicts()}
    told = any("set aside" in warning for warning in result.summary["warnings"])
    if parts.val is None:
        assert first < every
        assert row["attacked"]["n_train"] == row["clean/set-aside"]["n_train"] == len(first)
        assert row["attacked"]["n_val"] == len(every) - len(first) == pytest.approx(len(every) / 5, abs=6)
        assert told
    else:
        assert first == every
        assert "clean/set-aside" not in row
        assert row["attacked"]["n_val"] == parts.val.n
        assert not told
    assert seen.union(seen.trained, "model/repeat=0") == every, "the sweep chooses nothing, and trains on all"
    assert not seen.union(seen.thresholds, "entropy") & first
    assert seen.union(seen.thresholds, "entropy")


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("split", SPLITS)
def test_repairs_are_chosen_by_rows_that_the_model_has_not_seen(seen, split, given):
    table = marked(split=SPLITS[split])
    data = poisoned_copy(table, target="kind 1", size=4, rate=0.2, selector="random").data
    model, learnt = None, set()
    if given:
        train = data if data.split is None else data.part("train")
        seen.unit = "outside"
        model = fit_head(train.changed(split=None), head="mlp:16", epochs=20, seed=3)
        learnt = known(train.concepts)
    result = repair(data, model, method=EVERY, epochs=20, head="mlp:16", groups=3)
    warnings = " ".join(result.summary["warnings"])
    if given and data.split is None:
        assert "does not name the rows that the given model learnt from" in warnings
        return
    assert "does not name" not in warnings
    assert ("set aside" in warnings) == (split in ("train and test", "train and val"))
    first = learnt if given else seen.union(seen.trained, "model")
    named = {"no split": None, "train and test": "test", "train and val": "val", "all three": "test"}[split]
    test = known(repeat_parts(data, 0, seed=0).test.concepts) if named is None else places(data, named)
    methods = seen.check_repairs(first, test)
    assert len(methods) == 5
    assert result.models["n_val"][0] > 0
    if given and "val" not in (SPLITS[split] or ())[:4]:
        counted = seen.union(seen.counted, methods[0])
        assert len(counted) == pytest.approx(2 / 3 * len(test), abs=6)
        assert seen.union(seen.trained, "repair/guard-random") == learnt, "nothing is taken from a given model's rows"


def test_rows_are_set_aside_of_every_class_and_no_class_is_emptied():
    rng = np.random.default_rng(0)
    labels = np.array([0] * 50 + [1] * 25 + [2] + [3] * 10)
    data = ConceptData((rng.random((86, 6)) < 0.5).astype(float), labels, ids=[str(i) for i in range(86)])
    bare = Parts(data, None, data.subset(np.arange(70)))
    once, twice = (with_validation(bare, seed=4) for _ in range(2))
    assert np.array_equal(once.val.ids, twice.val.ids)
    assert set(once.val.ids) | set(once.train.ids) == set(data.ids)
    assert not set(once.val.ids) & set(once.train.ids)
    assert once.val.class_sizes.tolist() == [10, 5, 0, 2]
    assert once.test is bare.test
    tested = with_validation(bare, apart="test", seed=4)
    assert tested.train is data
    assert tested.val.n + tested.test.n == 70
    assert abs(tested.val.n - 70 / 3) <= 1
    assert with_validation(once, seed=9) is once
    assert not np.array_equal(with_validation(bare, seed=5).val.ids, once.val.ids)
    assert joined(once.train, once.val).part("val").ids.tolist() == once.val.ids.tolist()
    with pytest.raises(TooFewRows, match="named val"):
        with_validation(Parts(data.subset([0, 60, 75, 80]), None, data), seed=0)
    alone = ConceptData(np.eye(6), np.arange(6))
    with pytest.raises(TooFewRows, match="one train row"):
        with_validation(Parts(alone, None, data), seed=0)


def test_a_threshold_is_set_on_the_rows_that_the_model_has_not_seen():
    train, fresh = animals(600, split=False), animals(400, seed=5, split=False)
    head = fit_head(train, head="mlp:64", epochs=60, lr=1e-2, seed=0)
    plain = RuntimeMonitor("entropy", false_alarms=0.05).fit(train, head)
    held = RuntimeMonitor("entropy", false_alarms=0.05).fit(train, head, unseen=fresh)
    score = held.scores
    assert held.thresholds["entropy"] != plain.thresholds["entropy"]
    own = RuntimeMonitor("entropy", false_alarms=0.05).fit(fresh, head, reference=train, unseen=fresh)
    assert own.thresholds == held.thresholds
    assert (own.scores > 0).mean() <= 0.05
    assert score.shape == (600,)
    with pytest.raises(TooFewRows, match="100 or more"):
        RuntimeMonitor("entropy").fit(train, head, unseen=fresh.subset(np.arange(99)))
