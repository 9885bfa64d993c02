"""How well a model does its own work, beside what a constant answer would get."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.concepts.attacks._subject import as_model, at_bottleneck
from querist.concepts.data import ConceptData

__all__ = ["ConceptQuality", "ModelQuality", "concept_quality", "model_quality"]


@dataclass(frozen=True, slots=True, eq=False)
class ConceptQuality:
    """Of each concept [k], over its known rows: share right, the mean of the shares right where it is on and where it is off (NaN
    where it is never one of them), and what the commoner value alone gets. NaN where no row is known."""

    accuracy: Float[np.ndarray, "k"]
    balanced: Float[np.ndarray, "k"]
    majority: Float[np.ndarray, "k"]


@dataclass(frozen=True, slots=True)
class ModelQuality:
    """The summary key `model`. accuracy, balanced_accuracy: of classes, the latter the mean over classes with rows;
    majority_accuracy: of the commonest class. concept_…: means over concepts of `ConceptQuality`; None without g."""

    kind: str
    input: str
    accuracy: float
    balanced_accuracy: float
    majority_accuracy: float
    concept_accuracy: float | None
    concept_balanced_accuracy: float | None
    concept_majority_accuracy: float | None

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def concept_quality(said: Float[np.ndarray, "n k"], data: ConceptData, *, cut: float) -> ConceptQuality:
    """Concepts as a model says them (on above `cut`: ½ of probabilities, 0 of logits) beside those of the table."""
    known = ~np.isnan(data.concepts)
    true, on = known & (data.concepts > (0 if data.space == "logit" else 0.5)), np.asarray(said) > cut
    n, ones = known.sum(axis=0), true.sum(axis=0)
    right_on, right_off = (true & on).sum(axis=0), (known & ~true & ~on).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ConceptQuality(
            (right_on + right_off) / n,
            (right_on / ones + right_off / (n - ones)) / 2,
            np.maximum(ones, n - ones) / n,
        )


def model_quality(model: Any, data: ConceptData) -> ModelQuality:
    """The figures of a model (a CBM, or a bare network f) on these rows. Raises BadOption for a g without pictures."""
    held = as_model(model, data)
    table = at_bottleneck(held, data)
    right = held.scores(table.concepts).argmax(axis=1) == data.codes
    sizes = np.bincount(data.codes, minlength=data.n_classes)
    hits = np.bincount(data.codes, right, minlength=data.n_classes)
    concepts: list[float | None] = [None, None, None]
    if held.g is not None:
        of = concept_quality(table.concepts, data, cut=0.0 if held.input == "logit" else 0.5)
        concepts = [
            None if np.isnan(values).all() else float(np.nanmean(values))
            for values in (of.accuracy, of.balanced, of.majority)
        ]
    return ModelQuality(
        "head" if held.g is None else held.mode,
        table.space,
        float(right.mean()),
        float((hits[sizes > 0] / sizes[sizes > 0]).mean()),
        float(sizes.max() / data.n),
        *concepts,
    )
