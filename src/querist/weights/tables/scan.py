"""The tables of the room: every column with its unit and meaning."""

from __future__ import annotations

from querist.results.table import Column, TableSpec
from querist.weights.tables.columns import EDGE, LAYER_ID, MATRIX_SPECTRUM, described

__all__ = ["ADVICE", "CURVES", "ENTRIES", "LAYERS", "NULL_DRAWS", "PASSED_OVER", "SCAN_TABLES", "SPECTRA"]


LAYERS = TableSpec(
    name="layers",
    meaning="One row per matrix. Eigenvalues λ are squared singular values, unnormalised; N is the shorter side.",
    key=("layer_id",),
    shown=(
        *(
            "kind",
            "N",
            "M",
            "phase",
            "alpha",
            "alpha_low",
            "alpha_high",
            "n_tail",
            "alpha_mp",
            "n_spikes",
            "spike_p_adj",
        ),
        *("bulk_ks", "bulk_p", "shuffle_distance", "null_distance", "rank_loss", "status"),
    ),
    columns=(
        *described("str", ("layer_id", "", "Tensor name, with the part of it where a tensor holds several matrices.")),
        *described("str", ("name", "", "Name of the tensor in the source.")),
        *described("list[str]", ("aliases", "", "Other names of the same tensor (tied weights).")),
        *described(
            "str",
            ("kind", "", "Layer kind: linear, conv2d, lstm, attention, embedding, lora, expert, unknown…"),
            ("part", "", "Which part of a fused tensor: q, k, v, a gate, a group, an expert; empty for a whole one."),
        ),
        *described("list[int]", ("shape", "", "Shape of the tensor in the source.")),
        *described(
            "int",
            ("N", "", "Shorter side of the matrix: the number of eigenvalues of one matrix."),
            ("M", "", "Longer side of the matrix."),
        ),
        *described("float", ("q", "", "Aspect ratio N/M.")),
        *described(
            "int",
            ("n_values", "", "Eigenvalues in the spectrum: N, or N times the number of pooled matrices."),
            ("n_nonfinite", "", "Entries that are NaN or infinite."),
            ("n_dropped", "", "Zero eigenvalues dropped before the power-law fit."),
        ),
        *described(
            "str",
            ("dtype", "", "Number format in the source."),
            ("status", "", "ok, short-tail, degenerate, nonfinite, approximate, passed-over or failed."),
            ("reason", "", "Why the status is not ok."),
            ("method", "", "How the eigenvalues were computed."),
            ("precision", "", "exact (float64 Gram matrix) or fast (float32 singular values, ranks masked)."),
            ("conv", "", "How a convolution became a matrix: flatten, slices or operator; empty for other kinds."),
        ),
        *described("float", ("scale", "", "max|W|, by which entries were divided before the Gram matrix was formed.")),
        *described(
            "float",
            ("alpha", "", "Power-law density exponent of the tail by the fit that was asked for."),
            ("alpha_low", "", "Lower end: α−1.96σ, widened over all xmin with D ≤ 1.1·min D."),
            ("alpha_high", "", "Upper end: α+1.96σ, widened over all xmin with D ≤ 1.1·min D."),
            ("sigma", "", "(α−1)/√n_tail: the standard error if tail eigenvalues were independent; they repel."),
            ("xmin", "λ", "Smallest eigenvalue of the fitted tail."),
            ("xmax", "λ", "Largest eigenvalue."),
            ("D", "", "Kolmogorov–Smirnov distance between tail and fit."),
        ),
        *described("int", ("n_tail", "", "Eigenvalues in the fitted tail.")),
        *described("str", ("xmin_search", "", "How xmin was searched: exact, grid or fixed.")),
        *described(
            "bool", ("xmin_ambiguous", "", "Whether tails from other xmin fit about as well, exponents beyond α±1.96σ.")
        ),
        *described("list[str]", ("fit_warnings", "", "What belongs beside the exponent, one sentence each.")),
        *described(
            "int",
            ("finger", "", "Topmost eigenvalues that stand apart from the power law; only where the phase claims one."),
        ),
        *described(
            "float",
            ("alpha_mp", "", "The same fit on the matching Marchenko–Pastur quantiles."),
            ("alpha_shuffle", "", "The same fit on shuffled copies, mean over replicas."),
            ("alpha_hill", "", "Hill exponent over the upper half of the spectrum, density convention."),
            ("alpha_hill_mp", "", "The same Hill exponent on the matching Marchenko–Pastur quantiles."),
            ("alpha_peak", "", "csn fit with xmin within [0.95, 1.5] of the mode of the log histogram."),
            ("alpha_farms", "", "Hill exponent over square windows of the matrix (FARMS)."),
            ("alpha_weighted", "", "α·log10 λ_max."),
            ("log_alpha_norm", "", "log10 Σλ^α."),
            ("log_norm", "", "log10 Σλ, twice the log of the Frobenius norm."),
            ("log_spectral_norm", "", "log10 λ_max."),
            ("stable_rank", "", "Σλ/λ_max."),
            ("entropy", "", "−Σp ln p / ln rank with p = λ/Σλ."),
        ),
        *described(
            "int",
            ("rank", "", "Eigenvalues above eps·λ_max·max(N, M)."),
            ("rank_loss", "", "N minus rank, over all pooled matrices."),
            ("weak_rank_loss", "", "Eigenvalues below 1e-6 in the source's own units."),
        ),
        *described(
            "float",
            ("sigma_mp", "", "Entry standard deviation of the fitted Marchenko–Pastur bulk."),
            ("lambda_plus", "λ", "Upper edge of the fitted bulk."),
            ("mp_softrank", "", "λ₊ over the larger of λ₊ and λ_max."),
        ),
        *described(
            "int",
            (
                "n_spikes",
                "",
                "Eigenvalues above the Tracy–Widom edge and both resampled maxima; spike_verdict says whether that is chance.",
            ),
            ("n_spikes_tw", "", "Eigenvalues above the .99 Tracy–Widom edge alone: never evidence by itself."),
            ("n_spikes_low", "", "Spikes counted with the .99 Tracy–Widom edge."),
            ("n_spikes_high", "", "Spikes counted with the .95 Tracy–Widom edge."),
        ),
        *described(
            "float",
            ("spike_edge", "λ", "Largest of the Tracy–Widom edge and both resampled maxima: what a spike must beat."),
        ),
        *described(
            "str", ("null_note", "", "What must be known of the laws this layer is held against; empty as a rule.")
        ),
        *described(
            "float",
            ("bulk_ks", "", "N·sup|F−F_MP| after the spikes are removed."),
            ("bulk_p", "", "p of bulk_ks under Gaussian entries."),
            ("bulk_p_copies", "", "p of bulk_ks as one more sign-flipped copy (Student t); from two copies on."),
            ("spike_p", "", "One-sided t prediction of log λ_max from the resampled maxima, the larger over nulls."),
            ("spike_p_adj", "", "spike_p adjusted over all layers of the run (Benjamini–Hochberg)."),
            ("spike_p_rank", "", "Rank of λ_max among the resampled maxima, the larger p over nulls."),
        ),
        *described(
            "str", ("spike_verdict", "", "Verdict of weights.spikes, by the adjusted p: yes, no or cannot say.")
        ),
        *described("bool", ("bulk_extrapolated", "", "Whether bulk_p goes beyond the simulated sizes (N over 1024).")),
        *described(
            "float",
            ("shuffle_distance", "", "Jensen–Shannon distance to shuffled copies, 100 log bins, mean over replicas."),
            ("shuffle_distance_sd", "", "Standard deviation of that distance over replicas."),
            ("null_distance", "", "Largest distance between two shuffled copies: what nothing looks like."),
            (
                "null_distance_sd",
                "",
                "Standard deviation of the distances between shuffled copies; from three copies on.",
            ),
        ),
        *described(
            "int",
            (
                "rand_num_spikes",
                "",
                "Eigenvalues of a shuffled copy above its own fitted .99 edge (correlation traps): the lower median over copies.",
            ),
        ),
        *described(
            "float",
            (
                "null_max_ratio",
                "",
                "Largest eigenvalue of a shuffled copy over its own fitted .99 edge: the mean over copies.",
            ),
        ),
        *described("int", ("n_erg", "", "Count of the ERG (trace-log) condition from the top.")),
        *described("float", ("n_erg_mp", "", "The same count on Marchenko–Pastur quantiles.")),
        *described("int", ("erg_gap", "", "n_erg − n_tail.")),
        *described(
            "float",
            ("lr_exponential", "", "Vuong statistic of power law against exponential; positive favours the power law."),
            ("lr_lognormal", "", "Vuong statistic of power law against lognormal; positive favours the power law."),
            ("lr_truncated", "", "Log likelihood ratio of power law against truncated power law; never positive."),
        ),
        *described(
            "str", ("phase", "", "random-like, bleeding-out, bulk+spikes, bulk-decay, heavy-tailed, rank-collapse.")
        ),
        *described(
            "float",
            ("phase_margin", "", "Smallest margin of the deciding statistics, in null standard deviations."),
            ("phase_share", "", "Share of row-block deletions that give the same phase."),
        ),
        *described("bool", ("phase_decided", "", "Whether every test was made and the margin is at least one.")),
        *described("str", ("phase_reason", "", "What decided the phase, or why it cannot be said.")),
        *described("int", ("denoised_rank", "", "Singular values above the optimal hard threshold.")),
        *described("float", ("denoised_energy", "", "Share of Σλ that the Frobenius shrinker keeps.")),
        *described(
            "float",
            ("lr_multiplier", "", "Learning-rate multiplier advised for this layer (advise=temp-balance)."),
            ("sparsity", "", "Share of weights advised to prune (advise=alpha-pruning)."),
        ),
        *described("str", ("advice_reason", "", "Why the advice leaves this layer alone; empty where it does not.")),
        *described("int", ("position", "", "Place in the order of the source, from 0.")),
        *described("float", ("seconds", "s", "Time spent on this matrix.")),
    ),
)

SPECTRA = TableSpec(
    name="spectra",
    meaning="Every eigenvalue of every matrix, with those of the resampled copies.",
    columns=(
        LAYER_ID,
        *MATRIX_SPECTRUM,
    ),
)

CURVES = TableSpec(
    name="curves",
    meaning="What each candidate xmin of the csn search gives, thinned to at most 200 candidates a matrix.",
    columns=(
        LAYER_ID,
        Column("xmin", "float", "Candidate start of the tail.", "λ"),
        Column("alpha", "float", "Exponent fitted there."),
        Column("D", "float", "Kolmogorov–Smirnov distance of that fit."),
        Column("n_tail", "int", "Eigenvalues in that tail."),
        Column("hill", "float", "Hill exponent with this many tail eigenvalues."),
    ),
)

NULL_DRAWS = TableSpec(
    name="null_draws",
    meaning="Largest eigenvalue of each resampled copy beside the real one.",
    columns=(
        LAYER_ID,
        Column("null", "str", "shuffle or signflip; real for the matrix itself."),
        Column("replica", "int", "Index of the copy; null for the matrix itself."),
        *EDGE,
        Column("bulk_ks", "float", "Its own N·sup|F−F_MP|, where its whole spectrum was computed."),
    ),
)

PASSED_OVER = TableSpec(
    name="passed_over",
    meaning="Tensors that were not analysed, each with its reason.",
    columns=(
        Column("what", "str", "Name of the tensor."),
        Column("shape", "list[int]", "Its shape."),
        Column("dtype", "str", "Its number format."),
        Column("reason", "str", "Why it was passed over."),
    ),
)

ENTRIES = TableSpec(
    name="entries",
    meaning="Histogram of a matrix's entries (a regular sample above 16 384) over their root mean square, beside the normal law.",
    columns=(
        LAYER_ID,
        Column("left", "float", "Lower end of the bin.", "root mean squares"),
        Column("right", "float", "Upper end of the bin.", "root mean squares"),
        Column("share", "float", "Share of entries in the bin; the outermost bins hold all beyond."),
        Column("normal", "float", "Share that normal entries would put there."),
    ),
)

ADVICE = TableSpec(
    name="advice",
    meaning="Layer-wise advice with the exponent it rests on and the null of that exponent.",
    key=("layer_id",),
    columns=(
        LAYER_ID,
        Column("method", "str", "temp-balance or alpha-pruning."),
        Column("alpha", "float", "The exponent the advice rests on (one estimator for all layers)."),
        Column("alpha_null", "float", "The same exponent on the null."),
        Column("value", "float", "Learning-rate multiplier, or share of weights to prune."),
        Column("reason", "str", "Why a layer was left alone; empty where it was not."),
    ),
)

SCAN_TABLES = (LAYERS, SPECTRA, CURVES, NULL_DRAWS, ENTRIES, PASSED_OVER, ADVICE)
