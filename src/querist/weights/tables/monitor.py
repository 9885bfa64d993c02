"""The tables of a watched training."""

from __future__ import annotations

from querist.results.table import Column, TableSpec
from querist.weights.tables.columns import EIGENVALUE, described
from querist.weights.tables.scan import PASSED_OVER

__all__ = [
    "ALARMS",
    "EVENTS",
    "HISTOGRAMS",
    "MONITOR_TABLES",
    "NULL_COPIES",
    "TOP_VALUES",
    "TRACE",
    "UPDATE_OVERLAPS",
    "WATCHED",
]


_WHERE = (
    Column("step", "int", "Optimiser step at which was looked."),
    Column("layer_id", "str", "Tensor name, with the part of it where a tensor holds several matrices."),
)

TRACE = TableSpec(
    name="trace",
    meaning="One row per look at a layer, evenly thinned where a training is long. Eigenvalues λ are squared singular values, "
    "unnormalised.",
    key=("step", "layer_id"),
    shown=(
        *("event", "status", "lambda_max", "stable_rank", "update_from", "update_relative", "strength", "regime"),
        *("n_spikes", "spike_p", "bulk_ks", "bulk_p", "alpha_hill", "alpha_hill_mp", "rank_loss"),
    ),
    columns=(
        *_WHERE,
        *described(
            "str",
            ("event", "", "whole: all eigenvalues with their nulls; top: the largest ones only."),
            ("status", "", "ok, nonfinite or approximate."),
            ("reason", "", "Why the status is not ok, or what could not be computed."),
        ),
        *described("int", ("n_nonfinite", "", "Entries that are NaN or infinite.")),
        *described(
            "float",
            ("norm", "", "Frobenius norm of the weights."),
            ("lambda_max", "λ", "Largest eigenvalue."),
            ("stable_rank", "", "Σλ/λ_max."),
            (
                "variance",
                "",
                "Entry variance of the bulk: of what is left without the followed values beyond its edge.",
            ),
        ),
        *described(
            "int", ("n_above", "", "Followed values beyond the .99 Tracy–Widom edge: never evidence by itself.")
        ),
        *described("str", ("search", "", "How the triplets were found: dense, krylov, warm or warm-krylov.")),
        *described("int", ("products", "", "Products of the weights with a block of vectors that the search took.")),
        *described(
            "int", ("update_from", "", "Step of the look before: the update is the change of the weights since.")
        ),
        *described(
            "float",
            ("update_norm", "", "Frobenius norm of the update."),
            ("update_relative", "", "The same over the norm of the weights before."),
            ("update_sigma", "", "Largest singular value of the update."),
            ("theta", "", "The same at unit entry variance of the bulk."),
            ("theta_effective", "", "θ_e: √(θ² + 2θ·uᵀWv), W the bulk before the update; 0 where that is negative."),
            ("theta_critical", "", "θ_c: (hd)^¼, from which a direction is an eigenvalue outside the bulk."),
            ("strength", "", "θ_e/θ_c."),
            ("lambda_predicted", "", "Largest eigenvalue that one-step theory gives, at unit entry variance."),
            ("lambda_observed", "", "Largest eigenvalue after the update over the entry variance before it."),
        ),
        *described(
            "int",
            ("spikes_before", "", "Followed values beyond the edge before the update: with any, λ is not predicted."),
        ),
        *described(
            "str", ("regime", "", "random, spike or heavy (the update is half as large as the weights or larger).")
        ),
        *described(
            "float",
            ("overlap_updates_left", "", "Share of the update's left directions inside those of the update before."),
            ("overlap_updates_left_null", "", "What random directions would give."),
            ("overlap_updates_right", "", "Share of its right directions inside those of the update before."),
            ("overlap_updates_right_null", "", "What random directions would give."),
            ("overlap_weights_left", "", "Share of the update's left directions inside those of the weights now."),
            ("overlap_weights_left_null", "", "What random directions would give."),
            ("overlap_weights_right", "", "Share of its right directions inside those of the weights now."),
            ("overlap_weights_right_null", "", "What random directions would give."),
            ("sigma_mp", "", "Entry standard deviation of the fitted Marchenko–Pastur bulk."),
            ("lambda_plus", "λ", "Upper edge of the fitted bulk."),
            ("edge", "λ", ".99 quantile of the largest eigenvalue of noise of this size (Tracy–Widom)."),
        ),
        *described(
            "int",
            ("n_spikes", "", "Eigenvalues above the Tracy–Widom edge and both resampled maxima."),
            ("n_spikes_tw", "", "Eigenvalues above the .99 Tracy–Widom edge alone: never evidence by itself."),
            ("n_spikes_low", "", "Spikes counted with the .99 edges."),
            ("n_spikes_high", "", "Spikes counted with the .95 edges."),
        ),
        *described(
            "float",
            ("spike_edge", "λ", "Largest of the Tracy–Widom edge and both resampled maxima: what a spike must beat."),
            ("spike_p", "", "One-sided t prediction of log λ_max from the resampled maxima, the larger over nulls."),
            ("spike_p_rank", "", "Rank p of λ_max among the resampled copies, the larger over nulls."),
            ("bulk_ks", "", "N·sup|F−F_MP| after the spikes are removed."),
            ("bulk_p", "", "p of bulk_ks under Gaussian entries."),
            ("alpha", "", "Power-law density exponent of the tail (csn)."),
        ),
        *described("int", ("n_tail", "", "Eigenvalues in the fitted tail: fewer than 50 are no evidence of one.")),
        *described(
            "float",
            ("alpha_hill", "", "Hill exponent over the upper half of the spectrum, density convention."),
            ("alpha_hill_mp", "", "The same on the matching Marchenko–Pastur quantiles."),
            (
                "alpha_null_low",
                "",
                "Least of that value and the same exponent of sign-flipped copies, when last drawn.",
            ),
            ("alpha_null_high", "", "Largest of them."),
            ("entropy", "", "−Σp ln p / ln rank with p = λ/Σλ."),
        ),
        *described(
            "int",
            ("rank", "", "Eigenvalues above eps·λ_max·max(N, M)."),
            ("rank_loss", "", "N minus rank, zeros that a low-rank pair has by construction left out."),
        ),
        *described("float", ("seconds", "s", "Time that the look took.")),
    ),
)

WATCHED = TableSpec(
    name="watched",
    meaning="One row per layer: what it is, and what the last looks at it found.",
    key=("layer_id",),
    shown=(
        *("kind", "N", "M", "n_alarms", "status", "step", "lambda_max", "stable_rank", "n_spikes", "spike_p_adj"),
        *("bulk_ks", "bulk_p", "alpha_hill", "alpha_hill_mp", "rank_loss", "strength", "regime"),
    ),
    columns=(
        *described(
            "str",
            ("layer_id", "", "Tensor name, with the part of it where a tensor holds several matrices."),
            ("kind", "", "Layer kind: linear, conv2d, lstm, attention, embedding, lora, expert, unknown…"),
        ),
        *described("list[int]", ("shape", "", "Shape of the tensor.")),
        *described("int", ("N", "", "Shorter side of the matrix."), ("M", "", "Longer side of the matrix.")),
        *described("float", ("q", "", "Aspect ratio N/M.")),
        *described("str", ("dtype", "", "Number format.")),
        *described("int", ("n_alarms", "", "Alarms raised for this layer.")),
        *described("str", ("status", "", "ok, nonfinite or approximate, at the last look."), ("reason", "", "Why.")),
        *described(
            "int",
            ("step", "", "Step of the last look."),
            ("step_whole", "", "Step of the last look at the whole spectrum."),
            ("step_update", "", "Step of the last look that saw an update."),
            ("n_nonfinite", "", "Entries that are NaN or infinite at the last look."),
        ),
        *described(
            "float",
            ("lambda_max", "λ", "Largest eigenvalue at the last look."),
            ("stable_rank", "", "Σλ/λ_max at the last look."),
        ),
        *described("int", ("n_spikes", "", "Eigenvalues beyond every null at the last whole spectrum.")),
        *described(
            "float",
            ("spike_p", "", "p of the largest, by prediction from resampled copies."),
            ("spike_p_adj", "", "The same, adjusted over layers (Benjamini–Hochberg)."),
            ("bulk_ks", "", "N·sup|F−F_MP| at the last whole spectrum."),
            ("bulk_p", "", "Its p under Gaussian entries."),
            ("alpha_hill", "", "Hill exponent at the last whole spectrum."),
            ("alpha_hill_mp", "", "The same on the matching Marchenko–Pastur law."),
        ),
        *described("int", ("rank_loss", "", "Singular values lost to rounding at the last whole spectrum.")),
        *described("float", ("strength", "", "θ_e/θ_c of the last update that was seen.")),
        *described("str", ("regime", "", "random, spike or heavy.")),
    ),
)

TOP_VALUES = TableSpec(
    name="top_values",
    meaning="The largest eigenvalues of every look that is kept.",
    key=("step", "layer_id", "index"),
    columns=(
        *_WHERE,
        Column("index", "int", "0 for the largest."),
        EIGENVALUE,
    ),
)

HISTOGRAMS = TableSpec(
    name="histograms",
    meaning="Whole spectra as counts on one logarithmic grid, 20 bins a decade, the same for all layers and steps; empty bins "
    "are left out, looks evenly thinned.",
    columns=(
        *_WHERE,
        Column(
            "bin",
            "int",
            "Number of the bin: λ from 10^(bin/20) on; null for eigenvalues that are zero within rounding.",
        ),
        Column("left", "float", "Lower end of the bin.", "λ"),
        Column("right", "float", "Upper end of the bin.", "λ"),
        Column("count", "int", "Eigenvalues in it."),
    ),
)

UPDATE_OVERLAPS = TableSpec(
    name="update_overlaps",
    meaning="Squared inner products between directions of an update and those of the update before, or of the weights now; looks "
    "evenly thinned.",
    columns=(
        *_WHERE,
        Column("pair", "str", "update-update or update-weights."),
        Column("side", "str", "left: output side of the matrix; right: input side."),
        Column("i", "int", "Direction of the update, 0 for the strongest."),
        Column("j", "int", "Direction of the other one, 0 for the strongest."),
        Column("value", "float", "Squared inner product."),
        Column("null", "float", "Its mean between random directions: one over the side's dimension."),
    ),
)

NULL_COPIES = TableSpec(
    name="null_copies",
    meaning="The resampled copies that stood beside the last whole spectrum of each layer.",
    key=("layer_id", "null", "replica"),
    columns=(
        *_WHERE,
        Column("null", "str", "shuffle or signflip."),
        Column("replica", "int", "Index of the copy."),
        Column("lambda_max", "float", "Its largest eigenvalue, where it was drawn for the rank test.", "λ"),
        Column("bulk_ks", "float", "Its own N·sup|F−F_MP|, where its whole spectrum was computed."),
    ),
)

ALARMS = TableSpec(
    name="alarms",
    meaning="What happened to a layer, each beyond its null at a level shared out over the whole training.",
    columns=(
        *_WHERE,
        Column("kind", "str", "non-finite, rank-drop, spike-born or bulk-departs."),
        Column("value", "float", "Entries, share of lost rank, smallest eigenvalue beyond the null, or N·KS."),
        Column("null", "float", "What it exceeded."),
        Column("p", "float", "p of the test, where there is one."),
        Column("level", "float", "Level of this look's test: all looks, layers and tests together make .05."),
        Column("because", "str", "One sentence with the numbers."),
    ),
)

EVENTS = TableSpec(
    name="events",
    meaning="Every look that is kept, and what looking has cost so far.",
    key=("step",),
    columns=(
        Column("step", "int", "Optimiser step."),
        Column("event", "str", "whole or top."),
        Column("layers", "int", "Layers that were looked at."),
        Column("skipped", "int", "Looks that were due since the one before and were left out, to keep to the limit."),
        Column("seconds", "float", "Time of this look, without the writing that follows it.", "s"),
        Column("training_seconds", "float", "Training time so far, the monitor's own left out.", "s"),
        Column("own_seconds", "float", "Time so far for which training waited: looks, writing, drawing.", "s"),
        Column("overhead", "float", "That over the training time; null where there was none yet."),
        Column(
            "closing_seconds", "float", "Time since the end of training: what no step waited for; 0 before it.", "s"
        ),
    ),
)

MONITOR_TABLES = (
    WATCHED,
    TRACE,
    TOP_VALUES,
    HISTOGRAMS,
    UPDATE_OVERLAPS,
    NULL_COPIES,
    ALARMS,
    EVENTS,
    PASSED_OVER,
)
