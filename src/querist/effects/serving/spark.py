"""Scoring by Spark: the function that `DataFrame.mapInPandas` or `mapInArrow` takes, from a model folder that workers can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from querist.effects.serving.scorer import Scorer

__all__ = ["arrow_mapper", "pandas_mapper", "schema_of"]


def arrow_mapper(folder: Path | str, *, columns: Sequence[str] = (), ids: Sequence[str] = ()) -> Callable[[Any], Any]:
    """For `df.mapInArrow(arrow_mapper(folder), schema_of(folder, df.schema))`. The model is read once per task."""
    name, wanted, copied = str(folder), tuple(columns), tuple(ids)

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scorer = Scorer(name, wanted, copied)
        for batch in batches:
            yield from scorer(batch).to_batches()

    return scored


def pandas_mapper(folder: Path | str, *, columns: Sequence[str] = (), ids: Sequence[str] = ()) -> Callable[[Any], Any]:
    """For `df.mapInPandas(pandas_mapper(folder), schema_of(folder, df.schema))`."""
    mapped = arrow_mapper(folder, columns=columns, ids=ids)

    def scored(frames: Iterator[Any]) -> Iterator[Any]:
        batches = (pa.RecordBatch.from_pandas(frame, preserve_index=False) for frame in frames)
        for batch in mapped(batches):
            yield batch.to_pandas()

    return scored


def schema_of(folder: Path | str, given: Any = None, *, columns: Sequence[str] = (), ids: Sequence[str] = ()) -> str:
    """The result's schema as Spark spells it; `given`: the schema of the frame that is scored, from which ids take their types."""
    scorer = Scorer(folder, columns, ids)
    types = {} if given is None else {entry.name: entry.dataType.simpleString() for entry in given}
    parts = [f"`{name}` {types.get(name, 'string')}" for name in scorer.ids]
    return ", ".join([*parts, *(f"`{name}` float" for name in scorer.names)])
