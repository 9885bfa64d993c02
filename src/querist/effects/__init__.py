"""What does a treatment change?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.effects.budget import Allocation, Path, allocate, budget_path, multi_arm_qini
    from querist.effects.criteo import read_criteo
    from querist.effects.design import aipw_scores, plan
    from querist.effects.metrics import (
        Calibration,
        Curve,
        auuc,
        calibration,
        gain_curve,
        policy_difference,
        policy_value,
        qini,
        rate,
        uplift_at_k,
        weighted_average_uplift,
    )
    from querist.effects.parts import Effects, retier
    from querist.effects.simulation import Simulated, simulate

__all__ = [
    "Allocation",
    "Calibration",
    "Curve",
    "Effects",
    "Path",
    "Simulated",
    "aipw_scores",
    "allocate",
    "auuc",
    "budget_path",
    "calibration",
    "gain_curve",
    "multi_arm_qini",
    "plan",
    "policy_difference",
    "policy_value",
    "qini",
    "rate",
    "read_criteo",
    "retier",
    "simulate",
    "uplift_at_k",
    "weighted_average_uplift",
]

# No module of this folder may bear the name of one of these: importing it would put the module in the function's place.
__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.effects.budget": ("Allocation", "Path", "allocate", "budget_path", "multi_arm_qini"),
        "querist.effects.criteo": ("read_criteo",),
        "querist.effects.design": ("aipw_scores", "plan"),
        "querist.effects.metrics": (
            "Calibration",
            "Curve",
            "auuc",
            "calibration",
            "gain_curve",
            "policy_difference",
            "policy_value",
            "qini",
            "rate",
            "uplift_at_k",
            "weighted_average_uplift",
        ),
        "querist.effects.parts": ("Effects", "retier"),
        "querist.effects.simulation": ("Simulated", "simulate"),
    },
)
