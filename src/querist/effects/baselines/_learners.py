"""Learners of one mean each: a scikit-learn learner, how it is fitted with weights, and what it says of new rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from querist.effects.baselines._trees import Forest, forest_of
from querist.errors import BadOption
from querist.statistics import torch_seed

__all__ = [
    "Affine",
    "Constant",
    "Learned",
    "Mean",
    "Softmax",
    "arm_chances",
    "fit_mean",
    "learner_for",
    "mean_from",
    "mean_to",
    "wide",
]

BLOCK = 16_384


class Mean(Protocol):
    """A mean as a function of features."""

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        """One number a row."""
        ...


class Constant:
    """The same number everywhere: where the fit rows have one value only."""

    def __init__(self, value: float):
        self.value = float(value)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.value)


class Affine:
    """link⁻¹(x·coef + intercept): what a linear learner comes to. link: "identity", "logit", "log"."""

    def __init__(self, coef: Any, intercept: float, link: str = "identity"):
        self.coef, self.intercept, self.link = np.asarray(coef, dtype=float), float(intercept), link

    def __call__(self, X: np.ndarray) -> np.ndarray:
        eta = X @ self.coef + self.intercept
        if self.link == "logit":
            return np.where(eta >= 0, 1, np.exp(np.minimum(eta, 0))) / (1 + np.exp(-np.abs(eta)))
        return np.exp(eta) if self.link == "log" else eta


class Learned:
    """A fitted scikit-learn learner: the probability of 1 of a classifier, the prediction of a regressor."""

    def __init__(self, learner: Any):
        self.learner = learner

    def __call__(self, X: np.ndarray) -> np.ndarray:
        if not len(X):  # scikit-learn refuses to say nothing of nobody
            return np.zeros(0)
        if is_classifier(self.learner):
            return self.learner.predict_proba(X)[:, list(self.learner.classes_).index(1.0)]
        return np.asarray(self.learner.predict(X), dtype=float).reshape(-1)


class Softmax:
    """Probabilities [n, classes] of a multinomial regression."""

    def __init__(self, coef: Any, intercept: Any):
        self.coef, self.intercept = np.asarray(coef, dtype=float), np.asarray(intercept, dtype=float)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        eta = X @ self.coef.T + self.intercept
        p = np.exp(eta - eta.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)


def learner_for(kind: str, learner: Any, classifier: Any) -> Any:
    """What an outcome is learnt by: for 0/1 outcomes `classifier`, else `learner`, else a logistic regression; for others
    `learner`, else a ridge regression. A classifier given as `learner` serves 0/1 outcomes alone. Raises BadOption."""
    if classifier is not None and not is_classifier(classifier):
        raise BadOption("This is no classifier", value=type(classifier).__name__, allowed="a scikit-learn classifier")
    if learner is not None and not (is_classifier(learner) or is_regressor(learner)):
        raise BadOption(
            "This is no learner", value=type(learner).__name__, allowed="a scikit-learn regressor or classifier"
        )
    if kind == "binary":
        chosen = classifier if classifier is not None else learner
        return LogisticRegression(max_iter=1000) if chosen is None else chosen
    return Ridge(copy_X=False) if learner is None or is_classifier(learner) else learner


def fit_mean(learner: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, *names: Any, seed: int) -> Mean:
    """A clone of the learner fitted on rows; Constant where y has one value. names: who it is, for its seed.

    X is the caller's to lose: the default ridge regression centres it in place. weight:
    left out where all are alike. Raises BadOption for a learner that takes no weights where they differ.
    """
    if (y == y[0]).all():
        return Constant(y[0])
    made: Any = clone(learner)
    free = {
        key: torch_seed(seed, "learner", key, *names) % (1 << 31)
        for key, value in made.get_params(deep=True).items()
        if value is None and (key == "random_state" or key.endswith("__random_state"))
    }
    if free:
        made.set_params(**free)
    given: dict[str, np.ndarray] = {}
    if weight is not None and not (weight == weight[0]).all():
        last: Any = made.steps[-1][1] if isinstance(made, Pipeline) else made
        if not has_fit_parameter(last, "sample_weight"):
            raise BadOption(
                "This learner takes no weights", value=type(last).__name__, allowed="a learner with sample_weight"
            )
        key = f"{made.steps[-1][0]}__sample_weight" if isinstance(made, Pipeline) else "sample_weight"
        given[key] = weight
    made.fit(X, y, **given)
    return Learned(made)


def wide(X: Float[np.ndarray, "n d"], rows: Bool[np.ndarray, "n"]) -> Float[np.ndarray, "m d"]:
    """The rows of a mask in float64, a copy that was made block by block: nothing else is held on the way."""
    kept = np.flatnonzero(rows)
    found = np.empty((kept.size, X.shape[1]))
    for start in range(0, kept.size, BLOCK):
        part = slice(start, start + BLOCK)
        found[part] = X[kept[part]]
    return found


def arm_chances(X: np.ndarray, arm: np.ndarray, arms: int, weight: np.ndarray) -> Softmax:
    """P(A = m | x) by a multinomial regression on all rows, for new ones. X: standardised columns."""
    model = LogisticRegression(max_iter=1000).fit(X, arm, None if (weight == weight[0]).all() else weight)
    coef, intercept = model.coef_, model.intercept_
    if arms == 2:
        coef, intercept = np.vstack([0 * coef, coef]), np.append(0.0, intercept)
    return Softmax(coef, intercept)


# ------------------------------------------------------------------------------------------------------ model folders


def mean_to(mean: Any) -> tuple[dict[str, Any], np.ndarray]:
    """A fitted mean as plain values and an array. Raises BadOption for a learner that is neither linear nor made of trees."""
    if isinstance(mean, Learned):
        whole = mean.learner
        mean = _affine(whole) or forest_of(whole)
        if mean is None:
            raise _not_kept(whole)
    if isinstance(mean, Constant):
        return {"form": "constant"}, np.array([mean.value])
    if isinstance(mean, Affine):
        return {"form": "affine", "link": mean.link}, np.append(mean.coef, mean.intercept)
    if isinstance(mean, Forest):
        told = {
            "form": "forest",
            "link": mean.link,
            "base": mean.base,
            "scale": mean.scale,
            "roots": mean.roots.tolist(),
        }
        return told, mean.nodes
    assert isinstance(mean, Softmax)
    return {"form": "softmax"}, np.column_stack([mean.coef, mean.intercept])


def mean_from(form: Mapping[str, Any], array: np.ndarray) -> Any:
    """What `mean_to` was given."""
    if form["form"] == "constant":
        return Constant(array[0])
    if form["form"] == "affine":
        return Affine(array[:-1], array[-1], form["link"])
    if form["form"] == "forest":
        return Forest(array, form["roots"], form["base"], form["scale"], form["link"])
    return Softmax(array[:, :-1], array[:, -1])


_LINKS = {
    "LogisticRegression": "logit",
    "LogisticRegressionCV": "logit",
    "PoissonRegressor": "log",
    "GammaRegressor": "log",
}


def _affine(learner: Any) -> Affine | None:
    from sklearn.preprocessing import StandardScaler

    steps = [step for _, step in learner.steps] if isinstance(learner, Pipeline) else [learner]
    *before, last = [step for step in steps if step not in (None, "passthrough")]
    name = type(last).__name__
    linear = type(last).__module__.startswith("sklearn.linear_model") and hasattr(last, "coef_")
    if linear and is_classifier(last) and name not in _LINKS:
        linear = False
    if name == "TweedieRegressor":  # its link depends on its power
        linear = False
    if not linear or any(type(step) is not StandardScaler for step in before):
        return None
    coef, intercept = np.asarray(last.coef_, dtype=float).reshape(-1), float(np.ravel(last.intercept_)[0])
    for step in reversed(before):
        if step.scale_ is not None:
            coef = coef / step.scale_
        if step.mean_ is not None and step.with_mean:
            intercept -= float(coef @ step.mean_)
    return Affine(coef, intercept, _LINKS.get(name, "identity"))


def _not_kept(learner: Any) -> BadOption:
    steps = [step for _, step in learner.steps] if isinstance(learner, Pipeline) else [learner]
    return BadOption(
        "A model folder cannot hold this learner",
        value=" > ".join(type(step).__name__ for step in steps),
        allowed="linear regressors of scikit-learn, logistic, Poisson and gamma regressions, after StandardScalers or none; "
        "its trees, forests, extra trees and boosted trees",
        mend="Pickle the estimator yourself, or choose such a learner",
    )
