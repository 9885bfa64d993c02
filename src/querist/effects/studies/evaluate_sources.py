"""Whose scores an evaluation judges: model folders and columns, opened and held against the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from querist.effects.arrays import codes_among
from querist.effects.configs import EvaluateConfig, named_numbers
from querist.effects.errors import CostRange
from querist.effects.outcomes import parse_outcomes
from querist.effects.serving import load
from querist.effects.studies.people import OPTIONS, Opened, open_judged, open_people, outcome_worths
from querist.errors import BadOption, ShapeMismatch, UnknownName, near
from querist.files import fingerprint_array
from querist.sources.rows import Rows, open_rows

__all__ = [
    "ColumnScore",
    "Prices",
    "check_sources",
    "fingerprints",
    "open_sources",
    "open_table",
    "priced",
    "with_model",
]

COLUMN = "column:"


@dataclass(frozen=True)
class ColumnScore:
    """A score that the table holds as a column: it ranks people, for every arm and outcome alike."""

    name: str


@dataclass(frozen=True)
class Prices:
    """Worth of outcomes by name (none: no value asked for), costs of arms by label [M + 1] (none stated: None)."""

    value: dict[str, float]
    cost: tuple[float, ...] | None


def open_sources(names: Sequence[str], held: Mapping[str, Any]) -> dict[str, Any]:
    """Sources by a short name of their own: the model's class, the run's folder, the column.

    Raises SourceNotFound, CorruptFile, BadOption for a source that is named twice.
    """
    found: dict[str, Any] = {}
    for name in names:
        if name in held:
            found[name] = held[name]
            continue
        if name.startswith(COLUMN):
            label, what = name.removeprefix(COLUMN), ColumnScore(name.removeprefix(COLUMN))
        else:
            what = load(name)
            label = _short(Path(name))
        while label in found:
            if names.count(name) > 1:
                raise BadOption("A source is named twice", value=name, mend="Name each once")
            label += " (2)"
        found[label] = what
    return found


def _short(folder: Path) -> str:
    """The name of a run, or of a model folder that lies in none."""
    place = folder.resolve()
    return place.parent.name if place.name == "model" and (place.parent / "run.json").exists() else place.name


def open_table(table: Any, config: EvaluateConfig, sources: Mapping[str, Any]) -> Opened:
    """The table with its roles. What is not said is taken from the first model: control, arms, outcomes.

    The columns that are scores are no features, nor is anything that the first model does not know.
    """
    model = next((one for one in sources.values() if not isinstance(one, ColumnScore)), None)
    columns = tuple(one.name for one in sources.values() if isinstance(one, ColumnScore))
    rows = open_rows(table, options=OPTIONS)
    for name in columns:
        if name not in rows.names:
            raise UnknownName("The table has no such column", value=name, allowed=near(name, rows.names, 12))
    if model is not None:
        return with_model(rows, config, model, features=False)
    told = EvaluateConfig.build(config, feature=columns) if columns and not config.feature else config
    return open_judged(rows, told)


def with_model(rows: Rows, config: Any, model: Any, *, features: bool = True) -> Opened:
    """A table with the control, arms, outcomes and features of a model where none are said.

    features: whether they are held (`open_people`) or left in the table (`open_judged`). Raises UnknownName for an outcome or an
    arm that the model does not know, and what `open_people` raises.
    """
    for outcome in parse_outcomes(config.outcome):
        _has_outcome("The model", model, outcome)
    fields: dict[str, Any] = {}
    if not config.outcome and not rows.options.get("outcome"):
        fields["outcome"] = tuple(f"{name}:{kind}" for name, kind in model.outcomes_.items())
    if config.control is None and not rows.options.get("control"):
        fields["control"] = str(model.control_)
    if not config.feature:
        fields["feature"] = tuple(model.features_)
    told = type(config).build(config, **fields)
    opened = open_people(rows, told, need_outcomes=True) if features else open_judged(rows, told)
    order = [model.control_, *model.arms_]
    seen = {str(label): label for label in opened.labels}
    strange = [label for label in seen if label not in {str(one) for one in order}]
    if strange:
        raise UnknownName(
            "The table has an arm that the model does not know",
            value=strange[0],
            allowed=", ".join(map(str, order)),
            mend="Leave out its rows, or fit a model on them",
        )
    arms = [seen.get(str(one), one) for one in order][1:]
    labels, codes = codes_among(opened.people.levels, opened.people.places, opened.labels[0], arms)
    return replace(opened, labels=tuple(labels), codes=codes)


def check_sources(sources: Mapping[str, Any], people: Opened) -> None:
    """Every model has the arms and outcomes that are judged, in whatever order. Raises ShapeMismatch, UnknownName."""
    for name, source in sources.items():
        if isinstance(source, ColumnScore):
            continue
        arms = {str(label) for label in (source.control_, *source.arms_)}
        if arms != set(people.names):
            raise ShapeMismatch(
                f"{name} has other arms", value=", ".join(sorted(arms)), allowed=", ".join(people.names)
            )
        for outcome in people.outcomes.names:
            _has_outcome(name, source, outcome)


def _has_outcome(name: str, model: Any, outcome: str) -> None:
    if outcome not in model.outcomes_:
        raise UnknownName(
            f"{name} has no such outcome",
            value=outcome,
            allowed=near(outcome, model.outcomes_, 8),
            mend="Name outcomes that all sources have (--outcome)",
        )


def priced(config: EvaluateConfig, people: Opened) -> Prices:
    """Worths and costs. Raises BadOption, UnknownName, CostRange."""
    value = outcome_worths(config.value, people.outcomes.names)
    if not config.cost:
        return Prices(value, None)
    cost = named_numbers(config.cost, "--cost")
    for name, number in cost.items():
        if name not in people.names:
            raise UnknownName("--cost: no such arm", value=name, allowed=near(name, people.names, 8))
        if not (np.isfinite(number) and number >= 0):
            raise CostRange("A cost lies outside its range", value=f"{name}={number:g}", allowed="0 or more")
    return Prices(value, tuple(cost.get(name, 0.0) for name in people.names))


def fingerprints(sources: Mapping[str, Any]) -> dict[str, str]:
    """Content of every model: its folder's, or that of its weights in memory."""
    found = {}
    for name, source in sources.items():
        if isinstance(source, ColumnScore):
            continue
        state, arrays = source._state()
        told = json.dumps([state, source.columns_.to_json()], sort_keys=True, default=str)
        digest = hashlib.sha256(told.encode())
        for key in sorted(arrays):
            digest.update(fingerprint_array(arrays[key]).encode())
        found[f"model {name}"] = f"sha256:{digest.hexdigest()}"
    return found
