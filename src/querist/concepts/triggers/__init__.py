"""Patterns of concepts that could send an input to one class: how they are chosen, applied and planted for an assessment."""

from querist.concepts.triggers._cat import balanced_logistic, cat, filter_order
from querist.concepts.triggers._cat_plus import cat_plus, cat_plus_all, scores
from querist.concepts.triggers._counts import PackedTable, pack
from querist.concepts.triggers._poison import Base, Mode, Poisoned, floor_count, poison
from querist.concepts.triggers._random import random_trigger
from querist.concepts.triggers._selection import Selection, checked
from querist.concepts.triggers._trigger import Trigger, fixed_strength, logit_scale

__all__ = [
    "Base",
    "Mode",
    "PackedTable",
    "Poisoned",
    "Selection",
    "Trigger",
    "balanced_logistic",
    "cat",
    "cat_plus",
    "cat_plus_all",
    "checked",
    "filter_order",
    "fixed_strength",
    "floor_count",
    "logit_scale",
    "pack",
    "poison",
    "random_trigger",
    "scores",
]
