"""What can be done about a trigger, and what is then certain."""

from querist.concepts.repairs._certificate import Certificate, certified_accuracy, certify
from querist.concepts.repairs._guard import class_order, concept_groups, vote, vote_counts

__all__ = ["Certificate", "certified_accuracy", "certify", "class_order", "concept_groups", "vote", "vote_counts"]
