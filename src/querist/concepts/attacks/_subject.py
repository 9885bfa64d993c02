"""A model on given rows: what stands at its bottleneck, what it answers, and what it answers once a trigger is set there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import nn

from querist.concepts.data import ConceptData, Space
from querist.concepts.model import CBM
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, ShapeMismatch

__all__ = ["Predict", "Subject", "as_model", "at_bottleneck", "codes_of"]

Predict = Callable[[np.ndarray], np.ndarray]
"""From concepts [n k] to predicted class codes [n] or to scores [n L]."""
KEPT = 64


def as_model(model: Any, data: ConceptData) -> CBM:
    """A bottleneck model; a bare network from concepts to class logits becomes one without g, in the table's space."""
    if isinstance(model, CBM):
        return model
    if isinstance(model, nn.Module):
        return CBM(None, model, input=data.space, concept_names=data.concept_names, classes=data.classes)
    raise BadOption("This is no model", value=type(model).__name__, allowed="a CBM, or a torch module f")


def at_bottleneck(model: CBM, data: ConceptData) -> ConceptData:
    """The table that f reads: g's values of the pictures in the space `input`; the table itself without g.

    Raises BadOption for a g without pictures.
    """
    if model.g is None:
        return data
    if data.images is None:
        raise BadOption(
            "The model reads pictures, and the table has none", value="images=None", allowed="a table with images"
        )
    said = model.predict_concepts(data.images)
    return data.changed(concepts=said, space=model.input)


class Subject:
    """A model, or a function of concepts, on the rows of a table: its answers before and after a trigger, each worked out once.

    strength, scale: as in `Trigger.apply`; a bottleneck model brings its own scale where none is given.
    """

    def __init__(
        self, model: Any, data: ConceptData, *, strength: str = "quantile", scale: np.ndarray | None = None
    ) -> None:
        self.strength = strength
        self.table, self._predict, self.scale = data, model, scale
        if isinstance(model, nn.Module):
            held = as_model(model, data)
            self.table, self._predict = at_bottleneck(held, data), held.scores
            if scale is None and len(held.scale):
                self.scale = held.scale.cpu().numpy()
        self.before = codes_of(self._predict, self.table.concepts)
        self._after: dict[Trigger, np.ndarray] = {}

    @property
    def space(self) -> Space:
        """The space of what the head reads."""
        return self.table.space

    def after(self, trigger: Trigger) -> Int[np.ndarray, "n"]:
        """Codes once the trigger is set."""
        if trigger not in self._after:
            if len(self._after) >= KEPT:
                self._after.clear()
            made = trigger.apply(self.table.concepts, space=self.space, strength=self.strength, scale=self.scale)
            self._after[trigger] = codes_of(self._predict, made)
        return self._after[trigger]

    def wrong_side_share(self, trigger: Trigger) -> float | None:
        """`Trigger.wrong_side_share` in logits; None in other spaces."""
        if self.space != "logit":
            return None
        return trigger.wrong_side_share(self.table.concepts, strength=self.strength, scale=self.scale)


def codes_of(predict: Predict, concepts: np.ndarray) -> Int[np.ndarray, "n"]:
    """Predicted codes, the first of the largest where scores were given. Raises ShapeMismatch."""
    found = np.asarray(predict(concepts))
    if found.shape[:1] != concepts.shape[:1] or found.ndim not in (1, 2):
        raise ShapeMismatch(
            "Predictions must have one entry per row", value=found.shape, allowed=f"[{len(concepts)}] or [n L]"
        )
    return found if found.ndim == 1 else found.argmax(axis=1)
