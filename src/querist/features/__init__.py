"""What do a network's layers keep of the data they see?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.features.captured import Capture, CapturedLayer
    from querist.features.capturing import capture
    from querist.features.distances import (
        Distance,
        cka,
        exact_wasserstein,
        gaussian_w2,
        gaussian_w2_moments,
        max_sliced_wasserstein,
        otdd,
        per_unit_wasserstein,
        sinkhorn_divergence,
        sliced_wasserstein,
        spectrum_distance,
        wasserstein_1d,
    )
    from querist.features.monitor import LatentMonitor
    from querist.features.profile import Consistency, consistency
    from querist.features.reference import Reference
    from querist.features.scores import gbc, h_score, leep, logme, nce, nleep, transrate
    from querist.features.studies.compare import Comparison, compare
    from querist.features.studies.freeze import Sweep, freeze
    from querist.features.studies.rank import Ranking, rank
    from querist.statistics import permutation_test

__all__ = [
    "Capture",
    "CapturedLayer",
    "Comparison",
    "Consistency",
    "Distance",
    "LatentMonitor",
    "Ranking",
    "Reference",
    "Sweep",
    "capture",
    "cka",
    "compare",
    "consistency",
    "exact_wasserstein",
    "freeze",
    "gaussian_w2",
    "gaussian_w2_moments",
    "gbc",
    "h_score",
    "leep",
    "logme",
    "max_sliced_wasserstein",
    "nce",
    "nleep",
    "otdd",
    "per_unit_wasserstein",
    "permutation_test",
    "rank",
    "sinkhorn_divergence",
    "sliced_wasserstein",
    "spectrum_distance",
    "transrate",
    "wasserstein_1d",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.features.captured": ("Capture", "CapturedLayer"),
        "querist.features.capturing": ("capture",),
        "querist.features.distances": (
            "Distance",
            "cka",
            "exact_wasserstein",
            "gaussian_w2",
            "gaussian_w2_moments",
            "max_sliced_wasserstein",
            "otdd",
            "per_unit_wasserstein",
            "sinkhorn_divergence",
            "sliced_wasserstein",
            "spectrum_distance",
            "wasserstein_1d",
        ),
        "querist.features.monitor": ("LatentMonitor",),
        "querist.features.profile": ("Consistency", "consistency"),
        "querist.features.reference": ("Reference",),
        "querist.features.scores": ("gbc", "h_score", "leep", "logme", "nce", "nleep", "transrate"),
        "querist.features.studies.compare": ("Comparison", "compare"),
        "querist.features.studies.freeze": ("Sweep", "freeze"),
        "querist.features.studies.rank": ("Ranking", "rank"),
        "querist.statistics": ("permutation_test",),
    },
)
