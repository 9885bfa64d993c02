"""Detectors that read what enters the model's last layer: spectral signatures and clusters, as objects."""

from __future__ import annotations

import numpy as np
from torch import nn

from querist.concepts.data import ConceptData, same_schema
from querist.concepts.detectors._clustering import Clusters, Rule, activation_clusters
from querist.concepts.detectors._detector import Detector, Findings
from querist.concepts.detectors._network import activations_of
from querist.concepts.detectors._spectral import (
    Centre,
    Signature,
    signature_flags,
    signature_threshold,
    spectral_signature,
)
from querist.errors import BadOption
from querist.statistics import folds

__all__ = ["ActivationClustering", "SpectralSignature"]


class SpectralSignature(Detector):
    """`spectral_signature` of the activations that enter the head's last linear layer; needs a model.

    centre: by default "reference" where trusted rows are given, else "class", as published. At most ⌊1.5·epsilon·n_t⌋ rows of a class
    are flagged, and only above the score that a share `false_alarms` of the reference's rows exceed, which are scored as those of the
    table are: around the other half of the reference where that is the centre (around their own mean they lie closer, and up to three
    times as many honest rows as asked were flagged). Without a reference nothing is flagged, for the published rule removes that many
    rows of every class whatever they are. A model that was trained on the table and not on the reference flags fewer honest rows than
    asked. No class is named: rows of a class share centre and direction and are flagged together, so that counts in `table` are larger
    in some class of many clean tables. After `fit`: `signature`, `threshold`.
    """

    method = "spectral"

    def __init__(self, *, centre: Centre | None = None, epsilon: float = 0.05, false_alarms: float = 0.01):
        if not 0 < epsilon <= 1:
            raise BadOption("A share of poison lies outside its range", value=epsilon, allowed="0 < epsilon <= 1")
        self.centre: Centre | None = centre
        self.epsilon, self.false_alarms = epsilon, false_alarms
        self.signature: Signature | None = None
        self.threshold: float | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> SpectralSignature:
        """Raises BadOption without a model or for a centre without its reference, SchemaMismatch, BadValues, NonFinite."""
        import polars as pl

        model = _needed(model)
        h = activations_of(model, data)
        centre: Centre = self.centre or ("class" if reference is None else "reference")
        trusted = None if reference is None else _trusted(model, data, reference)
        found = spectral_signature(h, data.codes, centre=centre, reference=trusted if centre == "reference" else None)
        self.signature, self.threshold = found, None
        flags, reason = np.zeros(data.n, dtype=bool), "no reference: no score is known to be high"
        if trusted is not None:
            known = trusted[1] >= 0
            clean = _clean_scores(trusted[0][known], trusted[1][known], centre)
            self.threshold = signature_threshold(clean, false_alarms=self.false_alarms)
            scored = np.where(np.isnan(found.score), -np.inf, found.score)
            flags = signature_flags(scored, data.codes, epsilon=self.epsilon, threshold=self.threshold)
            reason = None
        count = np.bincount(data.codes, weights=flags, minlength=data.n_classes).astype(int)
        highest = np.full(data.n_classes, np.nan)
        np.fmax.at(highest, data.codes, found.score)
        leading = np.full(data.n_classes, np.nan)
        leading[: len(found.leading)] = found.leading
        table = pl.DataFrame(
            {
                "target": [str(label) for label in data.classes],
                "n": data.class_sizes,
                "leading": leading,
                "score_max": highest,
                "flagged": count,
            }
        ).with_columns(pl.col("leading", "score_max").fill_nan(None))
        self._found = Findings(data, found.score, flags, (), (), table, None, reason)
        return self


class ActivationClustering(Detector):
    """`activation_clusters` of the activations that enter the head's last linear layer; needs a model.

    rule: "reclassify", "size", or "distance", which needs a reference (the classes' mean activations). A row's score is how strange its
    cluster is, NaN in classes that are not split. Honest classes fall into two groups as well (of one-hot groups nearly all, and one is
    taken for a stranger), so that no rate of false alarms is known: `reason` says it. After `fit`: `clusters`.
    """

    method = "clustering"

    def __init__(self, *, rule: Rule = "reclassify", silhouette: float = 0.10, seed: int = 0):
        self.rule: Rule = rule
        self.silhouette, self.seed = silhouette, seed
        self.clusters: Clusters | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> ActivationClustering:
        """Raises BadOption without a model, and for "distance" without a reference of every class; SchemaMismatch, BadValues, NonFinite."""
        import polars as pl

        model = _needed(model)
        h = activations_of(model, data)
        vectors = None
        if self.rule == "distance" and reference is not None:
            rows, codes = _trusted(model, data, reference)
            lacking = [str(data.classes[c]) for c in np.unique(data.codes) if not (codes == c).any()]
            if lacking:
                raise BadOption(
                    "The reference lacks classes", value=", ".join(lacking[:8]), mend="Use the rule reclassify"
                )
            vectors = np.stack(
                [
                    rows[codes == c].mean(axis=0) if (codes == c).any() else rows[0] * np.nan
                    for c in range(data.n_classes)
                ]
            )
        found = activation_clusters(
            h, data.codes, rule=self.rule, vectors=vectors, silhouette=self.silhouette, seed=self.seed
        )
        self.clusters = found
        split = found.cluster >= 0
        scores = np.where(split, found.score[data.codes, np.maximum(found.cluster, 0)], np.nan)
        present = len(found.small_share)
        table = pl.DataFrame(
            {
                "target": [str(label) for label in data.classes[:present]],
                "n": data.class_sizes[:present],
                "small_share": found.small_share,
                "silhouette": found.silhouette,
                "score_large": found.score[:, 0],
                "score_small": found.score[:, 1],
                "suspect": found.suspect >= 0,
            }
        ).with_columns(pl.col("small_share", "silhouette", "score_large", "score_small").fill_nan(None))
        named = tuple(data.classes[c] for c in np.flatnonzero(found.suspect >= 0))
        reason = "no rate of false alarms is known: honest classes fall into two groups as well"
        self._found = Findings(data, scores, found.flags, named, (), table, None, reason)
        return self


def _clean_scores(rows: np.ndarray, codes: np.ndarray, centre: Centre) -> np.ndarray:
    """Scores of trusted rows as the table's are made; with the reference as centre each half is scored around the other."""
    if centre != "reference":
        return spectral_signature(rows, codes, centre=centre).score
    half = folds(len(rows), 2, strata=codes)
    scores = np.full(len(rows), np.nan)
    for mine, other in ((half == 0, half == 1), (half == 1, half == 0)):
        scores[mine] = spectral_signature(
            rows[mine], codes[mine], centre="reference", reference=(rows[other], codes[other])
        ).score
    return scores


def _needed(model: nn.Module | None) -> nn.Module:
    if model is None:
        raise BadOption("Activations need a model", value="model=None", allowed="a head, or a CBM")
    return model


def _trusted(model: nn.Module, data: ConceptData, reference: ConceptData) -> tuple[np.ndarray, np.ndarray]:
    """Activations of the reference's rows and their codes among the classes of `data`, −1 for a class that it lacks."""
    same_schema(data, reference)
    place = {str(label): code for code, label in enumerate(data.classes)}
    codes = np.array([place.get(str(label), -1) for label in reference.classes])[reference.codes]
    return activations_of(model, reference), codes
