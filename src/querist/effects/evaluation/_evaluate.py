"""The evaluation of scores on rows that no model has seen, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.effects.arrays import matrix
from querist.effects.errors import CostRange
from querist.effects.evaluation._averages import Row, arms_differ_rows, average_rows
from querist.effects.evaluation._given import (
    COMPONENTS,
    RANDOM,
    Component,
    Given,
    Scored,
    given,
    scored,
)
from querist.effects.evaluation._policies import multi_arm_rows, policy_rows
from querist.effects.evaluation._rankings import calibration_rows, curve_rows, metric_rows, paired_rows
from querist.effects.outcomes import prepare_outcomes
from querist.errors import BadOption, UnknownName, near

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Evaluation", "compare", "evaluate"]

CONVENTIONS = ("rate", "sklift", "causalml")


@dataclass(frozen=True)
class Evaluation:
    """Tables of an evaluation as rows by name: metrics, ate, policies, calibration, calibration_bins, paired, curves, arms_differ,
    multi_arm. `given` and `scores` are what they were made from."""

    tables: Mapping[str, Sequence[Row]]
    given: Given = field(repr=False)
    scores: Mapping[str, Scored] = field(repr=False)

    def table(self, name: str) -> pl.DataFrame:
        """A table as a polars frame. Raises UnknownName."""
        import polars as pl

        if name not in self.tables:
            raise UnknownName("No such table", value=name, allowed=near(name, self.tables, 9))
        return pl.DataFrame(list(self.tables[name]), infer_schema_length=None)

    @property
    def metrics(self) -> pl.DataFrame:
        """Every number of every convention, by score, component, arm and outcome."""
        return self.table("metrics")

    @property
    def ate(self) -> pl.DataFrame:
        """Average effects."""
        return self.table("ate")

    @property
    def policies(self) -> pl.DataFrame:
        """Values of policies and their differences from the references."""
        return self.table("policies")

    @property
    def paired(self) -> pl.DataFrame:
        """Scores against each other and against natural response."""
        return self.table("paired")

    @property
    def calibration(self) -> pl.DataFrame:
        """Slopes and intercepts of effect scores on predictions."""
        return self.table("calibration")


def evaluate(
    scores: Any,
    arm: Any,
    Y: Any,
    *,
    control: Any,
    arms: Sequence[Any] | None = None,
    outcomes: Mapping[str, str] | None = None,
    propensity: Any = None,
    mu: Any = None,
    cluster: Any = None,
    tier_weights: Any = None,
    components: Sequence[Component] = COMPONENTS,
    conventions: Sequence[str] = CONVENTIONS,
    k: Sequence[float] = (0.1, 0.2, 0.3),
    value: Mapping[str, float] | None = None,
    cost: Any = None,
    min_rows: int = 30,
    min_events: int = 5,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Judge scores on rows that no model was fitted on, beside random order, natural response and single arms.

    scores: `Effects`, an array [n, M, K] (columns of arms and outcomes in the order of `arms` and Y), or a mapping from names to
    either; a column [n] only ranks. arm: labels [n]; Y: outcomes [n, K], columns or frame, NaN where unobserved (rows then count
    for the other outcomes). propensity: as `propensities` takes it, arm shares where left out. mu: [n, M+1, K] responses of a model
    that never saw these rows; where left out, those of the first score that has them (`Effects.response`), else arm means. cost:
    label to number, or [n, M]; value: outcome to worth. No score may depend on the arm that a row was given.

    Raises what `arm_codes`, `propensities` and `prepare_outcomes` raise, UnknownName, ShapeMismatch, BadOption, CostRange.
    """
    for what, names, allowed in (("component", components, COMPONENTS), ("convention", conventions, CONVENTIONS)):
        for name in names:
            if name not in allowed:
                raise BadOption(f"No such {what}", value=name, allowed=", ".join(allowed))
    if bootstrap < 0:
        raise BadOption("bootstrap is a number of resamples", value=bootstrap, allowed="0 or more")
    prepared = prepare_outcomes(Y, outcomes)
    columns = {name: prepared.values[:, i] for i, name in enumerate(prepared.names)}
    for name in value or {}:
        if name not in columns:
            raise UnknownName("No such outcome", value=name, allowed=near(name, columns, 8))
    rows_with = partial(
        given,
        arm,
        columns,
        control=control,
        arms=arms,
        propensity=propensity,
        cluster=cluster,
        min_rows=min_rows,
        min_events=min_events,
        seed=seed,
    )
    rows = rows_with(mu=mu, tier_weights=tier_weights)
    judged = scored(scores, rows)
    first = next((score for score in judged.values() if score.natural is not None), None)
    if first is not None and (mu is None or tier_weights is None):
        rows = rows_with(
            mu=first if mu is None else mu,
            tier_weights=first.own if tier_weights is None else tier_weights,
        )
    spent = None if cost is None else costs(cost, rows)
    lines, bins = calibration_rows(judged, rows, components=components, level=level)
    tables: dict[str, Sequence[Row]] = {
        "metrics": metric_rows(
            judged, rows, components=components, conventions=conventions, k=k, bootstrap=bootstrap, level=level
        ),
        "ate": average_rows(rows, components, level=level),
        "policies": policy_rows(judged, rows, value=value, cost=spent, level=level),
        "calibration": lines,
        "calibration_bins": bins,
        "paired": paired_rows(judged, rows, components=components, level=level),
        "curves": curve_rows(judged, rows, level=level),
        "arms_differ": arms_differ_rows(rows, level=level),
        "multi_arm": multi_arm_rows(judged, rows, value=value, cost=spent),
    }
    return Evaluation(tables, rows, judged)


def compare(evaluation: Evaluation, a: str, b: str, *, level: float = 0.95) -> pl.DataFrame:
    """Rate numbers of score a less those of score b, paired on the evaluation's rows: a frame with the columns of `paired`.

    Either may be "natural response". Raises UnknownName.
    """
    import polars as pl

    known = {row["score"] for row in evaluation.tables["metrics"]} - {RANDOM} | set(evaluation.scores)
    for name in (a, b):
        if name not in known:
            raise UnknownName("No such score", value=name, allowed=near(name, sorted(known), 8))
    components = list(dict.fromkeys(row["component"] for row in evaluation.tables["ate"]))
    rows = paired_rows(evaluation.scores, evaluation.given, components=components, pairs=[(a, b)], level=level)
    return pl.DataFrame(rows, infer_schema_length=None)


def costs(cost: Any, rows: Given) -> np.ndarray:
    """Costs [n, M+1], control's first and 0 where not named. Raises UnknownName, CostRange, ShapeMismatch."""
    labels = [str(label) for label in rows.labels]
    if isinstance(cost, Mapping):
        named = {str(label): float(number) for label, number in cost.items()}
        for label in named:
            if label not in labels:
                raise UnknownName("No such arm", value=label, allowed=near(label, labels, 8))
        found = np.tile([named.get(label, 0.0) for label in labels], (rows.n, 1))
    else:
        found = np.column_stack([np.zeros(rows.n), matrix(cost, "cost", (rows.n, len(rows.arms)))])
    if not (np.isfinite(found) & (found >= 0)).all():
        row, column = np.argwhere(~(np.isfinite(found) & (found >= 0)))[0]
        raise CostRange(
            "A cost lies outside its range", value=f"{found[row, column]:g} of {labels[column]}", allowed="0 or more"
        )
    return found
