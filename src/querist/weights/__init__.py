"""What did training leave in a network's weights?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.weights.fits import ERG, Farms, PLFit, erg, farms, fit_powerlaw
    from querist.weights.laboratory import SpikePrediction, predict_spike
    from querist.weights.monitor import Alarm
    from querist.weights.nulls import MPFit, Phase, SpikeTest, fit_mp, mp_quantile, phase, spike_test
    from querist.weights.shrinkage import Shrinkage, shrink
    from querist.weights.spectrum import ESD, esd
    from querist.weights.studies.advise import Advice, advice
    from querist.weights.studies.compare import Comparison, compare
    from querist.weights.studies.craft import Trajectory, craft
    from querist.weights.studies.monitor import Monitor
    from querist.weights.studies.scan import Scan, scan

__all__ = [
    "ERG",
    "ESD",
    "Advice",
    "Alarm",
    "Comparison",
    "Farms",
    "MPFit",
    "Monitor",
    "PLFit",
    "Phase",
    "Scan",
    "Shrinkage",
    "SpikePrediction",
    "SpikeTest",
    "Trajectory",
    "advice",
    "compare",
    "craft",
    "erg",
    "esd",
    "farms",
    "fit_mp",
    "fit_powerlaw",
    "mp_quantile",
    "phase",
    "predict_spike",
    "scan",
    "shrink",
    "spike_test",
]

# No module of this folder may bear the name of one of these: importing it would put the module in the function's place.
__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.weights.fits": ("ERG", "Farms", "PLFit", "erg", "farms", "fit_powerlaw"),
        "querist.weights.laboratory": ("SpikePrediction", "predict_spike"),
        "querist.weights.monitor": ("Alarm",),
        "querist.weights.nulls": ("MPFit", "Phase", "SpikeTest", "fit_mp", "mp_quantile", "phase", "spike_test"),
        "querist.weights.shrinkage": ("Shrinkage", "shrink"),
        "querist.weights.spectrum": ("ESD", "esd"),
        "querist.weights.studies.advise": ("Advice", "advice"),
        "querist.weights.studies.compare": ("Comparison", "compare"),
        "querist.weights.studies.craft": ("Trajectory", "craft"),
        "querist.weights.studies.monitor": ("Monitor",),
        "querist.weights.studies.scan": ("Scan", "scan"),
    },
)
