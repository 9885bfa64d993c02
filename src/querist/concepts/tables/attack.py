"""Tables about attacks on copies: triggers, success beside its nulls, stealth, reachability, transfer."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = ["COPY", "EXPOSURE", "EXPOSURE_SUMMARY", "REACHABILITY", "SELECTION", "STEALTH", "TRANSFER", "TRUTH"]

_CELL = (
    Column("target", "str", "Class that the trigger is to lead to."),
    Column("selector", "str", "How the trigger was chosen."),
    Column("size", "int", "Concepts in the trigger."),
    Column("rate", "float", "Rate of poisoning."),
    Column(
        "mode", "str", "mix, dirty, clean, or none: nothing planted, the clean model under the same trigger (rate 0)."
    ),
    Column("repeat", "int", "Which repeat; cells of one share split, initial weights and batches."),
)

SELECTION = TableSpec(
    name="selection",
    meaning="One row per concept of a trigger, in the order of the picks.",
    key=("target", "selector", "size", "repeat", "step"),
    shown=("concept", "value", "coef_abs", "mean_in", "mean_out", "cnt", "saturated"),
    columns=(
        Column("target", "str", "The target class."),
        Column("selector", "str", "The selector."),
        Column("size", "int", "Concepts in the trigger."),
        Column("repeat", "int", "Which repeat."),
        Column("step", "int", "Which pick, from 1."),
        Column("concept", "str", "The concept."),
        Column("index", "int", "Its place in the table."),
        Column("value", "int", "The value that the trigger sets."),
        Column("coef_abs", "float", "|coefficient| of the filter; none where none was fitted."),
        Column("mean_in", "float", "Mean of the concept in the target."),
        Column("mean_out", "float", "Mean outside of it."),
        Column("cnt", "int", "Rows of other classes that carry the trigger so far."),
        Column("score", "float", "CAT+ score."),
        Column("saturated", "bool", "Whether no such row is left: from there the tie rule picks."),
    ),
)

EXPOSURE = TableSpec(
    name="exposure",
    meaning="One row per attack on a copy: target, selector, size, rate, mode, repeat; success beside its nulls.",
    key=("target", "selector", "size", "rate", "mode", "repeat"),
    shown=("n_poisoned", "asr", "untriggered", "clean_model_asr", "natural", "excess", "low", "high", "accuracy_drop"),
    columns=(
        *_CELL,
        Column("n_poisoned", "int", "Rows that were given the trigger."),
        Column("base", "str", "What the rate was taken of: table or target."),
        Column("accuracy", "float", "Accuracy of the attacked model on test rows.", "fraction"),
        Column("accuracy_drop", "float", "The clean model's accuracy less it.", "fraction"),
        Column("asr", "float", "Test rows of other classes predicted as the target, with the trigger.", "fraction"),
        Column("untriggered", "float", "The same rows without it.", "fraction"),
        Column("clean_model_asr", "float", "The same with the trigger by the model of unpoisoned data.", "fraction"),
        Column("natural", "float", "Those rows that carry the trigger already.", "fraction"),
        Column("excess", "float", "asr less the larger of untriggered and clean_model_asr.", "fraction"),
        Column("low", "float", "Lower end of its 95 % interval over rows.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column("accuracy_after", "float", "Accuracy on all test rows with the trigger.", "fraction"),
        Column("saturated_at", "int", "Pick at which no row of another class carries the trigger any more."),
        Column("violates_groups", "bool", "Whether it sets two values of a group of which no row has two."),
        Column("reason", "str", "Why a number is missing."),
    ),
)

EXPOSURE_SUMMARY = TableSpec(
    name="exposure_summary",
    meaning="Success over targets and repeats, one row per selector, size, rate and mode.",
    key=("selector", "size", "rate", "mode"),
    columns=(
        *(column for column in _CELL if column.name not in ("target", "repeat")),
        Column("targets", "int", "Targets."),
        Column("repeats", "int", "Repeats."),
        Column("mean", "float", "Mean success rate.", "fraction"),
        Column("median", "float", "Median over targets (of their means over repeats).", "fraction"),
        Column("p90", "float", "90 % quantile over targets.", "fraction"),
        Column("max", "float", "The most vulnerable target's.", "fraction"),
        Column(
            "low", "float", "Lower end of the mean's 95 % bootstrap interval over targets, then repeats.", "fraction"
        ),
        Column("high", "float", "Upper end; none with one target.", "fraction"),
        Column("mean_excess", "float", "Mean excess.", "fraction"),
    ),
)

STEALTH = TableSpec(
    name="stealth",
    meaning="Two sets of rows compared by a classifier, a kernel distance and the shift of each concept's mean.",
    key=("comparison",),
    columns=(
        Column("comparison", "str", "Which two sets of rows."),
        Column("n_a", "int", "Rows of the first."),
        Column("n_b", "int", "Rows of the second."),
        Column("auc", "float", "Area under ROC of a ridge classifier's out-of-fold scores.", "fraction"),
        Column("low", "float", "Lower end of its 95 % interval.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column("p", "float", "Permutation p of the AUC."),
        Column("mmd2", "float", "Unbiased MMD² with a Gaussian kernel of the Hamming distance."),
        Column("p_mmd", "float", "Its permutation p."),
        Column("shift_mean", "float", "Mean |difference| of the concepts' means."),
        Column("shift_max", "float", "The largest."),
        Column("reason", "str", "Why it was not compared."),
    ),
)

REACHABILITY = TableSpec(
    name="reachability",
    meaning="Whether the trigger can be made by changing images within ε, beside random changes and the clean model.",
    key=("target", "eps"),
    shown=("images", "hit", "low", "high", "null_hit", "clean_hit", "asr", "collateral", "physical_asr"),
    columns=(
        Column("target", "str", "The target class."),
        Column("eps", "float", "Largest change of a pixel.", "of 1"),
        Column("images", "int", "Images tried."),
        Column("hit", "float", "Images in which all concepts of the trigger were reached.", "fraction"),
        Column("low", "float", "Lower end of its Wilson interval.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column(
            "asr", "float", "Images of other classes that the attacked model then predicts as the target.", "fraction"
        ),
        Column("collateral", "float", "Mean change of the other concepts' probabilities."),
        Column("null_hit", "float", "Hit rate of changes of random sign and equal size.", "fraction"),
        Column("null_high", "float", "Upper end of its Wilson interval.", "fraction"),
        Column("null_asr", "float", "Their success.", "fraction"),
        Column("clean_hit", "float", "Hit rate of the same search on the clean model.", "fraction"),
        Column("clean_high", "float", "Upper end of its Wilson interval.", "fraction"),
        Column("clean_asr", "float", "Its success.", "fraction"),
        Column("natural", "float", "Images that carry the trigger as they are.", "fraction"),
        Column(
            "physical_asr",
            "float",
            "Success where the images were drawn anew with the trigger; none without a renderer.",
            "fraction",
        ),
    ),
)

TRANSFER = TableSpec(
    name="transfer",
    meaning="The same poisoned table under other architectures: success beside the clean model's.",
    key=("head", "mode", "input", "selector"),
    columns=(
        Column("head", "str", "From concepts to classes."),
        Column("mode", "str", "How the bottleneck is trained; table where there are no images."),
        Column("input", "str", "What the head reads of the concepts: hard, prob, logit."),
        Column("selector", "str", "How the trigger was chosen."),
        Column("asr", "float", "Success rate.", "fraction"),
        Column("clean_model_asr", "float", "The clean model's of the same architecture.", "fraction"),
    ),
)

TRUTH = TableSpec(
    name="truth",
    meaning="One row per row of the copy: what was changed in it.",
    key=("row",),
    columns=(
        Column("row", "int", "Place of the row, from 0."),
        Column("id", "str", "Its id, where there are ids."),
        Column("poisoned", "bool", "Whether it was given the trigger."),
        Column("old_label", "str", "Its label before."),
        Column("label", "str", "Its label in the copy."),
        Column("n_changed", "int", "Cells that changed."),
    ),
)

COPY = TableSpec(
    name="copy",
    meaning="The files of an assessment copy.",
    key=("file",),
    columns=(
        Column("file", "str", "Its name."),
        Column("path", "str", "Where it lies."),
        Column("meaning", "str", "What is in it."),
    ),
)
