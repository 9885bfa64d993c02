"""Scores from what a source classifier says of labelled target rows: NCE, LEEP, and LEEP of a mixture (NLEEP)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadValues
from querist.features.arrays import classes, rows
from querist.statistics import torch_seed

__all__ = ["leep", "nce", "nleep", "nleep_of", "posteriors"]

SUM = 1e-3
"""How far a row of probabilities may be from a sum of one: half precision loses so much over a thousand classes."""
VARIANCE = 0.8
COMPONENTS = 5
ROWS_PER_COMPONENT = 5
REGULAR = 1e-3


def nce(y: ArrayLike, source_prob: Any) -> float:
    """−H(Y | Ẑ), Ẑ the source class with the largest probability: from counts, in nats, at most 0.

    y: (n,), source_prob: (n, Ks), rows summing to one. Raises LabelsNeeded, ShapeMismatch, TooFewRows, NonFinite, BadValues
    for rows that are not probabilities. Source: Tran, Nguyen & Hassner (2019).
    """
    theta = _probabilities(source_prob)
    code, count = classes(y, len(theta))
    joint = np.zeros((count, theta.shape[1]))
    np.add.at(joint, (code, theta.argmax(axis=1)), 1 / len(theta))
    seen = joint > 0
    return min(0.0, float((joint[seen] * np.log((joint / np.maximum(joint.sum(axis=0), 1e-300))[seen])).sum()))


def leep(y: ArrayLike, source_prob: Any) -> float:
    """Mean log Σ_z P(y | z) θ(x)_z in nats, at most 0: P from the soft joint counts of labels and source classes.

    y: (n,), source_prob θ: (n, Ks), rows summing to one (a classifier's head; logits are refused). Raises as `nce`.
    Source: Nguyen et al. (2020).
    """
    theta = _probabilities(source_prob)
    code, count = classes(y, len(theta))
    return _leep(code, count, theta)


def nleep(Z: Any, y: ArrayLike, seed: int = 0) -> float:
    """LEEP with the posteriors of a Gaussian mixture of the features in place of a source head; nats, at most 0.

    Z: (n, d), y: (n,). PCA to 80 % of the variance, 5K full-covariance components (K classes), fewer where there would be less
    than five rows to each, covariances regularised by a thousandth of the mean variance, begun by `seed`.

    Raises LabelsNeeded, ShapeMismatch, TooFewRows, NonFinite. Source: Li et al. (2021).
    """
    return nleep_of(Z, y, seed)(y)


def nleep_of(Z: Any, y: ArrayLike, seed: int = 0) -> Callable[[ArrayLike], float]:
    """NLEEP of these rows as a function of their labels: the mixture knows the number of classes only."""
    Z = rows(Z, "Z", least=2)
    theta = posteriors(Z, COMPONENTS * classes(y, len(Z))[1], seed)

    def score(labels: ArrayLike) -> float:
        return _leep(*classes(labels, len(theta)), theta)

    return score


def posteriors(Z: Float[np.ndarray, "n d"], components: int, seed: int) -> Float[np.ndarray, "n k"]:
    """Posterior probabilities of a Gaussian mixture fitted to the leading principal components."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    n = len(Z)
    centred = Z - Z.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    spread = float((s**2).sum())
    if spread <= (8 * np.finfo(np.float64).eps * float(np.abs(Z).max())) ** 2 * Z.size:
        return np.ones((n, 1))  # a constant representation has one component
    kept = 1 + int(np.searchsorted(np.cumsum(s**2) / spread, VARIANCE))
    s = s[: min(kept, s.size)]
    leading = u[:, : s.size] * (s / np.sqrt((s**2).mean() / n))  # mean variance of one
    mixture = GaussianMixture(
        n_components=max(1, min(components, n // ROWS_PER_COMPONENT)),
        reg_covar=REGULAR,
        random_state=torch_seed(seed, "nleep") % 2**32,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a mixture that still moves gives posteriors all the same
        return mixture.fit(leading).predict_proba(leading)


def _leep(code: np.ndarray, count: int, theta: np.ndarray) -> float:
    joint = np.stack([theta[code == k].sum(axis=0) for k in range(count)])
    given = joint / np.maximum(joint.sum(axis=0), 1e-300)
    likely = np.einsum("nz,nz->n", theta, given[code])
    return min(0.0, float(np.log(np.maximum(likely, 1e-300)).mean()))


def _probabilities(values: Any) -> Float[np.ndarray, "n k"]:
    theta = rows(values, "source_prob").astype(np.float64)
    totals = theta.sum(axis=1)
    bad = (theta.min(axis=1) < 0) | (np.abs(totals - 1) > SUM)
    if bad.any():
        at = int(np.argmax(bad))
        raise BadValues(
            "Rows of source_prob must be probabilities",
            value=f"row {at} has a smallest entry of {theta[at].min():g} and a sum of {totals[at]:g}",
            allowed="0 or more, summing to 1",
            mend="Apply a softmax to logits",
        )
    return theta / totals[:, None]
