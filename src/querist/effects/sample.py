"""What every estimator is fitted on: rows whose columns, arms, outcomes, weights and propensities have been checked once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.arrays import arm_codes, lengths
from querist.effects.design import clipped, estimated_propensity, propensities
from querist.effects.errors import ArmInFeatures, ControlAbsent
from querist.effects.outcomes import Outcomes
from querist.errors import BadOption, BadValues
from querist.sources.rows import Columns, Encoded
from querist.statistics import folds
from querist.statistics.arrays import BLOCK, in_blocks, weights_of
from querist.statistics.arrays import codes as ids_as_codes

__all__ = ["NotEstimable", "Sample", "control_of", "refuse_arm_columns", "sample_of"]


class NotEstimable(NamedTuple):
    """An effect that the rows do not carry: its arm, outcome, and why."""

    arm: Any
    outcome: str
    reason: str


@dataclass(frozen=True)
class Sample:
    """n rows as an estimator's `_fit` is given them; nothing in it may be changed.

    columns, encoded: what the features are and the features themselves; labels: arms, control first; arm [n]: 0 for control,
    1 … M; outcomes: values [n, K] with `observed`, which is false also where an arm or control does not carry the outcome;
    weight [n]: mean 1; cluster [n]: 0 … G − 1, or None; propensity [n, M + 1], held inside
    [.01, .99] where it was estimated, and `chances` before that; estimable [M + 1, K]: whether the rows of an arm
    carry an outcome; tier_weights [M]; seed.
    """

    columns: Columns
    encoded: Encoded
    labels: tuple[Any, ...]
    arm: Int[np.ndarray, "n"]
    outcomes: Outcomes
    weight: Float[np.ndarray, "n"]
    cluster: Int[np.ndarray, "n"] | None
    propensity: Float[np.ndarray, "n M+1"]
    estimable: Bool[np.ndarray, "M+1 K"]
    tier_weights: Float[np.ndarray, "M"]
    seed: int = 0
    chances: Float[np.ndarray, "n M+1"] | None = None

    @property
    def n(self) -> int:
        """Rows."""
        return self.arm.size

    @property
    def arms(self) -> int:
        """M, arms beside control."""
        return len(self.labels) - 1

    @cached_property
    def dense(self) -> Float[np.ndarray, "n d"]:
        """Features as one float32 matrix without missing values, for learners that take one."""
        return self.columns.dense(self.encoded)

    def take(self, rows: Any) -> Sample:
        """The same of some rows (numbers or a mask); weights and clusters keep their values."""
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows)
        taken = replace(
            self,
            encoded=self.encoded[rows],
            arm=self.arm[rows],
            outcomes=self.outcomes.take(rows),
            weight=self.weight[rows],
            cluster=None if self.cluster is None else self.cluster[rows],
            propensity=self.propensity[rows],
            chances=None if self.chances is None else self.chances[rows],
        )
        if "dense" in self.__dict__:
            taken.__dict__["dense"] = self.dense[rows]
        return taken

    def usable(self, outcome: int, arm: int | None = None) -> Bool[np.ndarray, "n"]:
        """Rows whose outcome counts, of one arm where it is named."""
        seen = self.outcomes.observed[:, outcome]
        return seen if arm is None else seen & (self.arm == arm)

    def folds(
        self, k: int, *, by_outcome: bool = False, seed: int | None = None, rows: Int[np.ndarray, "r"] | None = None
    ) -> Int[np.ndarray, "r"]:
        """A fold 0 … k − 1 for each row, balanced over arms (and over the levels of 0/1 outcomes); clusters stay whole.

        rows: numbers of the rows that are dealt, all where left out. Strata are numbered as they appear, so that the folds do not
        depend on how arms are called.
        """
        part = slice(None) if rows is None else rows
        n = self.n if rows is None else len(rows)
        strata, numbers = np.empty(n, dtype=np.uint8), {}
        for block in in_blocks(n):
            cells = self._cells(block if rows is None else rows[block], by_outcome)
            seen, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
            for cell in seen[np.argsort(first)].tolist():
                numbers.setdefault(cell, len(numbers))
            strata = strata.astype(np.min_scalar_type(len(numbers)), copy=False)
            strata[block] = np.array([numbers[cell] for cell in seen.tolist()])[inverse.reshape(-1)]
        return folds(
            n,
            k,
            strata=strata,
            clusters=None if self.cluster is None else self.cluster[part],
            seed=self.seed if seed is None else seed,
        )

    def _cells(self, part: Any, by_outcome: bool) -> Int[np.ndarray, "r"]:
        """What folds are balanced over, as one number a row: the arm, and of each outcome whether it is missing, 0, or above."""
        cells = self.arm[part].astype(np.int64)
        if by_outcome:
            for j, kind in enumerate(self.outcomes.kinds):
                seen = self.outcomes.observed[part, j]
                level = self.outcomes.values[part, j] > 0 if kind != "continuous" else np.zeros(len(cells), dtype=bool)
                cells = 3 * cells + np.where(seen, 1 + level, 0)
        return cells


def sample_of(
    columns: Columns,
    encoded: Encoded,
    arm: Any,
    outcomes: Outcomes,
    *,
    control: Any,
    arms: Sequence[Any] | None = None,
    sample_weight: Any = None,
    cluster: Any = None,
    propensity: Any = "share",
    tier: str = "mean",
    reference_arm: Any = None,
    tier_weights: Any = None,
    min_rows: int = 30,
    min_events: int = 5,
    seed: int = 0,
) -> tuple[Sample, tuple[NotEstimable, ...]]:
    """Check and join what a fit is given; and the effects that these rows do not carry.

    Raises what `arm_codes`, `propensities` and `sample.tier_shares` raise, LengthMismatch, ArmInFeatures, and BadValues for
    weights that are all 0.
    """
    labels, code = arm_codes(arm, control, arms)
    code = code.astype(np.min_scalar_type(-len(labels)))
    lengths(X=encoded.numbers, arm=code, Y=outcomes.values, sample_weight=sample_weight, cluster=cluster)
    weight = np.broadcast_to(1.0, code.size)
    if sample_weight is not None:
        weight = weights_of(sample_weight, code.size)
        if not weight.sum() > 0:
            raise BadValues("No row has a weight", value="sample_weight is 0 everywhere", allowed="a positive one")
        weight = weight / weight.mean()
    refuse_arm_columns(columns, encoded, code, len(labels))
    group = None if cluster is None else ids_as_codes(cluster, "Clusters")[0]
    estimable, missing = _estimable(labels, code, outcomes, min_rows, min_events)
    observed = outcomes.observed if estimable.all() else outcomes.observed & estimable[code]
    made = Sample(
        columns=columns,
        encoded=encoded,
        labels=tuple(labels),
        arm=code,
        outcomes=replace(outcomes, observed=observed),
        weight=weight,
        cluster=group,
        propensity=np.empty((code.size, 0)),
        estimable=estimable,
        tier_weights=tier_shares(labels, code, weight, tier, reference_arm, tier_weights),
        seed=seed,
    )
    if isinstance(propensity, str) and propensity == "estimate":
        chances = estimated_propensity(made.dense.astype(float), code, len(labels), cluster=group, clip=None, seed=seed)
        e = clipped(chances)
    else:
        chances, e = None, propensities(propensity, labels, code)
    shared = made.__dict__.get("dense")
    made = replace(made, propensity=e, chances=chances)
    if shared is not None:
        made.__dict__["dense"] = shared
    return made, missing


def tier_shares(
    labels: Sequence[Any], code: np.ndarray, weight: np.ndarray, tier: str, reference_arm: Any, tier_weights: Any
) -> Float[np.ndarray, "M"]:
    """The weights by which base and increments are told apart.

    tier "mean": those given, by label or in the order of the arms; else the arms' weighted shares of the treated rows. "reference":
    1 on `reference_arm`, a label (the first arm where it is left out). Raises BadOption, BadValues, ShapeMismatch.
    """
    from querist.effects.parts import tier_of

    arms = list(labels[1:])
    if tier == "reference":
        if reference_arm is not None and reference_arm not in arms:
            raise BadOption("No such reference arm", value=reference_arm, allowed=", ".join(map(str, arms)))
        position = 0 if reference_arm is None else arms.index(reference_arm)
        return tier_of(len(arms), "reference", reference_arm=position, tier_weights=tier_weights)
    if reference_arm is not None:
        raise BadOption("Only a reference tier has a reference arm", value=reference_arm, allowed='tier="reference"')
    if isinstance(tier_weights, Mapping):
        strange = [label for label in (*tier_weights, *arms) if label not in arms or label not in tier_weights]
        if strange:
            raise BadOption("Tier weights need every arm once", value=strange[0], allowed=", ".join(map(str, arms)))
        tier_weights = [tier_weights[label] for label in arms]
    if tier_weights is None:
        counts = np.bincount(code, weight, minlength=len(labels))[1:]
        tier_weights = counts / counts.sum() if counts.sum() > 0 else None
    return tier_of(len(arms), tier, tier_weights=tier_weights)  # pyright: ignore[reportArgumentType]


def control_of(arm: Any, control: Any) -> Any:
    """The label of control: the one given, else 0 or False where the arms hold it. Raises ControlAbsent."""
    if control is not None:
        return control
    array = np.asarray(arm)
    seen = sorted({str(label) for label in array[:100_000].tolist()})
    if array.dtype.kind in "biuf" and (array == 0).any():
        return False if array.dtype.kind == "b" else 0
    raise ControlAbsent(
        "The arm without treatment is not named",
        value="control=None",
        allowed=", ".join(seen[:20]),
        mend="Give control=, its label",
    )


def _estimable(
    labels: Sequence[Any], code: np.ndarray, outcomes: Outcomes, min_rows: int, min_events: int
) -> tuple[Bool[np.ndarray, "M+1 K"], tuple[NotEstimable, ...]]:
    found = np.zeros((len(labels), len(outcomes.names)), dtype=bool)
    why: dict[tuple[int, int], str] = {}
    for k, kind in enumerate(outcomes.kinds):
        for m in range(len(labels)):
            values = outcomes.values[outcomes.observed[:, k] & (code == m), k]
            if fault := _fault(values, kind, min_rows, min_events):
                why[m, k] = fault
            else:
                found[m, k] = True
    missing = []
    for k, name in enumerate(outcomes.names):
        for m, label in enumerate(labels[1:], start=1):
            if (0, k) in why:
                missing.append(NotEstimable(label, name, f"control: {why[0, k]}"))
            elif (m, k) in why:
                missing.append(NotEstimable(label, name, why[m, k]))
    return found, tuple(missing)


def _fault(values: np.ndarray, kind: str, min_rows: int, min_events: int) -> str | None:
    if values.size < max(min_rows, 1):
        return f"{values.size} rows with this outcome, fewer than {min_rows}"
    if (values == values[0]).all() and values.size > 1:
        return f"the outcome is {values[0]:g} in every row"
    if kind == "continuous":
        return None
    events = int((values != 0).sum())
    if kind == "binary":
        events = min(events, values.size - events)
    return None if events >= min_events else f"{events} events, fewer than {min_events}"


def refuse_arm_columns(columns: Columns, encoded: Encoded, code: np.ndarray, arms: int) -> None:
    """ArmInFeatures where a feature is the arm by another name: as many levels as arms, each met in one arm only.

    A missing value is a level of its own. Columns that tell the arm in a weaker way are for `check` to report.
    """
    found = (
        (name, lambda part, k=k: np.where(encoded.missing[part, k], np.nan, encoded.numbers[part, k]))
        for k, name in enumerate(columns.numbers)
    )
    levels = ((name, lambda part, k=k: encoded.codes[part, k]) for k, name in enumerate(columns.categories))
    for name, values in itertools.chain(found, levels):
        if _is_bijection(values, code, arms):
            raise ArmInFeatures(
                "A feature says which arm each row got", value=name, allowed="what was known before", mend="Drop it"
            )


def _is_bijection(values: Callable[[slice], np.ndarray], code: np.ndarray, arms: int) -> bool:
    """Whether a column, given by its rows, has a level for each arm; it is read until it has shown otherwise."""
    met: dict[Any, int] = {}
    size = 1000
    start = 0
    while start < code.size:
        part = slice(start, start + size)
        level, inverse = np.unique(values(part), return_inverse=True)
        if level.size > arms:
            return False
        for cell in np.unique(inverse.reshape(-1).astype(np.int64) * arms + code[part]).tolist():
            value = level[cell // arms].item()
            if met.setdefault("missing" if value != value else value, cell % arms) != cell % arms:
                return False
        if len(met) > arms:
            return False
        start, size = start + size, BLOCK
    return len(met) == arms == len(set(met.values()))
