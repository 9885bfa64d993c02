"""Scoring by Ray Data: a Parquet folder or a Dataset through a pool of scorers, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from querist.effects.serving.folder import model_folder
from querist.effects.serving.scorer import Scorer
from querist.errors import BadOption, MissingExtra, UnknownName, near

__all__ = ["score_dataset"]


def score_dataset(
    model: Path | str,
    source: Any,
    out: Path | str | None = None,
    *,
    columns: Sequence[str] = (),
    ids: Sequence[str] = (),
    batch_rows: int = 65_536,
    workers: int | tuple[int, int] = 1,
    cpus: float = 1.0,
) -> Any:
    """Score a table with Ray Data; returns a Dataset of scores, which is computed as it is taken, or the `out` folder's path.

    Parameters
    ----------
    model: a model folder that every node sees, or the run that fitted it. Each worker reads it once.
    source: a `ray.data.Dataset`, or the address of a Parquet file or folder.
    out: folder that Parquet files of scores are written into; a score belongs to its row by `ids` alone, as Ray orders no files.
    columns, ids: as in `Scorer`. batch_rows: rows that are scored at once.
    workers: scorers of the pool, or the least and the most; cpus: cores of each.

    Scores are those of `querist.effects.score`, whatever the blocks. Ray is joined where it runs, as `ray.init` is told to elsewhere.
    Raises MissingExtra without ray[data], UnknownName for columns that the table lacks, and what `Scorer` raises.
    """
    try:
        import ray.data
    except ImportError:
        raise MissingExtra("Ray Data is not installed", value="ray.data", mend="pip install 'querist[ray]'") from None
    if batch_rows < 1:
        raise BadOption("A batch has rows", value=batch_rows, allowed="1 or more")
    scorer = Scorer(model, columns, ids)  # what is wrong is told here, not by a worker
    dataset = source if isinstance(source, ray.data.Dataset) else ray.data.read_parquet(str(source))
    there = dataset.columns() or []
    wanted = list(dict.fromkeys([*scorer.ids, *scorer.model.columns_.names]))
    for name in wanted:
        if name not in there:
            raise UnknownName("The table has no such column", value=name, allowed=near(name, there, 12))
    pool: dict[str, Any] = (
        {"size": workers} if isinstance(workers, int) else {"min_size": workers[0], "max_size": workers[1]}
    )
    scored = dataset.select_columns(wanted).map_batches(
        Scorer,
        fn_constructor_args=(str(model_folder(model).resolve()), tuple(columns), tuple(ids)),
        batch_format="pyarrow",
        batch_size=batch_rows,
        compute=ray.data.ActorPoolStrategy(**pool),
        num_cpus=cpus,
    )
    if out is None:
        return scored
    scored.write_parquet(str(out))
    return Path(out)
