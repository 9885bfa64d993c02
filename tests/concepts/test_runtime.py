"""The monitor at the bottleneck: the definition of absence, its false alarms, the triggers it stops, and constant memory."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from tests.concepts.tables import random_table
from tests.harness import check_bad_input

from querist.concepts import ConceptData, Trigger, cat_plus, fit_head, poison
from querist.concepts.detectors import Perturbation, RuntimeMonitor, absent_conjunctions, literals
from querist.concepts.errors import SchemaMismatch
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.errors import BadOption, BadValues, MemoryBound, NonFinite, ShapeMismatch, TooFewRows


def minimal_absences(on, most):
    """Every absent conjunction none of whose parts is absent, by trying all."""
    absent = []
    for size in range(1, most + 1):
        for chosen in itertools.combinations(range(on.shape[1]), size):
            if len({i // 2 for i in chosen}) < size or any(set(part) <= set(chosen) for part in absent):
                continue
            if not on[:, list(chosen)].all(axis=1).any():
                absent.append(chosen)
    return set(absent)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_absent_conjunctions_are_those_of_the_definition(missing, most):
    for seed in range(3):
        data = random_table(30, 6, 2, seed=seed, missing=missing, density=0.25)
        on = literals(data.concepts)
        found = absent_conjunctions(on, most=most)
        named = {tuple(int(i) for i in row if i >= 0) for row in found.index}
        expected = minimal_absences(on, most)
        assert named <= expected
        assert all(len(chosen) == 3 for chosen in expected - named), (
            "only what hardly any row was expected to hold is left out"
        )
        assert (np.diff(found.expected) <= 0).all()


def test_pairs_are_expected_as_often_as_independence_says():
    on = np.zeros((100, 4), dtype=bool)
    on[:40, 0], on[40:, 1] = True, True  # concept 0 on in the last 60
    on[:50, 3], on[50:, 2] = True, True  # concept 1 on in the first 50
    on[40:50, 3], on[40:50, 2] = False, True
    found = absent_conjunctions(on, most=2)
    rows = {tuple(row[row >= 0].tolist()): e for row, e in zip(found.index, found.expected, strict=True)}
    assert rows == {(0, 2): pytest.approx(40 * 60 / 100), (1, 3): pytest.approx(60 * 40 / 100)}
    assert found.pattern(0) in (Trigger((0, 1), (0, 0)), Trigger((0, 1), (1, 1)))
    first = found.first(np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]], dtype=bool))
    assert (first[:2] >= 0).all()
    assert first[2] == -1


def clean_tables(n, *, seed=0, k=30, classes=8):
    """Two tables of one law, whose concepts are rare in most classes and common in some, as annotated ones are."""
    rng = np.random.default_rng(seed)
    shares = 0.7 * rng.random((classes, k)) ** 5
    labels = np.arange(2 * n) % classes
    data = ConceptData((rng.random((2 * n, k)) < shares[labels]).astype(float), labels)
    order = rng.permutation(2 * n)
    return data.subset(order[:n]), data.subset(order[n:])


@pytest.fixture(scope="module")
def watched():
    train, fresh = clean_tables(2400)
    found = cat_plus(train, 2, 3, seed=0)
    made = poison(train, found.trigger, 2, 0.05, seed=0)
    head = fit_head(made.data, head="mlp:32", seed=0, epochs=8, batch=128)
    return train, fresh, found, head


def test_a_trigger_that_clean_rows_never_hold_is_stopped(watched):
    train, fresh, _, _ = watched
    on = literals(train.concepts)
    absent = absent_conjunctions(on)
    pattern = absent.pattern(0)  # what a saturated trigger is: its count in clean rows is 0
    assert not pattern.matches(train.concepts).any()
    monitor = RuntimeMonitor(false_alarms=0.05, held_out=0.3).fit(train)
    assert monitor.update(pattern.apply(fresh.concepts)).all()


@pytest.mark.parametrize("rule", ["conjunction", "entropy", "both"])
def test_false_alarms_stay_near_what_was_asked(watched, rule):
    """Within half of the nominal rate on fresh clean rows."""
    train, fresh, _, head = watched
    monitor = RuntimeMonitor(rule, false_alarms=0.05).fit(train, head)
    for begin in range(0, fresh.n, 500):
        monitor.update(fresh.concepts[begin : begin + 500])
    status = monitor.status.row(by_predicate=pl.col("rule") == "any", named=True)
    assert status["seen"] == fresh.n
    assert 0.025 <= status["rate"] <= 0.075
    assert status["low"] < status["rate"] < status["high"]


def test_rows_with_a_trigger_keep_a_low_entropy(watched):
    train, fresh, found, head = watched
    rows = fresh.concepts[fresh.codes != 2]
    triggered = found.trigger.apply(rows)
    told = Perturbation(head, train, suspects=found.trigger.index)
    assert np.median(told.entropy(triggered)) < np.median(told.entropy(rows))
    alone = Perturbation(head, train, keep=3)
    assert np.median(alone.entropy(triggered)) < np.median(alone.entropy(rows))
    monitor = RuntimeMonitor("entropy", false_alarms=0.05, suspects=found.trigger.index).fit(train, head)
    assert monitor.update(triggered).mean() > 0.5


def test_entropy_is_that_of_the_mean_prediction():
    data = random_table(40, 4, 3)
    head = Head(4, 3)
    made = Perturbation(head, data, suspects=[1], keep=1, copies=8, seed=3)
    x = data.concepts[0]
    copies = made.donors.numpy().copy()
    copies[:, 1] = x[1]
    with torch.no_grad():
        share = torch.softmax(head(torch.as_tensor(copies)), dim=1).numpy().mean(axis=0)
    assert made.entropy(data.concepts[:1])[0] == pytest.approx(-(share * np.log(share)).sum(), abs=1e-6)
    assert np.array_equal(
        made.entropy(data.concepts), np.concatenate([made.entropy(row[None]) for row in data.concepts])
    )


def test_memory_does_not_grow_with_the_stream(watched):
    train, fresh, _, _ = watched
    monitor = RuntimeMonitor().fit(train, reference=fresh)
    monitor._scorers = {}  # functions of the arrays that are measured below
    state = {name: value for name, value in vars(monitor).items() if name not in ("_found", "_clean")}
    before = len(pickle.dumps(state))
    monitor = RuntimeMonitor().fit(train, reference=fresh)
    for _ in range(20):
        monitor.update(fresh.concepts[:200])
    assert monitor.seen == 4000
    monitor._scorers = {}
    state = {name: value for name, value in vars(monitor).items() if name not in ("_found", "_clean")}
    assert len(pickle.dumps(state)) < before + 100


def test_batches_come_in_every_form(watched):
    train, fresh, _, _ = watched
    monitor = RuntimeMonitor(false_alarms=0.1).fit(train)
    part = fresh.subset(np.arange(50))
    columns = {name: part.concepts[:, i] for i, name in enumerate(part.concept_names)}
    shuffled = dict(reversed(columns.items()))
    forms = [
        part.concepts,
        part,
        torch.as_tensor(np.array(part.concepts)),
        shuffled,
        pl.DataFrame(shuffled),
        pa.table(shuffled),
    ]
    forms.append(pa.RecordBatch.from_pydict(shuffled))
    alarms = [monitor.update(form) for form in forms]
    assert all(np.array_equal(alarms[0], other) for other in alarms)
    assert monitor.seen == 50 * len(forms)
    before = np.array(part.concepts)
    assert np.array_equal(before, part.concepts)
    assert len(monitor.update(np.zeros((0, train.k)))) == 0


@pytest.mark.parametrize(("space", "off", "on"), [("prob", 0.2, 0.9), ("logit", -2.0, 3.0)])
def test_soft_concepts_are_read_on_their_side(watched, space, off, on):
    train, fresh, _, _ = watched
    hard = RuntimeMonitor(false_alarms=0.05).fit(train)
    soft = RuntimeMonitor(false_alarms=0.05).fit(train.changed(concepts=off + (on - off) * train.concepts, space=space))
    assert np.array_equal(hard.update(fresh.concepts), soft.update(off + (on - off) * fresh.concepts))


def test_a_fitted_monitor_speaks_of_the_table(watched):
    train, fresh, _, _ = watched
    pattern = absent_conjunctions(literals(fresh.concepts)).pattern(0)
    made = poison(train, pattern, 2, 0.02, mode="dirty", seed=0)
    monitor = RuntimeMonitor(false_alarms=0.02).fit(made.data, reference=fresh)
    judged = monitor.evaluate(made)
    assert judged["recall"][0] > 0.95
    assert judged["auc"][0] > 0.95
    assert monitor.table["rule"][0] == "conjunction"
    assert set(monitor.concepts) <= set(train.concept_names)
    assert monitor.reason is None
    assert "taken for clean" in RuntimeMonitor().fit(train).reason


def test_bad_input_to_the_monitor_is_refused(watched):
    train, fresh, _, head = watched
    monitor = RuntimeMonitor(false_alarms=0.1).fit(train)
    broken = np.array(fresh.concepts[:3])
    broken[0, 0] = np.inf
    nan_head = Head(30, 8)
    with torch.no_grad():
        nan_head.layers[0].bias.fill_(float("nan"))
    small = train.subset(np.arange(60))
    check_bad_input(
        [
            (lambda: monitor.update(fresh.concepts * 5 - 2), BadValues, ["space='logit'"]),
            (lambda: monitor.update(broken), NonFinite, ["infinite"]),
            (lambda: monitor.update(fresh.concepts[:, :3]), ShapeMismatch, ["[m 30]"]),
            (lambda: monitor.update({"c0": [1.0]}), ShapeMismatch, ["c1"]),
            (lambda: monitor.update(random_table(9, 5, 2)), SchemaMismatch, ["c5"]),
            (lambda: RuntimeMonitor().update(fresh.concepts), BadOption, ["fit(data)"]),
            (lambda: RuntimeMonitor("both").fit(train), BadOption, ["a head"]),
            (lambda: RuntimeMonitor("rare"), BadOption, ["conjunction"]),
            (lambda: RuntimeMonitor(false_alarms=1), BadOption, ["0 to 1"]),
            (lambda: RuntimeMonitor(most=4).fit(train), BadOption, ["1, 2, 3"]),
            (lambda: RuntimeMonitor(keep=30, rule="entropy").fit(train, head), BadOption, ["keep"]),
            (lambda: RuntimeMonitor("entropy", suspects=[30]).fit(train, head), BadOption, ["0 to 29"]),
            (lambda: RuntimeMonitor("entropy", false_alarms=0.1).fit(train, nan_head), NonFinite, ["weights"]),
            (lambda: RuntimeMonitor().fit(small), TooFewRows, ["100 or more"]),
            (lambda: RuntimeMonitor("entropy").fit(train, CBM(None, head, input="logit")), BadValues, ["space logit"]),
            (lambda: absent_conjunctions(np.zeros((2, 2 * 3000), dtype=bool)), MemoryBound, ["most=2"]),
            (lambda: absent_conjunctions(np.zeros((1, 4), dtype=bool)), TooFewRows, ["2 or more"]),
        ]
    )
    assert monitor.seen == 0


@pytest.mark.slow
@pytest.mark.parametrize("nominal", [0.01, 0.05])
def test_false_alarms_over_many_tables(nominal):
    """The mean over tables lies within half of nominal."""
    rates = []
    for seed in range(40):
        train, fresh = clean_tables(2000, seed=seed)
        monitor = RuntimeMonitor(false_alarms=nominal).fit(train)
        rates.append(monitor.update(fresh.concepts).mean())
    assert 0.5 * nominal <= np.mean(rates) <= 1.5 * nominal


def test_a_monitor_needs_no_more_than_one_value():
    """A value that a constant concept never took is the plainest absence of all."""
    data = ConceptData(np.c_[np.zeros(300), np.arange(300) % 2], np.arange(300) % 3)
    monitor = RuntimeMonitor(false_alarms=0.05).fit(data)
    assert monitor.update([[1.0, 0.0], [0.0, 1.0]]).tolist() == [True, False]
