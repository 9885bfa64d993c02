"""What a sweep comes to: over targets, then repeats, and never from one target alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from querist.errors import TooFewRows
from querist.statistics import Estimate, bootstrap

__all__ = ["exposure_headline", "exposure_summary", "over_targets", "selector_difference", "size_reaching"]

SETTING = ("selector", "size", "rate", "mode")
Rows = Iterable[Mapping[str, Any]]


def over_targets(
    rows: Rows,
    column: str = "asr",
    statistic: Callable[[np.ndarray], float] | None = None,
    *,
    replicates: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate | None:
    """The mean of a column over targets (or another statistic of its values) with a hierarchical percentile bootstrap.

    Targets are drawn with replacement, then repeats inside each; rows in which the column is null are left out. With one target
    there is an estimate and no interval; None without rows. The percentiles are taken as far out as t quantiles of so few targets lie
    beyond normal ones, for the spread of few resampled targets is too small: plain percentiles of ten targets cover .88 to .91 at .95.

    Source: Hesterberg (2015), "What teachers should know about the bootstrap", section 3.3 (expanded percentiles).
    """
    held = [row for row in rows if row[column] is not None]
    if not held:
        return None
    of = statistic or _mean
    values = np.array([row[column] for row in held], dtype=float)
    ids = [np.array([str(row[name]) for row in held]) for name in ("target", "repeat")]
    wider = _expanded(level, len(set(ids[0])))
    try:
        return bootstrap(values, of, clusters=ids, replicates=replicates, level=wider, seed=seed)
    except TooFewRows:
        return Estimate(float(of(values)), None, None, None, None, None, len(set(ids[0])), "one target, no interval")


def exposure_summary(rows: Rows, *, replicates: int = 2000, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of table `exposure_summary`, in the order in which the settings come: of the success rates averaged over repeats.

    mean, median, p90 and max over targets; low and high bound the mean (hierarchical bootstrap). All null where no target has a
    rate.
    """
    made = []
    for key, held in _grouped(rows).items():
        each = _by_target(held)
        rates = np.array(list(each.values()))
        found = over_targets(held, replicates=replicates, seed=seed)
        row: dict[str, Any] = dict(zip(SETTING, key, strict=True))
        row |= {"targets": len(each), "repeats": len({one["repeat"] for one in held if one["asr"] is not None})}
        if found is None:
            row |= dict.fromkeys(("mean", "median", "p90", "max", "low", "high"))
        else:
            row |= {
                "mean": float(rates.mean()),
                "median": float(np.median(rates)),
                "p90": float(np.quantile(rates, 0.9)),
                "max": float(rates.max()),
                "low": found.low,
                "high": found.high,
            }
        made.append(row)
    return made


def size_reaching(summary: Rows, asr: float, *, selector: str, rate: float, mode: str) -> int | None:
    """The smallest size whose mean success rate is `asr` or more; None where no size of the sweep is."""
    sizes = [
        row["size"]
        for row in summary
        if (row["selector"], row["rate"], row["mode"]) == (selector, rate, mode)
        and row["mean"] is not None
        and row["mean"] >= asr
    ]
    return min(sizes, default=None)


def exposure_headline(rows: Rows, setting: Any, *, replicates: int = 2000, seed: int = 0) -> dict[str, Any]:
    """The summary key `exposure`: one setting over its targets and repeats, low and high bounding `mean_excess`."""
    every = list(rows)
    key = (setting.selector, setting.size, setting.rate, setting.mode)
    held = _grouped(every).get(key, [])
    rates = _by_target(held)
    excess = over_targets(held, "excess", replicates=replicates, seed=seed)
    same = [row for row in every if (row["selector"], row["rate"], row["mode"]) == (key[0], key[2], key[3])]
    summary = exposure_summary(same, replicates=20, seed=seed)
    values = np.array(list(rates.values()))
    some = values.size > 0
    return {
        "headline": dict(zip(SETTING, key, strict=True)),
        "targets": len(rates),
        "repeats": len({row["repeat"] for row in held if row["asr"] is not None}),
        "mean_asr": float(values.mean()) if some else None,
        "median_asr": float(np.median(values)) if some else None,
        "p90_asr": float(np.quantile(values, 0.9)) if some else None,
        "max_asr": float(values.max()) if some else None,
        "max_target": max(rates, key=lambda target: rates[target]) if some else None,
        "mean_clean_model_asr": _column_mean(held, "clean_model_asr"),
        "mean_untriggered": _column_mean(held, "untriggered"),
        "mean_natural": _column_mean(held, "natural"),
        "mean_excess": None if excess is None else excess.estimate,
        "low": None if excess is None else excess.low,
        "high": None if excess is None else excess.high,
        "mean_accuracy_drop": _column_mean(held, "accuracy_drop"),
        **{
            f"size_for_{round(100 * level)}": size_reaching(
                summary, level, selector=setting.selector, rate=setting.rate, mode=setting.mode
            )
            for level in (0.5, 0.9)
        },
    }


def selector_difference(
    rows: Rows, selector: str, *, other: str = "random", size: int, rate: float, mode: str = "mix", seed: int = 0
) -> Estimate | None:
    """Mean success of a selector less that of another, paired by target and repeat, with the hierarchical bootstrap."""
    groups = _grouped(rows)
    cells = {
        name: {
            (row["target"], row["repeat"]): row["asr"]
            for row in groups.get((name, size, rate, mode), [])
            if row["asr"] is not None
        }
        for name in (selector, other)
    }
    pairs = [
        {"target": key[0], "repeat": key[1], "asr": value - cells[other][key]}
        for key, value in cells[selector].items()
        if key in cells[other]
    ]
    return over_targets(pairs, seed=seed)


def _expanded(level: float, targets: int) -> float:
    """The level whose normal quantile is the t quantile of so many targets, times √(T/(T − 1))."""
    from scipy.special import ndtr, stdtrit

    if targets < 2:
        return level
    beyond = stdtrit(targets - 1, (1 + level) / 2) * np.sqrt(targets / (targets - 1))
    return float(min(2 * ndtr(beyond) - 1, 1 - 1e-9))


def _grouped(rows: Rows) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in SETTING), []).append(row)
    return groups


def _by_target(rows: Rows) -> dict[Any, float]:
    """Success of each target, averaged over its repeats."""
    found: dict[Any, list[float]] = {}
    for row in rows:
        if row["asr"] is not None:
            found.setdefault(row["target"], []).append(row["asr"])
    return {target: float(np.mean(values)) for target, values in found.items()}


def _column_mean(rows: Rows, column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.mean(values)) if values else None


def _mean(values: np.ndarray) -> float:
    return float(values.mean())
