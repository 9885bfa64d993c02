"""Concept tables as files hold them: CSV, Parquet with its column roles, and numpy archives."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.errors import BadOption, BadValues, SourceNotFound, UnknownName, UnsafeFile, UnsupportedFormat, near
from querist.files import replacing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["archive", "class_matrix", "read_npz", "read_table", "write_parquet"]

ROLES, STAMP = b"querist.roles", b"querist.stamp"


def read_table(
    source: Any,
    *,
    label: str | None = None,
    concepts: Sequence[str] | None = None,
    id: str | None = None,
    split: str | None = None,
    missing: Sequence[str] | str = (),
    one_hot: bool = False,
    space: Any = "hard",
) -> ConceptData:
    """A table with a label column and a column per concept: a polars or Arrow table, or the path of a CSV or Parquet file.

    concepts: names or patterns (all other columns without them). missing: texts that mean unknown, beside empty cells.
    one_hot: a column that is not 0/1 becomes one concept per value, "column=value", all unknown where the cell is; the
    concepts of a column share a group. A Parquet file that querist wrote knows its columns' roles and needs no options.

    Raises SourceNotFound, UnsupportedFormat, UnknownName for a column, BadValues for text without one_hot, and what
    `ConceptData` raises.
    """
    frame, roles = _frame(source)
    if roles and label is None:
        label, concepts, id, split = roles["label"], roles["concepts"], roles["id"], roles["split"]
        space = roles["space"]
    if label is None:
        raise BadOption(
            "No label column is named", value=None, allowed=near("label", frame.columns, 12), mend="Give label="
        )
    for name in (label, id, split):
        if name is not None and name not in frame.columns:
            raise UnknownName("The table has no such column", value=name, allowed=near(name, frame.columns, 12))
    chosen = _chosen(frame.columns, concepts, {label, id, split})
    unknown = [missing] if isinstance(missing, str) else list(missing)
    columns: list[np.ndarray] = []
    names: list[str] = []
    groups: list[str] = []
    text: list[str] = []
    for name in chosen:
        values = _numbers(frame[name], unknown)
        if values is None and not one_hot:
            text.append(name)
        elif values is None or (one_hot and not _is_binary(values)):
            for level, column in _levels(frame[name], unknown):
                columns, names, groups = [*columns, column], [*names, f"{name}={level}"], [*groups, name]
        else:
            columns, names, groups = [*columns, values], [*names, name], [*groups, name]
    if text:
        raise BadValues(
            "Concepts are text", value=", ".join(text[:8]), mend="Pass one_hot=True, or leave these columns out"
        )
    if roles:
        groups = roles["groups"] or groups
    labels = frame[label]
    if labels.null_count():
        raise BadValues("Rows have no label", value=f"{labels.null_count()} rows", mend="Leave them out")
    return ConceptData(
        np.column_stack(columns),
        labels.to_numpy() if labels.dtype.is_numeric() else np.array(labels.cast(str).to_list()),
        concept_names=names,
        class_names=roles["classes"] if roles and not labels.dtype.is_numeric() else None,
        groups=groups if len(set(groups)) < len(groups) else None,
        split=None if split is None else frame[split].cast(str).to_list(),
        ids=None if id is None else frame[id].cast(str).to_list(),
        space=space,
    )


def read_npz(
    path: Path | str,
    *,
    concepts: str = "concepts",
    labels: str = "labels",
    split: str | None = None,
    space: Any = "hard",
    **fields: Any,
) -> ConceptData:
    """Arrays of a numpy archive, by key. A split of 0 and 1 (or False and True) becomes "test" and "train".

    Raises SourceNotFound, UnsafeFile where the archive would have to be unpickled, UnknownName for a key.
    """
    arrays = archive(path)
    for key in (concepts, labels, *([split] if split else [])):
        if key not in arrays:
            raise UnknownName("The archive has no such array", value=key, allowed=", ".join(sorted(arrays)))
    parts: Any = None
    if split:
        parts = arrays[split]()
        if parts.dtype.kind in "biu":
            parts = np.where(parts.astype(bool), "train", "test")
    return ConceptData(arrays[concepts](), arrays[labels](), split=parts, space=space, **fields)


def class_matrix(path: Path | str, *, key: str = "percent", binary: bool = True) -> np.ndarray:
    """Concepts of whole classes [L k] from an archive of percentages: 1 where 50 or more (binary), else shares 0 … 1."""
    arrays = archive(path)
    if key not in arrays:
        raise UnknownName("The archive has no such array", value=key, allowed=", ".join(sorted(arrays)))
    percent = arrays[key]()
    return (percent >= 50).astype(np.float32) if binary else (percent / 100).astype(np.float32)


def write_parquet(data: ConceptData, path: Path | str, stamp: str | None = None) -> None:
    """The table as one Parquet file, its column roles and the stamp in the metadata; images are not in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    taken = set(data.concept_names)
    label, id_, split = (_free(name, taken) for name in ("label", "id", "split"))
    columns: dict[str, Any] = {name: data.concepts[:, k] for k, name in enumerate(data.concept_names)}
    columns[label] = pa.array(data.labels.tolist())
    if data.ids is not None:
        columns[id_] = pa.array(data.ids.tolist())
    if data.split is not None:
        columns[split] = pa.array(data.split.tolist())
    roles = {
        "label": label,
        "concepts": list(data.concept_names),
        "id": id_ if data.ids is not None else None,
        "split": split if data.split is not None else None,
        "space": data.space,
        "groups": data.groups,
        "classes": list(data.classes),
    }
    metadata = {ROLES: json.dumps(roles).encode()} | ({STAMP: stamp.encode()} if stamp else {})
    table = pa.table(columns).replace_schema_metadata(metadata)
    with replacing(path) as kept:
        pq.write_table(table, kept)


def _frame(source: Any) -> tuple[pl.DataFrame, dict[str, Any] | None]:
    import polars as pl

    if isinstance(source, pl.DataFrame):
        return source, None
    if not isinstance(source, str | Path):
        return pl.DataFrame(source), None
    path = Path(source)
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path), mend="Check the path")
    ending = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if ending == "csv":
        return pl.read_csv(path, infer_schema_length=None), None
    if ending == "parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        roles = (table.schema.metadata or {}).get(ROLES)
        return pl.DataFrame(table), json.loads(roles) if roles else None
    raise UnsupportedFormat("No table is read from such a file", value=str(path), allowed=".csv, .csv.gz, .parquet")


def archive(path: Path | str) -> dict[str, Callable[[], np.ndarray]]:
    """The arrays of an archive by key, each read when it is called."""
    if not Path(path).is_file():
        raise SourceNotFound("There is no file here", value=str(path), mend="Check the path")
    with np.load(path, allow_pickle=False) as archive:
        keys = list(archive.files)

    def reader(key: str) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            try:
                with np.load(path, allow_pickle=False) as archive:
                    return archive[key]
            except ValueError as error:
                raise UnsafeFile(
                    "The array could only be unpickled", value=f"{path}: {key}", allowed="plain arrays"
                ) from error

        return read

    return {key: reader(key) for key in keys}


def _chosen(columns: list[str], patterns: Sequence[str] | None, roles: set[str | None]) -> list[str]:
    free = [name for name in columns if name not in roles]
    if patterns is None:
        return free
    for pattern in patterns:
        if not any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in free):
            raise UnknownName("No column matches", value=pattern, allowed=near(pattern, free, 12))
    return [name for name in free if any(name == p or fnmatch.fnmatchcase(name, p) for p in patterns)]


def _numbers(column: pl.Series, missing: list[str]) -> np.ndarray | None:
    """The column as numbers with NaN where unknown; None where it holds text."""
    import polars as pl

    if column.dtype == pl.String:
        column = column.set(column.is_in(missing), None) if missing else column
        try:
            column = column.cast(pl.Float64, strict=True)
        except pl.exceptions.InvalidOperationError:
            return None
    elif column.dtype == pl.Boolean:
        column = column.cast(pl.Float64)
    elif not column.dtype.is_numeric():
        return None
    values = column.cast(pl.Float64).to_numpy().copy()
    for text in missing:
        if text.lstrip("-").replace(".", "", 1).isdigit():
            values[values == float(text)] = np.nan
    return values


def _is_binary(values: np.ndarray) -> bool:
    known = values[~np.isnan(values)]
    return bool(((known == 0) | (known == 1)).all())


def _levels(column: pl.Series, missing: list[str]) -> list[tuple[str, np.ndarray]]:
    texts = [None if v is None or str(v) in missing else str(v) for v in column.to_list()]
    known = np.array([text is not None for text in texts])
    plain = np.array([text or "" for text in texts])
    levels = sorted({text for text in texts if text is not None}, key=_natural)
    return [(level, np.where(known, plain == level, np.nan)) for level in levels]


def _natural(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
