"""References that any model must beat: random order, the natural response, one arm for all, the same effect for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.baselines._meta import Learners
from querist.effects.design import gamma
from querist.effects.estimator import Estimator, Parts, refuse_hooks
from querist.effects.sample import Sample
from querist.errors import BadOption
from querist.sources.rows import Encoded, hash_rows
from querist.statistics import torch_seed

__all__ = ["ConstantEffect", "NaturalRank", "RandomRank", "SingleArm"]


def mean_outcomes(sample: Sample) -> Float[np.ndarray, "M+1 K"]:
    """Mean outcome under each arm by augmented inverse propensity weighting with the arms' means; 0 where not estimable."""
    found = np.zeros(sample.estimable.shape)
    for k in range(len(sample.outcomes.names)):
        carries = sample.estimable[:, k]
        rows = sample.usable(k)
        if not carries.any():
            continue
        y, arm, w = sample.outcomes.values[rows, k], sample.arm[rows], sample.weight[rows]
        counts = np.bincount(arm, w, minlength=len(carries))
        mean = np.divide(
            np.bincount(arm, w * y, minlength=len(carries)), counts, where=counts > 0, out=np.zeros(len(carries))
        )
        e = sample.propensity[rows] * carries
        e = np.where(carries, e / e.sum(axis=1, keepdims=True), 1.0)
        found[:, k] = np.average(gamma(arm, y, e, np.tile(mean, (arm.size, 1))), axis=0, weights=w)
    return found


class _Constants(Estimator):
    """The same for everybody."""

    def _constants(self, sample: Sample, natural: np.ndarray, total: np.ndarray) -> np.ndarray:
        return total

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        refuse_hooks(self, hooks)
        means = mean_outcomes(sample)
        self.natural_ = means[0]
        self.total_ = self._constants(sample, means[0], means[1:] - means[0])

    def _parts(self, encoded: Encoded) -> Parts:
        n = len(encoded)
        return np.tile(self.natural_, (n, 1)), np.tile(self.total_, (n, 1, 1)), None

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, {"natural": self.natural_, "total": self.total_}

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.natural_, self.total_ = arrays["natural"], arrays["total"]


class ConstantEffect(_Constants):
    """Every person's effect is the average effect of the arm, by `aipw_scores` with the arms' means."""


class SingleArm(_Constants):
    """One arm for all: its average effect for everybody, 0 for the other arms, so that it is the arm chosen wherever it helps.

    arm: its label; None: for each outcome the arm with the best mean on the fit rows. Fitted ones have chosen_, outcome to arm.
    """

    def __init__(self, arm: Any = None, **common: Any):
        super().__init__(**common)
        self.arm = arm

    def _constants(self, sample: Sample, natural: np.ndarray, total: np.ndarray) -> np.ndarray:
        arms = list(sample.labels[1:])
        if self.arm is not None and self.arm not in arms:
            raise BadOption("No such arm", value=self.arm, allowed=", ".join(map(str, arms)))
        carries = np.where(sample.estimable[1:], total, -np.inf)
        best = carries.argmax(axis=0) if self.arm is None else np.full(total.shape[1], arms.index(self.arm))
        self.chosen_ = {name: arms[m] for name, m in zip(sample.outcomes.names, best, strict=True)}
        return np.where(np.arange(len(arms))[:, None] == best, total, 0.0)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"chosen": self.chosen_}, super()._state()[1]

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore(state, arrays)
        self.chosen_ = dict(state["chosen"])


class RandomRank(_Constants):
    """Scores without meaning, between −½ and ½: each drawn for a row from its features, for an arm, an outcome and the seed.

    Rows with the same features have the same score, whatever stands beside them.
    """

    def _constants(self, sample: Sample, natural: np.ndarray, total: np.ndarray) -> np.ndarray:
        cells = [[(label, name) for name in sample.outcomes.names] for label in sample.labels[1:]]
        return np.array(
            [[torch_seed(sample.seed, "random rank", *cell) for cell in row] for row in cells], dtype=np.uint64
        )

    def _parts(self, encoded: Encoded) -> Parts:
        natural = np.tile(self.natural_, (len(encoded), 1))
        mixed = _mix(hash_rows(encoded)[:, None, None] ^ self.total_.astype(np.uint64))
        return natural, (mixed >> np.uint64(11)) / 2.0**53 - 0.5, None


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class NaturalRank(Learners):
    """Scores are the natural response, for every arm: who would do well without treatment comes first. They are no effects.

    The response is learnt from control rows; learner, classifier: see `Learners`.
    """

    def _fit_means(self, sample: Sample, X: np.ndarray) -> None:
        for k in np.flatnonzero(sample.estimable[0]).tolist():
            self.means_[f"mean/{k}"] = self._outcome_mean(sample, X, k, sample.usable(k, 0), f"mean/0/{k}")

    def _parts(self, encoded: Encoded) -> Parts:
        X = self._dense(encoded)
        natural = self._shape(len(X))[:, 0]
        for name, mean in self.means_.items():
            natural[:, int(name.split("/")[1])] = mean(X)
        return natural, np.repeat(natural[:, None], len(self.arms_), axis=1), None
