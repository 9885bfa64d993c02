"""What does a treatment change?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.effects.baselines import (
        M3TN,
        PLE,
        CFRNet,
        ConstantEffect,
        DragonNet,
        DRLearner,
        EFINLike,
        FlexTENet,
        MMoE,
        NaturalRank,
        RandomRank,
        RLearner,
        SingleArm,
        SLearner,
        TARNet,
        TLearner,
        XLearner,
    )
    from querist.effects.budget import Allocation, Path, allocate, budget_path, multi_arm_qini
    from querist.effects.criteo import read_criteo
    from querist.effects.design import aipw_scores, plan
    from querist.effects.estimator import Estimator
    from querist.effects.evaluation import Evaluation, compare, evaluate
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
        uplift_bins,
        weighted_average_uplift,
    )
    from querist.effects.network import MTMT
    from querist.effects.parts import Effects, retier
    from querist.effects.serving import load
    from querist.effects.serving.export import ExportSummary, export
    from querist.effects.simulation import Simulated, simulate
    from querist.effects.studies.check import check
    from querist.effects.studies.monitor import monitor
    from querist.effects.studies.score import ScoreSummary, score

__all__ = [
    "M3TN",
    "MTMT",
    "PLE",
    "Allocation",
    "CFRNet",
    "Calibration",
    "ConstantEffect",
    "Curve",
    "DRLearner",
    "DragonNet",
    "EFINLike",
    "Effects",
    "Estimator",
    "Evaluation",
    "ExportSummary",
    "FlexTENet",
    "MMoE",
    "NaturalRank",
    "Path",
    "RLearner",
    "RandomRank",
    "SLearner",
    "ScoreSummary",
    "Simulated",
    "SingleArm",
    "TARNet",
    "TLearner",
    "XLearner",
    "aipw_scores",
    "allocate",
    "auuc",
    "budget_path",
    "calibration",
    "check",
    "compare",
    "evaluate",
    "export",
    "gain_curve",
    "load",
    "monitor",
    "multi_arm_qini",
    "plan",
    "policy_difference",
    "policy_value",
    "qini",
    "rate",
    "read_criteo",
    "retier",
    "score",
    "simulate",
    "uplift_at_k",
    "uplift_bins",
    "weighted_average_uplift",
]

# No module of this folder may bear the name of one of these: importing it would put the module in the function's place.
__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.effects.baselines": (
            "CFRNet",
            "ConstantEffect",
            "DRLearner",
            "DragonNet",
            "EFINLike",
            "FlexTENet",
            "M3TN",
            "MMoE",
            "NaturalRank",
            "PLE",
            "RLearner",
            "RandomRank",
            "SLearner",
            "SingleArm",
            "TARNet",
            "TLearner",
            "XLearner",
        ),
        "querist.effects.budget": ("Allocation", "Path", "allocate", "budget_path", "multi_arm_qini"),
        "querist.effects.criteo": ("read_criteo",),
        "querist.effects.design": ("aipw_scores", "plan"),
        "querist.effects.estimator": ("Estimator",),
        "querist.effects.evaluation": ("Evaluation", "compare", "evaluate"),
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
            "uplift_bins",
            "weighted_average_uplift",
        ),
        "querist.effects.network": ("MTMT",),
        "querist.effects.parts": ("Effects", "retier"),
        "querist.effects.serving": ("load",),
        "querist.effects.serving.export": ("ExportSummary", "export"),
        "querist.effects.simulation": ("Simulated", "simulate"),
        "querist.effects.studies.check": ("check",),
        "querist.effects.studies.monitor": ("monitor",),
        "querist.effects.studies.score": ("ScoreSummary", "score"),
    },
)
