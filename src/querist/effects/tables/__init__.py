"""Tables of the room, a module per command."""

from __future__ import annotations

from querist.effects.tables.evaluate import (
    ARMS_DIFFER,
    ATE,
    CALIBRATION,
    CALIBRATION_BINS,
    CURVES,
    EVALUATE_TABLES,
    METRICS,
    MULTI_ARM,
    PAIRED,
    POLICIES,
    SEEN,
    SOURCES,
)
from querist.effects.tables.fit import COLUMNS, FIT_TABLES, HISTORY, NOT_ESTIMABLE, PREDICTED, SHRINKAGE
from querist.effects.tables.people import (
    ARM_AUC,
    ARMS,
    ATTRITION_ROWS,
    BALANCE,
    CHECK_TABLES,
    DETECTABLE,
    OVERLAP_ROWS,
    SUSPICIOUS,
)

__all__ = [
    "ARMS",
    "ARMS_DIFFER",
    "ARM_AUC",
    "ATE",
    "ATTRITION_ROWS",
    "BALANCE",
    "CALIBRATION",
    "CALIBRATION_BINS",
    "CHECK_TABLES",
    "COLUMNS",
    "CURVES",
    "DETECTABLE",
    "EVALUATE_TABLES",
    "FIT_TABLES",
    "HISTORY",
    "METRICS",
    "MULTI_ARM",
    "NOT_ESTIMABLE",
    "OVERLAP_ROWS",
    "PAIRED",
    "POLICIES",
    "PREDICTED",
    "SEEN",
    "SHRINKAGE",
    "SOURCES",
    "SUSPICIOUS",
]
