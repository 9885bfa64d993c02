"""Tables of every kind opened as Rows: the same rows in the same batches, as often as one likes."""

from __future__ import annotations

import gc
import gzip
import pickle
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsupportedFormat,
)
from querist.sources.rows import RowsWriter, hash_rows, open_rows, write_rows

N = 1000


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "id": np.arange(N),
            "x": rng.normal(size=N).astype(np.float32).astype(float),
            "place": rng.choice(["Urban", "Rural", "a, b", 'say "x"', "two\nlines"], N),
            "some": [None if i % 7 == 0 else i / 4 for i in range(N)],
        }
    )


def every_form(frame, folder: Path):
    """The same table in every form that is read."""
    table = frame.to_arrow()
    pq.write_table(table, folder / "one.parquet", row_group_size=300)
    (folder / "many").mkdir()
    for k in range(3):
        pq.write_table(table.slice(k * 400, 400), folder / "many" / f"part-{k}.parquet", row_group_size=150)
    frame.write_csv(folder / "one.csv")
    (folder / "one.csv.gz").write_bytes(gzip.compress((folder / "one.csv").read_bytes()))
    frame.write_csv(folder / "one.tsv", separator="\t")
    with pa.ipc.new_file(str(folder / "one.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=256)
    with pa.ipc.new_stream(str(folder / "stream.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=256)
    frame.write_ipc(folder / "one.feather", compression="zstd")
    (folder / "bare").write_bytes((folder / "one.parquet").read_bytes())
    yield from (folder / name for name in ("one.parquet", "many", "one.csv", "one.csv.gz", "one.tsv", "one.arrow"))
    yield from (str(folder / "stream.arrow"), str(folder / "one.feather"), f"parquet:{folder / 'bare'}")
    yield from (
        frame,
        frame.lazy(),
        frame.to_pandas(),
        table,
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches(170)),
    )
    yield frame.to_dict(as_series=True)
    yield {
        "id": frame["id"].to_list(),
        "x": frame["x"].to_numpy(),
        "place": frame["place"].to_numpy(),
        "some": frame["some"].to_list(),
    }

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(99)).__arrow_c_stream__()

    yield Stream()


def test_every_form_gives_the_same_rows_in_the_same_batches(frame, tmp_path):
    hashes = hash_rows(frame.to_arrow())
    learnt = open_rows(frame).columns()
    for source in every_form(frame, tmp_path):
        rows = open_rows(source)
        assert rows.names == frame.columns
        for _ in range(2):  # as often as one likes
            batches = list(rows.batches(rows=128))
            assert [batch.num_rows for batch in batches] == [128] * 7 + [104]
            assert np.array_equal(np.concatenate([hash_rows(batch) for batch in batches]), hashes), source
        assert rows.count() == rows.n == N
        some = rows.table(["place", "id"])
        assert some.column_names == ["place", "id"]
        assert some.column("id").to_pylist() == list(range(N))
        assert rows.columns() == learnt
        assert rows.fingerprint.startswith("sha256:")


def test_groups_are_read_by_themselves(frame, tmp_path):
    for source in every_form(frame, tmp_path):
        rows = open_rows(source)
        if not rows.has_groups:
            with pytest.raises(BadOption, match="pieces"):
                _ = rows.groups
            wanted = [999, 0, 450, 0, 301]
            assert rows.take(wanted, ["id"]).column("id").to_pylist() == wanted
            assert rows.take([], ["id"]).num_rows == 0
            for outside in (1000, -1):
                with pytest.raises(BadOption, match=str(outside)):
                    rows.take([0, outside])
            rows = rows.grouped(tmp_path / "grouped", group_rows=300)
            assert rows.groups == (300, 300, 300, 100)
        assert sum(rows.groups) == N
        ids = [rows.group(k, ["id"]).column("id").to_pylist() for k in range(len(rows.groups))]
        assert [len(one) for one in ids] == list(rows.groups)
        assert [one for group in ids for one in group] == list(range(N))
        with pytest.raises(BadOption, match="group"):
            rows.group(len(rows.groups))
        wanted = [999, 0, 450, 0, 301]
        assert rows.take(wanted, ["id"]).column("id").to_pylist() == wanted
        assert rows.take([], ["id"]).num_rows == 0
        with pytest.raises(BadOption, match="1000"):
            rows.take([1000])


def test_a_part_of_a_table(frame, tmp_path):
    for source in every_form(frame, tmp_path):
        part = open_rows(source).part(290, 610)
        assert part.table(["id"]).column("id").to_pylist() == list(range(290, 610))
        assert part.count() == 320
        assert [b.num_rows for b in part.batches(rows=200)] == [200, 120]
        if part.has_groups:
            assert sum(part.groups) == 320
            assert part.group(len(part.groups) - 1, ["id"]).column("id").to_pylist()[-1] == 609
            assert part.take([319, 0], ["id"]).column("id").to_pylist() == [609, 290]
    rows = open_rows(f"{tmp_path / 'one.parquet'}#990:")
    assert (rows.n, rows.origin) == (10, f"{tmp_path / 'one.parquet'}#990:1000")
    assert open_rows(f"{tmp_path / 'one.csv'}#990:2000").table().num_rows == 10
    with pytest.raises(TooFewRows, match="empty"):
        open_rows(f"{tmp_path / 'one.parquet'}#1000:1001")


def test_arrays_are_columns_named_by_number():
    array = np.arange(24.0).reshape(8, 3)
    for source in (array, array.astype(">f8"), np.asfortranarray(array)):
        rows = open_rows(source)
        assert rows.names == ["x0", "x1", "x2"]
        assert rows.table(["x2"]).column("x2").to_pylist() == array[:, 2].tolist()
        assert rows.group(0, ["x1"]).column("x1").to_pylist() == array[:, 1].tolist()
    assert open_rows(np.array([["a", "b"], ["c", "d"]])).table().column("x1").to_pylist() == ["b", "d"]
    import torch

    assert open_rows(torch.from_numpy(array)).table().num_rows == 8


def test_what_a_table_may_hold():
    rows = open_rows(
        {
            "flag": pa.array([True, None, False]),
            "cents": pa.array([Decimal("1.50"), None, Decimal("2.25")]),
            "day": [date(1970, 1, 2), None, date(1970, 1, 4)],
            "at": [datetime(1970, 1, 1, 12), datetime(1970, 1, 2), None],
            "int": pd.array([1, None, 3], dtype="Int8"),
            "word": pa.array(["u", None, "v"]).dictionary_encode(),
            "none": [None, None, None],
        }
    )
    columns = rows.columns()
    facts = columns.facts
    assert facts["cents"].mean == 1.875
    assert (facts["day"].low, facts["day"].high, facts["at"].mean) == (1.0, 3.0, 0.75)
    assert (facts["int"].mean, facts["int"].missing) == (2.0, 1)
    assert columns.levels == {"flag": ("false", "true"), "word": ("u", "v")}
    assert columns.constant == ("none",)
    encoded = columns.encode(rows)
    assert encoded.codes.tolist() == [[3, 2], [0, 0], [2, 3]]


def test_text_types_are_settled_by_the_whole_file(tmp_path, monkeypatch):
    import querist.sources.rows.separated as separated

    monkeypatch.setattr(separated, "BLOCK", 64)
    path = tmp_path / "late.csv"
    lines = ["number,word,day,empty"] + ["1,2,2020-01-01,"] * 20 + ["2.5,x,soon,7"]
    path.write_text("\n".join(lines) + "\n")
    rows = open_rows(path)
    assert rows.n is None
    assert rows.count() == 21
    assert rows.schema.types == [pa.float64(), pa.string(), pa.string(), pa.int64()]
    assert rows.table().column("empty").null_count == 20


def test_a_stream_leaves_nothing_behind(frame, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = frame.to_arrow()
    rows = open_rows(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()))
    assert list(tmp_path.iterdir())
    assert rows.count() == N
    del rows
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_rows_of_files_cross_processes(frame, tmp_path):
    frame.write_parquet(tmp_path / "one.parquet")
    rows = pickle.loads(pickle.dumps(open_rows(tmp_path / "one.parquet")))
    assert rows.table(["id"]).num_rows == N


def test_addresses_carry_options_only_where_they_are_expected(frame, tmp_path):
    frame.write_parquet(tmp_path / "one.parquet")
    rows = open_rows(f"{tmp_path / 'one.parquet'}?arm=place#0:10", options=["arm"])
    assert (rows.options, rows.n) == ({"arm": "place"}, 10)
    with pytest.raises(UnknownName, match="arn"):
        open_rows(f"{tmp_path / 'one.parquet'}?arn=place", options=["arm"])
    with pytest.raises(BadOption, match="train"):
        open_rows(f"{tmp_path / 'one.parquet'}#train")


def test_a_factory_makes_a_table(tmp_path, monkeypatch):
    (tmp_path / "makes_rows.py").write_text("def table(n='3'):\n    return {'a': list(range(int(n)))}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert open_rows("makes_rows:table?n=5").count() == 5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n", ["a", "b"]),
        ("a,b\n1,2", ["a", "b"]),
        ("\ufeffa,b\n1,2\n", ["a", "b"]),
        ("a;b\n1;2,5\n", ["a", "b"]),
        ("a\tb\n1\t2\n", ["a", "b"]),
        ("a\n1\n", ["a"]),
    ],
)
def test_headers(tmp_path, text, names):
    (tmp_path / "t.csv").write_text(text, "utf-8")
    rows = open_rows(tmp_path / "t.csv")
    assert rows.names == names
    assert rows.count() == text.count("\n1")


def test_fingerprints_are_of_values(frame):
    one = open_rows(frame).fingerprint
    assert open_rows(frame.to_pandas()).fingerprint == one
    assert open_rows(frame.with_columns(x=pl.col("x") + 1)).fingerprint != one
    nested = [open_rows({"a": values}).fingerprint for values in ([[1], [2]], [[1], [3]])]
    assert nested[0] != nested[1]


def test_registered_names_are_tables():
    assert open_rows("zoo").count() == 101
    with pytest.raises(UnknownName, match="mushroom"):
        open_rows("mushrom")


def test_row_groups_are_written_whole_or_not_at_all(frame, tmp_path):
    path = tmp_path / "out.parquet"
    with RowsWriter(path, group_rows=256, metadata={"querist.note": "x"}) as out:
        for batch in open_rows(frame).batches(rows=70):
            out.write(batch)
    with pq.ParquetFile(path) as file:
        assert [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)] == [256, 256, 256, 232]
        assert file.schema_arrow.metadata[b"querist.note"] == b"x"
    assert np.array_equal(hash_rows(open_rows(path).table()), hash_rows(frame.to_arrow()))

    def broken():
        with RowsWriter(tmp_path / "no.parquet", group_rows=10) as out:
            out.write({"a": [1] * 30})
            out.write({"b": [1]})

    with pytest.raises(ShapeMismatch, match="other columns"):
        broken()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.parquet"]
    assert write_rows(tmp_path / "none.parquet", open_rows(frame.head(0))) == 0
    assert open_rows(tmp_path / "none.parquet").n == 0


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda f: f / "not-here.parquet", SourceNotFound, "not-here"),
        (lambda f: _write(f / "x.parquet", b"PAR1 but not really"), CorruptFile, "19 bytes"),
        (lambda f: _write(f / "x.arrow", b"no arrow"), CorruptFile, "x.arrow"),
        (lambda f: _write(f / "x.csv", b""), CorruptFile, "x.csv"),
        (lambda f: _write(f / "x.csv", b"a,b\n1,2\n3\n"), CorruptFile, "Expected 2 columns"),
        (lambda f: _write(f / "x.csv", b"a,a\n1,2\n"), BadValues, "share a name: a"),
        (lambda f: _write(f / "x.csv", b"a\nx\n\xff\xfe\n"), CorruptFile, "UTF8|UTF-8"),
        (lambda f: _write(f / "x.dat", b"?"), UnsupportedFormat, "Parquet"),
        (lambda f: f, UnsupportedFormat, "no Parquet file"),
        (lambda f: _folder(f), UnsupportedFormat, "arm=1"),
        (lambda f: _differing(f), UnsupportedFormat, "other columns"),
        (lambda f: 3.5, UnsupportedFormat, "float"),
        (lambda f: {}, ShapeMismatch, "columns"),
        (lambda f: {"a": [1, 2], "b": [1]}, ShapeMismatch, "a 2, b 1"),
        (lambda f: {"a": np.zeros((2, 2))}, ShapeMismatch, r"\(2, 2\)"),
        (lambda f: {"a": [1, "x"]}, BadValues, "column a"),
        (lambda f: pd.DataFrame({"a": [1, "x"]}), BadValues, "several kinds"),
        (lambda f: pd.DataFrame([[1, 2]], columns=["a", "a"]), BadValues, "share a name: a"),
        (lambda f: pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), UnsupportedFormat, "a Int128"),
        (lambda f: np.zeros(3), ShapeMismatch, r"\(3,\)"),
        (lambda f: np.zeros((3, 2), dtype=complex), BadValues, "complex"),
        (lambda f: {"a": "text"}, ShapeMismatch, "one value per row"),
    ],
)
def test_what_is_no_table_is_said_plainly(tmp_path, make, error, said):
    with pytest.raises(error, match=said):
        open_rows(make(tmp_path)).table()


def test_a_column_that_is_not_there_names_the_near_ones(frame):
    rows = open_rows(frame)
    with pytest.raises(UnknownName, match="place"):
        rows.table(["palce"])
    with pytest.raises(BadOption, match="No column"):
        list(rows.batches([]))
    with pytest.raises(BadOption, match="at least one row"):
        rows.batches(rows=0)


def _write(path, content):
    path.write_bytes(content)
    return path


def _folder(folder):
    (folder / "arm=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "arm=1" / "x.parquet")
    return folder


def _differing(folder):
    pq.write_table(pa.table({"a": [1]}), folder / "1.parquet")
    pq.write_table(pa.table({"b": [1]}), folder / "2.parquet")
    return folder
