"""A folder of pictures with a table of their concepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.concepts.tabular import read_table
from querist.errors import BadValues, CorruptFile, ShapeMismatch, SourceNotFound, UnknownName, near

__all__ = ["IMAGE", "read_folder"]

IMAGE = "image"
TABLES = (".csv", ".csv.gz", ".parquet")


def read_folder(folder: Path | str, **options: Any) -> ConceptData:
    """One table (CSV or Parquet) whose column `image` names a picture of each row, relative to the folder; uint8 [n 3 h w].

    Grey pictures are repeated to three colours; all must have one size. options: those of `read_table`. Raises SourceNotFound
    for a folder without exactly one table and for a picture that is not there, CorruptFile, ShapeMismatch, UnknownName, BadValues.
    """
    import polars as pl
    from PIL import Image, UnidentifiedImageError

    folder = Path(folder)
    found = sorted(path for path in folder.iterdir() if path.name.lower().endswith(TABLES)) if folder.is_dir() else []
    if len(found) != 1:
        raise SourceNotFound(
            "A folder of concepts holds one table",
            value=", ".join(path.name for path in found) or str(folder),
            allowed=f"one file of {', '.join(TABLES)} beside the pictures",
        )
    table = found[0]
    frame = pl.read_parquet(table) if table.suffix == ".parquet" else pl.read_csv(table, infer_schema_length=None)
    if IMAGE not in frame.columns:
        raise UnknownName("The table names no pictures", value=IMAGE, allowed=near(IMAGE, frame.columns, 12))
    names = frame[IMAGE]
    if names.null_count():
        raise BadValues("Rows have no picture", value=f"{names.null_count()} rows", mend="Leave them out")
    pictures: np.ndarray | None = None
    for row, name in enumerate(names.cast(str).to_list()):
        path = folder / name
        if not path.is_file():
            raise SourceNotFound("There is no such picture", value=str(path), mend=f"Check the column {IMAGE}")
        try:
            with Image.open(path) as image:
                picture = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        except (UnidentifiedImageError, OSError) as error:
            raise CorruptFile("A picture cannot be read", value=str(path), mend="Replace it") from error
        if pictures is None:
            pictures = np.empty((len(names), *picture.shape), dtype=np.uint8)
        if picture.shape != pictures.shape[1:]:
            raise ShapeMismatch(
                "Pictures must have one size",
                value=f"{name}: {picture.shape[1:]}",
                allowed=str(pictures.shape[2:]),
                mend="Scale them beforehand",
            )
        pictures[row] = picture
    return read_table(frame.drop(IMAGE), **options).changed(images=pictures)
