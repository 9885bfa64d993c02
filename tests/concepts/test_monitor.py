"""The hook that follows a head while it trains: what it logs, that it changes nothing, and that it goes on after a restart."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.concepts.tables import structured_table
from tests.harness import check_bad_input

from querist.concepts import CBM, ConceptMonitor, cat, fit_cbm, fit_head, poison
from querist.concepts.detectors import invert_discrete
from querist.concepts.readers import birds
from querist.errors import BadOption, UnknownName
from querist.training import Hook

OPTIONS = {"head": "mlp:24", "seed": 0, "epochs": 6, "batch": 64}


@pytest.fixture(scope="module")
def tables():
    whole = structured_table(1000, 16, 5, seed=2, flip=0.15)
    return whole.subset(np.arange(600)), whole.subset(np.arange(600, 1000))


def test_looks_are_logged_and_training_is_left_alone(tables):
    data, held_out = tables
    monitor = ConceptMonitor(held_out, every=20, classes=[1, 3], limit=2, rows=64)
    watched, alone = fit_head(data, hooks=[monitor], **OPTIONS), fit_head(data, **OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True))
    table = monitor.table()
    assert table["step"].unique().sort().to_list() == [0, 20, 40, 60]
    assert table["target"].unique().sort().to_list() == ["1", "3"]
    assert monitor.passed_over == (0, 2, 4)
    last = table.filter(table["step"] == 60)
    assert last["loss"].mean() < table.filter(table["step"] == 0)["loss"].mean()
    found = invert_discrete(watched, held_out, classes=[1, 3], limit=2, rows=64)
    assert last["asr"].to_list() == found.asr.tolist()
    assert [json.loads(t) if t else None for t in last["trigger"]] == [
        None if t is None else json.loads(t.to_json()) for t in found.triggers
    ]


def test_a_backdoor_is_flagged_while_the_head_learns_it(tables):
    data, held_out = tables
    made = poison(data, cat(data, 2, 3, seed=0).trigger, 2, 0.2, seed=0).data
    bad, clean = (ConceptMonitor(held_out, every=20, limit=3) for _ in range(2))
    fit_head(made, hooks=[bad], **OPTIONS | {"epochs": 12})
    fit_head(data, hooks=[clean], **OPTIONS | {"epochs": 12})
    assert bad.flags == (2,)
    assert 2 not in clean.flags
    rows = bad.table().filter(bad.table()["target"] == "2")
    assert rows["asr"][-1] >= 0.9
    assert rows["asr"][-1] > rows["asr"][0]


def test_a_log_goes_on_after_a_restart(tables, tmp_path):
    data, held_out = tables
    monitor = ConceptMonitor(held_out, every=20, classes=[1], limit=1)
    fit_head(data, hooks=[monitor], **OPTIONS)
    other = ConceptMonitor(held_out, every=20, classes=[1], limit=1)
    other.load_state(monitor.state())
    assert other.table().equals(monitor.table())
    assert json.loads(json.dumps(monitor.state())) == monitor.state()


def test_a_joint_model_is_watched_at_its_own_concepts():
    data = birds(90, seed=1)
    monitor = ConceptMonitor(data.part("val"), every=100, limit=1)

    class Last(Hook):
        def on_end(self, state):
            self.model = isinstance(state.model, CBM)

    last = Last()
    model = fit_cbm(data, seed=0, epochs=1, batch=30, hooks=[monitor, last])
    assert last.model
    val = data.part("val")
    rows = val.changed(concepts=model.predict_concepts(val.images), space="logit")
    expected = invert_discrete(model.f, rows, limit=1, rows=128, classes=monitor.classes)
    shown = monitor.table().filter(monitor.table()["step"] == monitor.log[-1]["step"])
    assert shown.height == len(expected.codes)
    unscaled = CBM(model.g, model.f, mode="joint", input="logit")
    assert shown["asr"].to_list() == invert_discrete(unscaled, rows, limit=1, classes=monitor.classes).asr.tolist()


def test_what_cannot_be_watched_is_refused(tables):
    data, _ = tables
    pictures = birds(90, seed=1)
    check_bad_input(
        [
            (lambda: ConceptMonitor(data, every=0), BadOption, ["1 or more"]),
            (lambda: ConceptMonitor(data, classes=[9]), UnknownName, ["9"]),
            (
                lambda: fit_cbm(pictures, mode="sequential", seed=0, epochs=1, hooks=[ConceptMonitor(pictures)]),
                BadOption,
                ["trained jointly"],
            ),
        ]
    )
