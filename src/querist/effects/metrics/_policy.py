"""What a rule that gives each person an arm is worth, and how it differs from another on the same rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import column, labels_of, lengths, matrix
from querist.effects.design import gamma, propensities
from querist.errors import BadOption, BadValues, UndefinedMetric, UnknownName, near
from querist.statistics import Estimate, mean_interval

__all__ = ["policy_difference", "policy_shares", "policy_value", "policy_values_of"]

Method = Literal["ips", "snips", "dr"]


def policy_value(
    assigned: Any,
    arm: Any,
    y: Any,
    *,
    propensity: Any,
    method: Method = "ips",
    mu: Any = "arm",
    control: Any = None,
    cluster: Any = None,
    block: Any = None,
    level: float = 0.95,
) -> Estimate:
    """Mean outcome if everybody were given the arm that the policy names, in outcome per person, with a t interval.

    assigned: labels [n], or probabilities [n, arms] that sum to 1 in a row, columns sorted by label, `control` first where it is
    named. method: "ips" mean of π(A)·y/e; "snips" Σπ(A)y/e / Σπ(A)/e; "dr" mean of Σ_m π_m Γ_m with `mu` as `aipw_scores` takes
    it. The policy must not have been made from these outcomes. p is against 0.

    Raises UndefinedMetric where "snips" meets no row that got its arm, UnknownName for an arm nobody got, BadValues for rows that
    are no probabilities, PropensityRange, NonFinite, LengthMismatch, BadOption.

    Source: Horvitz & Thompson (1952); Swaminathan & Joachims (2015) for the normalised one; Dudík, Langford & Li (2011).
    """
    value, influence = policy_values_of(assigned, arm, y, propensity=propensity, method=method, mu=mu, control=control)
    return mean_interval(value + influence, cluster=cluster, block=block, level=level)


def policy_difference(
    a: Any,
    b: Any,
    arm: Any,
    y: Any,
    *,
    propensity: Any,
    method: Method = "dr",
    mu: Any = "arm",
    control: Any = None,
    cluster: Any = None,
    block: Any = None,
    level: float = 0.95,
) -> Estimate:
    """Value of policy a minus that of policy b, from each row's paired influence. Arguments and errors of `policy_value`."""
    (first, one), (second, other) = (
        policy_values_of(policy, arm, y, propensity=propensity, method=method, mu=mu, control=control)
        for policy in (a, b)
    )
    return mean_interval(first - second + one - other, cluster=cluster, block=block, level=level)


def policy_values_of(
    assigned: Any, arm: Any, y: Any, *, propensity: Any, method: Method = "ips", mu: Any = "arm", control: Any = None
) -> tuple[float, Float[np.ndarray, "n"]]:
    """The value and each row's influence on it (mean 0)."""
    if method not in ("ips", "snips", "dr"):
        raise BadOption("No such method", value=method, allowed="ips, snips, dr")
    y, given = column(y, "y"), labels_of(arm, "arm")
    n = lengths(arm=given, y=y, assigned=assigned)
    known, codes = np.unique(given, return_inverse=True)
    labels = known.tolist()
    if control is not None:
        control = control.item() if isinstance(control, np.generic) else control
        if control not in labels:
            raise UnknownName("The control is not among the arms", value=control, allowed=", ".join(map(str, labels)))
        place = [control, *(label for label in labels if label != control)]
        codes = np.array([place.index(label) for label in labels])[codes]
        labels = place
    e = propensities(propensity, labels, codes)
    shares = policy_shares(assigned, labels)
    rows = np.arange(n)
    weight = shares[rows, codes] / e[rows, codes]
    if method == "snips":
        mean = float(weight.mean())
        if mean == 0:
            raise UndefinedMetric("No row got the arm that the policy names: its value cannot be told")
        value = float(weight @ y) / (n * mean)
        return value, weight * (y - value) / mean
    each = weight * y if method == "ips" else (shares * gamma(codes, y, e, mu)).sum(axis=1)
    value = float(each.mean())
    return value, each - value


def policy_shares(assigned: Any, labels: list[Any]) -> Float[np.ndarray, "n arms"]:
    """A policy as probabilities over `labels`: from labels one of which is 1, or from probabilities checked to sum to 1."""
    if np.ndim(assigned) == 2:
        shares = matrix(assigned, "assigned", (None, len(labels)))
        wrong = (shares < 0).any(axis=1) | (np.abs(shares.sum(axis=1) - 1) > 1e-9)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise BadValues(
                "A policy's probabilities must sum to 1",
                value=f"row {row}: {shares[row].tolist()}",
                allowed="0 or more, sum 1",
            )
        return shares
    names = labels_of(assigned, "assigned")
    shares = np.zeros((names.size, len(labels)))
    for position, label in enumerate(labels):
        shares[names == label, position] = 1.0
    if not shares.any(axis=1).all():
        strange = names[np.argmin(shares.any(axis=1))]
        raise UnknownName(
            "The policy names an arm that nobody got",
            value=strange,
            allowed=", ".join(map(str, labels)),
            mend=f"The nearest label is {near(str(strange), map(str, labels), 1)}",
        )
    return shares
