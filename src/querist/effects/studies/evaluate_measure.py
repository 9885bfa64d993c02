"""What an evaluation measures: predictions of each source, numbers of each outcome, policies over all outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from querist.effects.configs import EvaluateConfig
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
from querist.effects.studies.evaluate_sources import ColumnScore, priced
from querist.effects.studies.people import Opened, judged_rows
from querist.files import write_bytes
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
    if isinstance(source, ColumnScore):
        total = _column(people, source.name)
        arrays, effects = {"total": total[:, None, None]}, False
        changed, seen = None, {"score": name, "rows": len(people), "reason": "a column keeps no rows of a fit"}
    else:
        answer = source.predict_effects(people.people.features)
        places = [list(source.outcomes_).index(outcome) for outcome in people.outcomes.names]
        order = [[str(label) for label in source.arms_].index(label) for label in people.names[1:]]
        arrays = {
            "natural": answer.natural[:, places],
            "total": answer.total[:, order][:, :, places],
            "tier": np.asarray(source.tier_weights_)[order],
        }
        effects = True
        changed, seen = _changed(config, people, source), _seen(people, name, source)
    path = folder / "predictions.npz"
    _write(path, arrays)
    telling = _telling(config, people, arrays["total"])
    row = {
        "score": name,
        "kind": "model" if effects else "column",
        "path": str(path),
        "effects": effects,
        "changed": changed,
    }
    row |= {"arm_auc": telling[0], "arm_p": telling[1], "seconds": time.perf_counter() - begun}
    return {"sources": [row], "seen": [seen]}


def measure_outcome(config: EvaluateConfig, people: Opened, paths: Mapping[str, str], k: int) -> Mapping[str, Any]:
    """Every table of one outcome."""
    scores = {name: _sliced(score, k) for name, score in _read(people, paths).items()}
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
    scores = _read(people, paths)
    rows = _given(config, people, scores, range(len(people.outcomes.names)))
    prices = priced(config, people)
    cost = None if prices.cost is None else np.tile(prices.cost, (rows.n, 1))
    return {
        "policies": policy_rows(scores, rows, value=prices.value or None, cost=cost, level=1 - config.level),
        "multi_arm": multi_arm_rows(scores, rows, value=prices.value or None, cost=cost),
    }


def _given(config: EvaluateConfig, people: Opened, scores: Mapping[str, Scored], outcomes: Iterable[int]) -> Given:
    """The rows as the evaluation takes them, with the first model's responses as nuisance and its tier weights."""
    first = next((score for score in scores.values() if score.natural is not None), None)
    return judged_rows(people, config, first, outcomes)


def _column(people: Opened, name: str) -> np.ndarray:
    from querist.sources.rows.values import numbers

    values = people.rows.table([name]).column(name).take(pa.array(people.people.kept))
    return np.asarray(numbers(values, name), dtype=float)


def _changed(config: EvaluateConfig, people: Opened, source: Any) -> float:
    """Largest change of any prediction when arms and outcomes of the rows are exchanged among them."""
    rng = stream(config.seed, "arm-hidden")
    rows = np.sort(rng.choice(len(people), min(PROBED, len(people)), replace=False))
    roles = people.people.roles
    table = people.rows.take(people.people.kept[rows])
    other = pa.array(rng.permutation(rows.size))
    swapped = table
    for name in (roles.arm, *roles.outcomes):
        at = swapped.column_names.index(name)
        swapped = swapped.set_column(at, name, swapped.column(name).take(other))
    before, after = (source.predict_effects(one) for one in (table, swapped))
    pairs = ((before.total, after.total), (before.natural, after.natural))
    return max(float(np.nanmax(np.abs(one - two), initial=0.0)) for one, two in pairs)


def _seen(people: Opened, name: str, source: Any) -> dict[str, Any]:
    """Rows whose features equal those of a row of the fit, and the table's own share of repeated rows.

    A model keeps at most 100,000 hashes, the smallest: where it kept that many, rows with larger hashes are left out.
    """
    from scipy.stats import binom

    hashes = hash_rows(source.columns_.encode(people.people.features))
    kept = np.asarray(source.rows_seen_)
    row: dict[str, Any] = {"score": name, "rows": len(people)}
    if not kept.size:
        return row | {"reason": "the model kept no rows of its fit"}
    bound = kept.max()
    mine = hashes if kept.size < 100_000 else hashes[hashes <= bound]
    if not mine.size:
        return row | {"reason": "no row of this table lies among those that the model kept"}
    known = np.isin(mine, kept)
    _, counts = np.unique(mine, return_counts=True)
    repeated = float(counts[counts > 1].sum() / mine.size)
    p = float(binom.sf(known.sum() - 1, mine.size, repeated)) if known.any() else 1.0
    return row | {
        "rows": int(mine.size),
        "seen": int(known.sum()),
        "share": float(known.mean()),
        "repeated": repeated,
        "p": p,
    }


def _telling(config: EvaluateConfig, people: Opened, total: np.ndarray) -> tuple[float | None, float | None]:
    """AUC of telling treated people from control by the scores, with its p."""
    flat = total.reshape(len(total), -1)
    flat = flat[:, np.isfinite(flat).all(axis=0)]
    flat = flat[:, np.ptp(flat, axis=0) > 0] if flat.size else flat
    if not flat.shape[1]:
        return None, None
    rows = np.arange(len(people))
    if rows.size > TOLD_APART:
        rows = stream(config.seed, "told-apart").choice(rows, TOLD_APART, replace=False)
    treated = people.codes[rows] > 0
    clusters = None
    if people.clusters is not None:
        clusters = (people.clusters[rows][~treated], people.clusters[rows][treated])
    found = two_sample_auc(
        flat[rows][~treated], flat[rows][treated], clusters=clusters, permutations=199, seed=config.seed
    )
    return found.auc, found.p


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import io

    held = io.BytesIO()
    np.savez(held, **arrays)  # pyright: ignore[reportArgumentType]
    write_bytes(path, held.getvalue())


def _read(people: Opened, paths: Mapping[str, str]) -> dict[str, Scored]:
    """Predictions as they were kept; one column stands for every arm and outcome."""
    found = {}
    for name, path in paths.items():
        with np.load(path, allow_pickle=False) as held:
            arrays = {key: held[key] for key in held.files}
        total = np.broadcast_to(arrays["total"], (len(people), people.arms - 1, len(people.outcomes.names)))
        found[name] = Scored(name, total, arrays.get("natural"), arrays.get("tier"), effects="natural" in arrays)
    return found


def _sliced(score: Scored, k: int) -> Scored:
    natural = None if score.natural is None else score.natural[:, k : k + 1]
    return Scored(score.name, score.total[:, :, k : k + 1], natural, score.own, score.effects)
