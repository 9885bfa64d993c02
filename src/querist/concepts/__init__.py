"""What can be hidden in a model's concepts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.concepts.data import ConceptData
    from querist.concepts.triggers import Trigger, cat, cat_plus, cat_plus_all, poison, random_trigger

__all__ = ["ConceptData", "Trigger", "cat", "cat_plus", "cat_plus_all", "poison", "random_trigger"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.concepts.data": ("ConceptData",),
        "querist.concepts.triggers": ("Trigger", "cat", "cat_plus", "cat_plus_all", "poison", "random_trigger"),
    },
)
