"""The Criteo uplift data: a user's file checked before it is believed, and a table of its size for tests of speed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from querist.errors import BadOption, CorruptFile, SourceNotFound
from querist.sources.datasets.experiments import CRITEO_SHA256
from querist.sources.rows.separated import CsvRows
from querist.sources.rows.table import BATCH_ROWS, Rows
from querist.sources.rows.values import numbers
from querist.sources.rows.write import RowsWriter
from querist.statistics import stream

__all__ = ["CRITEO", "FEATURES", "OUTCOMES", "Published", "read_criteo", "write_criteo_like"]

FEATURES = tuple(f"f{k}" for k in range(12))
OUTCOMES = ("visit", "conversion")

_TYPES = {
    **dict.fromkeys(FEATURES, pa.float64()),
    **dict.fromkeys(("treatment", "conversion", "visit", "exposure"), pa.int8()),
}


@dataclass(frozen=True, slots=True)
class Published:
    """What is published of a file: the checksum of the unpacked CSV, its rows, and counts by arm (0, 1) and column."""

    sha256: str
    rows: int
    cells: Mapping[int, Mapping[str, int]]


CRITEO = Published(
    CRITEO_SHA256,
    13_979_592,
    {
        0: {"rows": 2_096_937, "visit": 80_105, "conversion": 4_063, "exposure": 0},
        1: {"rows": 11_882_655, "visit": 576_824, "conversion": 36_711, "exposure": 428_212},
    },
)
"""Criteo uplift v2.1. Source: Diemert et al. (2018), A large scale benchmark for uplift modeling."""

SYNTHETIC = "synthetic, drawn from the published cell counts of Criteo uplift v2.1: for tests of speed only"


def read_criteo(path: Path | str, *, exposure: bool = False, published: Published = CRITEO) -> Rows:
    """The file `criteo-uplift-v2.1.csv` (also `.gz`) as Rows, once its checksum, its rows and its cells agree with those published.

    Arm: treatment (control 0); outcomes: visit, conversion; features f0 … f11. exposure: whether that column is handed on; it is
    measured after assignment, never a feature and not a randomised level, so by default it is not there.

    Raises SourceNotFound, CorruptFile with what differs, UnknownName for other columns.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise SourceNotFound(
            "There is no file here", value=str(path), mend="Download criteo-uplift-v2.1 and name its path"
        )
    found = _checksum(path)
    if found != published.sha256:
        raise _differs("checksum", found, published.sha256)
    rows = CsvRows(str(path), path, _TYPES)
    counted: dict[int, dict[str, int]] = {
        arm: dict.fromkeys(("rows", "visit", "conversion", "exposure"), 0) for arm in (0, 1)
    }
    total = 0
    for batch in rows.batches(["treatment", "visit", "conversion", "exposure"]):
        arm = numbers(batch.column("treatment"), "treatment", total)
        if not ((arm == 0) | (arm == 1)).all():
            raise CorruptFile("The column treatment holds more than 0 and 1", value=str(path))
        for code, cells in counted.items():
            inside = arm == code
            cells["rows"] += int(inside.sum())
            for name in ("visit", "conversion", "exposure"):
                cells[name] += int(np.nansum(numbers(batch.column(name), name, total)[inside]))
        total += batch.num_rows
    if total != published.rows:
        raise _differs("number of rows", f"{total:,}", f"{published.rows:,}")
    for code, cells in published.cells.items():
        for name, count in cells.items():
            if counted[code][name] != count:
                raise _differs(f"count of {name} in arm {code}", f"{counted[code][name]:,}", f"{count:,}")
    rows._n = total
    return rows if exposure else rows.select([name for name in rows.names if name != "exposure"])


def _differs(what: str, found: str, expected: str) -> CorruptFile:
    return CorruptFile(
        f"The file is not the published one: its {what} differs",
        value=found,
        allowed=expected,
        mend="Download criteo-uplift-v2.1 again; the file of version 2.1, unpacked or as .gz, with nothing changed",
    )


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with _unpacked(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (OSError, EOFError) as error:
        raise CorruptFile(f"The file cannot be read ({error})", value=str(path)) from None
    return digest.hexdigest()


def _unpacked(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.name.lower().endswith(".gz") else path.open("rb")


def write_criteo_like(
    path: Path | str,
    n: int = CRITEO.rows,
    seed: int = 0,
    *,
    group_rows: int = BATCH_ROWS,
    published: Published = CRITEO,
) -> int:
    """Write a synthetic table of n rows with Criteo's columns as Parquet, group after group; returns n. For tests of speed only.

    Each row's arm, visit, conversion and exposure have the published frequencies (a conversion is a visit; exposure is drawn
    beside them, its true dependence being unknown); f0 … f11 are independent normal numbers. No effect depends on them, so nothing
    may be concluded from what a model finds; the file says so in its metadata, and `Rows.notes` of it.

    The same seed gives the same rows whatever `group_rows`. Raises BadOption for n below 1.
    """
    if n < 1:
        raise BadOption("A table needs rows", value=n, allowed="1 or more")
    schema = pa.schema(
        [
            (name, pa.float32() if name in FEATURES else pa.int8())
            for name in (*FEATURES, *list(_TYPES)[len(FEATURES) :])
        ]
    )
    with RowsWriter(path, schema, group_rows=group_rows, metadata={"querist.note": SYNTHETIC}) as out:
        for columns in _blocks(n, seed, published):
            out.write(pa.record_batch([columns[name] for name in schema.names], schema=schema))
    return n


def _blocks(n: int, seed: int, published: Published) -> Iterator[dict[str, Any]]:
    treated, control = published.cells[1], published.cells[0]
    share = treated["rows"] / published.rows
    rates = {
        name: np.array([cells[name] / cells["rows"] for cells in (control, treated)])
        for name in ("visit", "conversion", "exposure")
    }
    for block, at in enumerate(range(0, n, BATCH_ROWS)):
        rng = stream(seed, "criteo-like", block)
        arm = (rng.random(BATCH_ROWS) < share).astype(np.int8)
        u, v = rng.random((2, BATCH_ROWS))
        columns: dict[str, Any] = {
            "treatment": arm,
            "conversion": (u < rates["conversion"][arm]).astype(np.int8),
            "visit": (u < rates["visit"][arm]).astype(np.int8),
            "exposure": (v < rates["exposure"][arm]).astype(np.int8),
        }
        for name in FEATURES:
            columns[name] = rng.standard_normal(BATCH_ROWS, dtype=np.float32)
        size = min(BATCH_ROWS, n - at)
        yield {name: pa.array(values[:size]) for name, values in columns.items()}
