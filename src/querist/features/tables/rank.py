"""Tables of `features rank`: scores beside their nulls, baselines, agreement with what training reached."""

from __future__ import annotations

from querist.features.tables.captures import CAPTURES, LAYERS, PASSED_OVER
from querist.features.tables.columns import INDEX, MODEL, TARGET
from querist.results.table import Column, TableSpec

__all__ = ["AGREEMENT", "BASELINES", "MODELS", "RANK_TABLES", "SCORES", "TRUTH"]

_WHERE = (
    MODEL,
    Column("layer", "str", "Name of the layer; logits where the score looks at the network's own classes."),
    INDEX,
)
_VALUE = (
    Column("value", "float", "Its value; larger is better, but for the distance w."),
    Column(
        "rank",
        "int",
        "1 for the best of all networks and layers; ties share the best place. None for w, which ranks nothing.",
    ),
    Column("p", "float", "(1 + permuted labellings that reach the value)/(1 + B)."),
    Column(
        "null_mean",
        "float",
        "Its mean where there is nothing to find: permuted labels; the majority class; halves of the source.",
    ),
    Column("null_sd", "float", "Its sd there."),
)

SCORES = TableSpec(
    name="scores",
    meaning="One row per score, network and layer: the score beside the same score of permuted labels.",
    key=("score", "model", "layer"),
    shown=("value", "rank", "p", "null_mean", "null_sd"),
    columns=(
        Column("score", "str", "nce, leep, nleep, logme, h-score, transrate or gbc."),
        *_WHERE,
        *_VALUE,
        Column("note", "str", "What a reader must know of it, such as shrinkage."),
    ),
)

BASELINES = TableSpec(
    name="baselines",
    meaning="What scores must beat: constant, depth, parameters, width, source-accuracy, the linear probe, and the distance w.",
    key=("score", "model", "layer"),
    shown=("value", "rank", "low", "high", "null_mean"),
    columns=(
        Column("score", "str", "constant, depth, parameters, width, source-accuracy, probe or w."),
        *_WHERE,
        *_VALUE,
        Column("low", "float", "Lower end of the probe's accuracy."),
        Column("high", "float", "Upper end of the probe's accuracy."),
        Column(
            "folds",
            "list[float]",
            "Accuracy of the probe in each fold; folds are the same for all layers and networks.",
            "share",
        ),
        Column("note", "str", "What a reader must know of it."),
    ),
)

AGREEMENT = TableSpec(
    name="agreement",
    meaning="How scores and baselines order networks and layers, beside the truth: weighted Kendall τ over candidates, mean over cells.",
    key=("score", "target"),
    columns=(
        Column(
            "score", "str", "Score or baseline; w is taken with its sign turned, since small distances are to be good."
        ),
        TARGET,
        Column("tau_w", "float", "Weighted Kendall τ of score and truth, mean over cells (target, seed)."),
        Column("low", "float", "Lower end of its bootstrap interval over cells; none for one cell."),
        Column("high", "float", "Upper end."),
        Column("difference_to_depth", "float", "tau_w less that of depth."),
        Column("diff_low", "float", "Lower end of the difference."),
        Column("diff_high", "float", "Upper end of the difference."),
        Column("cells", "int", "Cells (target, seed)."),
        Column("candidates", "int", "Networks and layers with a truth in every cell."),
    ),
)

TRUTH = TableSpec(
    name="truth",
    meaning="What training reached from each network and layer, as it was given.",
    key=("target", "seed", "model", "layer"),
    columns=(
        TARGET,
        Column("seed", "int", "Which seed, or repeat."),
        MODEL,
        Column("layer", "str", "Layer up to which it was frozen, or on which a head was trained."),
        Column("accuracy", "float", "Accuracy that was reached.", "share"),
        Column(
            "used",
            "bool",
            "Whether it stands beside scores: the candidate is ranked here and has a truth in every cell.",
        ),
    ),
)

MODELS = TableSpec(
    name="models",
    meaning="The networks.",
    key=("model",),
    columns=(
        MODEL,
        Column("parameters", "int", "Its parameters."),
        Column("layers", "int", "Layers that were captured."),
        Column("classes", "int", "Classes of its own output; none where its output is no row of logits."),
        Column("source_accuracy", "float", "Accuracy on the source, where that has labels for its classes.", "share"),
    ),
)

RANK_TABLES = (SCORES, BASELINES, AGREEMENT, TRUTH, MODELS, LAYERS, CAPTURES, PASSED_OVER)
