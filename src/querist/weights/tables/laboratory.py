"""Tables of the laboratory: what `weights craft` and `weights predict-spike` measure, with unit and meaning."""

from __future__ import annotations

from querist.results.table import Column, TableSpec
from querist.weights.tables.columns import SPECTRUM, described
from querist.weights.tables.scan import LAYERS, NULL_DRAWS

__all__ = [
    "CRAFT_TABLES",
    "OBSERVED",
    "OVERLAPS",
    "PREDICTED",
    "PREDICT_TABLES",
    "PROFILE",
    "STEPS",
    "STEP_SPECTRA",
    "WEIGHTS_HIST",
]


_RUN = (
    Column(
        "repeat", "int", "Index of the repetition; rates and optimisers of one share teacher, data, initial weights."
    ),
    Column("step", "int", "Steps made."),
    Column("optimizer", "str", "gd or adam."),
    Column("eta", "float", "Learning rate of the first step."),
)

STEPS = TableSpec(
    name="steps",
    meaning="One row per run and measured step. λ are squared singular values of W, unnormalised; N is its shorter side.",
    key=("repeat", "step", "optimizer", "eta"),
    columns=(
        *_RUN,
        *described("float", ("gamma", "", "Factor of the rate after each step.")),
        *described(
            "str",
            ("status", "", "ok, short-tail (alpha rests on fewer than 50 eigenvalues), degenerate, or diverged."),
            ("reason", "", "Why the status is not ok."),
        ),
        *described(
            "float",
            ("lambda1", "λ", "Largest eigenvalue."),
            ("lambda_edge", "λ", ".99 Tracy–Widom edge of the untrained weights: independent N(0, 1) entries."),
        ),
        *described(
            "int", ("n_spikes", "", "Eigenvalues above lambda_edge. After many steps the bulk itself passes it.")
        ),
        *described(
            "float",
            ("sim", "", "|v₁ᵀβ*|: the leading right singular vector along the teacher's direction."),
            ("sim_null", "", ".99 quantile of |vᵀβ*| for a direction v that knows nothing of β*."),
            ("kta_formula", "", "Kernel-target alignment of tanh(Wx/√d) on the training set, uncentred."),
            ("kta_repo", "", "The same of tanh(Wx/d), which the published code probes."),
            ("alpha_hill", "", "Hill exponent over the upper half of the spectrum, density convention."),
            ("alpha_hill_mp", "", "The same Hill exponent on the matching Marchenko–Pastur quantiles."),
            ("alpha", "", "Exponent of the csn fit; it is not monotone in training, see n_tail."),
            ("alpha_mp", "", "The csn fit on the matching Marchenko–Pastur quantiles."),
            ("alpha_peak", "", "csn fit with xmin within [0.95, 1.5] of the mode of the log histogram."),
            ("sigma", "", "(α−1)/√n_tail of the csn fit: its error if eigenvalues were independent; they repel."),
            ("xmin", "λ", "Smallest eigenvalue of the csn tail."),
            ("D", "", "Kolmogorov–Smirnov distance between csn tail and fit."),
        ),
        *described("int", ("n_tail", "", "Eigenvalues in the csn tail; below 50 its exponent is no evidence.")),
        *described(
            "float",
            ("lr_exponential", "", "Vuong statistic of power law against exponential; positive favours the power law."),
            ("lr_lognormal", "", "Vuong statistic of power law against lognormal; positive favours the power law."),
            ("bulk_ks", "", "N·sup|F−F_MP| after the spikes are removed, scale fitted."),
            ("bulk_p", "", "p of bulk_ks under Gaussian entries."),
            ("train_loss", "", "Mean squared error on the training set."),
            (
                "refit_train_formula",
                "",
                "Mean squared error on the fresh set that a last layer on tanh(Wx/√d) is refitted on.",
            ),
            ("refit_test_formula", "", "Its mean squared error on the test set."),
            ("refit_train_repo", "", "As refit_train_formula, on tanh(Wx/d)."),
            ("refit_test_repo", "", "As refit_test_formula, on tanh(Wx/d)."),
            ("grad_norm", "", "Frobenius norm of the loss's gradient in W at these weights."),
            ("update_norm", "", "Frobenius norm of the last change of W; null before the first."),
            ("theta", "", "Largest singular value of that change."),
            ("theta_e", "", "Its strength as the spectrum sees it: √max(θ² + 2θ·uᵀWv, 0); a spike needs (hd)^(1/4)."),
        ),
        *described(
            "str",
            (
                "regime",
                "",
                "Of the last change: random (θ_e ≤ (hd)^¼), spike, or heavy (half as large as W or more, in Frobenius norm).",
            ),
        ),
    ),
)

STEP_SPECTRA = TableSpec(
    name="spectra",
    meaning="Every eigenvalue of W at each measured step.",
    columns=(
        *_RUN,
        *SPECTRUM,
    ),
)

OVERLAPS = TableSpec(
    name="overlaps",
    meaning="Squared overlaps of singular vectors of W with those of the update M, averaged over blocks of at most 64 by 64.",
    columns=(
        *_RUN,
        Column("side", "str", "left (U) or right (V) singular vectors."),
        Column("pair", "str", "before: W before the update and the update; after: W after it and the update."),
        Column("i", "int", "Block of singular vectors of W, the leading ones first."),
        Column("j", "int", "Block of singular vectors of M, the leading ones first."),
        Column("value", "float", "Mean squared inner product over the block."),
        Column("null", "float", "Its mean between random directions: 1 over the dimension."),
    ),
)

WEIGHTS_HIST = TableSpec(
    name="weights_hist",
    meaning="Histogram of the raw entries of W at each measured step, beside the standard normal that they were drawn from.",
    columns=(
        *_RUN,
        Column("left", "float", "Lower end of the bin."),
        Column("right", "float", "Upper end of the bin."),
        Column("share", "float", "Share of entries in the bin."),
        Column("normal", "float", "Share that a standard normal puts there."),
    ),
)

PROFILE = TableSpec(
    name="profile",
    meaning="|vᵢᵀβ*| of every right singular vector of the untrained weights: what chance aligns with the teacher.",
    key=("repeat", "index"),
    columns=(
        Column("repeat", "int", "Index of the repetition."),
        Column("index", "int", "Rank of the singular vector, 1 the leading one."),
        Column("value", "float", "|vᵢᵀβ*|."),
        Column("null", "float", "Its mean for a random direction, near √(2/πd)."),
    ),
)

_PREDICTION = (
    Column("theta", "float", "Strength of the update's leading rank-one term."),
    Column("theta_effective", "float", "Strength as the spectrum sees it; a spike needs (hd)^(1/4)."),
    Column("eta_critical", "float", "Rate from which a step makes a spike."),
    Column("eta_second_scale", "float", "Rate at which the update is as large as W in Frobenius norm."),
    Column("lambda_edge", "float", "Edge of the bulk, (√h + √d)².", "λ"),
    Column("lambda_predicted", "float", "Largest eigenvalue after one step; the edge below eta_critical.", "λ"),
    Column("sim_predicted", "float", "|v₁ᵀβ*| after one step; 0 below eta_critical."),
    Column("regime", "str", "random, spike or heavy."),
)

PREDICTED = TableSpec(
    name="predicted",
    meaning="What theory says of one step at each rate, beside what the runs did in theirs.",
    key=("optimizer", "eta"),
    columns=(
        Column("optimizer", "str", "gd or adam."),
        Column("eta", "float", "Learning rate."),
        *_PREDICTION,
        Column("runs", "int", "Exact steps beside the prediction."),
        Column("theta_e_observed", "float", "Strength of the exact update as the spectrum sees it, mean over runs."),
        Column("lambda_observed", "float", "Largest eigenvalue after one exact step, mean over runs.", "λ"),
        Column("lambda_low", "float", "The smallest over runs.", "λ"),
        Column("lambda_high", "float", "The largest over runs.", "λ"),
        Column("lambda_ratio", "float", "lambda_observed over lambda_predicted."),
        Column("sim_observed", "float", "|v₁ᵀβ*| after one exact step, mean over runs."),
    ),
)

OBSERVED = TableSpec(
    name="observed",
    meaning="One exact step of each repeat: its own strength, and what the spectrum did.",
    key=("repeat",),
    columns=(
        Column("repeat", "int", "Index of the repetition."),
        Column("theta", "float", "Largest singular value of the exact update."),
        Column("theta_e", "float", "Its strength as the spectrum sees it: √max(θ² + 2θ·uᵀWv, 0)."),
        Column("lambda_exact", "float", "Largest eigenvalue predicted from this update's own strength.", "λ"),
        Column("lambda1", "float", "Largest eigenvalue after the step.", "λ"),
        Column("sim", "float", "|v₁ᵀβ*| after the step."),
    ),
)

CRAFT_TABLES = (STEPS, PREDICTED, STEP_SPECTRA, OVERLAPS, WEIGHTS_HIST, PROFILE, LAYERS, NULL_DRAWS)
PREDICT_TABLES = (PREDICTED, OBSERVED)
