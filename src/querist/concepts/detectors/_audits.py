"""Detectors that read the table alone: association and patterns, consistency with a class-level matrix, and two deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import nn

from querist.concepts.attacks import Stealth, two_sample
from querist.concepts.data import ConceptData, same_schema
from querist.concepts.detectors._agreement import AgreementTest, agreement_test
from querist.concepts.detectors._association import Association, association, size_outlier
from querist.concepts.detectors._consistency import ConsistencyCheck, consistency_check
from querist.concepts.detectors._detector import Detector, Findings
from querist.concepts.detectors._masked import masked_agreement
from querist.concepts.detectors._pattern import PatternExcess, pattern_excess
from querist.concepts.detectors._reference import ReferenceTest, reference_test
from querist.concepts.triggers import Trigger
from querist.errors import BadOption
from querist.statistics import two_sample_auc

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AssociationAudit", "Consistency", "TwoSample", "apart_by", "class_matrix"]

SHIFTED = 5


class AssociationAudit(Detector):
    """z, pattern excess, masked agreement and size of every class; a verdict by the reference test where trusted rows are given,
    else by the agreement test, whose ranges on clean resamples are `clean` ({"size": …, "pattern_excess": …, "masked_agreement": …}).

    A row's score is the excess of its class's pattern where it carries that pattern, else 0; flagged are the carriers in the
    classes that the test names. The pattern sets the class apart from all other rows, or with a reference from the trusted rows of the
    class itself. binarise: for concepts that are not 0/1. After `fit`: `association`, `patterns`, `test`.
    """

    method = "association"

    def __init__(
        self,
        *,
        level: float = 0.05,
        permutations: int = 999,
        size: int = 5,
        clean: Mapping[str, float] | None = None,
        binarise: str | None = None,
        seed: int = 0,
    ):
        self.level, self.permutations, self.size, self.seed = level, permutations, size, seed
        self.clean, self.binarise = clean, binarise
        self.association: Association | None = None
        self.patterns: PatternExcess | None = None
        self.test: ReferenceTest | AgreementTest | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> AssociationAudit:
        """model is not read. Raises NotBinary, SchemaMismatch, TooFewRows."""
        made = data.binary(self.binarise)
        found = association(made)
        patterns = pattern_excess(made)
        agreement = masked_agreement(made, size=self.size, found=found, seed=self.seed)
        outlier = size_outlier(data.class_sizes)
        p = p_adj = np.full(data.n_classes, np.nan)
        if reference is not None:
            test = reference_test(made, reference.binary(self.binarise), permutations=self.permutations, seed=self.seed)
            p, p_adj = test.p, test.p_adj
            named = np.flatnonzero(np.nan_to_num(p_adj, nan=1.0) <= self.level)
            order = np.lexsort((-patterns.excess, np.nan_to_num(p_adj, nan=2.0)))
            reason = None
            apart = [apart_by(made, reference.binary(self.binarise), code) for code in range(data.n_classes)]
        else:
            statistics = {"size": outlier, "pattern_excess": patterns.excess, "masked_agreement": 1 - agreement}
            test = agreement_test(statistics, clean=self.clean, level=self.level)
            named = np.array([test.code] if test.verdict == "yes" else [], dtype=int)
            order, reason = test.ranking, None if test.verdict == "yes" else test.because
            apart = list(zip(patterns.patterns, patterns.excess.tolist(), strict=True))
        self.association, self.patterns, self.test = found, patterns, test
        scores = np.zeros(data.n)
        for code, (pattern, excess) in enumerate(apart):
            rows = np.flatnonzero(data.codes == code)
            if pattern is not None and rows.size:
                scores[rows[pattern.matches(made.concepts[rows])]] = excess
        chosen = [apart[code][0] for code in named]
        concepts = dict.fromkeys(i for pattern in chosen if pattern is not None for i in pattern.index)
        table = _class_evidence(data, found, patterns, agreement, outlier, p, p_adj, order)
        self._found = Findings(
            data,
            scores,
            (scores > 0) & np.isin(data.codes, named),
            tuple(data.classes[code] for code in named),
            tuple(data.concept_names[i] for i in concepts),
            table,
            apart[max(named, key=lambda code: apart[code][1])][0] if len(named) else None,
            reason,
        )
        return self


class Consistency(Detector):
    """Rows that deviate from their class's row, in tables where all rows of a class are equal.

    reference: a class-level table (its commonest row of each class is the truth); without it the table's own commonest rows. A
    row's score is the number of cells in which it deviates. Where the table is not class-level nothing is reported and `reason`
    says so; declared: as in `consistency_check`. After `fit`: `check`.
    """

    method = "consistency"

    def __init__(self, *, declared: bool = False):
        self.declared = declared
        self.check: ConsistencyCheck | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> Consistency:
        """model is not read. Raises SchemaMismatch."""
        import polars as pl

        if reference is not None:
            same_schema(data, reference)
        level = reference is None or consistency_check(reference, declared=True).class_level
        matrix = None if reference is None or not level else class_matrix(data, reference)
        found = consistency_check(data, matrix, declared=self.declared)
        if not level:
            nothing = np.zeros((data.n, data.k), dtype=bool)
            found = ConsistencyCheck(False, nothing[:, 0], nothing, found.classes[:0], found.undecided[:0])
        self.check = found
        count = found.cells.sum(axis=1)
        table = pl.DataFrame(
            {
                "target": [str(label) for label in data.classes],
                "n": data.class_sizes,
                "deviating": np.bincount(data.codes, weights=found.deviating, minlength=data.n_classes).astype(int),
                "cells": np.bincount(data.codes, weights=count, minlength=data.n_classes).astype(int),
                "undecided": np.isin(np.arange(data.n_classes), found.undecided),
            }
        )
        pattern = _common(data, found)
        named = np.flatnonzero(found.cells.any(axis=0))
        self._found = Findings(
            data,
            count.astype(float),
            found.deviating,
            tuple(data.classes[code] for code in found.classes),
            tuple(data.concept_names[i] for i in named),
            table,
            pattern,
            None
            if found.class_level
            else f"the rows of a class differ: this is no class-level {'table' if level else 'reference'}",
        )
        return self


class TwoSample(Detector):
    """Two deliveries of a table: can the rows of `data` be told from those of the reference? Needs the reference.

    A row's score is its out-of-fold score, larger where it looks like the new delivery; where p <= level those above all but a share
    `false_alarms` of the reference's rows are flagged, and the concepts of the largest shift are named. paired: row i of both is
    one row before and after. After `fit`: `stealth`.
    """

    method = "two-sample"

    def __init__(
        self,
        *,
        level: float = 0.05,
        false_alarms: float = 0.01,
        paired: bool = False,
        permutations: int = 999,
        seed: int = 0,
    ):
        if not 0 < false_alarms < 1:
            raise BadOption("A share of false alarms lies outside its range", value=false_alarms, allowed="0 to 1")
        self.level, self.false_alarms, self.paired = level, false_alarms, paired
        self.permutations, self.seed = permutations, seed
        self.stealth: Stealth | None = None

    def fit(self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None) -> TwoSample:
        """model is not read. Raises BadOption without a reference, SchemaMismatch, TooFewRows."""
        import polars as pl

        if reference is None:
            raise BadOption(
                "Two deliveries are compared", value="reference=None", mend="Give reference=, the earlier one"
            )
        same_schema(data, reference)
        options: dict[str, Any] = {"permutations": self.permutations, "seed": self.seed}
        found = two_sample(reference.concepts, data.concepts, paired=self.paired, **options)
        self.stealth = found
        x, y = _filled(reference, data)
        scores = two_sample_auc(x, y, pairs=self.paired or None, permutations=1, seed=self.seed).scores
        old, new = scores[: reference.n], scores[reference.n :]
        sure = found.p <= self.level
        cut = float(np.quantile(old, 1 - self.false_alarms, method="higher"))
        top = np.argsort(-np.abs(np.nan_to_num(found.shift)), kind="stable")[:SHIFTED]
        columns = ("n_a", "n_b", "auc", "p", "mmd2", "p_mmd", "shift_mean", "shift_max")
        self._found = Findings(
            data,
            new,
            (new > cut) if sure else np.zeros(data.n, dtype=bool),
            (),
            tuple(data.concept_names[i] for i in top) if sure else (),
            pl.DataFrame([{"comparison": "deliveries"} | {name: getattr(found, name) for name in columns}]),
            None,
            None,
        )
        return self


def class_matrix(data: ConceptData, reference: ConceptData) -> Float[np.ndarray, "L k"]:
    """The reference's commonest row of each class of `data` (matched by label), NaN for a class that it lacks. Raises SchemaMismatch."""
    same_schema(data, reference)
    matrix = np.full((data.n_classes, data.k), np.nan)
    place = {str(label): code for code, label in enumerate(reference.classes)}
    for code, label in enumerate(data.classes):
        rows = reference.concepts[reference.codes == place.get(str(label), -1)]
        if len(rows):
            profiles, count = np.unique(rows, axis=0, return_counts=True, equal_nan=True)
            matrix[code] = profiles[count.argmax()]
    return matrix


def apart_by(data: ConceptData, reference: ConceptData, code: int) -> tuple[Trigger | None, float]:
    """What sets the rows of a class apart from the trusted rows of that class, and its excess; nothing where a side is empty."""
    mine = data.concepts[data.codes == code]
    trusted = reference.concepts[np.array([str(label) for label in reference.labels]) == str(data.classes[code])]
    if not len(mine) or not len(trusted):
        return None, 0.0
    both = ConceptData(np.concatenate([trusted, mine]), np.repeat([0, 1], [len(trusted), len(mine)]))
    found = pattern_excess(both)
    return found.patterns[1], float(found.excess[1])


def _common(data: ConceptData, found: ConsistencyCheck) -> Trigger | None:
    """The cells that most deviating rows of the class with most of them share."""
    if not found.deviating.any():
        return None
    code = int(np.bincount(data.codes[found.deviating]).argmax())
    rows = found.deviating & (data.codes == code)
    cells, differs = data.concepts[rows], found.cells[rows]
    index = np.flatnonzero((differs.mean(axis=0) > 0.5) & np.isin(cells, (0, 1)).all(axis=0))
    values = [int(np.mean(cells[differs[:, i], i]) > 0.5) for i in index]
    return Trigger(tuple(index.tolist()), tuple(values)) if index.size else None


def _filled(reference: ConceptData, data: ConceptData) -> tuple[np.ndarray, np.ndarray]:
    both = np.concatenate([reference.concepts, data.concepts])
    known = ~np.isnan(both)
    pooled = np.where(known, both, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    both = np.where(known, both, pooled)
    return both[: reference.n], both[reference.n :]


def _class_evidence(
    data: ConceptData,
    found: Association,
    patterns: PatternExcess,
    agreement: np.ndarray,
    outlier: np.ndarray,
    p: np.ndarray,
    p_adj: np.ndarray,
    order: np.ndarray,
) -> pl.DataFrame:
    import polars as pl

    rank = np.empty(data.n_classes, dtype=int)
    rank[order] = np.arange(1, data.n_classes + 1)
    numbers = {
        "size_outlier": outlier,
        "pattern_excess": patterns.excess,
        "share_in": patterns.share_in,
        "share_out": patterns.share_out,
        "masked_agreement": agreement,
        "z_max": found.z_max,
        "p": p,
        "p_adj": p_adj,
    }
    columns: dict[str, Any] = {"target": [str(label) for label in data.classes], "n": data.class_sizes}
    columns |= {"pattern": [None if t is None else t.to_json() for t in patterns.patterns]}
    columns |= numbers | {"constant": found.constant, "rank": rank}
    names = (
        "target", "n", "size_outlier", "pattern_excess", "pattern", "share_in", "share_out", "masked_agreement", "constant",
        "z_max", "p", "p_adj", "rank",
    )  # fmt: skip
    table = pl.DataFrame(columns, schema_overrides={"pattern": pl.String, "n": pl.Int64})
    return table.with_columns(pl.col(list(numbers)).fill_nan(None)).select(names)
