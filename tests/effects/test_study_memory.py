"""Commands on tables of many people: how many bytes they hold of each, measured in a process of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.effects.memory import STATUS, of_studies

from querist.effects.configs import EvaluateConfig
from querist.effects.metrics._order import Order, order
from querist.effects.outcomes import prepare_outcomes
from querist.effects.reading import numbered_labels, read_people, roles_of
from querist.effects.studies.evaluate import EvaluateStudy
from querist.effects.studies.evaluate_kept import Kept, scored_of, writing
from querist.effects.studies.evaluate_verdicts import _margins
from querist.sources.rows import open_rows
from querist.statistics import folds, mean_interval
from querist.statistics.arrays import compact, numbered


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are told by Linux")
def test_an_evaluation_holds_few_bytes_a_person_and_scoring_no_table(tmp_path):
    """786,432 people by a model of two arms: 430 bytes a person when features, arms, predictions and policies were all held."""
    assert STATUS.exists()
    found = of_studies(tmp_path)
    assert found["evaluate"] <= 200
    assert found["score"] <= 3


def test_predictions_are_written_in_pieces_and_read_by_column(tmp_path):
    rng = np.random.default_rng(0)
    natural, total = rng.normal(size=(700, 2)), rng.normal(size=(700, 3, 2))
    with writing(tmp_path / "predictions.npy", 8, 700, np.array([0.2, 0.3, 0.5])) as pen:
        for part in (slice(0, 300), slice(300, 301), slice(301, 700)):
            pen.write([*natural[part].T, *(total[part, m, k] for m in range(3) for k in range(2))])
    path = str(tmp_path / "predictions.npy")
    assert np.load(path).shape == (8, 700)
    held = scored_of({"a": path}, 3, 2, [1])["a"]
    assert (held.total[:, :, 0] == total[:, :, 1]).all()
    assert held.natural is not None
    assert (held.natural[:, 0] == natural[:, 1]).all()
    assert (held.own == [0.2, 0.3, 0.5]).all()
    with writing(tmp_path / "one.npy", 1, 700, None) as pen:
        pen.write([natural[:, 0]])
    assert list(Kept(tmp_path / "one.npy", 3, 2).totals) == [0]
    held = scored_of({"b": str(tmp_path / "one.npy")}, 3, 2, [0, 1])["b"]
    assert not held.effects
    assert held.natural is None
    assert (held.total == natural[:, :1, None]).all()
    with pytest.raises(KeyError), writing(tmp_path / "torn.npy", 1, 700, None):
        raise KeyError
    assert not (tmp_path / "torn.npy").exists()


def test_people_without_their_features_are_the_same_people():
    frame = pl.DataFrame(
        {"x": [1.0, None, 3.0, 4.0], "arm": ["b", None, "a", "b"], "y": [0, 1, 1, 0], "house": [1, 1, 2, 3]}
    )
    rows = open_rows(frame)
    roles = roles_of(rows, arm="arm", outcomes=["y"], cluster="house", feature=["x", "house"])
    whole, bare = (read_people(rows, roles, drop_missing_arm=True, features=held) for held in (True, False))
    assert bare.features.column_names == []
    assert len(bare) == len(whole) == 3
    for name in ("arm", "levels", "places", "cluster", "kept"):
        assert np.array_equal(getattr(bare, name), getattr(whole, name)), name
    assert bare.places.dtype == np.int8
    assert bare.of(rows.table(["y"])).column("y").to_pylist() == [0, 1, 0]
    assert bare.numbers_of(np.array([1])).tolist() == [2]


@pytest.mark.parametrize(
    "labels", [["b", "a", "b", None], [3, 1, 3, 1], [True, False, True, True], [2.0, 0.0, None, 0.0]]
)
def test_labels_are_numbered_in_their_order(labels):
    column = pl.Series("arm", labels).to_arrow()
    levels, places, known = numbered_labels(column)
    assert known.tolist() == [label is not None for label in labels]
    assert [one for one, told in zip(levels[places].tolist(), known, strict=True) if told] == [
        one for one in labels if one is not None
    ]
    assert sorted(levels.tolist()) == levels.tolist()


@pytest.mark.parametrize(
    ("values", "bits"), [([0.0, 1.0, np.nan], 16), ([0.1, 1.0, 2.0], 64), ([0.5, 70_000.0, 3.0], 32)]
)
def test_outcomes_are_held_in_the_smallest_floats_that_keep_them(values, bits):
    held = prepare_outcomes({"y": np.array(values)}, {"y": "continuous"}).compact()
    assert held.values.dtype.itemsize * 8 == bits
    assert np.array_equal(held.values[:, 0], values, equal_nan=True)
    assert held.column(0).dtype == float


def test_margins_come_from_outcomes_in_full_precision(tmp_path):
    """Outcomes of 0 and 1 are held in two bytes, in which 70,000 of them can no longer be added up."""
    rng = np.random.default_rng(0)
    n = 150_000
    frame = pl.DataFrame({"score": rng.normal(size=n), "arm": rng.integers(0, 2, n), "y": rng.integers(0, 2, n)})
    frame.write_parquet(tmp_path / "people.parquet")
    told = EvaluateConfig.build(
        source="column:score", table=str(tmp_path / "people.parquet"), arm="arm", outcome=("y",), bootstrap=0
    )
    people = EvaluateStudy().opened(told)
    assert people.outcomes.values.dtype == np.float16
    y = frame.filter(pl.col("arm") == 0)["y"].to_numpy()
    assert _margins(told, people) == pytest.approx({"y": told.margin * y.std(ddof=1)}, rel=1e-12)


def test_pieces_of_a_ranking_are_its_tie_groups():
    score = np.array([3.0, 1.0, 2.0, 2.0, 1.0, 5.0, 1.0])
    for placed in (order(score), Order(np.arange(7), None)):
        start, end = placed.spans()
        for block in (1, 2, 100):
            pieces = list(placed.pieces(block))
            assert np.concatenate([one for _, one, _ in pieces]).tolist() == start.tolist()
            assert np.concatenate([one for _, _, one in pieces]).tolist() == end.tolist()
            assert [p.start for p, _, _ in pieces] == list(range(0, placed.groups, block))


def test_small_codes_count_as_wide_ones_do():
    assert [compact(np.arange(3), n).dtype for n in (2, 128, 129, 40_000)] == [np.int8, np.int8, np.int16, np.int32]
    rng = np.random.default_rng(1)
    for kind in (np.int8, np.uint8, np.int64, np.uint64, bool):
        labels = rng.integers(0, 2 if kind is bool else 100, 500).astype(kind)
        for known, place in (numbered(labels), numbered(labels[labels == labels.max()])):
            assert known.dtype == labels.dtype
            assert np.array_equal(known[place], labels if place.size == 500 else labels[labels == labels.max()])
    block = rng.integers(0, 3, 500)
    x = rng.normal(size=500) + block
    one, other = (mean_interval(x, block=b) for b in (block, block.astype(np.int8)))
    assert one == other
    assert one == mean_interval(x, block=block, weight=np.ones(500))
    # Rows that are all alike are dealt as they are where strata, all one, are named.
    assert (folds(101, 3, seed=4) == folds(101, 3, strata=np.zeros(101), seed=4)).all()
