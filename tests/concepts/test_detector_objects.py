"""Detectors as objects: one way to fit, to read and to judge them, and nothing told to them beforehand."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input

from querist import concepts
from querist.concepts import ConceptData, Trigger, cat, fit_head, poison
from querist.concepts.detectors import (
    ActivationClustering,
    AssociationAudit,
    ConceptCleanse,
    Consistency,
    Detector,
    LossTrajectory,
    RuntimeMonitor,
    SpectralSignature,
    TwoSample,
    activations_of,
    association,
    class_matrix,
    consistency_check,
    early_learned,
    loss_trajectory,
    pattern_excess,
    row_losses,
)
from querist.concepts.errors import NotBinary, SchemaMismatch
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.errors import BadOption, BadValues, ShapeMismatch, UnknownName

DETECTORS = (
    ActivationClustering,
    AssociationAudit,
    ConceptCleanse,
    Consistency,
    LossTrajectory,
    RuntimeMonitor,
    SpectralSignature,
    TwoSample,
)


@pytest.fixture(scope="module")
def poisoned():
    """A table with 6 % of its rows moved to class 2 under a trigger, trusted rows of the same law, and a head on the table."""
    whole = structured_table(1600, 20, 5, seed=3, flip=0.12)
    data, reference = whole.subset(np.arange(800)), whole.subset(np.arange(800, 1600))
    trigger = cat(data, 2, 5, seed=0).trigger
    made = poison(data, trigger, 2, 0.06, mode="dirty", seed=0)
    return made, data, reference, fit_head(made.data, head="mlp:24", seed=0, epochs=10, batch=64)


def fitted(kind, poisoned, **options):
    made, _, reference, head = poisoned
    small = {
        ConceptCleanse: {"limit": 2},
        LossTrajectory: {"head": "mlp:24", "epochs": 3, "batch": 64},
        RuntimeMonitor: {"false_alarms": 0.05},
    }
    options |= small.get(kind, {})
    return kind(**options).fit(made.data, head, reference)


@pytest.mark.parametrize("kind", DETECTORS)
def test_every_detector_is_read_in_one_way(kind, poisoned):
    made, _, reference, _ = poisoned
    before = np.array(made.data.concepts), np.array(reference.concepts)
    found = fitted(kind, poisoned)
    assert isinstance(found, Detector)
    assert found.scores.shape == found.flags.shape == (made.data.n,)
    assert found.flags.dtype == bool
    assert set(found.classes) <= set(made.data.classes)
    assert set(found.concepts) <= set(made.data.concept_names)
    assert found.table.height > 0
    assert found.rows.columns == ["row", "id", "label", "method", "score", "flag", "reason"]
    assert found.rows["flag"].sum() == found.flags.sum()
    judged = found.evaluate(made)
    assert judged.columns == [
        "method",
        "auc",
        "tpr_at_fpr1",
        "tpr_at_fpr5",
        "flagged",
        "base_rate",
        "precision",
        "recall",
        "trigger_precision",
        "trigger_recall",
    ]
    assert judged["method"][0] == kind.method
    assert judged["base_rate"][0] == pytest.approx(made.mask.mean())
    assert np.array_equal(before[0], made.data.concepts)
    assert np.array_equal(before[1], reference.concepts)
    with pytest.raises(ShapeMismatch):
        found.evaluate(made.mask[:3])
    assert found.evaluate(made.mask)["trigger_recall"][0] is None
    again = fitted(kind, poisoned)
    assert np.array_equal(found.scores, again.scores, equal_nan=True)
    assert found.table.equals(again.table)


@pytest.mark.parametrize("kind", DETECTORS)
def test_no_object_is_given_the_truth(kind):
    """SCLBD/BackdoorBench#35: neither when it is made nor when it is fitted."""
    told = {"truth", "trigger", "mask", "asr", "target", "poisoned", "rate"}
    assert not told & set(inspect.signature(kind).parameters)
    given = ["self", "data", "model", "reference", *(["unseen"] if kind is RuntimeMonitor else [])]
    assert list(inspect.signature(kind.fit).parameters) == given
    assert kind.__name__ in concepts.__all__
    with pytest.raises(BadOption, match="not been fitted"):
        _ = kind().flags


def test_with_trusted_rows_the_audit_names_class_pattern_and_rows(poisoned):
    made, data, reference, _ = poisoned
    found = AssociationAudit(permutations=199).fit(made.data, reference=reference)
    assert found.classes == (2,)
    assert found.reason is None
    judged = found.evaluate(made)
    assert judged["trigger_recall"][0] >= 0.4
    assert judged["precision"][0] > 0.4
    assert judged["precision"][0] > 4 * judged["base_rate"][0]
    clean = AssociationAudit(permutations=199).fit(data, reference=reference)
    assert clean.classes == ()
    assert not clean.flags.any()
    table = found.table
    assert table["rank"].to_list()[2] == 1
    assert table["z_max"].to_numpy() == pytest.approx(association(made.data).z_max)
    assert table["pattern_excess"].to_numpy() == pytest.approx(pattern_excess(made.data).excess)


def test_without_trusted_rows_the_audit_cannot_say_unless_statistics_agree(poisoned):
    made, _, _, _ = poisoned
    alone = AssociationAudit().fit(made.data)
    assert alone.reason
    assert not alone.flags.any()
    assert alone.table["p"].null_count() == 5
    ranges = {"size": 0.5, "pattern_excess": 0.1, "masked_agreement": 0.1}
    agreed = AssociationAudit(clean=ranges, level=0.25).fit(poison(made.data, made.trigger, 2, 0.3, seed=1).data)
    assert agreed.classes == (2,)
    assert agreed.flags.any()


def test_edits_of_a_class_level_table_are_all_found():
    rng = np.random.default_rng(0)
    matrix = (rng.random((6, 12)) < 0.4).astype(float)
    data = ConceptData(matrix[np.arange(300) % 6], np.arange(300) % 6)
    made = poison(data, Trigger((0, 3, 7), (1, 0, 1)), 2, 0.02, mode="dirty", seed=0)
    for reference in (None, data):
        found = Consistency().fit(made.data, reference=reference)
        assert np.array_equal(found.flags, made.mask)
        assert found.evaluate(made)["recall"][0] == 1
        assert found.evaluate(made)["precision"][0] == 1
        assert found.classes == (2,)
    assert not Consistency().fit(data).flags.any()
    assert np.array_equal(class_matrix(data, data), matrix)
    other = structured_table(60, 12, 3)
    assert "no class-level table" in Consistency().fit(other).reason
    several = structured_table(300, 12, 6)
    found = Consistency().fit(data, reference=several)
    assert "no class-level reference" in found.reason
    assert not found.flags.any()
    clean = poison(data, Trigger((0, 3, 7), (1, 0, 1)), 2, 0.2, mode="clean", seed=0)
    changed = clean.changed.any(axis=1)
    found = Consistency().fit(clean.data)
    assert np.array_equal(found.flags, changed)
    assert found.evaluate(clean)["trigger_precision"][0] in (None, 1.0)
    assert consistency_check(clean.data).class_level


def test_deliveries_are_told_apart_only_where_they_differ(poisoned):
    made, data, reference, _ = poisoned
    heavy = poison(data, made.trigger, 2, 0.3, mode="dirty", seed=0)
    found = TwoSample(permutations=99).fit(heavy.data, reference=reference)
    assert found.stealth.p <= 0.05
    assert set(found.concepts) & {f"c{i}" for i in made.trigger.index}
    assert found.evaluate(heavy)["auc"][0] > 0.7
    same = TwoSample(permutations=99).fit(data, reference=reference)
    assert same.stealth.p > 0.05
    assert not same.flags.any()
    paired = TwoSample(paired=True, permutations=99).fit(heavy.data, reference=data)
    assert paired.stealth.p <= 0.05
    assert found.table["auc"][0] == found.stealth.auc


def test_what_enters_the_last_layer_is_read_from_any_head():
    """ain-soph/trojanzoo#162."""
    data = random_table(70, 6, 3, missing=0.1)
    head = fit_head(data, head="mlp:9", seed=0, epochs=1)
    filled = torch.as_tensor(np.where(np.isnan(data.concepts), head.fill.numpy(), data.concepts), dtype=torch.float32)
    with torch.no_grad():
        expected = head.features(filled).numpy()
    first, last = head.layers
    twin = torch.nn.Sequential(first, torch.nn.ReLU(), last)
    assert activations_of(head, data) == pytest.approx(expected)
    assert activations_of(CBM(None, head, input="hard"), data, batch=16) == pytest.approx(expected, abs=1e-6)
    assert activations_of(twin, data.changed(concepts=filled.numpy(), space="prob")) == pytest.approx(expected)
    assert not list(head.layers[1]._forward_pre_hooks)


def test_few_rows_of_clean_classes_are_flagged_by_their_signature():
    """Trusted-AI/adversarial-robustness-toolbox#1188 and #593, through the object: at most 1.5 % of 200 clean rows at ε = 0.01."""
    whole = structured_table(1600, 20, 4, seed=1, flip=0.15)
    data, reference = whole.subset(np.arange(800)), whole.subset(np.arange(800, 1600))
    head = fit_head(data, head="mlp:24", seed=0, epochs=8, batch=64)
    found = SpectralSignature(epsilon=0.01).fit(data, head, reference)
    for code in range(4):
        assert found.flags[data.codes == code].mean() <= 0.015
    judged = found.evaluate(np.arange(800) < 40)
    assert judged["auc"][0] is not None
    assert judged["base_rate"][0] == 0.05
    alone = SpectralSignature().fit(data, head)
    assert "no reference" in alone.reason
    assert not alone.flags.any()


def test_clusters_by_distance_need_every_class(poisoned):
    made, _, reference, head = poisoned
    found = ActivationClustering(rule="distance").fit(made.data, head, reference)
    assert found.clusters is not None
    rest = reference.subset(reference.codes != 2)
    with pytest.raises(BadOption, match="lacks classes: 2"):
        ActivationClustering(rule="distance").fit(made.data, head, rest)


def test_planted_rows_are_learnt_early_where_they_are_a_class(poisoned):
    """ABL holds for mix, where the trigger sits in every row of the target. A few relabelled rows are learnt late, not early."""
    made, data, reference, _ = poisoned
    options = {"head": "mlp:24", "epochs": 4, "batch": 64, "seed": 0}
    found = LossTrajectory(false_alarms=0.05, **options).fit(made.data, reference=reference)
    judged = found.evaluate(made)
    assert found.isolated.sum() == 8
    clean = LossTrajectory(false_alarms=0.05, **options).fit(data, reference=reference)
    assert clean.flags.mean() < 0.08, "one in twenty was asked for"
    assert judged["base_rate"][0] == pytest.approx(0.06)
    assert judged["auc"][0] < 0.5
    mixed = poison(data, made.trigger, 2, 0.06, seed=0)
    early = LossTrajectory(false_alarms=0.05, **options).fit(mixed.data, reference=reference).evaluate(mixed)
    assert early["auc"][0] > 0.8
    assert early["precision"][0] > 0.75
    assert "easy rows" in LossTrajectory(**options).fit(data).reason


def test_losses_are_followed_epoch_by_epoch():
    data, other = random_table(60, 5, 3), random_table(30, 5, 3, seed=1)
    options = {"head": "linear", "batch": 20, "seed": 2, "gamma": None}
    found = loss_trajectory(data, watch=[other], epochs=3, **options)
    assert found.losses.shape == (3, 60)
    assert found.watched[0].shape == (3, 30)
    shorter = loss_trajectory(data, epochs=2, **options)
    assert np.array_equal(found.losses[:2], shorter.losses), "watching other rows changes no training"
    assert found.losses[2].mean() < found.losses[0].mean()
    scores = early_learned(found.losses)
    expected = -(found.losses / found.losses.mean(axis=1, keepdims=True)).mean(axis=0)
    assert scores == pytest.approx(expected)
    turned = loss_trajectory(data, epochs=3, head="linear", batch=20, seed=2, gamma=1.05)
    assert turned.losses[2].mean() > found.losses[2].mean()
    head = fit_head(data, head="linear", seed=0, epochs=1)
    with torch.no_grad():
        logits = head(torch.as_tensor(data.concepts.copy(), dtype=torch.float32))
    mine = torch.nn.functional.cross_entropy(logits, torch.as_tensor(data.codes.copy()), reduction="none")
    assert row_losses(head, data, data.codes) == pytest.approx(mine.numpy(), abs=1e-6)


def test_bad_input_to_detector_objects_is_refused(poisoned):
    _, data, reference, head = poisoned
    other = random_table(200, 5, 5)
    fewer = ConceptData(data.concepts, np.where(data.codes == 4, 9, data.codes))
    check_bad_input(
        [
            (lambda: SpectralSignature().fit(data), BadOption, ["a head"]),
            (lambda: ActivationClustering().fit(data), BadOption, ["a head"]),
            (lambda: SpectralSignature(epsilon=0), BadOption, ["epsilon"]),
            (lambda: SpectralSignature(centre="reference").fit(data, head), BadOption, ["reference"]),
            (lambda: SpectralSignature().fit(data, CBM(None, head, input="logit")), BadValues, ["space logit"]),
            (lambda: ActivationClustering(rule="distance").fit(data, head), BadOption, ["vectors="]),
            (lambda: TwoSample().fit(data), BadOption, ["reference="]),
            (lambda: TwoSample().fit(data, reference=other), SchemaMismatch, ["c5"]),
            (lambda: TwoSample(false_alarms=0), BadOption, ["0 to 1"]),
            (lambda: Consistency().fit(data, reference=other), SchemaMismatch, ["c5"]),
            (lambda: AssociationAudit().fit(data.changed(concepts=data.concepts / 2)), NotBinary, ["binarise"]),
            (lambda: AssociationAudit().fit(data, reference=other), SchemaMismatch, ["c5"]),
            (lambda: LossTrajectory(share=0), BadOption, ["0 to 1"]),
            (lambda: LossTrajectory(epochs=0).fit(data), BadOption, ["epochs 0"]),
            (lambda: LossTrajectory(head="linear").fit(data, reference=fewer), UnknownName, ["9"]),
            (
                lambda: LossTrajectory(head="linear", epochs=1).fit(data, reference=reference.subset(np.arange(50))),
                BadOption,
                ["50 scores"],
            ),
            (lambda: activations_of(torch.nn.Flatten(), data), BadOption, ["nn.Linear"]),
            (lambda: ConceptCleanse().fit(data, head, other), SchemaMismatch, ["c5"]),
            (lambda: activations_of(Head(5, 3), data), ShapeMismatch, ["[n 5]"]),
        ]
    )
