"""Estimators to compare with: learners of any kind in five arrangements, published networks, references that need no learning."""

from __future__ import annotations

from querist.effects.baselines._meta import SLearner, TLearner

__all__ = ["SLearner", "TLearner"]
