"""A table of people opened for a study: by address or from memory, its roles, arms as codes, propensities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from querist.effects.arrays import arm_codes, codes_among, lengths
from querist.effects.configs import PeopleOptions, named_numbers
from querist.effects.design import propensities
from querist.effects.evaluation import Coded, Given, Scored, given
from querist.effects.outcomes import Outcomes
from querist.effects.reading import People, Roles, missing_cells, missing_features, read_people, roles_of
from querist.errors import BadOption, UnknownName, near
from querist.sources.rows import Columns, Encoded, Rows, open_rows
from querist.sources.rows.table import BATCH_ROWS, exactly
from querist.sources.rows.values import pc
from querist.statistics.arrays import codes as id_codes

__all__ = [
    "OPTIONS",
    "Opened",
    "assembled",
    "control_label",
    "design_shares",
    "judged_rows",
    "open_judged",
    "open_people",
    "open_roles",
    "outcome_worths",
    "write_table",
]

OPTIONS = ("arm", "outcome", "cluster", "block", "weight", "control")
"""What an address may say of its own table."""
ROWS_TOLD = 100
"""Rows from which a column that never repeats is told."""


@dataclass(frozen=True)
class Opened:
    """A table in memory, with arms as codes: 0 for control, 1 … M in the order of `labels`."""

    rows: Rows
    people: People
    labels: tuple[Any, ...]
    codes: Int[np.ndarray, "n"]
    shares: tuple[float, ...] | None

    def __len__(self) -> int:
        return self.codes.size

    @property
    def arms(self) -> int:
        """Arms with control."""
        return len(self.labels)

    @property
    def names(self) -> list[str]:
        """Labels as text, control first."""
        return [str(label) for label in self.labels]

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes; every command that needs them has checked that there are some."""
        assert self.people.outcomes is not None
        return self.people.outcomes

    @cached_property
    def columns(self) -> Columns:
        """Features as they are learnt from this table."""
        return open_rows(self.people.features).columns(list(self.people.roles.features))

    @property
    def warnings(self) -> list[str]:
        """What a person must know of the table and its features, each once."""
        told = [f"The column {name} is missing in " for name in self.people.roles.features]
        notes = [note for note in self.columns.notes if not note.startswith(tuple(told))]
        return list(dict.fromkeys([*self.people.warnings, *notes, *_identifiers(self.people.features)]))

    @cached_property
    def encoded(self) -> Encoded:
        """The features, encoded by themselves."""
        return self.columns.encode(self.people.features)

    @cached_property
    def dense(self) -> Float[np.ndarray, "n d"]:
        """The features as one matrix without missing values."""
        return np.asarray(self.columns.dense(self.encoded), dtype=float)

    @property
    def propensity(self) -> Float[np.ndarray, "n arms"]:
        """Of the design where it is stated, else arm shares."""
        stated = "share" if self.shares is None else np.array(self.shares)
        return propensities(stated, self.labels, self.codes)

    def feature_batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Columns of the table, from its source, in batches of exactly `rows` of these people, the last one excepted."""
        batches = self.rows.batches(names, rows)
        return batches if self.people.kept is None else exactly(_chosen(batches, self.people.kept), rows)

    def missing_features(self) -> list[str]:
        """Warnings of features that are missing in some rows, from a pass over the table where features are not held."""
        names = [name for name in self.people.roles.features if name not in self.people.features.column_names]
        missing = dict.fromkeys(names, 0)
        for batch in self.feature_batches(names, BATCH_ROWS) if names else ():
            for name in names:
                missing[name] += missing_cells(batch.column(name))
        return missing_features(missing, len(self))

    @cached_property
    def clusters(self) -> Int[np.ndarray, "n"] | None:
        """Clusters as numbers."""
        return None if self.people.cluster is None else id_codes(self.people.cluster, "Clusters")[0]


def _chosen(batches: Iterator[pa.RecordBatch], kept: np.ndarray) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in batches:
        low, high = np.searchsorted(kept, [at, at + batch.num_rows])
        yield batch.take(pa.array(kept[low:high] - at))
        at += batch.num_rows


def _identifiers(features: pa.Table) -> Iterator[str]:
    """Whole numbers and texts that differ in every row: nothing can be learnt from them that holds for other people."""
    for name in features.column_names:
        column, kind = features.column(name), features.schema.field(name).type
        countable = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if countable and len(column) >= ROWS_TOLD and pc.count_distinct(column, mode="all").as_py() == len(column):
            yield f"The column {name} differs in every row: it looks like an identifier, which is no feature (--drop {name})"


def open_roles(table: Any, config: PeopleOptions, *, need_outcomes: bool) -> tuple[Rows, Roles]:
    """A table and the roles of its columns. Raises what `open_rows` and `roles_of` raise, and BadOption without a needed outcome."""
    rows = open_rows(table, options=OPTIONS)
    roles = roles_of(
        rows,
        arm=config.arm,
        outcomes=config.outcome,
        feature=config.feature,
        drop=config.drop,
        cluster=config.cluster,
        block=config.block,
        weight=config.weight,
    )
    if need_outcomes and not roles.outcomes:
        raise BadOption(
            "No outcome is named", allowed="one or more columns", value=rows.origin, mend="Give --outcome NAME:KIND"
        )
    return rows, roles


def open_people(table: Any, config: PeopleOptions, *, need_outcomes: bool = False) -> Opened:
    """Open, read and check. Raises what `open_rows`, `roles_of`, `read_people` and `arm_codes` raise, and BadOption for a design
    that does not name every arm."""
    rows, roles = open_roles(table, config, need_outcomes=need_outcomes)
    people = read_people(rows, roles, positive=config.positive, drop_missing_arm=config.drop_missing_arm)
    control = control_label(config.control or rows.options.get("control"), people.levels, roles)
    labels, codes = arm_codes(people.arm, control)
    return Opened(rows, people, tuple(labels), codes, design_shares(config.design, labels))


def open_judged(table: Any, config: PeopleOptions) -> Opened:
    """`open_people` for what needs outcomes and looks at features once, from the table: people are held in as few bytes as they can
    be, features not at all (`Opened.feature_batches`)."""
    rows, roles = open_roles(table, config, need_outcomes=True)
    people = read_people(
        rows, roles, positive=config.positive, drop_missing_arm=config.drop_missing_arm, features=False
    )
    control = control_label(config.control or rows.options.get("control"), people.levels, roles)
    labels, codes = codes_among(people.levels, people.places, control)
    assert people.outcomes is not None
    return Opened(
        rows,
        replace(people, outcomes=people.outcomes.compact()),
        tuple(labels),
        codes,
        design_shares(config.design, labels),
    )


def control_label(named: str | None, levels: np.ndarray, roles: Roles) -> Any:
    """The label of control as the table has it, of the distinct ones: 0 or False where none is named.

    Raises BadOption where none is named and nothing is 0; a name that is not there is left for `arm_codes` to refuse.
    """
    labels = np.unique(levels).tolist()
    if named is None:
        for label in labels:
            if label in (0, False) or label in ("0",):
                return label
        raise BadOption(
            "The label of control is not named",
            value=f"{roles.arm}: {', '.join(map(str, labels[:8]))}",
            allowed="one of these labels",
            mend="Give --control LABEL",
        )
    return next((label for label in labels if str(label) == named), named)


def design_shares(pairs: tuple[str, ...], labels: list[Any]) -> tuple[float, ...] | None:
    """Probabilities of --design in the order of the labels, None where it is not given. Raises BadOption."""
    if not pairs:
        return None
    stated = named_numbers(pairs, "--design")
    names = [str(label) for label in labels]
    for name in (*stated, *names):
        if name not in names or name not in stated:
            fault = "is no arm of the table" if name not in names else "has no share"
            raise BadOption(
                f"--design: {name} {fault}", value=", ".join(pairs), allowed=f"a share for each of {', '.join(names)}"
            )
    total = sum(stated.values())
    if any(not share > 0 for share in stated.values()):
        raise BadOption("--design: a share is not positive", value=", ".join(pairs), allowed="above 0")
    return tuple(stated[name] / total for name in names)


def judged_rows(people: Opened, config: Any, score: Scored | None, outcomes: Iterable[int] | None = None) -> Given:
    """The people as effects are measured on them: ids, the design's probabilities or arm shares, and what `score` says of responses.

    config: one with min_rows, min_events, seed. score: where it states responses to be used as nuisance, with the tier weights that
    make its parts; arm means serve for None, and for outcomes of which it says nothing. outcomes: their places, all by default.
    """
    places = range(len(people.outcomes.names)) if outcomes is None else outcomes
    return given(
        Coded(people.labels, people.codes),
        {people.outcomes.names[k]: people.outcomes.column(k) for k in places},
        propensity="share" if people.shares is None else np.array(people.shares),
        mu=score,
        cluster=people.people.cluster,
        tier_weights=None if score is None else score.own,
        min_rows=config.min_rows,
        min_events=config.min_events,
        seed=config.seed,
    )


def outcome_worths(pairs: tuple[str, ...], names: Iterable[str]) -> dict[str, float]:
    """Numbers of --value by outcome. Raises UnknownName for one that is none of these."""
    known, found = list(names), named_numbers(pairs, "--value")
    for name in found:
        if name not in known:
            raise UnknownName("--value: no such outcome", value=name, allowed=near(name, known, 8))
    return found


def assembled(
    X: Any, arm: Any, Y: Any = None, *, cluster: Any = None, block: Any = None, weight: Any = None
) -> tuple[pa.Table, dict[str, Any]]:
    """Columns that a verb was given one by one as one table, and the options that say which is what.

    Names of added columns end in enough underscores to be none of X's. Raises LengthMismatch and what `open_rows` raises.
    """
    features = open_rows(X).table()
    taken = set(features.column_names)
    options: dict[str, Any] = {"feature": tuple(features.column_names)}

    def add(name: str, values: Any) -> str:
        nonlocal features
        while name in taken:
            name += "_"
        taken.add(name)
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(_listed(values))
        features = features.append_column(name, column)
        return name

    outcomes = {} if Y is None else _outcome_columns(Y)
    lengths(X=features, arm=_listed(arm), cluster=cluster, block=block, weight=weight, **outcomes)
    options["arm"] = add("arm", arm)
    options["outcome"] = tuple(add(name, values) for name, values in outcomes.items())
    for name, values in (("cluster", cluster), ("block", block), ("weight", weight)):
        if values is not None:
            options[name] = add(name, values)
    return features, options


def _outcome_columns(Y: Any) -> Mapping[str, Any]:
    if isinstance(Y, Mapping):
        return {str(name): values for name, values in Y.items()}
    array = np.asarray(Y) if not hasattr(Y, "columns") and not isinstance(Y, pa.Table) else None
    if array is not None and array.ndim == 1:
        return {"y": array}
    table = open_rows(Y if array is None else array).table()
    names = table.column_names if array is None else [f"y{i}" for i in range(table.num_columns)]
    return dict(zip(names, table.columns, strict=True))


def _listed(values: Any) -> Any:
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray):
        return values.to_numpy()
    return values if isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray) else np.asarray(values)


def write_table(table: pa.Table, folder: Path) -> str:
    """A table in memory as a file that other processes read; returns its address."""
    from querist.sources.rows.write import write_rows

    path = folder / "people.parquet"
    write_rows(path, open_rows(table))
    return str(path)
