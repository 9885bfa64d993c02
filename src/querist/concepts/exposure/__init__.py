"""What a trigger achieves, beside its nulls, and whether it can be seen."""

from querist.concepts.exposure._attack import AttackReport, Predict, attack_report, codes_of, excess_interval
from querist.concepts.exposure._pixels import perturb
from querist.concepts.exposure._reachability import EPS, Reach, Reachability, reachability, redrawn
from querist.concepts.exposure._stealth import Stealth, hamming, kernel_mmd, stealth_of, two_sample

__all__ = [
    "EPS",
    "AttackReport",
    "Predict",
    "Reach",
    "Reachability",
    "Stealth",
    "attack_report",
    "codes_of",
    "excess_interval",
    "hamming",
    "kernel_mmd",
    "perturb",
    "reachability",
    "redrawn",
    "stealth_of",
    "two_sample",
]
