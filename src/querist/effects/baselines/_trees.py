"""Fitted trees as plain arrays, so that a model of them can be kept without a pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import is_classifier

__all__ = ["Forest", "forest_of"]


class Forest:
    """link⁻¹(base + scale·Σ over trees of the value of the leaf that a row falls into).

    nodes [N, 5]: column asked (−1 in a leaf), threshold (not above it: left), left, right (numbers of nodes), value of a leaf.
    roots [T]. link: "identity", "logit", "log".
    """

    def __init__(self, nodes: Any, roots: Any, base: float, scale: float, link: str):
        self.nodes, self.roots = np.asarray(nodes, dtype=float), np.asarray(roots, dtype=np.int64)
        self.base, self.scale, self.link = float(base), float(scale), link
        self._column = self.nodes[:, 0].astype(np.int64)
        self._sides = self.nodes[:, 2:4].astype(np.int64)

    def raw(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        """Before the link."""
        total = np.zeros(len(X))
        for root in self.roots:
            at = np.full(len(X), root)
            rows = np.flatnonzero(self._column[at] >= 0)
            while rows.size:
                node = at[rows]
                right = X[rows, self._column[node]] > self.nodes[node, 1]
                at[rows] = self._sides[node, right.astype(np.int64)]
                rows = rows[self._column[at[rows]] >= 0]
            total += self.nodes[at, 4]
        return self.base + self.scale * total

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
        eta = self.raw(X)
        if self.link == "logit":
            return np.where(eta >= 0, 1, np.exp(np.minimum(eta, 0))) / (1 + np.exp(-np.abs(eta)))
        return np.exp(eta) if self.link == "log" else eta


def forest_of(learner: Any) -> Forest | None:
    """A fitted tree, forest or boosted ensemble of scikit-learn; None for what is none, or is not reproduced to 1e-9.

    The inner arrays of scikit-learn are no public promise: what they give is compared with the learner on 200 random rows.
    """
    try:
        found = _made(learner)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return None
    if found is None:
        return None
    rows = np.random.default_rng(0).normal(size=(200, learner.n_features_in_)).astype(np.float32).astype(float)
    said = learner.predict_proba(rows)[:, 1] if is_classifier(learner) else learner.predict(rows)
    return found if np.allclose(found(rows), said, rtol=1e-9, atol=1e-9) else None


def _made(learner: Any) -> Forest | None:
    name, classes = type(learner).__name__, is_classifier(learner)
    if not type(learner).__module__.startswith("sklearn.") or (classes and list(learner.classes_) != [0, 1]):
        return None
    if hasattr(learner, "_predictors"):
        trees = [_grown(one.nodes) for step in learner._predictors for one in step]
        link = "logit" if classes else "identity" if learner.loss in ("squared_error", "absolute_error") else "log"
        return _joined(trees, learner, 1.0, link)
    if name.startswith("GradientBoosting"):
        trees = [_tree(one.tree_, None) for one in learner.estimators_.ravel()]
        return _joined(trees, learner, learner.learning_rate, "logit" if classes else "identity")
    column = 1 if classes else None
    if hasattr(learner, "tree_"):
        return _stacked([_tree(learner.tree_, column)], 0.0, 1.0, "identity")
    if name.startswith(("RandomForest", "ExtraTrees")):
        trees = [_tree(one.tree_, column) for one in learner.estimators_]
        return _stacked(trees, 0.0, 1 / len(trees), "identity")
    return None


def _tree(tree: Any, column: int | None) -> np.ndarray:
    leaf = tree.children_left < 0
    value = tree.value[:, 0, :]
    value = value[:, 0] if column is None else value[:, column] / value.sum(axis=1)
    asked = np.where(leaf, -1, tree.feature)
    return np.column_stack([asked, tree.threshold, tree.children_left, tree.children_right, value])


def _grown(nodes: Any) -> np.ndarray:
    if nodes["is_categorical"].any():
        raise ValueError("categories")
    asked = np.where(nodes["is_leaf"] != 0, -1, nodes["feature_idx"].astype(np.int64))
    return np.column_stack([asked, nodes["num_threshold"], nodes["left"], nodes["right"], nodes["value"]])


def _joined(trees: list[np.ndarray], learner: Any, scale: float, link: str) -> Forest:
    """A boosted ensemble; where it starts is what it says of one row less what its trees say of it."""
    made = _stacked(trees, 0.0, scale, link)
    row = np.zeros((1, learner.n_features_in_))
    said = float(np.ravel(learner.decision_function(row) if link == "logit" else learner.predict(row))[0])
    made.base = (np.log(said) if link == "log" else said) - float(made.raw(row)[0])
    return made


def _stacked(trees: list[np.ndarray], base: float, scale: float, link: str) -> Forest:
    roots = np.cumsum([0, *(len(one) for one in trees)])
    moved = []
    for start, one in zip(roots[:-1], trees, strict=True):
        own = one.copy()
        own[:, 2:4] += start
        moved.append(own)
    return Forest(np.concatenate(moved), roots[:-1], base, scale, link)
