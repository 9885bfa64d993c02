"""What a watch measures: indices of features and scores, shares of arms, realised effects, segments without control."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from querist.effects.configs import MonitorConfig
from querist.effects.evaluation import Scored
from querist.effects.parts import Effects
from querist.effects.reading import arm_labels
from querist.effects.serving.drift import Moved, bin_edges, binned, moved, nulls
from querist.effects.serving.names import column_name
from querist.effects.studies.people import Opened, judged_rows, outcome_worths
from querist.sources.rows import Rows
from querist.sources.rows.values import texts
from querist.statistics import mean_interval

__all__ = ["measure_drift", "measure_effects"]

Row = dict[str, Any]
Found = tuple[str, str, Moved, list[str]]
SPECIAL = ("missing", "unknown")


def measure_drift(config: MonitorConfig, model: Any, before: Rows, after: Rows) -> Mapping[str, Any]:
    """The index of every feature of the model and of every score, with what sampling alone gives."""
    found = [*_features(config, model, before, after), *_scores(config, model, before, after)]
    limits = nulls([one for _, _, one, _ in found])
    return {
        "psi": [
            {
                "column": name,
                "kind": kind,
                "psi": one.psi,
                "null": float(limit),
                "drifted": one.psi > limit,
                "largest_bin": str(labels[one.bin]),
                "share_before": one.before,
                "share_after": one.after,
            }
            for (name, kind, one, labels), limit in zip(found, limits, strict=True)
        ]
    }


def measure_effects(config: MonitorConfig, model: Any, people: Opened, before: Rows) -> Mapping[str, Any]:
    """Arms, realised effects, segments of the later table."""
    return {
        "arm_shares": _arm_shares(people, before),
        "realised": list(_realised(config, model, people)),
        "segments": list(_segments(config, model, people)),
    }


def _features(config: MonitorConfig, model: Any, before: Rows, after: Rows) -> Iterator[Found]:
    columns = model.columns_
    one, two = (columns.encode(rows) for rows in (before, after))
    for j, name in enumerate(one.number_names):
        first = np.where(one.missing[:, j], np.nan, one.numbers[:, j])
        edges = bin_edges(first, config.bins)
        second = np.where(two.missing[:, j], np.nan, two.numbers[:, j])
        facts = columns.facts[name]
        yield _row(
            config,
            name,
            "feature",
            binned(first, edges),
            binned(second, edges),
            _intervals(edges, facts.mean, facts.sd),
        )
    for j, name in enumerate(one.category_names):
        labels = [*SPECIAL, *columns.levels[name]]
        yield _row(config, name, "feature", one.codes[:, j].astype(int), two.codes[:, j].astype(int), labels)


def _scores(config: MonitorConfig, model: Any, before: Rows, after: Rows) -> Iterator[Found]:
    one, two = (_predicted(model, rows) for rows in (before, after))
    for k, outcome in enumerate(model.outcomes_):
        columns = [(column_name("natural", outcome), one.natural[:, k], two.natural[:, k])]
        columns += [
            (column_name("total", outcome, arm), one.total[:, m, k], two.total[:, m, k])
            for m, arm in enumerate(model.arms_)
        ]
        for name, first, second in columns:
            if np.isfinite(first).any():
                edges = bin_edges(first, config.bins)
                yield _row(config, name, "score", binned(first, edges), binned(second, edges), _intervals(edges))


def _predicted(model: Any, rows: Rows) -> Effects:
    return model.predict_effects(rows.table(list(model.columns_.names)))


def _row(
    config: MonitorConfig, name: str, kind: str, before: np.ndarray, after: np.ndarray, labels: list[str]
) -> Found:
    return name, kind, moved(before, after, name=name, resamples=config.resamples, seed=config.seed), labels


def _intervals(edges: np.ndarray, mean: float = 0.0, sd: float = 1.0) -> list[str]:
    """Names of bins in the column's own unit."""
    told = [f"{edge * sd + mean:.4g}" for edge in edges]
    if not told:
        return ["all", "missing"]
    inner = [f"{a} to {b}" for a, b in itertools.pairwise(told)]
    return [f"up to {told[0]}", *inner, f"above {told[-1]}", "missing"]


def _arm_shares(people: Opened, before: Rows) -> list[Row]:
    from scipy.stats import chi2_contingency

    after = np.bincount(people.codes, minlength=people.arms)
    name = people.people.roles.arm
    earlier = np.zeros(people.arms, dtype=int)
    if name in before.names:
        labels, known = arm_labels(before.table([name]).column(name), what=name)
        held = [str(label) for label in np.asarray(labels)[known].tolist()]
        earlier = np.array([held.count(label) for label in people.names])
    p = None
    kept = (earlier + after) > 0
    if earlier.any() and kept.sum() > 1:
        whole: Any = chi2_contingency(np.stack([earlier[kept], after[kept]]), correction=False)
        p = float(whole.pvalue)
    return [
        {
            "arm": label,
            "before": float(b / earlier.sum()) if earlier.any() else None,
            "after": float(a / after.sum()),
            "difference": float(a / after.sum() - b / earlier.sum()) if earlier.any() else None,
            "p": p,
        }
        for label, b, a in zip(people.names, earlier.tolist(), after.tolist(), strict=True)
    ]


def _realised(config: MonitorConfig, model: Any, people: Opened) -> Iterator[Row]:
    """Of the people for whom a gain is predicted: mean effect score beside mean prediction."""
    effects = model.predict_effects(people.people.features)
    order = [list(model.outcomes_).index(name) for name in people.outcomes.names]
    arms = [[str(arm) for arm in model.arms_].index(name) for name in people.names[1:]]
    total = effects.total[:, arms][:, :, order]
    judged = Scored("model", total, effects.natural[:, order], np.asarray(effects.tier_weights)[arms])
    rows = judged_rows(people, config, judged)
    worth = outcome_worths(config.value, people.outcomes.names)
    for cell in rows.cells:
        sign = -1.0 if worth.get(cell.name, 0.0) < 0 else 1.0
        for m, arm in enumerate(people.names[1:]):
            predicted = sign * judged.total[cell.rows, m, cell.k]
            gain = predicted > 0
            row: Row = {"arm": arm, "outcome": cell.name, "people": int(gain.sum())}
            row |= dict.fromkeys(("predicted", "realised", "difference", "low", "high", "p", "reason"))
            why = cell.reasons[m] or (None if gain.sum() >= config.min_rows else "too few people with a predicted gain")
            if why is not None:
                yield row | {"reason": why}
                continue
            psi = sign * cell.psi[gain, m]
            parts = {name: None if one is None else one[gain] for name, one in cell.dependence.items()}
            value = mean_interval(psi - predicted[gain], level=1 - config.level, **parts)
            row |= {
                "predicted": float(predicted[gain].mean()),
                "realised": float(psi.mean()),
                "difference": value.estimate,
            }
            yield row | {"low": value.low, "high": value.high, "p": value.p}


def _segments(config: MonitorConfig, model: Any, people: Opened) -> Iterator[Row]:
    names = list(config.segment) or list(model.columns_.categories)
    control = people.codes == 0
    if not names:
        yield {"column": "table", "segment": "all people", "people": len(people), "control": int(control.sum())}
        return
    table = people.people.of(people.rows.table(names))
    for name in names:
        held = texts(table.column(name), name).to_pylist()
        values = np.array(["missing" if value is None else str(value) for value in held], dtype=object)
        for value in sorted(set(values.tolist())):
            mine = values == value
            yield {"column": name, "segment": value, "people": int(mine.sum()), "control": int((mine & control).sum())}
