"""Tables of an export."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = ["EXPORTED", "EXPORT_COLUMNS", "EXPORT_TABLES"]

EXPORTED = TableSpec(
    "exported",
    "The exported graph, held against the model on made-up rows.",
    (
        Column("format", "str", "torch or onnx."),
        Column("model", "str", "Class of the model."),
        Column("path", "str", "Its folder; the run's folder `export` is a copy."),
        Column("files", "list[str]", "Its files."),
        Column("rows", "int", "Made-up rows that both were asked about."),
        Column("max_abs", "float", "Largest difference of an output.", "outcome"),
        Column("max_sd", "float", "The same in standard deviations of the outcome.", "sd"),
    ),
)
EXPORT_COLUMNS = TableSpec(
    "export_columns",
    "Inputs of the graph in their order.",
    (
        Column("input", "str", "numbers or codes."),
        Column("place", "int", "Column of the input, from 0."),
        Column("feature", "str", "The feature."),
        Column("levels", "int", "Levels with a code of their own; none of a number."),
    ),
    ("input", "place"),
)
EXPORT_TABLES = (EXPORTED, EXPORT_COLUMNS)
