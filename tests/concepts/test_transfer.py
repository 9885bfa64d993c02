"""One poisoned table under every architecture, and only those that a table can train."""

from __future__ import annotations

import numpy as np
import pytest
from tests.concepts.tables import structured_table
from tests.harness import check_bad_input

from querist.concepts.attacks import (
    ARCHITECTURES,
    Architecture,
    Subject,
    Transferred,
    attack_report,
    repeat_seed,
    transfer_cell,
    transfer_models,
    transfer_table,
)
from querist.concepts.fit import fit_cbm
from querist.concepts.readers import birds
from querist.errors import BadOption, UnknownName


def test_there_are_eighteen_architectures():
    assert len(set(ARCHITECTURES)) == 2 * 3 * 3
    assert {one.head for one in ARCHITECTURES} == {"linear", "mlp:512"}


def test_without_pictures_f_alone_is_trained_and_the_rest_is_passed_over():
    data = structured_table(600, 20, 6)
    clean = transfer_models(transfer_table(data, 0), epochs=12, batch=64, seed=repeat_seed(0, 0))
    assert set(clean.models) == {Architecture(head, "independent", "hard") for head in ("linear", "mlp:512")}
    assert len(clean.passed_over) == 16
    reasons = {one["what"]: one["reason"] for one in clean.passed_over}
    assert "no pictures" in reasons["transfer: linear, joint, logit"]
    assert "alike as prob" in reasons["transfer: linear, independent, prob"]
    assert "no logit values" in reasons["transfer: mlp:512, independent, logit"]
    rows = transfer_cell(data, 2, 0, clean, selectors=("cat", "random"), size=4, rate=0.15, epochs=12, batch=64)
    assert [(row["head"], row["selector"]) for row in rows] == [
        (head, selector) for selector in ("cat", "random") for head in ("linear", "mlp:512")
    ]
    for row in rows:
        assert (row["mode"], row["input"], row["target"], row["repeat"]) == ("independent", "hard", 2, 0)
        assert row["asr"] > row["clean_model_asr"] + 0.3


@pytest.fixture(scope="module")
def drawn():
    return birds(180, seed=0)


def test_pictures_train_every_architecture_but_joint_hard(drawn):
    table = transfer_table(drawn, 0)
    assert set(table.split) == {"train", "val"}
    clean = transfer_models(table, epochs=1, seed=repeat_seed(0, 0))
    assert len(clean.models) == 16
    assert [one["what"] for one in clean.passed_over] == [
        "transfer: linear, joint, hard",
        "transfer: mlp:512, joint, hard",
    ]
    for one, model in clean.models.items():
        assert (model.f.head, model.mode, model.input) == (one.head, one.mode, one.input)
    shared = {id(model.g) for one, model in clean.models.items() if one.mode != "joint"}
    assert len(shared) == 1
    assert shared.isdisjoint({id(model.g) for one, model in clean.models.items() if one.mode == "joint"})


def test_a_model_of_the_matrix_is_the_model_trained_alone(drawn):
    """Sharing g changes nothing: `fit_cbm` trains the same g and the same f."""
    table, test = transfer_table(drawn, 0), drawn.part("test")
    wanted = [Architecture("linear", mode, input) for mode, input in (("sequential", "prob"), ("independent", "logit"))]
    made = transfer_models(table, architectures=wanted, epochs=1, seed=4).models
    for one in wanted:
        alone = fit_cbm(table, head="linear", mode=one.mode, input=one.input, epochs=1, seed=4)
        assert np.array_equal(Subject(made[one], test).before, Subject(alone, test).before)
        assert np.array_equal(made[one].scale.numpy(), alone.scale.numpy())


def test_rates_are_those_of_the_attack_report(drawn):
    wanted = [Architecture("linear", "sequential", "hard"), Architecture("linear", "independent", "prob")]
    clean = transfer_models(transfer_table(drawn, 0), architectures=wanted, epochs=1, seed=repeat_seed(0, 0))
    rows = transfer_cell(drawn, "rust", 0, clean, selectors=("random",), size=3, rate=0.1, epochs=1)
    assert [(row["mode"], row["input"]) for row in rows] == [(one.mode, one.input) for one in wanted]
    from querist.concepts import random_trigger

    trigger = random_trigger(drawn.part("train"), "rust", 3, seed=repeat_seed(0, 0)).trigger
    for row, one in zip(rows, wanted, strict=True):
        found = attack_report(clean.models[one], drawn.part("test"), trigger, "rust")
        assert row["clean_model_asr"] == found.asr


def test_bad_transfers_are_refused():
    data = structured_table(100, 8, 4)
    clean = transfer_models(data, architectures=[Architecture("linear", "independent", "hard")], epochs=1, seed=0)
    check_bad_input(
        [
            (lambda: transfer_cell(data, 1, 0, Transferred()), BadOption, ["pictures"]),
            (lambda: transfer_cell(data, 9, 0, clean), UnknownName, ["9"]),
            (lambda: transfer_cell(data, 1, 0, clean, size=9), BadOption, ["usable"]),
        ]
    )
