"""Tables that every command with captures has: what was captured, where it lies, what was passed over."""

from __future__ import annotations

from querist.features.tables.columns import INDEX, LAYER_OR_INPUT, MEMORY, MODEL
from querist.results.table import Column, TableSpec

__all__ = ["CAPTURES", "LAYERS", "PASSED_OVER"]

_SET = (
    Column("model", "str", "Which network: model, against, or what it was called."),
    Column("data", "str", "Which data set."),
)

LAYERS = TableSpec(
    name="layers",
    meaning="One row per network, data set and captured layer, in forward order.",
    key=("model", "data", "layer"),
    columns=(
        *_SET,
        LAYER_OR_INPUT,
        INDEX,
        Column("kind", "str", "preactivation, block, output, logits or input."),
        Column("width", "int", "Units before a projection."),
        Column("reduction", "str", "How a value became rows."),
        Column(
            "dropped_units", "int", "Units that the normalisation leaves out because they are constant over the source."
        ),
        Column("n_rows", "int", "Rows that are compared; several for each example where places were taken."),
        Column("n_images", "int", "Images."),
    ),
)

CAPTURES = TableSpec(
    name="captures",
    meaning="One row per network and data set: where its captured rows lie, and what they cost.",
    key=("model", "data", "repeat"),
    columns=(
        *_SET,
        Column("path", "str", "Folder of the captured rows."),
        Column("n", "int", "Images that were read."),
        Column("ids_hash", "str", "Hash of the ids of the examples."),
        Column("found", "int", "Layers that were asked for."),
        Column("captured", "int", "Layers that were captured."),
        Column("bytes_bound", "int", "Memory that was computed beforehand.", "bytes"),
        MEMORY,
        Column("notes", "list[str]", "What a user should be told."),
        Column("seconds", "float", "Time of the capture.", "s"),
        Column("repeat", "int", "Which repetition's choice of examples; 0 is the one of the seed itself."),
    ),
)

PASSED_OVER = TableSpec(
    name="passed_over",
    meaning="What was not measured, and why: layers, examples, classes.",
    columns=(
        MODEL,
        Column("what", "str", "Layer, example, class or measure."),
        Column("reason", "str", "Why it was passed over."),
    ),
)
