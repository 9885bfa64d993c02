"""Tables of a fit: training, shrinkage, what cannot be estimated, columns, predictions by segment."""

from __future__ import annotations

from querist.effects.tables.evaluate import ATE
from querist.effects.tables.people import ARMS
from querist.results.table import Column, TableSpec

__all__ = ["COLUMNS", "FIT_TABLES", "HISTORY", "NOT_ESTIMABLE", "PREDICTED", "SHRINKAGE"]

HISTORY = TableSpec(
    "history",
    "Training, epoch by epoch.",
    (
        Column("member", "int", "Network of the fit: fold or member of an ensemble."),
        Column("epoch", "int", "Pass over the rows."),
        Column("part", "str", "Whose loss: an outcome, total, or validation."),
        Column("value", "float", "Its mean."),
    ),
    ("member", "epoch", "part"),
)
SHRINKAGE = TableSpec(
    "shrinkage",
    "What the refit believed: how far effects vary between people, by its parts.",
    (
        Column("part", "str", "base or incremental, and which scale."),
        Column("arm", "str", "Arm; none where arms share it."),
        Column("outcome", "str", "Outcome; none where outcomes share it."),
        Column("slope", "float", "Share of variance, scale or slope, as the part says."),
        Column("t", "float", "Statistic it was judged by."),
        Column("factor", "float", "What it was multiplied by: 1 keeps it, 0 drops it."),
    ),
    ("part", "arm", "outcome"),
)
NOT_ESTIMABLE = TableSpec(
    "not_estimable",
    "Effects that these rows do not carry.",
    (
        Column("arm", "str", "Arm."),
        Column("outcome", "str", "Outcome."),
        Column("reason", "str", "Why."),
    ),
    ("arm", "outcome"),
)
COLUMNS = TableSpec(
    "columns",
    "Features as the model sees them.",
    (
        Column("feature", "str", "Column of the table."),
        Column("kind", "str", "number or category."),
        Column("levels", "int", "Levels of a category."),
        Column("missing", "int", "Rows in which it is missing."),
        Column("used", "bool", "Whether the model uses it."),
        Column("reason", "str", "Why not."),
    ),
    ("feature",),
)
PREDICTED = TableSpec(
    "predicted",
    "Predicted parts on the rows of the fit, in tenths of the predicted total: natural response, base effect, increment.",
    (
        Column("outcome", "str", "Outcome."),
        Column("arm", "str", "Arm."),
        Column("tenth", "int", "Tenth of the predicted total effect, 1 the smallest."),
        Column("natural", "float", "Mean natural response.", "outcome per person"),
        Column("base", "float", "Mean base effect.", "outcome per person"),
        Column("incremental", "float", "Mean increment.", "outcome per person"),
    ),
    ("outcome", "arm", "tenth"),
)
FIT_TABLES = (ARMS, ATE, PREDICTED, SHRINKAGE, HISTORY, COLUMNS, NOT_ESTIMABLE)
