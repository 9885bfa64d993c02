"""Tables of `features compare`: gaps beside their nulls, evolution, consistency, and what the figures are drawn from."""

from __future__ import annotations

from querist.features.tables.captures import CAPTURES, LAYERS, PASSED_OVER
from querist.features.tables.columns import INDEX, LAYER, MODEL, TARGET
from querist.results.table import Column, TableSpec

__all__ = [
    "ASSOCIATION",
    "CLASS_GAPS",
    "COMPARE_TABLES",
    "CONSISTENCY",
    "DRAWS",
    "EVOLUTION",
    "GAPS",
    "NET_GAPS",
    "NET_MATRIX",
    "NET_PROFILES",
    "POOLED",
    "PROBES",
    "SPREAD",
    "UNITS",
]

_Z = "units of z"
_REPEAT = Column("repeat", "int", "Which repetition; 0 is the one of the seed itself.")
_GAP = (
    Column("raw", "float", "Distance between source and target, the root of its mean power over draws.", _Z),
    Column("null_mean", "float", "The same between two parts of the source, at the same number of examples.", _Z),
    Column("null_q95", "float", "95 % quantile of that null.", _Z),
    Column("excess", "float", "Root of excess_p, 0 where that is negative: the gap.", _Z),
    Column("low", "float", "Lower end of the excess.", _Z),
    Column("high", "float", "Upper end of the excess.", _Z),
    Column("ratio", "float", "raw over null_mean."),
    Column("p", "float", "Permutation p of this layer and target alone."),
    Column("p_adj", "float", "Family-wise p, by max-T over all layers and targets."),
)
_MORE = (
    Column("distance", "str", "Which distance."),
    Column("excess_p", "float", "raw^p − null_mean^p, signed.", "(units of z)^p"),
    Column(
        "interval_kind", "str", "jackknife (over examples, where a gap was found) or null quantile (low is then 0)."
    ),
    Column("w2_scale", "float", "d·raw² of a sliced distance of order 2, which compares with W₂².", "(units of z)²"),
    Column("z", "float", "excess_p over the sd of the null's draws, which overlap: it describes, it is no test."),
    Column("mc_se", "float", "Standard error of raw from the random directions.", _Z),
    Column("n_c", "int", "Images per arm."),
)

GAPS = TableSpec(
    name="gaps",
    meaning="One row per layer and target: the gap beside the distance between two parts of the source.",
    key=("target", "layer", "repeat"),
    shown=("index", "width", "raw", "null_mean", "excess", "low", "high", "ratio", "p", "p_adj", "probe_accuracy"),
    columns=(
        TARGET,
        LAYER,
        _REPEAT,
        INDEX,
        Column("width", "int", "Units before a projection."),
        *_GAP,
        Column("probe_accuracy", "float", "Accuracy of a linear probe on the target, 5 folds.", "share"),
        Column("relative", "float", "Excess over the excess at <input>: below 1 what is left of the gap there."),
        MODEL,
        *_MORE,
        Column("probe_low", "float", "Lower end of the probe's accuracy.", "share"),
        Column("probe_high", "float", "Upper end of the probe's accuracy.", "share"),
    ),
)

CLASS_GAPS = TableSpec(
    name="class_gaps",
    meaning="Gaps of single classes whose names both sets share; p adjusted over their layers, classes and targets.",
    key=("target", "class", "layer"),
    columns=(
        TARGET,
        Column("class", "str", "Name of the class."),
        LAYER,
        INDEX,
        *_GAP,
        *_MORE,
    ),
)

EVOLUTION = TableSpec(
    name="evolution",
    meaning="How far a law moves from one layer to the next, in the frame of the source (shift included) and in its own (shape).",
    columns=(
        Column("model", "str", "model, or which random network."),
        Column("data", "str", "source, a target, or half and floor: two random halves of the source."),
        Column("frame", "str", "source: standardised by the source's moments; own: by the set's own."),
        Column("layer_from", "str", "The earlier layer."),
        Column("layer_to", "str", "The later layer."),
        Column("value", "float", "Distance between the two laws.", "sd"),
        _REPEAT,
    ),
)

CONSISTENCY = TableSpec(
    name="consistency",
    meaning="Four statistics of how laws change over layers, each beside random networks of the same architecture.",
    columns=(
        Column("target", "str", "Which target; empty for kappa, which is over all."),
        Column(
            "statistic",
            "str",
            "C (relative difference of evolutions), tau (their Kendall τ), slope (of log excess), kappa (concordance of targets).",
        ),
        Column("frame", "str", "source or own; empty for slope and kappa."),
        Column("value", "float", "Its value."),
        Column("floor", "float", "The same between two random halves of the source."),
        Column("p", "float", "(1 + random networks at least as extreme)/(1 + R)."),
        Column(
            "p_all",
            "float",
            "The largest p of the statistic over targets and frames: what a claim over all of them takes.",
        ),
        Column("n_null", "int", "Random networks."),
        Column("null_q05", "float", ".05 quantile of the random networks."),
        Column("null_q50", "float", "Median of the random networks."),
        Column("null_q95", "float", ".95 quantile of the random networks."),
        _REPEAT,
    ),
)

ASSOCIATION = TableSpec(
    name="association",
    meaning="How the gap goes with the probe's accuracy over layers, and how depth alone does.",
    key=("target",),
    columns=(
        Column("target", "str", "Which target; empty: the mean over targets (and repetitions)."),
        Column("tau_w_probe", "float", "Kendall τ of excess and probe accuracy."),
        Column("tau_depth_probe", "float", "Kendall τ of depth and probe accuracy."),
        Column(
            "difference", "float", "−tau_w_probe − |tau_depth_probe|: above 0 where the distance says more than depth."
        ),
        Column("low", "float", "Lower end over cells (targets and repetitions)."),
        Column("high", "float", "Upper end over cells (targets and repetitions)."),
        Column("n_layers", "int", "Layers."),
    ),
)

PROBES = TableSpec(
    name="probes",
    meaning="Linear probes of the target's labels, layer by layer.",
    key=("target", "layer", "repeat"),
    columns=(
        TARGET,
        LAYER,
        Column("accuracy", "float", "Share of rows that a fit on the other folds predicts.", "share"),
        Column("low", "float", "Lower end.", "share"),
        Column("high", "float", "Upper end.", "share"),
        Column("majority", "float", "Share of the largest class.", "share"),
        Column("converged", "bool", "Whether every fit converged."),
        _REPEAT,
    ),
)

NET_GAPS = TableSpec(
    name="network_gaps",
    meaning="How far the second network moved each layer on the same examples.",
    key=("data", "layer"),
    columns=(
        Column("data", "str", "Whose examples."),
        LAYER,
        INDEX,
        Column("value", "float", "Distance between the two networks' laws.", _Z),
        Column("null_mean", "float", "Distance between two halves of the examples in the first network.", _Z),
        Column("p", "float", "Permutation p, labels of the networks swapped within examples."),
        Column("p_adj", "float", "Family-wise p, by max-T over layers."),
    ),
)

NET_MATRIX = TableSpec(
    name="matrix",
    meaning="Distances between the layers of two captures that need no matching of units.",
    columns=(
        Column("model_a", "str", "Network of the first."),
        Column("data_a", "str", "Data of the first."),
        Column("layer_a", "str", "Layer of the first."),
        Column("model_b", "str", "Network of the second."),
        Column("data_b", "str", "Data of the second."),
        Column("layer_b", "str", "Layer of the second."),
        Column("spectrum", "float", "Distance between covariance spectra, each scaled to a total variance of 1."),
        Column("pooled", "float", "W₂ of all standardised values.", "sd"),
        Column("cka", "float", "Linear CKA, unbiased; only for the same examples."),
    ),
)

NET_PROFILES = TableSpec(
    name="net_profiles",
    meaning="Excess of each layer in each random network.",
    columns=(
        Column("model", "str", "Which random network."),
        TARGET,
        LAYER,
        Column("excess", "float", "The gap, untested.", _Z),
        _REPEAT,
    ),
)

POOLED = TableSpec(
    name="pooled",
    meaning="Densities of a layer's pooled values, standardised by the source: what the ridgelines are drawn from.",
    columns=(
        MODEL,
        Column("data", "str", "source, or a target."),
        LAYER,
        Column("density", "list[float]", "Density in 96 equal bins from −6 to 6.", "1/sd"),
        Column("outside", "float", "Share of values beyond ±6.", "share"),
    ),
)

UNITS = TableSpec(
    name="units",
    meaning="Distance of single units between source and target: quantiles over units, and the ten most shifted.",
    columns=(
        TARGET,
        LAYER,
        INDEX,
        Column("unit", "int", "Number of the unit; null for a quantile."),
        Column("quantile", "float", "Quantile over all units; null for a single unit."),
        Column("value", "float", "One-dimensional Wasserstein distance.", _Z),
        Column("null", "float", "The same between two halves of the source.", _Z),
        Column("shift", "float", "Mean of the target less that of the source, of a single unit.", _Z),
    ),
)

DRAWS = TableSpec(
    name="draws",
    meaning="All that was drawn for each layer and target: splits and permutations.",
    columns=(
        TARGET,
        Column("class", "str", "Which class; empty for all of them."),
        LAYER,
        INDEX,
        Column("order", "float", "Order p of the distance."),
        Column("d", "int", "Units, where the distance is sliced; else 0."),
        Column("n_c", "int", "Images per arm."),
        Column("raw", "list[float]", "D^p between source and target, by split."),
        Column("null", "list[float]", "D^p between two parts of the source, by split."),
        Column("mc_se", "float", "Standard error of the raw distance from the random directions."),
        Column("observed", "float", "D^p between all of the source and all of the target."),
        Column("permuted", "list[float]", "The same under relabelled examples."),
        Column("p", "float", "Permutation p."),
        Column("se", "float", "Jackknife standard error of excess_p; null where p is above the level."),
        Column("degrees", "int", "Its degrees of freedom."),
        _REPEAT,
    ),
)

SPREAD = TableSpec(
    name="spread",
    meaning="The profile over repetitions: mean and standard deviation, layer by layer.",
    key=("target", "layer"),
    shown=(
        "index",
        "raw",
        "raw_sd",
        "null_mean",
        "null_mean_sd",
        "excess",
        "excess_sd",
        "probe_accuracy",
        "probe_accuracy_sd",
    ),
    columns=(
        TARGET,
        LAYER,
        INDEX,
        *(
            column
            for name, words, unit in (
                ("raw", "Distance between source and target", _Z),
                ("null_mean", "Distance between two parts of the source", _Z),
                ("excess", "Excess", _Z),
                ("probe_accuracy", "Accuracy of the linear probe", "share"),
            )
            for column in (
                Column(name, "float", f"{words}, mean over repetitions.", unit),
                Column(f"{name}_sd", "float", f"{words}, standard deviation over repetitions.", unit),
                Column(f"{name}_min", "float", f"{words}, smallest of the repetitions.", unit),
                Column(f"{name}_max", "float", f"{words}, largest of the repetitions.", unit),
            )
        ),
        Column("p_adj", "float", "The largest family-wise p of the repetitions."),
        Column("yes", "int", "Repetitions in which the gap is a yes."),
        Column("n", "int", "Repetitions."),
    ),
)

COMPARE_TABLES = (
    GAPS,
    SPREAD,
    LAYERS,
    EVOLUTION,
    CONSISTENCY,
    ASSOCIATION,
    CLASS_GAPS,
    PROBES,
    NET_GAPS,
    NET_MATRIX,
    NET_PROFILES,
    POOLED,
    UNITS,
    DRAWS,
    CAPTURES,
    PASSED_OVER,
)
