"""What a trigger achieves, beside its nulls, and whether it can be seen."""

from querist.concepts.exposure._attack import AttackReport, Predict, attack_report, codes_of, excess_interval
from querist.concepts.exposure._stealth import Stealth, hamming, kernel_mmd, stealth_of, two_sample

__all__ = [
    "AttackReport",
    "Predict",
    "Stealth",
    "attack_report",
    "codes_of",
    "excess_interval",
    "hamming",
    "kernel_mmd",
    "stealth_of",
    "two_sample",
]
