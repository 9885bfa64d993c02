"""What can be hidden in a model's concepts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.concepts.data import ConceptData
    from querist.concepts.detectors import (
        activation_clusters,
        agreement_test,
        association,
        class_level_test,
        conflicts,
        consistency_check,
        masked_agreement,
        pattern_excess,
        reference_test,
        spectral_signature,
    )
    from querist.concepts.exposure import (
        AttackReport,
        Setting,
        attack_report,
        choose_targets,
        clean_cell,
        exposure_summary,
        model_quality,
        sweep,
        sweep_cell,
        two_sample,
    )
    from querist.concepts.fit import fit_cbm, fit_head, fit_heads
    from querist.concepts.model import CBM
    from querist.concepts.recipe import Recipe
    from querist.concepts.repairs import certified_accuracy, certify, concept_groups, vote
    from querist.concepts.triggers import Trigger, cat, cat_plus, cat_plus_all, poison, random_trigger

__all__ = [
    "CBM",
    "AttackReport",
    "ConceptData",
    "Recipe",
    "Setting",
    "Trigger",
    "activation_clusters",
    "agreement_test",
    "association",
    "attack_report",
    "cat",
    "cat_plus",
    "cat_plus_all",
    "certified_accuracy",
    "certify",
    "choose_targets",
    "class_level_test",
    "clean_cell",
    "concept_groups",
    "conflicts",
    "consistency_check",
    "exposure_summary",
    "fit_cbm",
    "fit_head",
    "fit_heads",
    "masked_agreement",
    "model_quality",
    "pattern_excess",
    "poison",
    "random_trigger",
    "reference_test",
    "spectral_signature",
    "sweep",
    "sweep_cell",
    "two_sample",
    "vote",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.concepts.data": ("ConceptData",),
        "querist.concepts.detectors": (
            "activation_clusters",
            "agreement_test",
            "association",
            "class_level_test",
            "conflicts",
            "consistency_check",
            "masked_agreement",
            "pattern_excess",
            "reference_test",
            "spectral_signature",
        ),
        "querist.concepts.exposure": (
            "AttackReport",
            "Setting",
            "attack_report",
            "choose_targets",
            "clean_cell",
            "exposure_summary",
            "model_quality",
            "sweep",
            "sweep_cell",
            "two_sample",
        ),
        "querist.concepts.fit": ("fit_cbm", "fit_head", "fit_heads"),
        "querist.concepts.model": ("CBM",),
        "querist.concepts.recipe": ("Recipe",),
        "querist.concepts.repairs": ("certified_accuracy", "certify", "concept_groups", "vote"),
        "querist.concepts.triggers": ("Trigger", "cat", "cat_plus", "cat_plus_all", "poison", "random_trigger"),
    },
)
