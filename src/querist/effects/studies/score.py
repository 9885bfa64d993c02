"""Scoring of a table: row groups by ranges, each range one file of scores; killed at any instant, it goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from querist.effects.configs import ScoreConfig
from querist.effects.serving.scorer import Scorer, model_hash
from querist.effects.tables.serve import SCORE_TABLES
from querist.errors import BadOption, UnknownName, near
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.results.layout import Layout, Section
from querist.runs.study import Answer, Study, Unit
from querist.sources.rows import Rows, RowsWriter, open_rows

__all__ = ["ScoreStudy", "ScoreSummary", "score"]

PER_ROW = 1.5e-5
"""Seconds of one core for a row of a small network; only to decide whether a pool is worth starting."""


class ScoreStudy(Study[ScoreConfig]):
    """`effects score`. `held` is a table in memory, in place of the address.

    A unit writes its file into the output folder itself, under a temporary name and then renamed: scores of millions are not
    copied twice. The run folder holds counts alone.
    """

    room = "effects"
    command = "score"
    tables = SCORE_TABLES
    questions = ()

    def __init__(self, held: Any = None):
        self.held = held
        self._rows: Rows | None = None
        self._scorer: Scorer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"held": self.held, "_rows": None, "_scorer": None}

    def rows(self, config: ScoreConfig) -> Rows:
        """The table, opened once per process."""
        if self._rows is None:
            self._rows = open_rows(config.table if self.held is None else self.held)
        return self._rows

    def scorer(self, config: ScoreConfig) -> Scorer:
        """The model, read once per process."""
        if self._scorer is None:
            self._scorer = Scorer(config.model, config.columns, config.id)
        return self._scorer

    def check(self, config: ScoreConfig) -> None:
        """Model, table, columns of both, and an output folder that holds nothing else."""
        for name, value in (("model", config.model), ("output folder", config.output)):
            if not value:
                raise BadOption(f"The {name} is not named", value=value, allowed="a folder", mend="Name it")
        scorer, rows = self.scorer(config), self.rows(config)
        for name in scorer.ids:
            if name not in rows.names:
                raise UnknownName("The table has no such column", value=name, allowed=near(name, rows.names, 12))
        scorer.model.columns_.encode(rows.table([]).slice(0, 0) if not rows.names else next(rows.batches(rows=1)))
        _refuse_foreign(Path(config.output))

    def inputs(self, config: ScoreConfig) -> Mapping[str, str]:
        """Content of model and table."""
        return {"model": model_hash(config.model), "table": self.rows(config).fingerprint}

    def argv(self, config: ScoreConfig) -> Sequence[str]:
        """The command line of this scoring."""
        return command_words("effects score", config, positional=("model", "table", "output"))

    def portable(self, config: ScoreConfig, folder: Path) -> ScoreStudy:
        """A table in memory is written once."""
        from querist.effects.studies.people import write_table

        return self if self.held is None else ScoreStudy(write_table(self.rows(config).table(), folder))

    def units(self, config: ScoreConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """Ranges of row groups of at most so many rows; a table without groups, such as CSV, is one."""
        rows = self.rows(config)
        if not rows.has_groups:
            return [Unit("00000", {"first": None, "last": None}, 1.0)]
        found, first, count = [], 0, 0
        sizes = list(rows.groups)
        for group, size in enumerate(sizes):
            if count and count + size > config.file_rows:
                found.append((first, group - 1, count))
                first, count = group, 0
            count += size
        found.append((first, len(sizes) - 1, count))
        return [
            Unit(f"{number:05d}", {"first": a, "last": b}, size * PER_ROW) for number, (a, b, size) in enumerate(found)
        ]

    def work(self, config: ScoreConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Score one range into its file."""
        begun = time.perf_counter()
        scorer, path = self.scorer(config), Path(config.output) / f"part-{unit.key}.parquet"
        tally = scorer.fresh()
        path.parent.mkdir(parents=True, exist_ok=True)
        with RowsWriter(path, metadata=scorer.metadata) as out:
            for batch in self._batches(config, unit):
                out.write(scorer(batch))
        row = {
            "file": path.name,
            "rows": tally.rows,
            "bytes": path.stat().st_size,
            "seconds": time.perf_counter() - begun,
        }
        row["groups"] = [] if unit.payload["first"] is None else [unit.payload["first"], unit.payload["last"]]
        met = [
            {
                "file": path.name,
                "column": name,
                "missing": tally.missing.get(name, 0),
                "unknown": tally.unknown.get(name, 0),
            }
            for name in sorted({*tally.missing, *tally.unknown})
        ]
        return {"files": [row], "cells_met": met}

    def _batches(self, config: ScoreConfig, unit: Unit) -> Iterator[Any]:
        rows, scorer = self.rows(config), self.scorer(config)
        wanted = [*scorer.ids, *(name for name in scorer.model.columns_.names if name not in scorer.ids)]
        if unit.payload["first"] is None:
            yield from rows.batches(wanted, rows=config.batch_rows)
            return
        for group in range(unit.payload["first"], unit.payload["last"] + 1):
            # Read piecemeal: a group that is read at once is held several times over, as it lies in the file and as it is decoded.
            left, pieces = rows.groups[group], rows.group_pieces(group, wanted)
            while left:
                size = min(left, config.batch_rows)
                yield pieces.next(size)
                left -= size
            pa.default_memory_pool().release_unused()  # pages that Arrow would keep for later

    def finish(self, config: ScoreConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Counts over files. Files that an earlier scoring of other ranges left in the folder go."""
        scorer, rows = self.scorer(config), self.rows(config)
        files, met = tables["files"], tables["cells_met"]
        for path in Path(config.output).glob("part-*.parquet"):
            if path.name not in files["file"]:
                path.unlink()
        total = met.group_by("column").agg(pl.col("missing").sum(), pl.col("unknown").sum()).sort("column").to_dicts()
        missing = {row["column"]: row["missing"] for row in total if row["missing"]}
        unknown = {row["column"]: row["unknown"] for row in total if row["unknown"]}
        used = {*scorer.model.columns_.names, *scorer.ids}
        ignored = [name for name in rows.names if name not in used]
        summary: dict[str, Any] = {
            "rows": int(files["rows"].sum()),
            "files": files["file"].to_list(),
            "output": config.output,
            "columns": [*scorer.ids, *scorer.names],
            "columns_ignored": ignored,
            "model_hash": model_hash(config.model),
            "unseen_categories": unknown,
            "missing_filled": missing,
        }
        warnings = [*rows.notes]
        warnings += [f"{name}: {count} cells of a level that the model has not seen" for name, count in unknown.items()]
        lead = f"{summary['rows']} people in {files.height} files of {config.output}, {len(scorer.names)} scores each."
        words = (
            f"Columns of the table that the model does not use: {', '.join(ignored) or 'none'}. Missing cells are a value of their own to "
            "the model; levels it has not seen are taken as rare ones.",
        )
        section = Section("Files", words=words, tables=("files", "cells_met"))
        return Answer(tables, (), (), Layout("Scores", lead, (section,), SCORE_TABLES, ()), summary, warnings)


@dataclass(frozen=True)
class ScoreSummary:
    """What scoring ended with: people, files in `output`, columns written and ignored, cells that were unseen or missing."""

    rows: int
    files: tuple[str, ...]
    output: str
    columns: tuple[str, ...]
    columns_ignored: tuple[str, ...]
    model_hash: str
    unseen_categories: Mapping[str, int]
    missing_filled: Mapping[str, int]


def score(
    model: Any,
    source: Any,
    out: Any,
    *,
    engine: str = "serial",
    columns: Sequence[str] | None = None,
    id_columns: Sequence[str] = (),
    config: ScoreConfig | None = None,
    run: Any = None,
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> ScoreSummary:
    """Score a table into a folder of Parquet files, row group by row group, with memory that does not grow with rows.

    model: a fitted estimator, a model folder or the run of a fit. source: a table in memory or an address. out: the folder of scores.
    run: a run folder, with which a killed scoring goes on (`resume`); engine: serial, local, ray. The same files come from any engine,
    any number of workers and any batch size. Raises BadInput for a table that lacks columns of the model, a folder that holds other
    files, and what `open_rows` and `load` raise.
    """
    import tempfile

    from querist.effects.serving import save

    held = None if isinstance(source, str | Path) else source
    with tempfile.TemporaryDirectory() as place:
        if not isinstance(model, str | Path):
            save(model, Path(place) / "model")
            model = Path(place) / "model"
        named = {"model": str(model), "table": "table" if held is not None else str(source), "output": str(out)}
        settings = ScoreConfig.build(config, **named, id=tuple(id_columns), columns=tuple(columns or ()), **fields)
        study = ScoreStudy(held)
        told = answered(Result, study, settings, out=run, engine=engine, resume=resume, progress=progress).summary
    names = [field.name for field in dataclasses.fields(ScoreSummary)]
    found: dict[str, Any] = {name: tuple(told[name]) if isinstance(told[name], list) else told[name] for name in names}
    return ScoreSummary(**found)


def _refuse_foreign(output: Path) -> None:
    """Raise BadOption for a path that is a file, or a folder with anything but files of scores."""
    if output.exists() and not output.is_dir():
        raise BadOption("The output folder is a file", value=str(output), mend="Name a new folder")
    if not output.is_dir():
        return
    for path in sorted(output.iterdir()):
        if path.name.startswith("."):
            continue
        if not (path.name.startswith("part-") and path.suffix == ".parquet" and _is_scores(path)):
            raise BadOption(
                "The output folder holds something else",
                value=path.name,
                allowed="a new folder, or one of scores",
                mend="Name another",
            )


def _is_scores(path: Path) -> bool:
    from querist.errors import QueristError

    try:
        return str(open_rows(path).about.get("form", "")).startswith("querist.effects.scores")
    except QueristError:
        return False
