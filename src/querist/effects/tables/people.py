"""Tables that describe a table of people: arms, balance of columns, overlap, missing outcomes."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = ["ARMS", "ARM_AUC", "ATTRITION_ROWS", "BALANCE", "CHECK_TABLES", "DETECTABLE", "OVERLAP_ROWS", "SUSPICIOUS"]

_ARM = Column("arm", "str", "Label of the arm.")

ARMS = TableSpec(
    "arms",
    "One row per arm: people, assigned units, and what the design expects.",
    (
        _ARM,
        Column("control", "bool", "Whether it is the arm without treatment."),
        Column("rows", "int", "People."),
        Column("units", "int", "Assigned units: people, or clusters."),
        Column("share", "float", "Share of units."),
        Column("expected", "float", "Units that the design expects."),
    ),
    ("arm",),
)
ARM_AUC = TableSpec(
    "arm_auc",
    "How well the people of one arm can be told from all others by their features; ½ where arms were given at random.",
    (
        _ARM,
        Column("auc", "float", "Cross-fitted area under the ROC curve."),
        Column("low", "float", "Lower end of its 95 % interval."),
        Column("high", "float", "Upper end."),
        Column("p", "float", "Share of relabellings of whole units that reach it."),
        Column("p_adj", "float", "Adjusted by Holm over arms and the sample ratio."),
    ),
    ("arm",),
)
BALANCE = TableSpec(
    "balance",
    "Standardised mean difference of a feature between an arm and control; of a category, that of each level.",
    (
        Column("feature", "str", "Column of the table."),
        Column("level", "str", "Level of a category; `missing` for the share of missing cells; none for a number."),
        _ARM,
        Column(
            "smd",
            "float",
            "Standardised mean difference; null where the feature is constant in both and differs.",
            "sd",
        ),
        Column("expected", "float", "Size that chance alone gives, √(1/n_m + 1/n_0).", "sd"),
    ),
    ("feature", "level", "arm"),
)
OVERLAP_ROWS = TableSpec(
    "overlap",
    "How much the rows of each arm can say about all people.",
    (
        _ARM,
        Column("rows", "int", "People."),
        Column("ess", "float", "Effective number of people under weights 1/e."),
        Column("ess_share", "float", "Effective people per person."),
        Column("max_weight", "float", "Largest weight."),
        Column("clipped_share", "float", "Share of all people whose propensity for this arm lies outside [.01, .99]."),
    ),
    ("arm",),
)
ATTRITION_ROWS = TableSpec(
    "attrition",
    "Share of people whose outcome is missing, arm beside control.",
    (
        Column("outcome", "str", "Outcome."),
        _ARM,
        Column("missing", "float", "Share missing under the arm."),
        Column("missing_control", "float", "Share missing under control."),
        Column("difference", "float", "Arm less control."),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end."),
        Column("p", "float", "Against 0."),
        Column("p_adj", "float", "Adjusted by Holm over outcomes and arms."),
    ),
    ("outcome", "arm"),
)
DETECTABLE = TableSpec(
    "detectable",
    "The average effect that this table would detect.",
    (
        Column("outcome", "str", "Outcome."),
        _ARM,
        Column("sd", "float", "Standard deviation of the outcome under control.", "outcome"),
        Column("mean", "float", "Mean of the outcome under control.", "outcome"),
        Column("effect", "float", "Detectable effect at the level and power asked for.", "outcome per person"),
        Column("icc", "float", "Correlation of the outcome inside clusters, 0 without clusters."),
    ),
    ("outcome", "arm"),
)
SUSPICIOUS = TableSpec(
    "suspicious",
    "Features that look measured after assignment.",
    (
        Column("feature", "str", "Column of the table."),
        Column("auc", "float", "Largest area under the ROC curve of one arm against the others by this column alone."),
        _ARM,
        Column("reason", "str", "What looks wrong."),
    ),
    ("feature",),
)
CHECK_TABLES = (ARMS, ARM_AUC, BALANCE, OVERLAP_ROWS, ATTRITION_ROWS, DETECTABLE, SUSPICIOUS)
