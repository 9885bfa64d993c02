"""Estimators to compare with: learners of any kind in five arrangements, published networks, references that need no learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.effects.baselines._efin import EFINLike
    from querist.effects.baselines._learners import Affine, Constant, Softmax, mean_from, mean_to
    from querist.effects.baselines._meta import SLearner, TLearner
    from querist.effects.baselines._multitask import M3TN, PLE, FlexTENet, MMoE
    from querist.effects.baselines._networks import Networks
    from querist.effects.baselines._references import ConstantEffect, NaturalRank, RandomRank, SingleArm
    from querist.effects.baselines._robust import DRLearner, RLearner, XLearner
    from querist.effects.baselines._tarnet import CFRNet, DragonNet, TARNet

__all__ = [
    "M3TN",
    "PLE",
    "Affine",
    "CFRNet",
    "Constant",
    "ConstantEffect",
    "DRLearner",
    "DragonNet",
    "EFINLike",
    "FlexTENet",
    "MMoE",
    "NaturalRank",
    "Networks",
    "RLearner",
    "RandomRank",
    "SLearner",
    "SingleArm",
    "Softmax",
    "TARNet",
    "TLearner",
    "XLearner",
    "mean_from",
    "mean_to",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.effects.baselines._efin": ("EFINLike",),
        "querist.effects.baselines._learners": ("Affine", "Constant", "Softmax", "mean_from", "mean_to"),
        "querist.effects.baselines._meta": ("SLearner", "TLearner"),
        "querist.effects.baselines._multitask": ("M3TN", "PLE", "FlexTENet", "MMoE"),
        "querist.effects.baselines._networks": ("Networks",),
        "querist.effects.baselines._references": ("ConstantEffect", "NaturalRank", "RandomRank", "SingleArm"),
        "querist.effects.baselines._robust": ("DRLearner", "RLearner", "XLearner"),
        "querist.effects.baselines._tarnet": ("CFRNet", "DragonNet", "TARNet"),
    },
)
