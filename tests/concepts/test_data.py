"""The concept table: what it takes, what it refuses, and what it reads."""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl
import pytest
from tests.concepts.tables import random_table
from tests.harness import check_bad_input

from querist.concepts import ConceptData
from querist.concepts.data import same_schema
from querist.concepts.errors import DuplicateName, NotBinary, SchemaMismatch
from querist.concepts.readers import open_concepts, read_npz, read_table, registered
from querist.errors import (
    BadOption,
    BadValues,
    NonFinite,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsafeFile,
    UnsupportedFormat,
)
from querist.sources.datasets.registry import DATA_SETS, places

C = np.array([[0.0, 1, np.nan], [1, 1, 0], [0, 1, 1], [1, 1, 1]])


def test_bad_tables_are_refused_with_what_is_wrong():
    outside, infinite = C.copy(), C.copy()
    outside[2, 0], infinite[1, 2] = 3.5, np.inf
    y = [0, 1, 0, 1]
    check_bad_input(
        [
            (lambda: ConceptData(C[0], y), ShapeMismatch, ["rows and columns"]),
            (lambda: ConceptData(C[:0], []), TooFewRows, ["empty"]),
            (
                lambda: ConceptData(C, y[:3], images=np.zeros((5, 3, 2, 2))),
                ShapeMismatch,
                ["(4, 3)", "(3,)", "(5, 3, 2, 2)"],
            ),
            (lambda: ConceptData(infinite, y, concept_names=["a", "b", "c"]), NonFinite, ["row 1, column c"]),
            (
                lambda: ConceptData(outside, y),
                BadValues,
                ["looks like logits", "3.5 in row 2, column c0", "space='logit'"],
            ),
            (lambda: ConceptData(outside, y, space="prob"), BadValues, ["looks like logits"]),
            (lambda: ConceptData(C, y, space="soft"), BadOption, ["hard, prob, logit"]),
            (lambda: ConceptData(C, y, concept_names=["a", "b", "a"]), DuplicateName, [": a."]),
            (lambda: ConceptData(C, y, concept_names=["a"]), ShapeMismatch, ["concept_names"]),
            (lambda: ConceptData(C, y, ids=["r", "s", "t", "r"]), DuplicateName, ["Rows share a name: r"]),
            (lambda: ConceptData(C, y, class_names=["only"]), UnknownName, ["0 to 0"]),
            (lambda: ConceptData(C, ["p", "q", "p", "x"], class_names=["p", "q"]), UnknownName, ["x"]),
            (lambda: ConceptData(C, [0, 1, 0, np.nan]), BadValues, ["whole numbers"]),
            (lambda: ConceptData(np.array([["a"]]), [0]), BadValues, ["one_hot"]),
            (lambda: ConceptData(C, y).target("zebra"), UnknownName, ["zebra"]),
            (lambda: ConceptData(C, y).part("train"), UnknownName, ["split="]),
            (lambda: ConceptData(C, y).binary("median"), BadOption, ["quantile:q"]),
            (lambda: ConceptData(C / 2, y, concept_names=["a", "b", "c"]).binary(), NotBinary, ["a, b, c", "quantile"]),
        ]
    )
    assert ConceptData(outside, y, space="logit").concepts[2, 0] == 3.5


def test_a_table_keeps_a_copy_and_never_changes_it():
    given = C.copy()
    row = [0, 1, 0]
    shared = ConceptData([row, row], [0, 1])
    data = ConceptData(given, ["b", "a", "b", "a"])
    given[0, 0] = 1
    assert data.concepts[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        data.concepts[0, 0] = 1
    assert not np.shares_memory(shared.concepts[0], shared.concepts[1])
    assert ConceptData(np.broadcast_to(np.ones(3), (4, 3)), np.arange(4)).concepts.strides[0] != 0


def test_labels_unknown_cells_and_constants_are_counted():
    data = ConceptData(C, ["b", "a", "b", "a"])
    assert data.classes == ("a", "b")
    assert data.codes.tolist() == [1, 0, 1, 0]
    assert data.labels.tolist() == ["b", "a", "b", "a"]
    assert data.missing == 1
    assert data.density == pytest.approx(8 / 11)
    assert data.means == pytest.approx([0.5, 1, 2 / 3])
    assert data.constant.tolist() == [False, True, False]
    assert data.usable().tolist() == [0, 2]
    assert "c1" in data.warnings[0]
    assert data.facts()["known"].to_list() == [4, 4, 3]
    named = ConceptData(C, [3, 0, 3, 0], class_names=["p", "q", "r", "s"])
    assert named.class_sizes.tolist() == [2, 0, 0, 2]
    assert named.target("s") == 3
    with pytest.raises(UnknownName):
        named.target("q")
    assert named.subset([0, 1]).classes == named.classes


def test_other_values_become_binary_only_by_a_rule():
    data = ConceptData([[0.2, np.nan], [0.7, 0.1], [0.9, 0.4]], [0, 1, 1], space="prob")
    assert np.array_equal(data.binary("0.5").concepts, [[0, np.nan], [1, 0], [1, 0]], equal_nan=True)
    assert np.array_equal(data.binary("quantile:0.5").concepts, [[0, np.nan], [0, 0], [1, 1]], equal_nan=True)
    assert data.binary("0.5").space == "hard"


def test_references_must_have_the_same_concepts():
    data = ConceptData(C, [0, 1, 0, 1], concept_names=["a", "b", "c"])
    same_schema(data, data)
    with pytest.raises(SchemaMismatch, match="missing c; extra d"):
        same_schema(data, ConceptData(C, [0, 1, 0, 1], concept_names=["a", "b", "d"]))
    with pytest.raises(SchemaMismatch, match="order"):
        same_schema(data, data.columns([1, 0, 2]))


def test_tables_are_read_by_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,part,kind,wing,legs,size\na,train,x,1,2,big\nb,test,y,0,4,small\nc,train,x,?,4,?\n")
    data = read_table(path, label="kind", id="id", split="part", missing="?", one_hot=True)
    assert data.concept_names == ("wing", "legs=2", "legs=4", "size=big", "size=small")
    assert data.groups == ("wing", "legs", "legs", "size", "size")
    nan = np.nan
    assert np.array_equal(data.concepts, [[1, 1, 0, 1, 0], [0, 0, 1, 0, 1], [nan, 0, 1, nan, nan]], equal_nan=True)
    assert data.part("train").ids.tolist() == ["a", "c"]
    assert read_table(path, label="kind", concepts=["w*"], missing="?").k == 1
    check_bad_input(
        [
            (lambda: read_table(path), BadOption, ["label="], True),
            (lambda: read_table(path, label="knd"), UnknownName, ["kind"]),
            (lambda: read_table(path, label="kind", concepts=["q*"]), UnknownName, ["q"]),
            (lambda: read_table(path, label="kind", concepts=["size"]), BadValues, ["one_hot"]),
            (lambda: read_table(tmp_path / "no.csv", label="kind"), SourceNotFound, ["no.csv"]),
            (lambda: read_table(__file__, label="kind"), UnsupportedFormat, ["parquet"]),
        ]
    )


def test_a_parquet_file_that_was_written_here_needs_no_options(tmp_path):
    data = random_table(20, 4, missing=0.1).changed(ids=[f"r{i}" for i in range(20)], split=["a", "b"] * 10)
    data = ConceptData(
        data.concepts,
        data.codes,
        class_names=["u", "v", "w"],
        concept_names=["label", "x", "y", "z"],
        ids=data.ids,
        split=data.split,
    )
    data.to_parquet(tmp_path / "t.parquet", stamp="assessment copy")
    again = read_table(tmp_path / "t.parquet")
    for field in ("concepts", "codes", "ids", "split"):
        assert np.array_equal(getattr(again, field), getattr(data, field), equal_nan=field == "concepts")
    assert (again.classes, again.concept_names) == (data.classes, data.concept_names)
    import pyarrow.parquet as pq

    assert pq.read_schema(tmp_path / "t.parquet").metadata[b"querist.stamp"] == b"assessment copy"


def test_archives_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", concepts=C, labels=np.array([0, 1, 0, 1]), train=np.array([1, 1, 0, 0]))
    data = read_npz(tmp_path / "a.npz", split="train")
    assert data.split.tolist() == ["train", "train", "test", "test"]
    with pytest.raises(UnknownName, match="concepts, labels, train"):
        read_npz(tmp_path / "a.npz", concepts="x")
    np.savez(tmp_path / "b.npz", concepts=np.array([{}], dtype=object), labels=np.array([0]))
    with pytest.raises(UnsafeFile):
        read_npz(tmp_path / "b.npz")


def test_bundled_tables_are_what_they_say():
    zoo, mushroom = registered("zoo"), registered("mushroom")
    assert (zoo.n, zoo.k, zoo.n_classes) == (101, 21, 7)
    assert (mushroom.n, mushroom.n_classes, mushroom.missing) == (8124, 2, 2480 * 4)
    assert [c for c in zoo.concept_names if c.startswith("legs=")] == [f"legs={n}" for n in (0, 2, 4, 5, 6, 8)]
    with gzip.open(places(DATA_SETS["zoo"])["bundled"], "rt") as file:
        assert len(pl.read_csv(file.read().encode())) == 101
    with pytest.raises(UnknownName, match="mushroom"):
        registered("mushrooms")


def test_addresses_name_files_sets_and_drawn_birds(tmp_path):
    drawn = open_concepts("render:birds?n=36&seed=2")
    assert drawn.images.shape == (36, 3, 32, 32)
    assert [int((drawn.split == part).sum()) for part in ("train", "val", "test")] == [24, 4, 8]
    assert open_concepts("render:birds?n=36&seed=2#val").n == 4
    assert drawn.subset([1, 3]).images.shape == (2, 3, 32, 32)
    assert open_concepts("zoo").n == 101
    drawn.to_parquet(tmp_path / "a.parquet")
    assert open_concepts(str(tmp_path / "a.parquet")).n == 36
    (tmp_path / "t.csv").write_text("kind,wing,size\nx,1,big\ny,?,small\n")
    assert open_concepts(f"{tmp_path}/t.csv?label=kind&missing=?,-&one_hot=true").k == 3
    np.savez(tmp_path / "a.npz", c=C, y=np.array([0, 1, 0, 1]))
    assert open_concepts(f"{tmp_path}/a.npz?concepts=c&labels=y").n == 4
    assert open_concepts(tmp_path / "a.npz", concepts="c", labels="y").n == 4
    assert open_concepts(pl.DataFrame({"a": [0, 1], "y": [0, 1]}), label="y").k == 1
    check_bad_input(
        [
            (lambda: open_concepts("render:fish"), UnknownName, ["birds"]),
            (lambda: open_concepts("render:birds?n=many"), BadOption, ["n=3600"]),
            (lambda: open_concepts("render:birds?size=3"), UnknownName, ["size"]),
            (lambda: open_concepts(f"{tmp_path}/t.csv?label=kind&one_hot=2"), BadOption, ["true, false"]),
        ]
    )
