"""What a check measures: arms and their balance, and how well a classifier tells them apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from querist.effects.configs import CheckConfig
from querist.effects.design import (
    arm_auc,
    assignment_units,
    estimated_propensity,
    overlap,
    plan,
    smd,
    smd_levels,
    srm,
)
from querist.effects.studies.people import Opened
from querist.errors import BadInput
from querist.statistics import auc, mean_interval

__all__ = ["measure_arm", "measure_table"]

Row = dict[str, Any]
SUSPECT = 0.95
"""AUC of one column for one arm above which it looks measured after assignment."""
MANY_LEVELS = 50
"""Levels beyond which a category is shown by its most uneven ones only."""


def measure_table(config: CheckConfig, people: Opened) -> Mapping[str, Any]:
    """Arms, balance, overlap, attrition, detectable effects, suspicious columns."""
    units = assignment_units(people.codes, people.people.cluster, people.labels)
    whole = srm(units, people.arms, people.shares)
    rows = np.bincount(people.codes, minlength=people.arms)
    arms = [
        {
            "arm": name,
            "control": code == 0,
            "rows": int(rows[code]),
            "units": int(whole.counts[code]),
            "share": float(whole.counts[code] / whole.counts.sum()),
            "expected": float(whole.expected[code]),
        }
        for code, name in enumerate(people.names)
    ]
    return {
        "arms": arms,
        "balance": list(_balance(people)),
        "overlap": _overlap(config, people),
        "attrition": _attrition(config, people),
        "detectable": _detectable(config, people),
        "suspicious": list(_suspicious(people)),
    }


def measure_arm(config: CheckConfig, people: Opened, arm: int, permutations: int) -> Mapping[str, Any]:
    """The classifier of one arm against all others; p relabels whole clusters."""
    row: Row = {"arm": people.names[arm]} | dict.fromkeys(("auc", "low", "high", "p"))
    if people.dense.shape[1]:
        found = arm_auc(
            people.dense,
            people.codes,
            arm,
            cluster=people.clusters,
            permutations=permutations,
            limit=config.rows,
            seed=config.seed,
        )
        row |= {"auc": found.auc, "low": found.low, "high": found.high, "p": found.p}
    return {"arm_auc": [row]}


def _balance(people: Opened) -> Iterator[Row]:
    counts = np.bincount(people.codes, minlength=people.arms)
    by_chance = np.sqrt(1 / counts[1:] + 1 / counts[0])
    encoded = people.encoded
    names = people.names[1:]

    def rows(feature: str, level: str | None, values: np.ndarray) -> Iterator[Row]:
        for arm, value, chance in zip(names, values, by_chance, strict=True):
            yield {"feature": feature, "level": level, "arm": arm, "smd": float(value), "expected": float(chance)}

    if encoded.number_names:
        numbers = np.where(encoded.missing, np.nan, encoded.numbers)
        for j, found in enumerate(smd(numbers, people.codes, people.arms).T):
            yield from rows(encoded.number_names[j], None, found)
        for j, name in enumerate(encoded.number_names):
            if encoded.missing[:, j].any():
                yield from rows(
                    name, "missing", smd_levels(encoded.missing[:, j].astype(int), 2, people.codes, people.arms)[:, 1]
                )
    levels = people.columns.levels
    for j, name in enumerate(encoded.category_names):
        labels = ("missing", "unknown", *levels[name])
        found = smd_levels(encoded.codes[:, j], len(labels), people.codes, people.arms)
        present = np.flatnonzero(np.bincount(encoded.codes[:, j], minlength=len(labels)))
        if present.size > MANY_LEVELS:
            worst = np.nanmax(np.abs(np.where(np.isfinite(found), found, 0.0)), axis=0)
            present = np.sort(present[np.argsort(-worst[present], kind="stable")[:MANY_LEVELS]])
        for level in present:
            yield from rows(name, str(labels[level]), found[:, level])


def _overlap(config: CheckConfig, people: Opened) -> list[Row]:
    """Under the design where it is stated; else under propensities estimated from the features, which is what may go wrong."""
    e = people.propensity
    if people.shares is None and people.dense.shape[1]:
        try:
            e = estimated_propensity(people.dense, people.codes, people.arms, cluster=people.clusters, seed=config.seed)
        except BadInput:  # too few rows of an arm for folds: shares are all that is known
            e = people.propensity
    found = overlap(np.asarray(e), people.codes)
    return [
        {
            "arm": name,
            "rows": int(found.n[code]),
            "ess": float(found.ess[code]),
            "ess_share": float(found.ess_share[code]),
            "max_weight": float(found.max_weight[code]),
            "clipped_share": float(found.clipped_share[code]),
        }
        for code, name in enumerate(people.names)
    ]


def _attrition(config: CheckConfig, people: Opened) -> list[Row]:
    from querist.effects.evaluation import with_holm

    if people.people.outcomes is None:
        return []
    found: list[Row] = []
    for k, name in enumerate(people.outcomes.names):
        missing = (~people.outcomes.observed[:, k]).astype(float)
        means = [float(missing[people.codes == code].mean()) for code in range(people.arms)]
        for code in range(1, people.arms):
            row: Row = {"outcome": name, "arm": people.names[code], "missing": means[code], "missing_control": means[0]}
            row |= {"difference": means[code] - means[0]} | dict.fromkeys(("low", "high", "p"))
            both = (people.codes == 0) | (people.codes == code)
            if missing[both].any():
                value = _difference(missing[both], people.codes[both] == code, people.clusters, both, 1 - config.level)
                row |= {"low": value.low, "high": value.high, "p": value.p}
            else:
                row |= {"low": 0.0, "high": 0.0, "p": 1.0}
            found.append(row)
    return with_holm(found, ())


def _difference(
    values: np.ndarray, treated: np.ndarray, clusters: np.ndarray | None, rows: np.ndarray, level: float
) -> Any:
    """Mean of the treated less that of the others, from influence values summed within clusters."""
    share = treated.mean()
    mean = (values[treated].mean(), values[~treated].mean())
    influence = np.where(treated, (values - mean[0]) / share, -(values - mean[1]) / (1 - share))
    return mean_interval(
        mean[0] - mean[1] + influence, cluster=None if clusters is None else clusters[rows], level=level
    )


def _detectable(config: CheckConfig, people: Opened) -> list[Row]:
    if people.people.outcomes is None:
        return []
    found: list[Row] = []
    for k, name in enumerate(people.outcomes.names):
        seen = people.outcomes.observed[:, k]
        control = seen & (people.codes == 0)
        y = people.outcomes.values[control, k]
        sd = float(y.std(ddof=1)) if y.size > 1 else 0.0
        shares = np.bincount(people.codes[seen], minlength=people.arms)
        size, icc = 1.0, 0.0
        if people.clusters is not None and y.size > 2:
            size, icc = _icc(y, people.clusters[control])
        ready = sd > 0 and shares.all()
        effects = (
            plan(
                n=int(seen.sum()),
                shares=shares,
                sd=sd,
                cluster_size=size,
                icc=icc,
                level=config.level,
                power=config.power,
            )
            if ready
            else np.full(people.arms - 1, np.nan)
        )
        for arm, effect in zip(people.names[1:], np.atleast_1d(effects), strict=True):
            found.append(
                {
                    "outcome": name,
                    "arm": arm,
                    "sd": sd,
                    "mean": float(y.mean()) if y.size else None,
                    "effect": float(effect),
                    "icc": icc,
                }
            )
    return found


def _icc(y: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Effective size of clusters, Σm²/Σm, and the analysis-of-variance correlation inside them, at least 0.

    Source: Donner & Koval (1980).
    """
    _, label, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    groups, n = counts.size, y.size
    size = float((counts**2).sum() / n)
    if groups < 2 or groups == n:
        return size, 0.0
    means = np.bincount(label, y) / counts
    between = float(counts @ (means - y.mean()) ** 2) / (groups - 1)
    within = float(((y - means[label]) ** 2).sum()) / (n - groups)
    typical = (n - float((counts**2).sum()) / n) / (groups - 1)
    total = between + (typical - 1) * within
    return size, max(0.0, (between - within) / total) if total > 0 else 0.0


def _suspicious(people: Opened) -> Iterator[Row]:
    """Columns that tell an arm alone, and columns that are constant under control only."""
    encoded = people.encoded
    columns: list[tuple[str, np.ndarray, np.ndarray | None]] = [
        (name, encoded.numbers[:, j], encoded.missing[:, j]) for j, name in enumerate(encoded.number_names)
    ]
    for j, name in enumerate(encoded.category_names):
        columns.append((name, encoded.codes[:, j].astype(float), None))
    for name, values, missing in columns:
        category = missing is None
        best, arm = 0.5, 0
        for code in range(people.arms):
            mine = people.codes == code
            score = _shares(values, mine) if category else values
            area = auc(score, mine)
            area = max(area, 1 - area)
            if missing is not None and missing.any():
                area = max(area, (absent := auc(missing.astype(float), mine)), 1 - absent)
            if area > best:
                best, arm = area, code
        control = values[people.codes == 0]
        still = np.ptp(control) == 0 and (missing is None or not missing[people.codes == 0].any())
        if best > SUSPECT:
            reason = f"tells {people.names[arm]} from the other arms (AUC {best:.3f}): looks measured after assignment"
        elif still and np.ptp(values) > 0 and control.size > 1:
            reason = "constant under control and varying under treatment: looks measured after assignment"
        else:
            continue
        yield {"feature": name, "auc": float(best), "arm": people.names[arm], "reason": reason}


def _shares(codes: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Share of an arm in each row's level: the best score that a category gives."""
    level = codes.astype(int)
    counts = np.bincount(level)
    return (np.bincount(level, mine, minlength=counts.size) / np.maximum(counts, 1))[level]
