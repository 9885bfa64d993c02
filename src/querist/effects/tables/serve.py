"""Tables of models in use: files of scores, allocations, budget paths."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = [
    "ALLOCATE_TABLES",
    "ALLOCATION",
    "ALLOCATION_ARMS",
    "BUDGET_CURVE",
    "CELLS_MET",
    "FILES",
    "GAINS",
    "SCORE_TABLES",
]

FILES = TableSpec(
    "files",
    "Files of scores, one per range of row groups.",
    (
        Column("file", "str", "Name in the output folder."),
        Column("rows", "int", "People."),
        Column("groups", "list[int]", "First and last row group of the table that it was made from."),
        Column("bytes", "int", "Its size.", "bytes"),
        Column("seconds", "float", "Time taken.", "s"),
    ),
    ("file",),
)
CELLS_MET = TableSpec(
    "cells_met",
    "Cells of features that were missing or of a level that the model had not seen.",
    (
        Column("file", "str", "File of scores."),
        Column("column", "str", "Feature."),
        Column("missing", "int", "Cells without a value."),
        Column("unknown", "int", "Cells of an unseen level."),
    ),
    ("file", "column"),
)
SCORE_TABLES = (FILES, CELLS_MET)

ALLOCATION = TableSpec(
    "allocation",
    "Who gets which arm.",
    (
        Column("row", "int", "Number of the row in the table of scores."),
        Column("id", "str", "The person's id."),
        Column("arm", "str", "The arm; control for none."),
        Column("reward", "float", "Predicted worth of it over control.", "value"),
        Column("cost", "float", "What it costs.", "cost"),
    ),
    ("row",),
)
ALLOCATION_ARMS = TableSpec(
    "allocation_arms",
    "People, spend and predicted worth by arm.",
    (
        Column("arm", "str", "The arm."),
        Column("people", "int", "People who get it."),
        Column("spent", "float", "Spent on it.", "cost"),
        Column("value", "float", "Predicted worth over control.", "value"),
    ),
    ("arm",),
)
BUDGET_CURVE = TableSpec(
    "budget_path",
    "The largest predicted worth for every budget, and that of spending on one arm alone.",
    (
        Column("line", "str", "all arms, or one arm alone; shares of arms where `part` names one."),
        Column("part", "str", "Arm whose share of people is told; none for worth."),
        Column("spend", "float", "Budget.", "cost"),
        Column("value", "float", "Worth over control, or share of people.", "value"),
        Column("shadow_price", "float", "Worth of one more unit of budget.", "value per cost"),
    ),
    ("line", "part", "spend"),
)
GAINS = TableSpec(
    "gains",
    "What the allocation is worth by outcomes of the same people, doubly robust, beside the best single arm at equal spend.",
    (
        Column("policy", "str", "allocation, best single arm, or difference."),
        Column("arm", "str", "Arm of a single-arm policy."),
        Column("value", "float", "Worth per person over control.", "value per person"),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end."),
        Column("p", "float", "Against 0."),
        Column("predicted", "float", "What the scores predict.", "value per person"),
    ),
    ("policy", "arm"),
)
SOLVED = TableSpec(
    "solved",
    "The allocation as a whole.",
    (
        Column("budget", "float", "What may be spent; none for no limit.", "cost"),
        Column("spent", "float", "What is spent.", "cost"),
        Column("value", "float", "Predicted worth over control.", "value"),
        Column("lp_bound", "float", "No allocation is worth more.", "value"),
        Column("gap", "float", "Bound less worth.", "value"),
        Column("shadow_price", "float", "Worth of one more unit of budget.", "value per cost"),
        Column("fractional_row", "int", "The one person whom the divisible optimum would treat in part."),
        Column("fractional_arm", "str", "With which arm."),
        Column("fractional_share", "float", "How far."),
        Column("feasible", "bool", "Whether every limit is met."),
        Column("method", "str", "How it was found."),
        Column(
            "aggregation_gap",
            "float",
            "By how much worth over segments differs from the real one; none without segments.",
            "value",
        ),
    ),
)
ALLOCATE_TABLES = (SOLVED, ALLOCATION_ARMS, GAINS, BUDGET_CURVE, ALLOCATION)

PSI = TableSpec(
    "psi",
    "How far a feature or score has moved between the tables.",
    (
        Column("column", "str", "Feature, or score column."),
        Column("kind", "str", "feature or score."),
        Column("psi", "float", "Population stability index over bins, Σ (a − b)·ln(a/b)."),
        Column(
            "null",
            "float",
            "What it must exceed: .99 quantile between resamples of the earlier table, raised so that it holds for all columns.",
        ),
        Column("drifted", "bool", "Whether it lies above."),
        Column("largest_bin", "str", "Where the shares differ most."),
        Column("share_before", "float", "Share of that bin in the earlier table."),
        Column("share_after", "float", "Share in the later one."),
    ),
    ("column",),
)
ARM_SHARES = TableSpec(
    "arm_shares",
    "Shares of arms in both tables.",
    (
        Column("arm", "str", "Arm."),
        Column("before", "float", "Share in the earlier table."),
        Column("after", "float", "Share in the later one."),
        Column("difference", "float", "Later less earlier."),
        Column("p", "float", "Chi-square p of all shares together."),
    ),
    ("arm",),
)
REALISED = TableSpec(
    "realised",
    "Effects found in the later table beside those predicted, of the people for whom the model predicts a gain.",
    (
        Column("arm", "str", "Arm."),
        Column("outcome", "str", "Outcome."),
        Column(
            "people",
            "int",
            "People for whom a gain is predicted: an effect above 0, or below where less is better (--value).",
        ),
        Column("predicted", "float", "Mean predicted gain of them.", "outcome per person"),
        Column("realised", "float", "Mean doubly robust effect score of them, as a gain.", "outcome per person"),
        Column("difference", "float", "Realised less predicted.", "outcome per person"),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end."),
        Column("p", "float", "Against 0."),
        Column("reason", "str", "Why it cannot be told."),
    ),
    ("arm", "outcome"),
)
SEGMENTS = TableSpec(
    "segments",
    "People of each segment of the later table, and how many of them are under control.",
    (
        Column("column", "str", "Column."),
        Column("segment", "str", "Its value."),
        Column("people", "int", "People."),
        Column("control", "int", "Of them under control."),
    ),
    ("column", "segment"),
)
MONITOR_TABLES = (PSI, ARM_SHARES, REALISED, SEGMENTS)
