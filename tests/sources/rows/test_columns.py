"""Columns and codes: independent of how a table is cut, ordered and stored; what cannot be encoded is named."""

from __future__ import annotations

import hashlib
import json
import math
import struct

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import BadOption, BadValues, NonFinite, TooFewRows, UnknownName, UnsupportedFormat
from querist.sources.rows import ColumnFacts, ColumnMissing, Columns, hash_rows, open_rows
from querist.sources.rows import facts as facts_module
from querist.sources.rows.columns import name_order

NUMBER = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
LEVEL = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ä", "NA", "10"]))


@st.composite
def tables(draw):
    n = draw(st.integers(1, 60))
    return pl.DataFrame(
        {
            "x2": pl.Series(draw(st.lists(NUMBER, min_size=n, max_size=n)), dtype=pl.Float64),
            "x10": pl.Series(draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n)), dtype=pl.Int16),
            "place": pl.Series(draw(st.lists(LEVEL, min_size=n, max_size=n)), dtype=pl.String),
            "flag": pl.Series(
                draw(st.lists(st.one_of(st.none(), st.booleans()), min_size=n, max_size=n)), dtype=pl.Boolean
            ),
        }
    )


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(1, 30), st.permutations(["x2", "x10", "place", "flag"]))
def test_codes_do_not_depend_on_batches_or_order(frame, size, order):
    whole = open_rows(frame).columns()
    encoded = whole.encode(frame)
    shuffled = frame.select(order).with_columns(other=pl.lit(1))
    cut = pl.concat([shuffled[at : at + size] for at in range(0, len(frame), size)], rechunk=False)
    again = open_rows(cut).columns(order)
    assert again == whole
    pieces = [whole.encode(piece) for piece in open_rows(cut).batches(rows=size)]
    for name in ("numbers", "missing", "codes"):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        assert np.array_equal(joined, getattr(encoded, name))
    assert pieces[0].ignored[-1] == "other"
    assert np.array_equal(hash_rows(shuffled.to_arrow(), frame.columns), hash_rows(frame.to_arrow()))


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(1, 30))
def test_facts_merge(frame, size):
    whole = open_rows(frame).columns().facts
    for name, one in whole.items():
        merged = None
        for at in range(0, len(frame), size):
            column = frame[name][at : at + size].to_arrow()
            piece = ColumnFacts.of(name, column.type).update(column)
            merged = piece if merged is None else merged.merge(piece)
        assert merged is not None
        assert (merged.count, merged.missing, merged.counts) == (one.count, one.missing, one.counts)
        assert (merged.low, merged.high) == (one.low, one.high)
        assert merged.mean == pytest.approx(one.mean, rel=1e-12, abs=1e-9)
        assert merged.sd == pytest.approx(one.sd, rel=1e-9, abs=1e-9)


def test_facts_are_those_of_numpy_also_far_from_zero():
    rng = np.random.default_rng(1)
    x = 1e9 + rng.normal(size=300_000)
    one = open_rows({"x": x}).columns().facts["x"]
    assert one.mean == pytest.approx(math.fsum(x) / x.size, rel=1e-15)
    assert one.sd == pytest.approx(np.std(x - 1e9, ddof=1), rel=1e-7)
    z = Columns([one]).encode({"x": x}).numbers[:, 0]
    assert z == pytest.approx((x - x.mean()) / x.std(ddof=1), abs=1e-4)


def test_numbers_are_standardised_clipped_and_missing_is_kept():
    x = np.array([1.0, 2.0, 3.0, np.nan])
    columns = open_rows({"x": x}).columns()
    encoded = columns.encode({"x": [4.0, np.nan, 1e9, -1e9, None, 2.0]})
    assert encoded.numbers.dtype == np.float32
    assert encoded.numbers[:, 0].tolist() == [2.0, 0.0, 8.0, -8.0, 0.0, 0.0]
    assert encoded.missing[:, 0].tolist() == [False, True, False, False, True, False]
    assert encoded.missing_counts == {"x": 2}


def test_levels_missing_unknown_and_rare():
    place = ["a"] * 5 + ["b"] * 3 + ["c"] * 3 + ["d"] + [None]
    columns = open_rows({"place": place}).columns(levels_max=2)
    assert columns.levels == {"place": ("a", "b")}  # of two that are equally frequent, the first by name
    assert columns.cardinalities == (4,)
    encoded = columns.encode({"place": ["a", "b", "c", "new", None]})
    assert encoded.codes.dtype == np.int64
    assert encoded.codes[:, 0].tolist() == [2, 3, 1, 1, 0]
    assert encoded.unknown_counts == {"place": 2}
    assert "4 levels" in columns.notes[1]
    assert columns.dense_names == ("place:missing", "place=a", "place=b")
    assert columns.dense(encoded).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_dense_marks_what_was_missing_when_it_was_learnt():
    table = {"x": [1.0, None, 3.0], "y": [1.0, 2.0, 3.0], "z": ["u", "v", "u"]}
    columns = open_rows(table).columns()
    assert columns.dense_names == ("x", "y", "x:missing", "z=u", "z=v")
    later = columns.encode({"x": [None], "y": [None], "z": [None]})
    assert columns.dense(later).tolist() == [[0, 0, 1, 0, 0]]
    dense = columns.dense(columns.encode(table))
    assert dense[:, 2:].tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert dense.dtype == np.float32


def test_constant_columns_are_dropped_and_told():
    table = {
        "one": [1, 1],
        "same": ["a", "a"],
        "gap": [1.0, None],
        "none": [None, None],
        "x": [1, 2],
        "word": ["a", None],
    }
    columns = open_rows(table).columns()
    assert columns.constant == ("none", "one", "same")
    assert columns.names == ("gap", "x", "word")
    assert sum("dropped" in note for note in columns.notes) == 3
    encoded = columns.encode(table)
    assert encoded.numbers[:, 0].tolist() == [0.0, 0.0]
    assert encoded.missing[:, 0].tolist() == [False, True]
    assert encoded.ignored == ()


def test_a_column_is_found_by_name_in_whatever_type_it_comes():
    columns = open_rows({"n": [1, 2, 3], "w": ["1", "2", "3"], "b": [True, False, True]}).columns()
    expected = columns.encode({"n": [1, 3], "w": ["1", "3"], "b": [True, False]})
    for other in (
        {"n": [1.0, 3.0], "w": [1.0, 3.0], "b": [1, 0]},
        {"n": ["1", "3"], "w": pd.Categorical(["1", "3"]), "b": ["true", "false"]},
        {"n": pa.array([1, 3], pa.int8()), "w": pa.array([1, 3], pa.uint16()), "b": np.array([1.0, 0.0])},
        {"n": pa.array(["1", "3"]).dictionary_encode(), "w": pa.array([1, 3]).dictionary_encode(), "b": [True, False]},
    ):
        got = columns.encode(other)
        assert np.array_equal(got.numbers, expected.numbers)
        assert np.array_equal(got.codes, expected.codes)


def test_numbers_as_levels_where_asked():
    columns = open_rows({"zip": [10, 20, 10], "x": [1.0, 2.0, 3.0]}).columns(categories=["zip"])
    assert columns.levels == {"zip": ("10", "20")}
    assert columns.encode({"zip": [20.0, 30.0], "x": [0, 0]}).codes[:, 0].tolist() == [3, 1]
    with pytest.raises(UnknownName, match="zip"):
        open_rows({"zip": [1]}).columns(categories=["zap"])


def test_what_is_kept_comes_back():
    frame = pl.DataFrame({"x": [0.1, 0.2, None], "w": ["a", "b", None], "c": [1, 1, 1], "e": pl.Series([None] * 3)})
    columns = open_rows(frame).columns()
    text = json.dumps(columns.to_json(), allow_nan=False)
    back = Columns.from_json(json.loads(text))
    assert back == columns
    assert json.dumps(back.to_json()) == text
    a, b = columns.encode(frame), back.encode(frame)
    assert np.array_equal(a.numbers, b.numbers)
    assert np.array_equal(a.codes, b.codes)
    with pytest.raises(UnsupportedFormat, match="columns"):
        Columns.from_json({"form": "other"})


def test_names_are_ordered_by_the_numbers_in_them():
    assert sorted(["x10", "x2", "x1", "y", "a10b", "a9b", "3"], key=name_order) == [
        "3",
        "a9b",
        "a10b",
        "x1",
        "x2",
        "x10",
        "y",
    ]


def test_a_table_beyond_memory_is_learnt_and_encoded_in_batches(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({f"x{k}": rng.normal(size=400_000) for k in range(8)} | {"w": rng.choice(["a", "b"], 400_000)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    expected = open_rows(table).columns()
    del table
    rows = open_rows(tmp_path / "t.parquet")
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    for batch in rows.batches():
        most = max(most, pool.bytes_allocated() - before)
        size, batch_rows = batch.nbytes, batch.num_rows
        del batch
    assert most <= 2 * size * (131_072 / batch_rows) + 2**22  # the table is three times a batch
    assert rows.columns() == expected  # the same bits although the row groups are cut elsewhere
    whole = expected.encode(rows)
    assert len(whole) == 400_000
    parts = list(expected.encoded_batches(rows))
    assert np.array_equal(np.concatenate([part.numbers for part in parts]), whole.numbers)


def by_hand(numbers: dict[str, float], texts: dict[str, str]) -> int:
    """The hash of one row in whole numbers of Python."""
    whole = 2**64

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % whole
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % whole
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % whole
        return x ^ (x >> 31)

    def of(text: str) -> int:
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    cells = [mix(struct.unpack("<Q", struct.pack("<d", value))[0] ^ of(name)) for name, value in numbers.items()]
    cells += [mix(of(value) ^ of(name)) for name, value in texts.items()]
    return mix(sum(cells) % whole)


def test_hashes_tell_rows_apart_and_last():
    frame = pl.DataFrame({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"], "c": [0.1, 0.1, 0.1, None]})
    h = hash_rows(frame.to_arrow())
    assert h.dtype == np.uint64
    assert len(set(h.tolist())) == 4
    narrow = frame.cast({"a": pl.Int8, "c": pl.Float32, "b": pl.Categorical})
    assert np.array_equal(hash_rows(narrow.to_arrow()), h)
    assert np.array_equal(hash_rows(frame.select("c", "a", "b").to_arrow()), h)
    assert hash_rows(pa.table({"a": [1], "b": ["x"]})).tolist() == [by_hand({"a": 1.0}, {"b": "x"})] == [HASH]
    assert hash_rows(pa.table({"a": [True, False]})).tolist() == hash_rows(pa.table({"a": [1.0, -0.0]})).tolist()
    assert (
        hash_rows(pa.table({"a": [2**53 - 1, 2**53 - 2]})).tolist()[0]
        != hash_rows(pa.table({"a": [2**53 - 2]})).tolist()[0]
    )
    swapped = frame.rename({"a": "z"})
    assert not np.array_equal(hash_rows(swapped.to_arrow()), h)
    columns = open_rows(frame).columns()
    encoded = columns.encode(frame)
    coded = hash_rows(encoded)
    assert len(set(coded.tolist())) == 4
    assert np.array_equal(hash_rows(encoded[2:]), coded[2:])
    with pytest.raises(UnknownName, match="no such column"):
        hash_rows(encoded, ["q"])


HASH = 12414641188209021795
"""Of {a: 1, b: x}: a model folder keeps these numbers, so they must never change."""


@pytest.mark.parametrize(
    ("run", "error", "said"),
    [
        (lambda: open_rows({"x": [1.0, 2.0, np.inf]}).columns(), NonFinite, "column x.*inf in row 2"),
        (lambda: _learnt().encode({"x": [1.0, -np.inf], "w": ["a", "b"]}), NonFinite, "column x.*-inf in row 1"),
        (lambda: _learnt().encode({"x": ["1", "one"], "w": ["a", "b"]}), BadValues, "column x.*'one' in row 1"),
        (lambda: open_rows({"x": []}).columns(), TooFewRows, "no rows"),
        (lambda: open_rows({"x": [[1], [2]]}).columns(), UnsupportedFormat, "column x.*list"),
        (lambda: open_rows({"x": [1]}).columns(["y"]), UnknownName, "y"),
        (lambda: open_rows({"x": ["a"]}).columns(levels_max=0), BadOption, "at least one level"),
        (lambda: ColumnFacts.of("a", pa.int8()).merge(ColumnFacts.of("b", pa.int8())), BadOption, "b"),
    ],
)
def test_what_cannot_be_learnt_is_named(run, error, said):
    with pytest.raises(error, match=said):
        run()


def test_a_column_missing_later_has_its_code():
    with pytest.raises(ColumnMissing, match="w") as caught:
        _learnt().encode({"x": [1.0], "W": ["a"]})
    assert caught.value.code == "column-missing"
    for batches in (pa.table({"w": ["a"]}), open_rows({"w": ["a"]})):
        with pytest.raises(ColumnMissing, match="not in the table: x"):
            _learnt().encode(batches)


def test_an_id_is_no_category(monkeypatch):
    monkeypatch.setattr(facts_module, "LEVELS_HELD", 10)
    with pytest.raises(BadValues, match="looks like an id"):
        open_rows({"w": [str(k) for k in range(11)]}).columns()


def test_the_row_of_infinity_is_that_of_the_table():
    x = np.zeros(300_000)
    x[200_123] = np.inf
    with pytest.raises(NonFinite, match="row 200123"):
        open_rows({"x": x}).columns()
    columns = open_rows({"x": np.arange(10.0)}).columns()
    with pytest.raises(NonFinite, match="row 200123"):
        columns.encode({"x": x})


def _learnt():
    return open_rows({"x": [1.0, 2.0], "w": ["a", "b"]}).columns()
