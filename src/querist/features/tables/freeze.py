"""Tables of `features freeze`: cells, what their layers hold, paired differences, learning rates."""

from __future__ import annotations

from querist.features.tables.captures import PASSED_OVER
from querist.features.tables.columns import INDEX, LAYER_OR_INPUT, MEMORY, TARGET
from querist.results.table import Column, TableSpec

__all__ = ["BLOCKS", "CAPTURED", "CELLS", "EFFECTS", "FREEZE_TABLES", "LATENT", "RATES", "TARGETS"]

_CELL = (
    TARGET,
    Column("arm", "str", "Initial weights."),
    Column("k", "int", "Frozen blocks."),
    Column("repeat", "int", "Which repeat; cells of one share head, rows, order and drawn weights."),
)

CELLS = TableSpec(
    name="cells",
    meaning="One row per training: a target, an arm, a number of frozen blocks, a repeat.",
    key=("target", "arm", "k", "repeat"),
    shown=("accuracy", "loss", "epochs", "trained_parameters", "learning_rate", "status"),
    columns=(
        *_CELL,
        Column("accuracy", "float", "Share of test rows that are right; none where it diverged.", "share"),
        Column("loss", "float", "Mean cross-entropy of the test rows.", "nats"),
        Column("epochs", "int", "Passes over the training rows."),
        Column("trained_parameters", "int", "Parameters that were trained."),
        Column("learning_rate", "float", "The learning rate that was taken."),
        Column("status", "str", "ok, or diverged: a loss that is not finite."),
        Column("reason", "str", "Why it diverged."),
        Column("n_train", "int", "Rows that it was trained on."),
        Column("n_validation", "int", "Rows on which the rate was chosen."),
        Column("n_test", "int", "Rows that it was tested on, once."),
        Column("cached", "bool", "Whether the frozen blocks were run once."),
        Column("seconds", "float", "Time of the cell.", "s"),
    ),
)

LATENT = TableSpec(
    name="latent",
    meaning="What the layers of each cell hold: A_l, the gap between source and target after training, and N_l, how far training moved "
    "the layer on the target's test examples.",
    key=("target", "arm", "k", "repeat", "layer"),
    shown=("index", "frozen", "a", "a_null", "a_excess", "n", "n_null"),
    columns=(
        *_CELL,
        LAYER_OR_INPUT,
        INDEX,
        Column("frozen", "bool", "Whether it lies within the frozen blocks: N_l is then 0, bit for bit."),
        Column("a", "float", "A_l: sliced W₂ between source and target in the trained network.", "units of z"),
        Column("a_null", "float", "The same between two parts of the source.", "units of z"),
        Column("a_null_q95", "float", "95 % quantile of that null.", "units of z"),
        Column("a_excess", "float", "Root of the squares' difference, 0 where it is negative.", "units of z"),
        Column(
            "n", "float", "N_l: sliced W₂ between the network before and after training, same examples.", "units of z"
        ),
        Column("n_null", "float", "The same between two parts of the examples before training.", "units of z"),
        Column("n_null_q95", "float", "95 % quantile of that null.", "units of z"),
        Column("images", "int", "Images of the target."),
    ),
)

EFFECTS = TableSpec(
    name="effects",
    meaning="Paired differences in accuracy between the pretrained arm and the others, over cells (target, repeat).",
    key=("target", "k", "contrast"),
    columns=(
        Column("target", "str", "Which target; * is all of them."),
        Column("k", "int", "Frozen blocks."),
        Column("contrast", "str", "Which arms: first less second. scratch is that of 0 frozen blocks."),
        Column("estimate", "float", "Mean difference.", "accuracy"),
        Column("low", "float", "Lower end of the t interval; none for fewer than two cells.", "accuracy"),
        Column("high", "float", "Upper end.", "accuracy"),
        Column("p", "float", "Two-sided p against 0, of this difference alone."),
        Column("n", "int", "Pairs of cells in which neither diverged."),
    ),
)

RATES = TableSpec(
    name="rates",
    meaning="One row per cell and learning rate that was tried.",
    key=("target", "arm", "k", "repeat", "learning_rate"),
    columns=(
        *_CELL,
        Column("learning_rate", "float", "Learning rate."),
        Column("accuracy", "float", "Accuracy on the validation rows; none where there is only one rate.", "share"),
        Column("loss", "float", "Mean cross-entropy of the validation rows.", "nats"),
        Column("status", "str", "ok or diverged."),
        Column("chosen", "bool", "Whether the cell's test is that of this rate."),
        Column("seconds", "float", "Time of the training.", "s"),
    ),
)

BLOCKS = TableSpec(
    name="blocks",
    meaning="What is frozen: the blocks in forward order.",
    key=("k",),
    columns=(
        Column("k", "int", "Number of the block; 0 stands for nothing frozen."),
        Column("block", "str", "Path of its module."),
        Column("layer", "str", "The deepest captured layer that freezing up to here holds fast."),
        Column("stage", "bool", "Whether a stage ends here."),
        Column("frozen", "list[str]", "All that is frozen up to here, the stem included."),
    ),
)

TARGETS = TableSpec(
    name="targets",
    meaning="The targets, and the data that A_l is measured on.",
    key=("target",),
    columns=(
        TARGET,
        Column("train", "str", "Where its training rows come from."),
        Column("test", "str", "Where its test rows come from."),
        Column("classes", "int", "Classes."),
        Column(
            "majority_accuracy",
            "float",
            "Share of the largest class among the test rows: what a constant reaches.",
            "share",
        ),
        Column("n_test", "int", "Test rows."),
        Column("best_k", "int", "Number of frozen blocks with the best mean accuracy of the pretrained arm."),
        Column("break_even_k", "int", "Largest number within delta of it."),
        Column("low", "int", "Lower end of its bootstrap interval over repeats."),
        Column("high", "int", "Upper end."),
    ),
)

CAPTURED = TableSpec(
    name="captured",
    meaning="What was captured in each cell, and what it cost.",
    key=("target", "arm", "k", "repeat"),
    columns=(
        *_CELL,
        Column("n", "int", "Images of the target that were read."),
        Column("ids_hash", "str", "Hash of their ids."),
        Column("found", "int", "Layers that were asked for."),
        Column("captured", "int", "Layers that were captured."),
        Column(
            "bytes_bound", "int", "Memory that was computed beforehand, the largest of the cell's captures.", "bytes"
        ),
        MEMORY,
    ),
)

FREEZE_TABLES = (CELLS, LATENT, EFFECTS, RATES, BLOCKS, TARGETS, CAPTURED, PASSED_OVER)
