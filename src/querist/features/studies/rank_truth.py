"""The truth beside scores: what training reached, from tables of the user's or from runs of `features freeze`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.errors import BadOption, BadValues, CorruptFile, NonFinite, SourceNotFound, UnknownName, UnsupportedFormat
from querist.features.tables import TRUTH
from querist.files import fingerprint

__all__ = ["matched", "read_truth", "truth_fingerprints"]

_NEEDED = ("model", "layer", "accuracy")


def read_truth(paths: Sequence[str]) -> pl.DataFrame:
    """Columns target, seed, model, layer, accuracy, as the table `truth` has them without `used`.

    Raises SourceNotFound, UnsupportedFormat, CorruptFile, UnknownName for a missing column, NonFinite, BadValues for a row that
    is there twice.
    """
    frames = [_read(Path(path).expanduser()) for path in paths]
    joined = pl.concat(frames)
    key = ["target", "seed", "model", "layer"]
    twice = joined.filter(joined.select(key).is_duplicated())
    if twice.height:
        raise BadValues(
            "The truth has two accuracies of one training",
            value=", ".join(f"{name} {value}" for name, value in zip(key, twice.select(key).row(0), strict=True)),
            allowed="one row for each target, seed, model and layer",
        )
    return joined


def truth_fingerprints(paths: Sequence[str]) -> dict[str, str]:
    """Content hashes of the files that the truth is read from."""
    found = {}
    for path in paths:
        place = Path(path).expanduser()
        files = [place / "tables" / f"{name}.parquet" for name in ("cells", "blocks")] if place.is_dir() else [place]
        for file in files:
            found[f"truth: {path}" + (f"/{file.name}" if place.is_dir() else "")] = fingerprint(file)
    return found


def _read(path: Path) -> pl.DataFrame:
    if not path.exists():
        raise SourceNotFound("There is no truth here", value=str(path), allowed="a table, or a run of features freeze")
    try:
        frame = _of_run(path) if path.is_dir() else _of_table(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:150]
        raise CorruptFile(f"The truth cannot be read ({first})", value=str(path)) from None
    if not frame.height:
        raise BadValues("The truth has no row", value=str(path), allowed="one for each training")
    bad = frame.filter(~pl.col("accuracy").is_finite() | pl.col("accuracy").is_null())
    if bad.height:
        raise NonFinite(
            "The truth has accuracies that are no numbers",
            value=f"{bad.height} rows of {path}",
            mend="Leave out trainings that diverged",
        )
    return frame


def _of_table(path: Path) -> pl.DataFrame:
    ending = path.suffix.lower()
    if ending not in (".csv", ".tsv", ".parquet", ".pq"):
        raise UnsupportedFormat("The truth is no table", value=str(path), allowed=".csv, .tsv, .parquet, a run folder")
    separator = "\t" if ending == ".tsv" else ","
    frame = pl.read_csv(path, separator=separator) if ending in (".csv", ".tsv") else pl.read_parquet(path)
    for name in _NEEDED:
        if name not in frame.columns:
            raise UnknownName(
                "The truth lacks a column",
                value=name,
                allowed=f"model, layer, accuracy, and target and seed where there are several; it has {', '.join(frame.columns)}",
            )
    seed = next((name for name in ("seed", "repeat") if name in frame.columns), None)
    columns = {
        "target": pl.col("target") if "target" in frame.columns else pl.lit(""),
        "seed": pl.col(seed) if seed else pl.lit(0),
        **{name: pl.col(name) for name in _NEEDED},
    }
    return frame.select(value.cast(TRUTH.schema()[name]).alias(name) for name, value in columns.items())


def _of_run(path: Path) -> pl.DataFrame:
    from querist.runs.run import read_header

    header = read_header(path)
    if (header.get("room"), header.get("command"), header.get("status")) != ("features", "freeze", "done"):
        raise BadOption(
            "The truth is another run",
            value=f"{header.get('room')} {header.get('command')}, {header.get('status')}",
            allowed="a finished run of features freeze",
        )
    cells = pl.read_parquet(path / "tables" / "cells.parquet")
    blocks = pl.read_parquet(path / "tables" / "blocks.parquet").select("k", "layer")
    mine = cells.filter((pl.col("arm") == "pretrained") & (pl.col("k") > 0) & pl.col("accuracy").is_not_null())
    return mine.join(blocks, on="k").select(
        "target",
        pl.col("repeat").alias("seed"),
        pl.lit(header["config"]["model"]).alias("model"),
        "layer",
        "accuracy",
    )


def matched(
    truth: pl.DataFrame, target: str, candidates: set[tuple[str, str]]
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows with a column `used`, and why others are not: another target, an unknown candidate, one that lacks a cell.

    A truth of one target is this target's, whatever it is called there. Candidates stand in every cell or in none.
    """
    passed: list[dict[str, Any]] = []
    targets = truth["target"].unique(maintain_order=True).to_list()
    here = targets if len(targets) == 1 else [name for name in targets if _bare(name) == _bare(target)]
    passed += [
        {"model": "", "what": f"truth of {t}", "reason": "it is of another target"} for t in targets if t not in here
    ]
    known = [(row["model"], row["layer"]) in candidates for row in truth.select("model", "layer").to_dicts()]
    used = truth.with_columns(used=pl.Series(known) & pl.col("target").is_in(here))
    mine = used.filter("used")
    cells = mine.select("target", "seed").unique().height
    whole = mine.group_by("model", "layer").len().filter(pl.col("len") == cells).select("model", "layer")
    short = mine.select("model", "layer").unique(maintain_order=True).join(whole, on=["model", "layer"], how="anti")
    for row in short.to_dicts():
        reason = f"its truth is not there for all of {cells} cells (target, seed)"
        passed.append({"model": row["model"], "what": f"truth of {row['layer']}", "reason": reason})
    for row in truth.filter(~pl.Series(known)).select("model", "layer").unique(maintain_order=True).to_dicts():
        reason = "no such network and layer is ranked here"
        passed.append({"model": row["model"], "what": f"truth of {row['layer']}", "reason": reason})
    whole = whole.with_columns(whole=pl.lit(True))
    joined = used.join(whole, on=["model", "layer"], how="left", maintain_order="left")
    return joined.with_columns(used=pl.col("used") & pl.col("whole").fill_null(False)).drop("whole"), passed


def _bare(target: str) -> str:
    return target.partition("#")[0]
