"""Tables of a fit: average effects, predicted parts, what they rest on, training, shrinkage, columns."""

from __future__ import annotations

from querist.effects.tables.evaluate import ATE
from querist.results.table import Column, TableSpec

__all__ = [
    "CHECKPOINTS",
    "COLUMNS",
    "FIT_ARMS",
    "FIT_TABLES",
    "HIDDEN",
    "HISTORY",
    "IMPORTANCE",
    "LADDER",
    "MODEL",
    "NETWORKS",
    "NOT_ESTIMABLE",
    "PREDICTED",
    "SHRINKAGE",
]

_UNIT = "outcome per person"
_ARM = Column("arm", "str", "Arm.")
_OUTCOME = Column("outcome", "str", "Outcome.")

MODEL = TableSpec(
    "model",
    "The fitted model.",
    (
        Column("model", "str", "Its name on the command line."),
        Column("path", "str", "Its folder; the run's folder `model` is a copy."),
        Column("rows", "int", "Rows of the table that have an arm."),
        Column("rows_fit", "int", "Rows that count: some outcome known, weight above 0."),
        Column("rows_validation", "int", "Most rows that only stopped the training of a network."),
        Column("parameters", "int", "Numbers that a network learns; none for other models."),
        Column("warnings", "list[str]", "What a person must know of it."),
    ),
    ("model",),
)
FIT_ARMS = TableSpec(
    "arms",
    "One row per arm: people, assigned units, and its weight in the base effect.",
    (
        Column("arm", "str", "Label of the arm."),
        Column("control", "bool", "Whether it is the arm without treatment."),
        Column("rows", "int", "People."),
        Column("units", "int", "Assigned units: people, or clusters; none for clusters of a streamed table."),
        Column("share", "float", "Share of units."),
        Column("expected", "float", "Units that the stated design expects."),
        Column("tier_weight", "float", "Weight of its effect in the base effect."),
    ),
    ("arm",),
)
LADDER = TableSpec(
    "ladder",
    "Natural response, base effect, increments and totals: measured, and the model's mean.",
    (
        _OUTCOME,
        Column("part", "str", "natural, base, incremental or total."),
        Column("arm", "str", "Arm; none for natural and base."),
        Column("estimate", "float", "Mean of doubly robust scores.", _UNIT),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end."),
        Column("predicted", "float", "Mean that the model predicts for the same people.", _UNIT),
        Column("sd", "float", "Of natural: standard deviation of the outcome under control.", "outcome"),
    ),
    ("outcome", "part", "arm"),
)
PREDICTED = TableSpec(
    "predicted",
    "Predicted parts on the rows of the fit, in tenths of the predicted total effect.",
    (
        _OUTCOME,
        _ARM,
        Column("tenth", "int", "Tenth of the predicted total effect, 1 the smallest."),
        Column("natural", "float", "Mean natural response.", _UNIT),
        Column("base", "float", "Mean base effect.", _UNIT),
        Column("incremental", "float", "Mean increment.", _UNIT),
    ),
    ("outcome", "arm", "tenth"),
)
IMPORTANCE = TableSpec(
    "importance",
    "How far predictions move when a column is shuffled between people.",
    (
        Column("feature", "str", "Column of the table."),
        _ARM,
        _OUTCOME,
        Column("part", "str", "total or incremental."),
        Column("moved", "float", "Root mean square of the change.", _UNIT),
    ),
    ("feature", "arm", "outcome", "part"),
)
ATTENTION = TableSpec(
    "attention",
    "Where the query of each arm looks among columns, mean over people, heads and networks (experts with a token per column).",
    (
        Column("feature", "str", "Column of the table."),
        _ARM,
        _OUTCOME,
        Column("share", "float", "Share of its attention; over columns they sum to 1."),
    ),
    ("feature", "arm", "outcome"),
)
SHRINKAGE = TableSpec(
    "shrinkage",
    "What the refit believed: how far effects vary between people, by its parts.",
    (
        Column("part", "str", "arm means, increments, base or totals."),
        Column("arm", "str", "Arm; none where arms share it."),
        Column("outcome", "str", "Outcome; none where outcomes share it."),
        Column("slope", "float", "Slope of scores on what networks said, where the refit takes one."),
        Column("t", "float", "The slope's t."),
        Column("factor", "float", "What it was multiplied by: 1 keeps it, 0 drops it."),
        Column("tau", "float", "Believed spread of the coefficients of columns."),
        Column("tau_net", "float", "Of those of the networks' predictions."),
        Column("share_x", "float", "Share of the refitted variance that comes from columns."),
        Column("share_net", "float", "Share that comes from the networks' predictions."),
    ),
    ("part", "arm", "outcome"),
)
NETWORKS = TableSpec(
    "networks",
    "One row per trained network: what it was trained on, what stopped it.",
    (
        Column("network", "int", "Number of the network, from 1."),
        Column("fold", "int", "Fold of people that it was not trained on, from 0; none without folds."),
        Column("member", "int", "Member of the ensemble, from 0."),
        Column("rows_fit", "int", "People that it learnt from."),
        Column("rows_validation", "int", "People that only stopped its training."),
        Column("epochs", "int", "Passes over the rows."),
        Column("best_epoch", "int", "Pass whose weights were kept."),
        Column("stopped", "str", "Why it ended: early-stopping, or epochs where all were made."),
        Column("validation", "float", "Smallest loss on the people set aside."),
    ),
    ("network",),
)
HISTORY = TableSpec(
    "history",
    "Training, pass by pass.",
    (
        Column("network", "int", "Number of the network."),
        Column("epoch", "int", "Pass over the rows."),
        Column(
            "part",
            "str",
            "What: train_ and valid_ losses, in total and by outcome; lr; gradient_norm, gate_entropy, increment_over_base.",
        ),
        Column("value", "float", "Its mean in this pass."),
    ),
    ("network", "epoch", "part"),
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
NOT_ESTIMABLE = TableSpec(
    "not_estimable",
    "Effects that these rows do not carry.",
    (_ARM, _OUTCOME, Column("reason", "str", "Why.")),
    ("arm", "outcome"),
)
HIDDEN = TableSpec(
    "hidden",
    "Whether predictions know the arm that a person was given.",
    (
        Column("rows", "int", "People whose arms were exchanged."),
        Column("changed", "float", "Largest change of a prediction; none where one was lost."),
    ),
)
CHECKPOINTS = TableSpec(
    "checkpoints",
    "Where each network of the fit left its state, from which a killed fit goes on.",
    (
        Column("fold", "int", "Fold of people that it was not trained on."),
        Column("member", "int", "Member of the ensemble."),
        Column("path", "str", "Folder of its checkpoints."),
    ),
    ("fold", "member"),
)
FIT_TABLES = (
    MODEL,
    LADDER,
    ATE,
    FIT_ARMS,
    NOT_ESTIMABLE,
    PREDICTED,
    IMPORTANCE,
    ATTENTION,
    SHRINKAGE,
    NETWORKS,
    HISTORY,
    COLUMNS,
    HIDDEN,
    CHECKPOINTS,
)
