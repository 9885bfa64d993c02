"""S- and T-learners over any scikit-learn learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.baselines._learners import Mean, fit_mean, learner_for, mean_from, mean_to, wide
from querist.effects.estimator import Estimator, Parts, refuse_hooks
from querist.effects.sample import Sample
from querist.errors import TooFewRows
from querist.sources.rows import Encoded

__all__ = ["Learners", "SLearner", "TLearner"]


class Learners(Estimator):
    """What estimators over scikit-learn learners share: named means, and how they are fitted and kept.

    learner: a regressor for every outcome, or a classifier for outcomes of 0 and 1; by default ridge and logistic regression on
    standardised columns. classifier: for outcomes of 0 and 1, beside a regressor for the others. Further keywords: see Estimator.

    Linear learners are the default because they are hard to beat where effects are small: on two thirds of Hillstrom's table
    boosted trees rank by noise.
    """

    def __init__(self, learner: Any = None, *, classifier: Any = None, **common: Any):
        super().__init__(**common)
        self.learner = learner
        self.classifier = classifier

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        refuse_hooks(self, hooks)
        self.means_: dict[str, Any] = {}
        self._fit_means(sample, sample.dense)

    def _fit_means(self, sample: Sample, X: Float[np.ndarray, "n d"]) -> None:
        """Learn from all rows, X in float32: learners get those that they are fitted on in float64, so that it is never held whole."""
        raise NotImplementedError

    def _outcome_mean(self, sample: Sample, X: np.ndarray, outcome: int, rows: np.ndarray, name: str) -> Mean:
        """The mean of an outcome over rows (a mask); name: for its seed."""
        learner = learner_for(sample.outcomes.kinds[outcome], self.learner, self.classifier)
        y = sample.outcomes.values[rows, outcome]
        return fit_mean(learner, wide(X, rows), y, sample.weight[rows], name, seed=sample.seed)

    def _means_by_arm(
        self, sample: Sample, X: np.ndarray, among: np.ndarray | None = None
    ) -> dict[tuple[int, int], Mean]:
        """A mean per arm and outcome that the rows carry, of rows among a mask where it is given."""
        found = {}
        for m, k in np.argwhere(sample.estimable):
            rows = sample.usable(k, m) if among is None else sample.usable(k, m) & among
            if not rows.any():
                raise TooFewRows(
                    "A fold's training rows miss an arm",
                    value=sample.labels[m],
                    mend="Use fewer folds, or more clusters",
                )
            found[int(m), int(k)] = self._outcome_mean(sample, X, k, rows, f"mean/{m}/{k}")
        return found

    def _dense(self, encoded: Encoded) -> Float[np.ndarray, "n d"]:
        return self.columns_.dense(encoded).astype(float)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        forms, arrays = {}, {}
        for name, mean in self.means_.items():
            forms[name], arrays[name] = mean_to(mean)
        return {"means": forms}, arrays

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.means_ = {name: mean_from(form, arrays[name]) for name, form in state["means"].items()}

    def _shape(self, n: int) -> np.ndarray:
        return np.zeros((n, len(self.arms_) + 1, len(self.outcomes_)))


class TLearner(Learners):
    """A learner per arm and outcome: total effect m is the difference of arm m's mean and that of control.

    Source: Künzel et al. (2019), section 2.
    """

    def _fit_means(self, sample: Sample, X: np.ndarray) -> None:
        self.means_ = {f"mean/{m}/{k}": mean for (m, k), mean in self._means_by_arm(sample, X).items()}

    def _parts(self, encoded: Encoded) -> Parts:
        X = self._dense(encoded)
        response = self._shape(len(X))
        for name, mean in self.means_.items():
            _, m, k = name.split("/")
            response[:, int(m), int(k)] = mean(X)
        return response[:, 0], response[:, 1:] - response[:, :1], None


class SLearner(Learners):
    """One learner per outcome on features and arm indicators: total effect m is its answer with arm m less that with control.

    interactions: whether the arm indicators are multiplied by the features too. None: with the default learner, whose effects
    would be the same for everybody without; not with a learner of one's own, which gets features, then one 0/1 column per arm.

    Source: Künzel et al. (2019), section 2.
    """

    def __init__(self, learner: Any = None, *, interactions: bool | None = None, **common: Any):
        super().__init__(learner, **common)
        self.interactions = interactions

    def _fit_means(self, sample: Sample, X: np.ndarray) -> None:
        crossed = self.interactions
        if crossed is None:
            crossed = self.learner is None and self.classifier is None
        self.crossed_ = bool(crossed)
        design = self._design(X, sample.arm)
        for k in range(sample.estimable.shape[1]):
            if sample.estimable[0, k] and sample.estimable[1:, k].any():
                self.means_[f"mean/{k}"] = self._outcome_mean(sample, design, k, sample.usable(k), f"mean/{k}")

    def _design(self, X: np.ndarray, arm: Int[np.ndarray, "n"] | int) -> np.ndarray:
        own = np.broadcast_to(arm, len(X))[:, None] == np.arange(1, len(self.arms_) + 1)
        parts = [X, own.astype(float)]
        if self.crossed_:
            parts += [X * own[:, [m]] for m in range(own.shape[1])]
        return np.hstack(parts)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state, arrays = super()._state()
        return {**state, "crossed": self.crossed_}, arrays

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore(state, arrays)
        self.crossed_ = bool(state["crossed"])

    def _parts(self, encoded: Encoded) -> Parts:
        X = self._dense(encoded)
        response = self._shape(len(X))
        for m in range(response.shape[1]):
            design = self._design(X, m)
            for name, mean in self.means_.items():
                response[:, m, int(name.split("/")[1])] = mean(design)
        return response[:, 0], response[:, 1:] - response[:, :1], None
