"""What can be done about a trigger, and what is then certain."""

from querist.concepts.repairs._best import METHODS, Ranking, best_repair
from querist.concepts.repairs._certificate import Certificate, certified_accuracy, certify
from querist.concepts.repairs._guard import class_order, concept_groups, vote, vote_counts
from querist.concepts.repairs._prune import fine_prune
from querist.concepts.repairs._repaired import Attack, Numbers, Repaired, Trial, measure
from querist.concepts.repairs._rows import Masked, drop_rows, mask_concepts, new_labels, relabel, retrain
from querist.concepts.repairs._stability import stability_loss, stability_train
from querist.concepts.repairs._unlearn import unlearn
from querist.concepts.repairs._voters import ConceptGuard, Voters, concept_guard

__all__ = [
    "METHODS",
    "Attack",
    "Certificate",
    "ConceptGuard",
    "Masked",
    "Numbers",
    "Ranking",
    "Repaired",
    "Trial",
    "Voters",
    "best_repair",
    "certified_accuracy",
    "certify",
    "class_order",
    "concept_groups",
    "concept_guard",
    "drop_rows",
    "fine_prune",
    "mask_concepts",
    "measure",
    "new_labels",
    "relabel",
    "retrain",
    "stability_loss",
    "stability_train",
    "unlearn",
    "vote",
    "vote_counts",
]
