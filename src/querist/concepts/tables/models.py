"""Tables about models: their accuracy, inverted triggers, the certificate, the monitor, repairs."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = ["CERTIFICATE", "INVERSION", "MODELS", "MONITOR", "PICTURES", "REPAIR"]

MODELS = TableSpec(
    name="models",
    meaning="One row per model: the one under audit, those of unpoisoned data that attacks are held against, and the attacked one.",
    key=("model",),
    shown=("kind", "accuracy", "balanced_accuracy", "majority_accuracy", "concept_accuracy", "n_test"),
    columns=(
        Column(
            "model",
            "str",
            "given; clean/repeat=…, of unpoisoned data; attacked, of the worked headline attack; clean/set-aside, its clean "
            "twin where rows were set aside; or trained here.",
        ),
        Column("repeat", "int", "Which repeat; none for the given model."),
        Column("kind", "str", "cbm (pictures to concepts to classes) or head (concepts to classes)."),
        Column("input", "str", "What the head reads of the concepts."),
        Column("accuracy", "float", "Accuracy on test rows.", "fraction"),
        Column(
            "balanced_accuracy", "float", "Mean over classes of the share of their rows that are right.", "fraction"
        ),
        Column("majority_accuracy", "float", "Share of the largest class: what a constant reaches.", "fraction"),
        Column("concept_accuracy", "float", "Mean over concepts; none without pictures.", "fraction"),
        Column("concept_balanced_accuracy", "float", "The same with both values counted alike.", "fraction"),
        Column("concept_low", "float", "Lower end of its 95 % bootstrap interval over concepts.", "fraction"),
        Column("concept_high", "float", "Upper end.", "fraction"),
        Column("concept_permuted", "float", "The same of concepts predicted from permuted pictures.", "fraction"),
        Column("concept_majority_accuracy", "float", "What naming the commoner value reaches.", "fraction"),
        Column("n_train", "int", "Rows it was trained on; none where that is not known."),
        Column(
            "n_val",
            "int",
            "Rows that it was not trained on and that epochs, thresholds and repairs are chosen by: named val, or set aside; none where "
            "nothing is chosen of it.",
        ),
        Column("n_test", "int", "Rows it was tested on."),
        Column("path", "str", "Where it lies, below units of the run folder."),
        Column("seconds", "float", "Time of its training.", "s"),
    ),
)

INVERSION = TableSpec(
    name="inversion",
    meaning="One row per class: the smallest trigger found that sends rows to it.",
    key=("model", "target", "method"),
    shown=("target", "method", "size", "norm", "index", "p", "asr"),
    columns=(
        Column(
            "model",
            "str",
            "audited; retrain/…, a clean retrain that calibrates; attacked, of the worked attack, by which repairs are chosen.",
        ),
        Column("target", "str", "The class."),
        Column("method", "str", "discrete, or gradient."),
        Column("size", "int", "Concepts in the trigger; none where none up to 8 reaches the success asked for."),
        Column("norm", "float", "What the anomaly index is made of: the size, or Σ of the mask."),
        Column("index", "float", "(median − norm)/(1.4826 MAD) over classes, low side alone.", "MAD"),
        Column("p", "float", "1 + clean retrains with an index as large, over 1 + retrains; none without retrains."),
        Column("trigger", "str", "The trigger, as JSON (index, values)."),
        Column("asr", "float", "Its success rate.", "fraction"),
    ),
)

CERTIFICATE = TableSpec(
    name="certificate",
    meaning="Share of test rows on which the vote is right and stays right whatever is done to r groups of concepts.",
    key=("grouping", "r"),
    columns=(
        Column("grouping", "str", "How concepts were grouped."),
        Column("r", "int", "Groups that may be set at will."),
        Column("certified_accuracy", "float", "That share.", "fraction"),
        Column("low", "float", "Lower end of its Wilson interval.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column("accuracy", "float", "Accuracy of the vote.", "fraction"),
        Column("groups", "int", "Groups."),
        Column("coverage", "float", "Groups that the headline triggers touch, mean over targets."),
        Column("ties", "str", "Rule for ties: rank (a fixed order of classes)."),
        Column("n", "int", "Test rows."),
    ),
)

MONITOR = TableSpec(
    name="monitor",
    meaning="One row per rule of the run-time monitor, fitted on training rows, judged on test rows; where a rule reads the model its "
    "threshold is set on validation rows.",
    key=("rule",),
    columns=(
        Column(
            "rule",
            "str",
            "conjunction (of values that clean rows do not hold together) or entropy (of predictions when other concepts are replaced).",
        ),
        Column("false_alarm_rate", "float", "Clean test rows that alarm.", "fraction"),
        Column("detection_rate", "float", "Triggered test rows that alarm.", "fraction"),
        Column("low", "float", "Lower end of its Wilson interval.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column("n", "int", "Triggered rows."),
    ),
)

REPAIR = TableSpec(
    name="repair",
    meaning="Two rows per repair: the four numbers before and after.",
    key=("method", "stage"),
    columns=(
        Column("method", "str", "The repair."),
        Column(
            "stage", "str", "before, after; clean-before, clean-after: the same repair of the clean model, the null."
        ),
        Column("accuracy", "float", "Clean accuracy on test rows.", "fraction"),
        Column("concept_accuracy", "float", "Concept accuracy; none without pictures.", "fraction"),
        Column("asr", "float", "Success rate of the trigger.", "fraction"),
        Column("untriggered", "float", "The same rows without it.", "fraction"),
        Column("excess", "float", "Excess over untriggered rate and clean model.", "fraction"),
        Column("low", "float", "Lower end of its 95 % interval over rows.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column(
            "score", "float", "Excess with inverted triggers on validation rows, by which best is chosen.", "fraction"
        ),
        Column("accuracy_validation", "float", "Accuracy on validation rows.", "fraction"),
        Column("detail", "str", "What was done, or why it could not be."),
        Column("path", "str", "Where the repaired model lies, below units of the run folder."),
    ),
)

PICTURES = TableSpec(
    name="pictures",
    meaning="Images with the trigger: as they are, drawn anew, and changed within ε; predictions of the attacked model.",
    key=("image", "kind"),
    columns=(
        Column("image", "int", "Place of the row, from 0."),
        Column(
            "kind", "str", "as it is; drawn anew, with the trigger's concepts; within ε, the largest change of a pixel."
        ),
        Column("label", "str", "Its label."),
        Column("predicted", "str", "What the attacked model says."),
        Column("hits", "int", "Concepts of the trigger that it reads as set."),
        Column("size", "int", "Concepts of the trigger."),
        Column("png", "str", "The picture, at most 96 pixels wide and high, as a PNG in base64."),
    ),
)
