"""What can be hidden in a model's concepts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.concepts.data import ConceptData
    from querist.concepts.detectors import (
        ActivationClustering,
        AssociationAudit,
        ConceptCleanse,
        Consistency,
        LossTrajectory,
        RuntimeMonitor,
        SpectralSignature,
        TwoSample,
        absent_conjunctions,
        activation_clusters,
        agreement_test,
        anomaly_index,
        association,
        class_level_test,
        clean_indices,
        cleanse_test,
        conflicts,
        consistency_check,
        invert_discrete,
        invert_gradient,
        masked_agreement,
        pattern_excess,
        reference_test,
        spectral_signature,
    )
    from querist.concepts.exposure import AttackReport, Reachability, attack_report, reachability, redrawn, two_sample
    from querist.concepts.fit import fit_cbm, fit_head, fit_heads
    from querist.concepts.model import CBM
    from querist.concepts.monitor import ConceptMonitor
    from querist.concepts.repairs import certified_accuracy, certify, concept_groups, vote
    from querist.concepts.triggers import Trigger, cat, cat_plus, cat_plus_all, poison, random_trigger

__all__ = [
    "CBM",
    "ActivationClustering",
    "AssociationAudit",
    "AttackReport",
    "ConceptCleanse",
    "ConceptData",
    "ConceptMonitor",
    "Consistency",
    "LossTrajectory",
    "Reachability",
    "RuntimeMonitor",
    "SpectralSignature",
    "Trigger",
    "TwoSample",
    "absent_conjunctions",
    "activation_clusters",
    "agreement_test",
    "anomaly_index",
    "association",
    "attack_report",
    "cat",
    "cat_plus",
    "cat_plus_all",
    "certified_accuracy",
    "certify",
    "class_level_test",
    "clean_indices",
    "cleanse_test",
    "concept_groups",
    "conflicts",
    "consistency_check",
    "fit_cbm",
    "fit_head",
    "fit_heads",
    "invert_discrete",
    "invert_gradient",
    "masked_agreement",
    "pattern_excess",
    "poison",
    "random_trigger",
    "reachability",
    "redrawn",
    "reference_test",
    "spectral_signature",
    "two_sample",
    "vote",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.concepts.data": ("ConceptData",),
        "querist.concepts.detectors": (
            "ActivationClustering",
            "AssociationAudit",
            "ConceptCleanse",
            "Consistency",
            "LossTrajectory",
            "RuntimeMonitor",
            "SpectralSignature",
            "TwoSample",
            "absent_conjunctions",
            "activation_clusters",
            "agreement_test",
            "anomaly_index",
            "association",
            "class_level_test",
            "clean_indices",
            "cleanse_test",
            "conflicts",
            "consistency_check",
            "invert_discrete",
            "invert_gradient",
            "masked_agreement",
            "pattern_excess",
            "reference_test",
            "spectral_signature",
        ),
        "querist.concepts.exposure": (
            "AttackReport",
            "Reachability",
            "attack_report",
            "reachability",
            "redrawn",
            "two_sample",
        ),
        "querist.concepts.fit": ("fit_cbm", "fit_head", "fit_heads"),
        "querist.concepts.model": ("CBM",),
        "querist.concepts.repairs": ("certified_accuracy", "certify", "concept_groups", "vote"),
        "querist.concepts.triggers": ("Trigger", "cat", "cat_plus", "cat_plus_all", "poison", "random_trigger"),
        "querist.concepts.monitor": ("ConceptMonitor",),
    },
)
