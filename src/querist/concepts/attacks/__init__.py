"""What a trigger achieves, beside its nulls, and whether it can be seen."""

from querist.concepts.attacks._attack import AttackReport, attack_report, excess_interval
from querist.concepts.attacks._parts import Parts, joined, repeat_parts, repeat_seed, with_validation
from querist.concepts.attacks._pixels import perturb
from querist.concepts.attacks._protocol import protocol
from querist.concepts.attacks._quality import ConceptQuality, ModelQuality, concept_quality, model_quality
from querist.concepts.attacks._reachability import EPS, Reach, Reachability, reachability, redrawn
from querist.concepts.attacks._stealth import Stealth, hamming, kernel_mmd, stealth_of, two_sample
from querist.concepts.attacks._subject import Predict, Subject, as_model, at_bottleneck, codes_of
from querist.concepts.attacks._summary import (
    exposure_headline,
    exposure_summary,
    over_targets,
    selector_difference,
    size_reaching,
)
from querist.concepts.attacks._sweep import (
    Setting,
    Swept,
    clean_cell,
    grid,
    planted,
    select,
    sweep,
    sweep_cell,
    train_copies,
)
from querist.concepts.attacks._targets import choose_targets
from querist.concepts.attacks._transfer import (
    ARCHITECTURES,
    Architecture,
    Transferred,
    transfer_cell,
    transfer_models,
    transfer_table,
)

__all__ = [
    "ARCHITECTURES",
    "EPS",
    "Architecture",
    "AttackReport",
    "ConceptQuality",
    "ModelQuality",
    "Parts",
    "Predict",
    "Reach",
    "Reachability",
    "Setting",
    "Stealth",
    "Subject",
    "Swept",
    "Transferred",
    "as_model",
    "at_bottleneck",
    "attack_report",
    "choose_targets",
    "clean_cell",
    "codes_of",
    "concept_quality",
    "excess_interval",
    "exposure_headline",
    "exposure_summary",
    "grid",
    "hamming",
    "joined",
    "kernel_mmd",
    "model_quality",
    "over_targets",
    "perturb",
    "planted",
    "protocol",
    "reachability",
    "redrawn",
    "repeat_parts",
    "repeat_seed",
    "select",
    "selector_difference",
    "size_reaching",
    "stealth_of",
    "sweep",
    "sweep_cell",
    "train_copies",
    "transfer_cell",
    "transfer_models",
    "transfer_table",
    "two_sample",
    "with_validation",
]
