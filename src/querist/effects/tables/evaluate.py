"""Tables of an evaluation: numbers of every convention, average effects, policies, calibration, pairs, curves."""

from __future__ import annotations

from querist.results.table import Column, TableSpec

__all__ = ["ARMS_DIFFER", "ATE", "CALIBRATION", "CALIBRATION_BINS", "CURVES", "EVALUATE_TABLES", "METRICS", "MULTI_ARM", "PAIRED",
           "POLICIES", "SEEN", "SOURCES"]  # fmt: skip

_UNIT = "outcome per person"
_SCORE = Column("score", "str", "Whose score: a model, natural response, or random (the mean over all orders).")
_WHERE = (
    Column(
        "component",
        "str",
        "Part of the effect: total, base (of being treated at all) or incremental (what an arm adds).",
    ),
    Column("arm", "str", "Label of the arm; none for the base."),
    Column("outcome", "str", "Outcome."),
)
_INTERVAL = (Column("low", "float", "Lower end of its interval."), Column("high", "float", "Upper end."))
_P = Column("p", "float", "Against the null.")
_HOLM = Column("p_adj", "float", "Adjusted by Holm over arms and outcomes.")

METRICS = TableSpec(
    "metrics",
    "Every number of every convention for every score, part of the effect, arm and outcome.",
    (
        _SCORE,
        *_WHERE,
        Column("metric", "str", "qini, auuc, autoc, or uplift@K; raw: not divided."),
        Column("convention", "str", "rate, sklift or causalml; overall for uplift among the best share."),
        Column("estimate", "float", "Its value; null with a reason where there is none."),
        Column("se", "float", "Standard error."),
        *_INTERVAL,
        Column("null", "float", "Value of a random order."),
        _P,
        _HOLM,
        Column("n", "int", "People whose outcome was observed."),
        Column("n_treated", "int", "Of them treated, whatever the arm."),
        Column("n_control", "int", "Of them under control."),
        Column("reason", "str", "Why there is no value."),
    ),
    ("score", "component", "arm", "outcome", "metric", "convention"),
    shown=("estimate", "low", "high", "null", "p_adj", "reason"),
)
ATE = TableSpec(
    "ate",
    "Average effects by doubly robust scores.",
    (
        *_WHERE,
        Column("estimate", "float", "Mean effect.", _UNIT),
        Column("se", "float", "Standard error.", _UNIT),
        *_INTERVAL,
        _P,
        _HOLM,
        Column("method", "str", "How the interval was made, or why there is no estimate."),
    ),
    ("component", "arm", "outcome"),
)
ARMS_DIFFER = TableSpec(
    "arms_differ",
    "Whether arms have one effect: Wald test, and the two arms that differ most.",
    (
        Column("outcome", "str", "Outcome."),
        Column("statistic", "float", "Wald statistic."),
        Column("df", "int", "Its degrees of freedom."),
        Column("p", "float", "Chi-square p."),
        Column("best", "str", "Arm of the largest average effect."),
        Column("worst", "str", "Arm of the smallest."),
        Column("difference", "float", "Their difference.", _UNIT),
        *_INTERVAL,
    ),
    ("outcome",),
)
POLICIES = TableSpec(
    "policies",
    "What it is worth to follow a model or a reference, and each model's difference from the references.",
    (
        Column("policy", "str", "Whose choice of arms."),
        Column("outcome", "str", "Outcome; value: outcomes weighed together, less costs."),
        Column("method", "str", "dr (doubly robust), ips or snips (inverse propensities)."),
        Column("value", "float", "Mean outcome under the policy.", _UNIT),
        *_INTERVAL,
        Column("versus", "str", "The reference; none where the policy stands alone."),
        Column("difference", "float", "Policy less reference, paired.", _UNIT),
        Column("difference_low", "float", "Lower end of its interval."),
        Column("difference_high", "float", "Upper end."),
        Column("p", "float", "Of the difference against 0."),
    ),
    ("policy", "outcome", "method", "versus"),
)
CALIBRATION = TableSpec(
    "calibration",
    "Effect scores regressed on predicted effects: 0 and 1 where predictions are true in size.",
    (
        _SCORE,
        *_WHERE,
        Column("intercept", "float", "Intercept; ideal 0.", _UNIT),
        Column("slope", "float", "Slope; ideal 1."),
        Column("slope_low", "float", "Lower end of the slope's interval."),
        Column("slope_high", "float", "Upper end."),
        Column("p", "float", "Of the slope against 0."),
        Column("error", "float", "Squared error of the bins, free of their noise; may fall below 0."),
        Column("reason", "str", "Why there is no slope."),
    ),
    ("score", "component", "arm", "outcome"),
)
CALIBRATION_BINS = TableSpec(
    "calibration_bins",
    "Mean predicted and mean found effect in bins of the prediction, lowest first.",
    (
        _SCORE,
        *_WHERE,
        Column("bin", "int", "Number of the bin."),
        Column("n", "int", "People."),
        Column("predicted", "float", "Mean prediction.", _UNIT),
        Column("effect", "float", "Mean effect score.", _UNIT),
        *_INTERVAL,
    ),
    ("score", "component", "arm", "outcome", "bin"),
)
PAIRED = TableSpec(
    "paired",
    "One score's number less another's on the same people.",
    (
        Column("a", "str", "The one score."),
        Column("b", "str", "The other."),
        *_WHERE,
        Column("metric", "str", "qini or autoc, convention rate."),
        Column("difference", "float", "a less b.", _UNIT),
        *_INTERVAL,
        Column("p", "float", "Against 0."),
    ),
    ("a", "b", "component", "arm", "outcome", "metric"),
)
CURVES = TableSpec(
    "curves",
    "Effect gained per person when the best share is treated.",
    (
        _SCORE,
        *_WHERE,
        Column("share", "float", "Share of people treated, best scores first."),
        Column("gain", "float", "Gained per person of all people.", _UNIT),
        Column("low", "float", "Lower end of its pointwise interval."),
        Column("high", "float", "Upper end."),
        Column("line", "float", "What a random choice of the same size gains.", _UNIT),
    ),
    ("score", "component", "arm", "outcome", "share"),
)
MULTI_ARM = TableSpec(
    "multi_arm",
    "The multi-armed Qini: value of spending along a model above that of spending on average effects.",
    (
        _SCORE,
        Column("outcome", "str", "Outcome; value: outcomes weighed together."),
        Column("estimate", "float", "Mean vertical distance of the curves.", _UNIT),
        *_INTERVAL,
        Column("p", "float", "Against 0."),
        Column("max_spend", "float", "Spend per person up to which the curves are compared; none: the model's end."),
        Column("reason", "str", "Why there is no value."),
    ),
    ("score", "outcome"),
)
SEEN = TableSpec(
    "seen",
    "People of this table that the model was fitted on.",
    (
        _SCORE,
        Column("rows", "int", "People."),
        Column("seen", "int", "People with features equal to those of a row of the fit."),
        Column("share", "float", "Share of them."),
        Column("repeated", "float", "The table's own share of people equal to another in all features."),
        Column("p", "float", "Binomial p of a share above the repeated one."),
        Column("reason", "str", "Why it cannot be told."),
    ),
    ("score",),
)
SOURCES = TableSpec(
    "sources",
    "Whose scores were judged.",
    (
        _SCORE,
        Column("kind", "str", "model or column."),
        Column("path", "str", "File of its predictions in the run folder."),
        Column("effects", "bool", "Whether it predicts effects in the outcome's unit, or only ranks."),
        Column(
            "changed",
            "float",
            "Largest change of a prediction when the arms of the table are exchanged; none for a column.",
        ),
        Column("arm_auc", "float", "AUC of telling treated people from control by the score alone."),
        Column("arm_p", "float", "Its p."),
        Column("seconds", "float", "Time taken.", "s"),
    ),
    ("score",),
)
EVALUATE_TABLES = (
    SOURCES, METRICS, ATE, ARMS_DIFFER, POLICIES, CALIBRATION, CALIBRATION_BINS, PAIRED, CURVES, MULTI_ARM, SEEN,
)  # fmt: skip
