"""What is told of a fitted model on the rows of its fit: average effects, predicted parts, training, shrinkage, columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from querist.effects.configs import COMPONENT_NAMES, FitConfig
from querist.effects.evaluation import average_rows, given
from querist.effects.nettrain import validation_rows
from querist.effects.parts import Effects
from querist.effects.sample import Sample
from querist.effects.studies.fit_columns import BATCH, attention, importance, predicted_effects
from querist.effects.studies.fit_models import model_kind
from querist.effects.studies.fit_table import Streaming, looked_at, row_count
from querist.effects.studies.people import Opened
from querist.errors import TooFewRows
from querist.statistics import mean_interval

__all__ = ["measure"]

Row = dict[str, Any]
TENTHS = 10


def measure(
    config: FitConfig, table: Opened | Streaming, model: Any, sample: Sample, source: Any
) -> Mapping[str, list[Row]]:
    """Rows of every table of a fit, the model's own path left to the caller. source: of a stream, else None."""
    effects = predicted_effects(model, sample.encoded)
    networks = list(_networks(config, model, sample, source))
    n = row_count(table)
    used = int((sample.outcomes.observed.any(axis=1) & (sample.weight > 0)).sum())
    warnings = table.warnings if isinstance(table, Opened) else list(model.warnings_)
    if isinstance(table, Streaming) and sample.n < n:
        warnings.append(f"Average effects and predicted parts are those of {sample.n} of {n} rows, drawn at random")
        used = n
    if sample.weight.min() != sample.weight.max():
        warnings.append("Row weights teach the model; average effects count every person once")
    averages = _given(config, table, model, sample)
    one: Row = {
        "model": config.model,
        "path": "",
        "rows": n,
        "rows_fit": used,
        "rows_validation": max((row["rows_validation"] or 0 for row in networks), default=0),
        "parameters": getattr(model, "parameters_", None),
        "warnings": list(dict.fromkeys(warnings)),
    }
    return {
        "model": [one],
        "arms": _arms(table, sample, model),
        "ate": average_rows(averages, COMPONENT_NAMES, level=1 - config.level),
        "ladder": list(_ladder(config, averages, effects)),
        "predicted": list(_predicted(model, effects)),
        "importance": list(importance(config, model, sample)),
        "attention": list(attention(config, model, sample)),
        "shrinkage": _shrinkage(model),
        "networks": networks,
        "history": list(_history(config, model)),
        "columns": list(_columns(table, sample, model)),
        "not_estimable": [
            {"arm": str(arm), "outcome": outcome, "reason": reason} for arm, outcome, reason in model.not_estimable_
        ],
        "hidden": [_hidden(table, model)],
    }


def _given(config: FitConfig, table: Opened | Streaming, model: Any, sample: Sample) -> Any:
    y = np.where(sample.outcomes.observed, sample.outcomes.values, np.nan)
    plain = table.shares is None and config.propensity == "share"
    return given(
        np.array([str(label) for label in sample.labels])[sample.arm],
        {name: y[:, k] for k, name in enumerate(sample.outcomes.names)},
        control=str(sample.labels[0]),
        arms=[str(label) for label in sample.labels[1:]],
        propensity=None if plain else sample.propensity,
        mu=_out_of_fold(model, sample),
        cluster=sample.cluster,
        tier_weights=model.tier_weights_,
        min_rows=config.min_rows,
        min_events=config.min_events,
        seed=config.seed,
    )


def _out_of_fold(model: Any, sample: Sample) -> Float[np.ndarray, "n M+1 K"] | None:
    """What networks say of rows that they were not trained on, without the refit, which saw all; None: the arms' means serve."""
    nets, folds = getattr(model, "networks_", None), getattr(model, "folds_", None)
    if nets is None or folds is None or len(nets) < 2 or len(folds) != sample.n:
        return None
    refit, found = model.refit_, np.empty((sample.n, sample.arms + 1, len(sample.outcomes.names)))
    try:
        model.refit_ = None
        for fold, members in enumerate(nets):
            model.networks_ = [members]
            rows = np.flatnonzero(folds == fold)
            for part in np.array_split(rows, -(-rows.size // BATCH)) if rows.size else ():
                natural, total, _ = model._parts(sample.encoded[part])
                found[part] = np.concatenate([natural[:, None], natural[:, None] + total], axis=1)
    finally:
        model.networks_, model.refit_ = nets, refit
    return found


def _arms(table: Opened | Streaming, sample: Sample, model: Any) -> list[Row]:
    if isinstance(table, Streaming):
        counts = np.array(table.counts)
        units = counts if table.roles.cluster is None else None
    else:
        counts = np.bincount(table.codes, minlength=table.arms)
        units = counts
        if table.clusters is not None:
            units = np.array([np.unique(table.clusters[table.codes == code]).size for code in range(table.arms)])
    shares = table.shares
    weights = [None, *model.tier_weights_.tolist()]
    return [
        {
            "arm": name,
            "control": code == 0,
            "rows": int(counts[code]),
            "units": None if units is None else int(units[code]),
            "share": None if units is None else float(units[code] / units.sum()),
            "expected": None if units is None or shares is None else float(shares[code] * units.sum()),
            "tier_weight": weights[code],
        }
        for code, name in enumerate(table.names)
    ]


def _ladder(config: FitConfig, rows: Any, effects: Effects) -> Iterator[Row]:
    """Natural response, base effect, increments: measured by scores, and the model's own mean."""
    averages = average_rows(rows, COMPONENT_NAMES, level=1 - config.level)
    names = [cell.name for cell in rows.cells]
    arms = [str(label) for label in rows.arms]
    means = {"base": effects.base, "incremental": effects.incremental, "total": effects.total}
    for k, cell in enumerate(rows.cells):
        control = cell.y[cell.arm == 0]
        row: Row = {"outcome": cell.name, "part": "natural", "arm": None} | dict.fromkeys(("estimate", "low", "high"))
        if control.size > 1:
            try:
                value = mean_interval(cell.gamma[:, 0], level=1 - config.level, **cell.dependence)
                row |= {"estimate": value.estimate, "low": value.low, "high": value.high}
            except TooFewRows:
                pass
        yield row | {
            "predicted": float(effects.natural[:, k].mean()),
            "sd": float(control.std(ddof=1)) if control.size > 1 else None,
        }
    for average in averages:
        k, part, arm = names.index(average["outcome"]), average["component"], average["arm"]
        told = means[part][..., k] if arm is None else means[part][:, arms.index(arm), k]
        yield {
            "outcome": average["outcome"],
            "part": part,
            "arm": arm,
            **{name: average[name] for name in ("estimate", "low", "high")},
            "predicted": float(told.mean()),
            "sd": None,
        }


def _predicted(model: Any, effects: Effects) -> Iterator[Row]:
    n = len(effects.natural)
    for k, outcome in enumerate(model.outcomes_):
        for m, arm in enumerate(model.arms_):
            total = effects.total[:, m, k]
            if not np.isfinite(total).all():
                continue
            place = np.empty(n, dtype=np.int64)
            place[np.argsort(total, kind="stable")] = np.arange(n)
            tenth = place * TENTHS // n
            counts = np.bincount(tenth, minlength=TENTHS)
            parts = {
                "natural": effects.natural[:, k],
                "base": effects.base[:, k],
                "incremental": effects.incremental[:, m, k],
            }
            means = {
                name: np.bincount(tenth, values, minlength=TENTHS) / np.maximum(counts, 1)
                for name, values in parts.items()
            }
            for one in np.flatnonzero(counts):
                told = {name: float(values[one]) for name, values in means.items()}
                yield {"outcome": outcome, "arm": str(arm), "tenth": int(one) + 1, **told}


def _shrinkage(model: Any) -> list[Row]:
    found = getattr(model, "shrinkage_", None)
    return [] if found is None else found.to_dicts()


def _networks(config: FitConfig, model: Any, sample: Sample, source: Any) -> Iterator[Row]:
    """A row per network: what it was trained and stopped on, and how its training ended."""
    for number, (fold, member, history) in enumerate(_trainings(config, model)):
        fit, held = _used(config, sample, model, fold, source)
        valid = history["valid_total"].drop_nulls() if "valid_total" in history.columns else None
        seen = None if valid is None or valid.is_empty() else history.filter(pl.col("valid_total").is_not_null())
        best = None if seen is None else seen.row(int(np.argmin(seen["valid_total"].to_numpy())), named=True)
        epochs = int(history["epoch"].max())  # pyright: ignore[reportArgumentType]
        yield {
            "network": number + 1,
            "fold": fold,
            "member": member,
            "rows_fit": fit,
            "rows_validation": held,
            "epochs": epochs,
            "best_epoch": None if best is None else int(best["epoch"]),
            "stopped": "early-stopping" if epochs < config.epochs else "epochs",
            "validation": None if best is None else float(best["valid_total"]),
        }


def _trainings(config: FitConfig, model: Any) -> Iterator[tuple[int | None, int, pl.DataFrame]]:
    """(fold, member, history) of each network, in order."""
    if model_kind(config.model).crossed:
        for fold in range(len(model.networks_)):
            for member in range(config.ensemble):
                mine = (pl.col("fold") == fold) & (pl.col("member") == member)
                yield fold, member, model.history_.filter(mine)
        return
    for member, history in enumerate(getattr(model, "histories_", ())):
        yield None, member, history


def _used(config: FitConfig, sample: Sample, model: Any, fold: int | None, source: Any) -> tuple[int, int]:
    """Rows that a network learnt from, and rows that only stopped it."""
    if source is not None:
        held = source.surveyed.valid & (source.surveyed.fold != fold)
        return int(source.rows(fold).sum()), int(held.sum())
    rows = np.arange(sample.n) if fold is None else np.flatnonzero(model.folds_ != fold)
    counts = (sample.outcomes.observed.any(axis=1) & (sample.weight > 0))[rows]
    held = validation_rows(sample, config.val_fraction, rows)
    return int((counts & ~held).sum()), int((counts & held).sum())


def _history(config: FitConfig, model: Any) -> Iterator[Row]:
    for number, (_, _, history) in enumerate(_trainings(config, model)):
        parts = [name for name in history.columns if name not in ("step", "epoch", "fold", "member")]
        whole = history.group_by("epoch", maintain_order=True).agg(pl.col(parts).mean())
        for row in whole.to_dicts():
            for part in parts:
                if row[part] is not None:
                    yield {"network": number + 1, "epoch": int(row["epoch"]), "part": part, "value": float(row[part])}


def _columns(table: Opened | Streaming, sample: Sample, model: Any) -> Iterator[Row]:
    roles = table.roles if isinstance(table, Streaming) else table.people.roles
    facts = sample.columns.facts
    for name in roles.features:
        row: Row = {"feature": name, "kind": None, "levels": None, "missing": None, "used": name in model.features_}
        if row["used"]:
            category = name in sample.columns.categories
            row["kind"] = "category" if category else "number"
            row["levels"] = len(sample.columns.levels[name]) if category else None
            row["missing"] = int(facts[name].missing)
        yield row | {"reason": None if row["used"] else "never changes"}
    for name in roles.left_out:
        yield {"feature": name, "used": False, "reason": "not asked for, or dropped"}


def _hidden(table: Opened | Streaming, model: Any) -> Row:
    """The largest change of any prediction when every row is given another arm."""
    whole, exchanged = looked_at(table)
    before, after = model.predict_effects(whole), model.predict_effects(exchanged)
    changes = [
        np.abs(getattr(before, name) - getattr(after, name)) for name in ("natural", "base", "incremental", "total")
    ]
    lost = any((np.isnan(getattr(before, n)) != np.isnan(getattr(after, n))).any() for n in ("natural", "total"))
    largest = max(float(np.nan_to_num(change, nan=0.0).max(initial=0.0)) for change in changes)
    return {"rows": len(before.natural), "changed": float("inf") if lost else largest}
