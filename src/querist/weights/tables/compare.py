"""The tables of a comparison: every column with its unit and meaning."""

from __future__ import annotations

from querist.results.table import Column, TableSpec
from querist.weights.tables.columns import EDGE, LAYER_ID, MATRIX_SPECTRUM, described
from querist.weights.tables.scan import PASSED_OVER

__all__ = ["ANGLES", "COMPARED", "COMPARE_TABLES", "DELTA_DRAWS", "DELTA_OVERLAPS", "DELTA_SPECTRA", "UNMATCHED"]


COMPARED = TableSpec(
    name="layers",
    meaning="Comparison: one row per matrix that both sources hold. W is the base's, ΔW = tuned − base; eigenvalues λ are "
    "squared singular values, unnormalised; N is the shorter side.",
    key=("layer_id",),
    columns=(
        *described(
            "str",
            ("layer_id", "", "Name in the base, with the part of the tensor where it holds several matrices."),
            ("name", "", "Name of the tensor in the base."),
            ("tuned_name", "", "Name of the tensor, or of the low-rank pair, in the tuned source."),
        ),
        *described("list[str]", ("aliases", "", "Other names of the same tensor in the base (tied weights).")),
        *described(
            "str",
            ("kind", "", "Layer kind: linear, conv2d, lstm, attention, embedding, lora, expert, unknown…"),
            ("part", "", "Which part of a fused tensor: q, k, v, a gate, a group, an expert; empty for a whole one."),
        ),
        *described("list[int]", ("shape", "", "Shape of the tensor in the base.")),
        *described(
            "int",
            ("N", "", "Shorter side of the matrix."),
            ("M", "", "Longer side of the matrix."),
        ),
        *described("float", ("q", "", "Aspect ratio N/M.")),
        *described(
            "str",
            ("dtype", "", "Number format in the base."),
            ("dtype_tuned", "", "Number format in the tuned source."),
            (
                "dtype_rounding",
                "",
                "The coarser of the formats that the entries of both fit into, whatever holds them.",
            ),
            ("status", "", "ok, unchanged, degenerate, nonfinite, approximate or failed."),
            ("reason", "", "Why the status is not ok."),
            ("method", "", "dense (ΔW formed), low-rank (its factors), streamed or slq+topk."),
            ("conv", "", "How a convolution became a matrix: flatten, slices or operator; empty for other kinds."),
        ),
        *described("int", ("lora_rank", "", "r of a low-rank update: the most that its rank can be.")),
        *described(
            "float",
            ("lora_scale", "", "Factor alpha/r by which a low-rank update was multiplied."),
            ("norm", "", "‖W‖_F of the base."),
            ("delta_norm", "", "‖ΔW‖_F."),
            ("delta_relative", "", "‖ΔW‖_F/‖W‖_F."),
            ("rounding", "", "The most that storing both copies can make of ‖ΔW‖_F/‖W‖_F: eps of the number format."),
            ("delta_spectral", "", "Largest singular value of ΔW over that of W."),
            (
                "delta_cosine",
                "",
                "Cosine of ΔW and W: negative where W shrank or was replaced; by chance about 1/√(hd).",
            ),
        ),
        *described("int", ("delta_rank", "", "Singular values of ΔW above what rounding errors would give.")),
        *described("float", ("delta_stable_rank", "", "Σλ/λ_max of ΔW.")),
        *described(
            "int",
            ("delta_n_spikes", "", "Eigenvalues of ΔW beyond every null: directions that noise could not make."),
            ("delta_n_spikes_tw", "", "Eigenvalues of ΔW above the .99 Tracy–Widom edge alone."),
            ("delta_n_spikes_low", "", "Spikes counted at the .99 edges."),
            ("delta_n_spikes_high", "", "Spikes counted at the .95 edges."),
        ),
        *described("str", ("delta_null", "", "What was resampled: entries of ΔW, or factors of a low-rank update.")),
        *described(
            "float",
            ("delta_edge", "λ", "What an eigenvalue of ΔW must beat to be a spike."),
            (
                "delta_p",
                "",
                "One-sided prediction of log λ_max of ΔW from the resampled maxima, the larger over nulls.",
            ),
            ("delta_p_adj", "", "delta_p adjusted over all layers of the run (Benjamini–Hochberg)."),
            ("delta_p_rank", "", "Rank of λ_max of ΔW among the resampled maxima, the larger p over nulls."),
            ("delta_sigma_mp", "", "Entry standard deviation of the Marchenko–Pastur bulk fitted to ΔW."),
            ("delta_lambda_plus", "λ", "Upper edge of that bulk."),
            ("delta_bulk_ks", "", "N·sup|F−F_MP| of ΔW after its spikes are removed."),
            (
                "delta_bulk_p",
                "",
                "p of delta_bulk_ks under Gaussian entries: small where the rest of ΔW is not noise either.",
            ),
            ("delta_alpha", "", "Power-law exponent of the spectrum of ΔW."),
            ("alpha_base", "", "Power-law exponent of the base's spectrum."),
            ("alpha_base_low", "", "Lower end of its interval."),
            ("alpha_base_high", "", "Upper end of its interval."),
            ("alpha_tuned", "", "Power-law exponent of the tuned spectrum."),
            ("alpha_tuned_low", "", "Lower end of its interval."),
            ("alpha_tuned_high", "", "Upper end of its interval."),
            ("alpha_change", "", "alpha_tuned − alpha_base."),
            ("alpha_mp", "", "The same fit on the matching Marchenko–Pastur quantiles."),
            ("alpha_hill_base", "", "Hill exponent of the base over the upper half of its spectrum."),
            ("alpha_hill_tuned", "", "Hill exponent of the tuned spectrum."),
            ("alpha_hill_mp", "", "Hill exponent of the matching Marchenko–Pastur quantiles."),
        ),
        *described(
            "int",
            ("n_tail_base", "", "Eigenvalues in the base's fitted tail."),
            ("n_tail_tuned", "", "Eigenvalues in the tuned fitted tail."),
            ("base_n_spikes", "", "Eigenvalues of W above the .99 Tracy–Widom edge: the directions called its spikes."),
            ("overlap_k", "", "Leading directions of W that were compared."),
            ("overlap_l", "", "Leading directions of ΔW that were compared: its rank, at most overlap_k."),
        ),
        *described(
            "float",
            ("overlap_left", "", "Share of ΔW's leading left (output) directions that lies in W's."),
            ("overlap_right", "", "Share of ΔW's leading right (input) directions that lies in W's."),
            ("overlap_null", "", "k/side: the mean overlap of random directions, on the side that was judged."),
            ("overlap_null_left", "", "k over the number of rows."),
            ("overlap_null_right", "", "k over the number of columns."),
        ),
        *described("str", ("overlap_side", "", "left or right: the side with the smaller p, which was judged.")),
        *described(
            "float",
            ("overlap_low", "", ".005 quantile of random overlaps on the judged side."),
            ("overlap_high", "", ".995 quantile of random overlaps on the judged side."),
            ("overlap_p", "", "P(random overlap ≥ this one), the smaller of both sides, doubled."),
            ("overlap_p_adj", "", "overlap_p adjusted over all layers of the run (Benjamini–Hochberg)."),
            ("overlap_flip", "", "Largest overlap of copies of ΔW with random signs, on the judged side."),
            ("overlap_flip_p", "", "One-sided prediction of the overlap from those of the copies."),
            ("overlap_flip_p_rank", "", "Rank of the overlap among those of the copies."),
            (
                "overlap_rest",
                "",
                "Overlap on the judged side of ΔW less its share of W itself, where |delta_cosine| exceeds .1.",
            ),
            ("overlap_rest_p", "", "P(random overlap ≥ that one)."),
            ("angle_left", "degrees", "Smallest principal angle between the left spans."),
            ("angle_right", "degrees", "Smallest principal angle between the right spans."),
            ("energy_spikes", "", "Share of ‖ΔW‖² inside W's spikes on both sides."),
            ("energy_spikes_null", "", "The same share of an update without a preferred direction: s²/(hd)."),
            ("energy_bulk", "", "Share of ‖ΔW‖² outside W's spikes on both sides."),
            ("energy_bulk_null", "", "The same share of an update without a preferred direction: (1−s/h)(1−s/d)."),
        ),
        *described(
            "int",
            ("n_nonfinite", "", "Entries that are NaN or infinite, in both copies together."),
            ("position", "", "Place in the order of the base, from 0."),
        ),
        *described("float", ("seconds", "s", "Time spent on this matrix.")),
    ),
)

UNMATCHED = TableSpec(
    name="unmatched",
    meaning="Matrices of either source without a partner in the other, each with its reason.",
    columns=(
        Column("name", "str", "Name of the matrix or layer."),
        Column("side", "str", "base, tuned, or both where the two do not fit together."),
        Column("base_shape", "list[int]", "Its shape in the base."),
        Column("tuned_shape", "list[int]", "Its shape in the tuned source."),
        Column("reason", "str", "Why it was not compared."),
    ),
)

DELTA_SPECTRA = TableSpec(
    name="spectra",
    meaning="Comparison: every eigenvalue of base, tuned and ΔW, with those of resampled copies of ΔW.",
    columns=(
        LAYER_ID,
        Column("matrix", "str", "base, tuned or delta."),
        *MATRIX_SPECTRUM,
    ),
)

DELTA_DRAWS = TableSpec(
    name="null_draws",
    meaning="Comparison: what each resampled copy of ΔW gave, beside ΔW itself.",
    columns=(
        LAYER_ID,
        Column("null", "str", "shuffle or signflip; real for ΔW itself."),
        Column("replica", "int", "Index of the copy; null for ΔW itself."),
        *EDGE,
        Column("overlap_left", "float", "Overlap of its leading left directions with W's, where that was drawn."),
        Column("overlap_right", "float", "Overlap of its leading right directions with W's, where that was drawn."),
    ),
)

DELTA_OVERLAPS = TableSpec(
    name="overlaps",
    meaning="Squared inner products of the leading singular directions of W and of ΔW.",
    columns=(
        LAYER_ID,
        Column("side", "str", "left (outputs) or right (inputs)."),
        Column(
            "i",
            "int",
            "Direction of W, the largest first, from 0; the first of a block where directions were averaged.",
        ),
        Column("j", "int", "Direction of ΔW, the largest first, from 0."),
        Column("value", "float", "Squared inner product, the mean over a block where directions were averaged."),
        Column("null", "float", "Its mean for random directions: 1 over the side."),
    ),
)

ANGLES = TableSpec(
    name="angles",
    meaning="Principal angles between the leading spans of W and of ΔW, beside those of random spans.",
    columns=(
        LAYER_ID,
        Column("side", "str", "left (outputs) or right (inputs)."),
        Column("index", "int", "Which angle, ascending, from 0."),
        Column("angle", "float", "Principal angle.", "degrees"),
        Column("null_low", "float", ".05 quantile of that angle between random spans.", "degrees"),
        Column("null", "float", "Median of that angle between random spans.", "degrees"),
        Column("null_high", "float", ".95 quantile of that angle between random spans.", "degrees"),
    ),
)

COMPARE_TABLES = (COMPARED, UNMATCHED, DELTA_SPECTRA, DELTA_DRAWS, DELTA_OVERLAPS, ANGLES, PASSED_OVER)
