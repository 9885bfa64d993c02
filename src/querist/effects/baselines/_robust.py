"""X-, R- and DR-learners: effects learnt from outcomes that models which never saw the row have been taken out of."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import is_classifier
from sklearn.linear_model import Ridge

from querist.effects.baselines._learners import Softmax, arm_chances, fit_mean, wide
from querist.effects.baselines._meta import Learners
from querist.effects.design import gamma
from querist.effects.estimator import Parts
from querist.effects.sample import Sample
from querist.errors import BadOption
from querist.sources.rows import Encoded

__all__ = ["DRLearner", "RLearner", "XLearner"]


class _Crossed(Learners):
    """What the three share.

    effect_learner: a regressor for effects; by default `learner` where that is one, else ridge regression. folds: of the
    cross-fitting; clusters stay whole. learner, classifier: for outcomes, see `Learners`. The natural response is control's mean
    of all rows.
    """

    def __init__(
        self,
        learner: Any = None,
        *,
        effect_learner: Any = None,
        folds: int = 5,
        **common: Any,
    ):
        super().__init__(learner, **common)
        self.effect_learner = effect_learner
        self.folds = folds

    def _fit_means(self, sample: Sample, X: np.ndarray) -> None:
        asked = self.effect_learner
        if asked is not None and is_classifier(asked):
            raise BadOption("Effects are no classes", value=type(asked).__name__, allowed="a scikit-learn regressor")
        if asked is None and self.learner is not None and not is_classifier(self.learner):
            asked = self.learner
        self._asked = Ridge(copy_X=False) if asked is None else asked
        mu = self._out_of_fold(sample, X)
        for k in np.flatnonzero(sample.estimable[0]).tolist():
            self.means_[f"natural/{k}"] = self._outcome_mean(sample, X, k, sample.usable(k, 0), f"mean/0/{k}")
        for m, k in np.argwhere(sample.estimable[1:]):
            if sample.estimable[0, k]:
                self._fit_effect(sample, X, mu[..., k], int(m) + 1, int(k))
        del self._asked

    def _out_of_fold(self, sample: Sample, X: np.ndarray) -> Float[np.ndarray, "n M+1 K"]:
        mu = np.zeros((sample.n, *sample.estimable.shape))
        fold = sample.folds(self.folds)
        for number in range(self.folds):
            held = fold == number
            for (m, k), mean in self._means_by_arm(sample, X, ~held).items():
                mu[held, m, k] = mean(wide(X, held))
        return mu

    def _effect(
        self, sample: Sample, X: np.ndarray, rows: np.ndarray, target: np.ndarray, weight: np.ndarray, name: str
    ) -> None:
        self.means_[name] = fit_mean(self._asked, wide(X, rows), target, weight, name, seed=sample.seed)

    def _fit_effect(self, sample: Sample, X: np.ndarray, mu: np.ndarray, m: int, k: int) -> None:
        """Learn the effect of arm m on outcome k. mu: out-of-fold means [n, M + 1]."""
        raise NotImplementedError

    def _parts(self, encoded: Encoded) -> Parts:
        X = self._dense(encoded)
        response = self._shape(len(X))
        natural, total = response[:, 0], response[:, 1:]
        for name, mean in self.means_.items():
            part, *cell = name.split("/")
            if part == "natural":
                natural[:, int(cell[0])] = mean(X)
            elif part == "effect":
                total[:, int(cell[0]) - 1, int(cell[1])] = mean(X)
        return natural, total, None


def pair_chance(e: Float[np.ndarray, "n M+1"], m: int) -> Float[np.ndarray, "n"]:
    """P(A = m | A is m or control)."""
    return e[:, m] / (e[:, 0] + e[:, m])


class DRLearner(_Crossed):
    """Regression of ψ_m = Γ_m − Γ_0 (`aipw_scores`, with out-of-fold means) on the features.

    Source: Kennedy (2023); with known propensities without bias whatever the means.
    """

    def _fit_effect(self, sample: Sample, X: np.ndarray, mu: np.ndarray, m: int, k: int) -> None:
        rows = sample.usable(k)
        # Rows of arms that do not carry the outcome are not used: chances are those among the arms that do.
        e = sample.propensity[rows] * sample.estimable[:, k]
        e = e / e.sum(axis=1, keepdims=True)
        e = np.where(sample.estimable[:, k], e, 1.0)
        scores = gamma(sample.arm[rows], sample.outcomes.values[rows, k], e, mu[rows])
        self._effect(sample, X, rows, scores[:, m] - scores[:, 0], sample.weight[rows], f"effect/{m}/{k}")


class RLearner(_Crossed):
    """Weighted regression of (Y − m(x))/(1{A = m} − e) with weights (1{A = m} − e)² among the rows of control and arm m.

    m(x) = (1 − e)·μ_0 + e·μ_m, all out of fold; e: chance of arm m among the two.

    Source: Nie & Wager (2021), arm by arm.
    """

    def _fit_effect(self, sample: Sample, X: np.ndarray, mu: np.ndarray, m: int, k: int) -> None:
        rows = sample.usable(k) & ((sample.arm == 0) | (sample.arm == m))
        e = pair_chance(sample.propensity[rows], m)
        rest = sample.outcomes.values[rows, k] - ((1 - e) * mu[rows, 0] + e * mu[rows, m])
        own = (sample.arm[rows] == m) - e
        self._effect(sample, X, rows, rest / own, sample.weight[rows] * own**2, f"effect/{m}/{k}")


class XLearner(_Crossed):
    """g·τ_0 + (1 − g)·τ_1: τ_1 learnt from Y − μ_0 of the treated, τ_0 from μ_m − Y of control; g the chance of arm m among the two.

    Where propensities differ between rows, those of new rows come from a multinomial regression on the fit rows.

    Source: Künzel et al. (2019), arm by arm, with out-of-fold means.
    """

    def _fit_means(self, sample: Sample, X: np.ndarray) -> None:
        super()._fit_means(sample, X)
        e = sample.propensity
        if (e == e[0]).all():
            chances = Softmax(np.zeros((e.shape[1], X.shape[1])), np.log(np.maximum(e[0], np.finfo(float).tiny)))
        else:
            chances = arm_chances(X.astype(float), sample.arm, e.shape[1], sample.weight)
        self.means_["chances"] = chances

    def _fit_effect(self, sample: Sample, X: np.ndarray, mu: np.ndarray, m: int, k: int) -> None:
        y = sample.outcomes.values[:, k]
        for arm, side, target in ((m, "treated", y - mu[:, 0]), (0, "control", mu[:, m] - y)):
            rows = sample.usable(k, arm)
            self._effect(sample, X, rows, target[rows], sample.weight[rows], f"{side}/{m}/{k}")

    def _parts(self, encoded: Encoded) -> Parts:
        natural, total, _ = super()._parts(encoded)
        X = self._dense(encoded)
        e = self.means_["chances"](X)
        for name, mean in self.means_.items():
            part, *cell = name.split("/")
            if part in ("treated", "control"):
                m, k = int(cell[0]), int(cell[1])
                g = pair_chance(e, m)
                total[:, m - 1, k] += (1 - g if part == "treated" else g) * mean(X)
        return natural, total, None
