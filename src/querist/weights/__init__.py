"""What did training leave in a network's weights?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.weights.laboratory import SpikePrediction, predict_spike
    from querist.weights.studies.craft import Trajectory, craft
    from querist.weights.studies.scan import Scan, scan

__all__ = ["Scan", "SpikePrediction", "Trajectory", "craft", "predict_spike", "scan"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.weights.laboratory": ("SpikePrediction", "predict_spike"),
        "querist.weights.studies.craft": ("Trajectory", "craft"),
        "querist.weights.studies.scan": ("Scan", "scan"),
    },
)
