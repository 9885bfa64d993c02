"""What an evaluation measures: predictions of each source, numbers of each outcome, policies over all outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import UInt64

from querist.effects.configs import EvaluateConfig
from querist.effects.estimator import BATCH, HASHES
from querist.effects.evaluation import (
    Component,
    Given,
    Scored,
    arms_differ_rows,
    average_rows,
    calibration_rows,
    curve_rows,
    metric_rows,
    multi_arm_rows,
    paired_rows,
    policy_rows,
)
from querist.effects.studies.evaluate_kept import Kept, scored_of, writing
from querist.effects.studies.evaluate_sources import ColumnScore, priced
from querist.effects.studies.people import Opened, judged_rows
from querist.sources.rows import hash_rows
from querist.statistics import stream, two_sample_auc

__all__ = ["components_of", "measure_outcome", "measure_policies", "predict"]

PROBED = 2000
"""Rows on which predictions are made again with other arms."""
TOLD_APART = 20_000
"""Rows of the test whether a score tells who was treated."""


def predict(config: EvaluateConfig, people: Opened, name: str, source: Any, folder: Path) -> Mapping[str, Any]:
    """A source's predictions on the table, kept as a file; whether they see the arm; how many rows the fit had seen."""
    begun = time.perf_counter()
    path = folder / "predictions.npy"
    if isinstance(source, ColumnScore):
        with writing(path, 1, len(people), None) as pen:
            pen.write([_column(people, source.name)])
        changed, seen = None, {"score": name, "rows": len(people), "reason": "a column keeps no rows of a fit"}
    else:
        seen = _written(people, name, source, path)
        changed = _changed(config, people, source)
    effects = not isinstance(source, ColumnScore)
    telling = _telling(config, people, path)
    row = {
        "score": name,
        "kind": "model" if effects else "column",
        "path": str(path),
        "effects": effects,
        "changed": changed,
    }
    row |= {"arm_auc": telling[0], "arm_p": telling[1], "seconds": time.perf_counter() - begun}
    return {"sources": [row], "seen": [seen]}


def _written(people: Opened, name: str, source: Any, path: Path) -> dict[str, Any]:
    """Predictions of a model written in one pass over the table, which is encoded once; and the row of table `seen`."""
    places = [list(source.outcomes_).index(outcome) for outcome in people.outcomes.names]
    order = [[str(label) for label in source.arms_].index(label) for label in people.names[1:]]
    hashes = []
    tier = np.asarray(source.tier_weights_)[order]
    start = 0
    with writing(path, len(places) * (1 + len(order)), len(people), tier) as pen:
        for batch in people.feature_batches(source.columns_.names, BATCH):
            encoded = source.columns_.encode(batch, start=start)
            hashes.append(_near(hash_rows(encoded), source))
            answer = source._effects(*source._parts(encoded))
            columns = [answer.natural[:, k] for k in places]
            total = answer.total
            pen.write([*columns, *(total[:, m, k] for m in order for k in places)])
            start += len(encoded)
    return _seen(people, name, source, np.concatenate(hashes))


def measure_outcome(config: EvaluateConfig, people: Opened, paths: Mapping[str, str], k: int) -> Mapping[str, Any]:
    """Every table of one outcome."""
    scores = _read(people, paths, [k])
    rows = _given(config, people, scores, [k])
    level = 1 - config.level
    judged: dict[str, Any] = {"components": components_of(config, people), "level": level}
    lines, bins = calibration_rows(scores, rows, bins=config.bins, **judged)
    return {
        "metrics": metric_rows(
            scores, rows, conventions=config.convention, k=config.k, bootstrap=config.bootstrap, **judged
        ),
        "ate": average_rows(rows, judged["components"], level=level),
        "calibration": lines,
        "calibration_bins": bins,
        "paired": paired_rows(scores, rows, **judged),
        "curves": curve_rows(scores, rows, level=level),
        "arms_differ": arms_differ_rows(rows, level=level),
    }


def components_of(config: EvaluateConfig, people: Opened) -> tuple[Component, ...]:
    """Parts that are judged: where there is one treated arm its total effect is the base and nothing is left for increments."""
    return ("total",) if people.arms == 2 and "total" in config.component else config.component


def measure_policies(config: EvaluateConfig, people: Opened, paths: Mapping[str, str]) -> Mapping[str, Any]:
    """Policies of each outcome, and of outcomes weighed together."""
    prices = priced(config, people)
    cost = None if prices.cost is None else np.broadcast_to(prices.cost, (len(people), people.arms))
    told: dict[str, Any] = {"value": prices.value or None, "cost": cost}
    every = range(len(people.outcomes.names))
    found: dict[str, list[Any]] = {"policies": [], "multi_arm": []}
    # Only outcomes that are weighed together are held together.
    rounds: list[tuple[Sequence[int], Any]] = [([k], "alone") for k in every]
    if prices.value or cost is not None:
        rounds.append((every, "together"))
    for outcomes, which in rounds:
        scores = _read(people, paths, outcomes)
        rows = _given(config, people, scores, outcomes)
        found["policies"] += policy_rows(scores, rows, level=1 - config.level, which=which, **told)
        found["multi_arm"] += multi_arm_rows(scores, rows, which=which, **told)
        del scores, rows
    return found


def _given(config: EvaluateConfig, people: Opened, scores: Mapping[str, Scored], outcomes: Iterable[int]) -> Given:
    """The rows as the evaluation takes them, with the first model's responses as nuisance and its tier weights."""
    first = next((score for score in scores.values() if score.natural is not None), None)
    return judged_rows(people, config, first, outcomes)


def _column(people: Opened, name: str) -> np.ndarray:
    from querist.sources.rows.values import numbers

    values = people.people.of(people.rows.table([name])).column(name)
    return np.asarray(numbers(values, name), dtype=float)


def _changed(config: EvaluateConfig, people: Opened, source: Any) -> float:
    """Largest change of any prediction when arms and outcomes of the rows are exchanged among them."""
    rng = stream(config.seed, "arm-hidden")
    rows = np.sort(rng.choice(len(people), min(PROBED, len(people)), replace=False))
    roles = people.people.roles
    table = people.rows.take(people.people.numbers_of(rows))
    other = pa.array(rng.permutation(rows.size))
    swapped = table
    for name in (roles.arm, *roles.outcomes):
        at = swapped.column_names.index(name)
        swapped = swapped.set_column(at, name, swapped.column(name).take(other))
    before, after = (source.predict_effects(one) for one in (table, swapped))
    pairs = ((before.total, after.total), (before.natural, after.natural))
    return max(float(np.nanmax(np.abs(one - two), initial=0.0)) for one, two in pairs)


def _near(hashes: UInt64[np.ndarray, "n"], source: Any) -> UInt64[np.ndarray, "some"]:
    """The hashes that can be told: a model keeps at most 100,000, the smallest; where it kept that many, larger ones are left out."""
    kept = np.asarray(source.rows_seen_)
    return hashes[:0] if not kept.size else hashes if kept.size < HASHES else hashes[hashes <= kept.max()]


def _seen(people: Opened, name: str, source: Any, mine: UInt64[np.ndarray, "some"]) -> dict[str, Any]:
    """Rows whose features equal those of a row of the fit, and the table's own share of repeated rows, from hashes of `_near`."""
    from scipy.stats import binom

    kept = np.unique(np.asarray(source.rows_seen_))
    row: dict[str, Any] = {"score": name, "rows": len(people)}
    if not kept.size:
        return row | {"reason": "the model kept no rows of its fit"}
    if not mine.size:
        return row | {"reason": "no row of this table lies among those that the model kept"}
    mine.sort()
    known = int((np.searchsorted(mine, kept, "right") - np.searchsorted(mine, kept)).sum())
    twin = mine[1:] == mine[:-1]
    runs = int((twin[1:] & ~twin[:-1]).sum()) + int(twin[:1].sum())
    repeated = (int(twin.sum()) + runs) / mine.size
    p = float(binom.sf(known - 1, mine.size, repeated)) if known else 1.0
    return row | {
        "rows": int(mine.size),
        "seen": known,
        "share": known / mine.size,
        "repeated": repeated,
        "p": p,
    }


def _telling(config: EvaluateConfig, people: Opened, path: Path) -> tuple[float | None, float | None]:
    """AUC of telling treated people from control by the scores, with its p."""
    rows = np.arange(min(len(people), TOLD_APART))
    if len(people) > TOLD_APART:
        rows = stream(config.seed, "told-apart").choice(len(people), TOLD_APART, replace=False)
    held = Kept(path, people.arms - 1, len(people.outcomes.names))
    columns = (held.column(number) for number in held.totals)
    found = [column[rows] for column in columns if np.isfinite(column).all() and np.ptp(column) > 0]
    if not found:
        return None, None
    flat = np.column_stack(found)
    treated = people.codes[rows] > 0
    clusters = None
    if people.clusters is not None:
        clusters = (people.clusters[rows][~treated], people.clusters[rows][treated])
    told = two_sample_auc(flat[~treated], flat[treated], clusters=clusters, permutations=199, seed=config.seed)
    return told.auc, told.p


def _read(people: Opened, paths: Mapping[str, str], places: Sequence[int]) -> dict[str, Scored]:
    """Predictions of some outcomes as they were kept."""
    return scored_of(paths, people.arms - 1, len(people.outcomes.names), places)
