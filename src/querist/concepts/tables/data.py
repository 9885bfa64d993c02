"""Tables about the data themselves: facts of concepts, evidence of classes, associations, rows."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = [
    "ASSOCIATION",
    "CLASS_EVIDENCE",
    "DETECTION",
    "DIFFERENCES",
    "FACTS",
    "PASSED_OVER",
    "POWER",
    "POWER_RUNS",
    "ROC",
    "ROWS",
    "TABLE_FACTS",
    "TESTS",
]

FACTS = TableSpec(
    name="facts",
    meaning="One row per concept of the table.",
    key=("index",),
    columns=(
        Column("concept", "str", "Its name."),
        Column("index", "int", "Its place in the table."),
        Column("mean", "float", "Mean over known cells; none where no cell is known."),
        Column("known", "int", "Known cells."),
        Column("constant", "bool", "Whether it never changes: no trigger is chosen from such concepts."),
        Column("group", "str", "The group it belongs to, where the table has groups."),
    ),
)

TABLE_FACTS = TableSpec(
    name="table_facts",
    meaning="One row per fact of the whole table.",
    key=("fact",),
    columns=(
        Column("fact", "str", "What was counted."),
        Column("value", "float", "The number."),
        Column("meaning", "str", "What it says."),
    ),
)

CLASS_EVIDENCE = TableSpec(
    name="class_evidence",
    meaning="One row per class: how conspicuous its rows are among those of the other classes, most suspicious first by rank.",
    key=("target",),
    shown=("n", "size_outlier", "pattern_excess", "masked_agreement", "z_max", "p_adj", "rank"),
    columns=(
        Column("target", "str", "The class."),
        Column("n", "int", "Its rows."),
        Column("size_outlier", "float", "0.6745 (n − median)/max(MAD, 1) over classes.", "MAD"),
        Column("pattern_excess", "float", "D: how much commoner its commonest pattern is inside than outside.", "nats"),
        Column("pattern", "str", "The pattern that attains D, as JSON (index, values)."),
        Column(
            "planted",
            "str",
            "The pattern that sets a suspect class apart from its trusted rows, as JSON; none without a reference.",
        ),
        Column("share_in", "float", "Share of the class that carries it.", "fraction"),
        Column("share_out", "float", "Share of all other rows that carry it.", "fraction"),
        Column(
            "masked_agreement",
            "float",
            "A: share of its rows still recognised without its five most associated concepts.",
            "fraction",
        ),
        Column("constant", "int", "Concepts that do not vary inside the class; many are no sign by themselves."),
        Column(
            "z_max",
            "float",
            "Largest |z| over concepts: against the reference where there is one, else against the table.",
            "z",
        ),
        Column("p", "float", "p against the reference; none without one, or where a side has no rows of the class."),
        Column("p_adj", "float", "Holm's p over classes."),
        Column("rank", "int", "1 is the most suspicious, by the sum of its ranks over size, D and 1 − A."),
        Column("deviating", "int", "Rows that deviate from the class's row, in class-level data; none elsewhere."),
        Column("reason", "str", "Why a number is missing."),
    ),
)

ASSOCIATION = TableSpec(
    name="association",
    meaning="One row per class and concept: how far the class's mean lies from that of a class drawn at random.",
    key=("target", "concept"),
    columns=(
        Column("target", "str", "The class."),
        Column("concept", "str", "The concept."),
        Column("z", "float", "z under permuted labels; none for a constant concept.", "z"),
        Column("p", "float", "Two-sided p of this cell alone: exact for a binary concept, else normal."),
        Column("p_adj", "float", "Benjamini and Hochberg's p over all classes and concepts."),
        Column("mean_in", "float", "Mean in the class."),
        Column("mean_all", "float", "Mean over all rows."),
    ),
)

ROWS = TableSpec(
    name="rows",
    meaning="Rows that a method flags, and below them those that it scores highest.",
    key=("row", "method"),
    columns=(
        Column("row", "int", "Place of the row in DATA, from 0."),
        Column("id", "str", "Its id, where there are ids."),
        Column("label", "str", "Its label."),
        Column("method", "str", "The method."),
        Column("score", "float", "Its score; larger is more suspicious, and comparable within a method alone."),
        Column("flag", "bool", "Whether the method flags it."),
        Column("reason", "str", "Why."),
    ),
)

TESTS = TableSpec(
    name="tests",
    meaning="One row per test of the whole table; the verdict of concepts.table-poisoned follows from them.",
    key=("test",),
    columns=(
        Column(
            "test",
            "str",
            "reference, class-level, agreement, or power (of the reference test, simulated: mode mix, and dirty).",
        ),
        Column("target", "str", "The class it points at."),
        Column(
            "statistic",
            "float",
            "What was tested: largest |z|, deviating rows, first places, or the share of simulations found.",
        ),
        Column("null", "float", "What it would be with nothing hidden."),
        Column("p", "float", "Its p, adjusted over classes."),
        Column("verdict", "str", "yes, no, or cannot say."),
        Column("because", "str", "Why."),
    ),
)

DETECTION = TableSpec(
    name="detection",
    meaning="One row per method, where the truth is known: how well it finds poisoned rows and the trigger.",
    key=("method",),
    columns=(
        Column("method", "str", "The method."),
        Column("auc", "float", "Area under ROC of its scores.", "fraction"),
        Column("tpr_at_fpr1", "float", "Poisoned rows above the score that 1 % of honest rows exceed.", "fraction"),
        Column("tpr_at_fpr5", "float", "The same at 5 %.", "fraction"),
        Column("flagged", "int", "Rows flagged."),
        Column("base_rate", "float", "Share of rows that are poisoned: the precision of chance.", "fraction"),
        Column("precision", "float", "Flagged rows that are poisoned; none where nothing is flagged.", "fraction"),
        Column("recall", "float", "Poisoned rows that are flagged.", "fraction"),
        Column("trigger_precision", "float", "Values of the named pattern that are in the trigger.", "fraction"),
        Column("trigger_recall", "float", "Values of the trigger that are in the named pattern.", "fraction"),
    ),
)

ROC = TableSpec(
    name="roc",
    meaning="Share of poisoned rows above the score that a share of honest rows exceeds, for each method.",
    key=("method", "point"),
    columns=(
        Column("method", "str", "The method."),
        Column("point", "int", "Place along the curve."),
        Column("fpr", "float", "Share of honest rows above the cut.", "fraction"),
        Column("tpr", "float", "Share of poisoned rows above it.", "fraction"),
    ),
)

POWER = TableSpec(
    name="power",
    meaning="One row per detector and rate: its alarms on copies with that much known poison, and on clean resamples (rate 0).",
    key=("method", "rate"),
    shown=("alarms", "decided", "share", "low", "high", "named", "auc"),
    columns=(
        Column("method", "str", "The detector; reference and agreement are the two tests of the method pattern."),
        Column("rate", "float", "Rate of poisoning; 0 is a clean resample, whose alarms are false ones.", "fraction"),
        Column("runs", "int", "Tries."),
        Column("decided", "int", "Those in which the detector could decide."),
        Column("alarms", "int", "Tries in which it names a class or concepts; none where it never can."),
        Column("share", "float", "Alarms over decided tries.", "fraction"),
        Column("low", "float", "Lower end of its Wilson interval.", "fraction"),
        Column("high", "float", "Upper end.", "fraction"),
        Column("named", "int", "Alarms that name the class that was planted."),
        Column("auc", "float", "Area under ROC of its row scores, mean over tries; none at rate 0.", "fraction"),
        Column("auc_low", "float", "The smallest over tries.", "fraction"),
        Column("auc_high", "float", "The largest.", "fraction"),
        Column("flagged", "float", "Rows flagged, mean over tries."),
        Column("precision", "float", "Flagged rows that are poisoned, mean over tries that flag any.", "fraction"),
        Column("recall", "float", "Poisoned rows that are flagged, mean over tries.", "fraction"),
        Column("reason", "str", "Why it could not decide, in the first try that it could not."),
    ),
)

POWER_RUNS = TableSpec(
    name="power_runs",
    meaning="One row per try, rate and detector: what was planted, and what the detector said.",
    key=("repeat", "rate", "method"),
    columns=(
        Column("repeat", "int", "The try; its copies have the same rows, trigger and initial weights at every rate."),
        Column("rate", "float", "Rate of poisoning; 0 is the clean resample.", "fraction"),
        Column("method", "str", "The detector."),
        Column("target", "str", "The class that is planted."),
        Column("selector", "str", "How the trigger is chosen."),
        Column("size", "int", "Concepts in the trigger."),
        Column("n", "int", "Rows of the copy."),
        Column("n_poisoned", "int", "Rows that carry the trigger by our hand."),
        Column("alarm", "bool", "Whether it names a class or concepts; none where it cannot decide."),
        Column("named", "bool", "Whether the class planted is among those that it names."),
        Column(
            "statistic",
            "float",
            "Of cleanse the largest anomaly index, which alarms above 95 % of the other clean resamples.",
        ),
        Column("auc", "float", "Area under ROC of its row scores; none at rate 0.", "fraction"),
        Column("flagged", "int", "Rows flagged."),
        Column("precision", "float", "Flagged rows that are poisoned.", "fraction"),
        Column("recall", "float", "Poisoned rows that are flagged.", "fraction"),
        Column("reason", "str", "Why it could not decide."),
        Column("seconds", "float", "Time of the detector.", "s"),
    ),
)

DIFFERENCES = TableSpec(
    name="shift",
    meaning="One row per concept: how its mean differs between two sets of rows.",
    key=("comparison", "concept"),
    columns=(
        Column("comparison", "str", "Which two sets, as in the table stealth."),
        Column("concept", "str", "The concept."),
        Column("shift", "float", "Mean of the second set less that of the first."),
        Column("in_trigger", "bool", "Whether the trigger of the assessment sets it; none where there is none."),
    ),
)

PASSED_OVER = TableSpec(
    name="passed_over",
    meaning="What was asked for and could not be done.",
    key=("what",),
    columns=(
        Column("what", "str", "What it was."),
        Column("reason", "str", "Why."),
    ),
)
