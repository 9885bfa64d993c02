"""Criteo: a file is believed only when everything published of it agrees; a table of its size says that it is synthetic."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from querist.effects.criteo import CRITEO, FEATURES, Published, read_criteo, write_criteo_like
from querist.errors import BadOption, CorruptFile, SourceNotFound, UnknownName
from querist.sources.rows import hash_rows, open_rows


@pytest.fixture
def small(tmp_path):
    """A file with Criteo's columns, and what is published of it."""
    n = 400
    rng = np.random.default_rng(0)
    arm = (rng.random(n) < 0.8).astype(int)
    visit = (rng.random(n) < 0.3).astype(int)
    frame = pl.DataFrame(
        {name: np.round(rng.normal(size=n), 6) for name in FEATURES}
        | {
            "treatment": arm,
            "conversion": visit * (rng.random(n) < 0.3),
            "visit": visit,
            "exposure": arm * (rng.random(n) < 0.2),
        }
    )
    frame = frame.with_columns(pl.col("conversion", "exposure").cast(pl.Int64))
    path = tmp_path / "criteo-uplift-v2.1.csv"
    frame.write_csv(path)
    cells = {
        code: {"rows": len(part := frame.filter(pl.col("treatment") == code))}
        | {name: int(part[name].sum()) for name in ("visit", "conversion", "exposure")}
        for code in (0, 1)
    }
    return path, frame, Published(hashlib.sha256(path.read_bytes()).hexdigest(), n, cells)


def test_the_published_file_is_read(small):
    path, frame, published = small
    packed = path.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        rows = read_criteo(file, published=published)
        assert rows.n == 400
        assert rows.names == [*FEATURES, "treatment", "conversion", "visit"]
        assert np.array_equal(hash_rows(rows.table()), hash_rows(frame.drop("exposure").to_arrow()))
        assert "exposure" in read_criteo(file, exposure=True, published=published).names


def test_any_other_file_is_refused(small, tmp_path):
    path, frame, published = small
    with pytest.raises(CorruptFile, match="checksum"):
        read_criteo(path)
    with pytest.raises(CorruptFile, match="number of rows"):
        read_criteo(path, published=replace(published, rows=401))
    cells = {**published.cells, 1: {**published.cells[1], "visit": 3}}
    with pytest.raises(CorruptFile, match="count of visit in arm 1"):
        read_criteo(path, published=replace(published, cells=cells))
    other = tmp_path / "other.csv"
    frame.rename({"f3": "g3"}).write_csv(other)
    with pytest.raises(UnknownName, match="f3"):
        read_criteo(other, published=replace(published, sha256=hashlib.sha256(other.read_bytes()).hexdigest()))
    frame.with_columns(treatment=pl.lit(2)).write_csv(other)
    with pytest.raises(CorruptFile, match="more than 0 and 1"):
        read_criteo(other, published=replace(published, sha256=hashlib.sha256(other.read_bytes()).hexdigest()))
    with pytest.raises(SourceNotFound, match="criteo-uplift"):
        read_criteo(tmp_path / "none.csv")


def test_the_published_numbers_agree_with_each_other():
    assert sum(cells["rows"] for cells in CRITEO.cells.values()) == CRITEO.rows
    assert CRITEO.cells[0]["exposure"] == 0


def test_a_table_of_its_kind_has_its_frequencies_and_says_what_it_is(tmp_path):
    n = 300_000
    assert write_criteo_like(tmp_path / "a.parquet", n, seed=1, group_rows=100_000) == n
    rows = open_rows(tmp_path / "a.parquet")
    assert rows.groups == (100_000, 100_000, 100_000)
    assert "synthetic" in rows.notes[0]
    frame = pl.from_arrow(rows.table())
    assert isinstance(frame, pl.DataFrame)
    assert (frame["conversion"] <= frame["visit"]).all()
    for code, cells in CRITEO.cells.items():
        part = frame.filter(pl.col("treatment") == code)
        assert len(part) / n == pytest.approx(cells["rows"] / CRITEO.rows, abs=4 * 0.5 / n**0.5)
        for name in ("visit", "conversion", "exposure"):
            rate = cells[name] / cells["rows"]
            assert part[name].mean() == pytest.approx(rate, abs=4.5 * (rate / len(part)) ** 0.5)
    assert np.corrcoef(frame.select(FEATURES).to_numpy().T) == pytest.approx(np.eye(12), abs=0.01)
    write_criteo_like(tmp_path / "b.parquet", 1000, seed=1)
    assert open_rows(tmp_path / "b.parquet").table().equals(rows.part(0, 1000).table())
    write_criteo_like(tmp_path / "c.parquet", 1000, seed=2)
    assert pq.read_table(tmp_path / "c.parquet").column("f0") != pq.read_table(tmp_path / "b.parquet").column("f0")
    with pytest.raises(BadOption, match="rows"):
        write_criteo_like(tmp_path / "d.parquet", 0)
