"""What a spectrum would look like with nothing to find: laws, resampled matrices, tests."""

from querist.weights.nulls._bulk import KS_SD, MPFit, beyond_copies, bulk_p, fit_mp
from querist.weights.nulls._distance import ShuffleDistance, jensen_shannon, shuffle_distance
from querist.weights.nulls._lanczos import top_eigenvalue
from querist.weights.nulls._marchenko_pastur import mp_cdf, mp_edges, mp_moment, mp_pdf, mp_quantile, mp_quantiles
from querist.weights.nulls._phase import PHASES, Evidence, Phase, PhaseStability, phase, phase_stability
from querist.weights.nulls._rank import LEVEL, predicted_edge, predicted_p, rank_edge, tied_rank_p
from querist.weights.nulls._replicas import full_replicas, replica, top_error, top_replicas
from querist.weights.nulls._spikes import spike_test
from querist.weights.nulls._spiketest import Round, SpikeTest
from querist.weights.nulls._tracy_widom import johnstone, tw1_cdf, tw1_quantile, tw1_sf, tw_edge

__all__ = [
    "KS_SD",
    "LEVEL",
    "PHASES",
    "Evidence",
    "MPFit",
    "Phase",
    "PhaseStability",
    "Round",
    "ShuffleDistance",
    "SpikeTest",
    "beyond_copies",
    "bulk_p",
    "fit_mp",
    "full_replicas",
    "jensen_shannon",
    "johnstone",
    "mp_cdf",
    "mp_edges",
    "mp_moment",
    "mp_pdf",
    "mp_quantile",
    "mp_quantiles",
    "phase",
    "phase_stability",
    "predicted_edge",
    "predicted_p",
    "rank_edge",
    "replica",
    "shuffle_distance",
    "spike_test",
    "tied_rank_p",
    "top_eigenvalue",
    "top_error",
    "top_replicas",
    "tw1_cdf",
    "tw1_quantile",
    "tw1_sf",
    "tw_edge",
]
