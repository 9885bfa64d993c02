"""Scoring by Ray Data: the same scores as by any other way, and what it refuses."""

from __future__ import annotations

import importlib.util

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.harness import check_bad_input, ray_is_here

from querist.effects import TLearner, simulate
from querist.effects.serving.ray_data import score_dataset
from querist.effects.serving.scorer import Scorer
from querist.errors import BadOption, MissingExtra, UnknownName
from querist.sources.rows import RowsWriter, open_rows

NEEDS_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a folder of two files."""
    folder = tmp_path_factory.mktemp("ray")
    drawn = simulate(400, arms=2, base_scale=0.4, increment_scale=0.4, seed=3)
    frame = pl.DataFrame({f"x{j}": drawn.X[:, j] for j in range(3)}).with_columns(
        pl.Series("town", np.array(["a", "b", None, "c"])[np.arange(400) % 4].tolist()), person=pl.int_range(400)
    )
    TLearner(control=0).fit(frame.drop("person"), drawn.arm, drawn.Y).save(folder / "model")
    (folder / "people").mkdir()
    for part in range(2):
        with RowsWriter(folder / "people" / f"{part}.parquet", group_rows=64) as out:
            out.write(frame[200 * part : 200 * (part + 1)].to_arrow())
    return folder


@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")
def test_ray_scores_as_one_process_does(place, tmp_path):
    import ray.data

    assert ray_is_here()
    table = open_rows(place / "people").table()
    expected = pl.from_arrow(Scorer(place / "model", ids=["person"])(table))
    score_dataset(place / "model", place / "people", tmp_path / "scores", ids=["person"], batch_rows=37, cpus=0.5)
    found = pl.read_parquet(tmp_path / "scores" / "*.parquet").sort("person")
    assert found.columns == expected.columns
    for name in expected.columns:
        np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=0, atol=1e-6)
    taken = score_dataset(
        place / "model", ray.data.from_arrow(table), columns=["total:*"], ids=["person"], workers=(1, 2), cpus=0.5
    )
    rows = pl.from_arrow(pa.concat_tables(ray.get(taken.to_arrow_refs()))).sort("person")
    assert rows.columns == ["person", *(name for name in expected.columns if name.startswith("total:"))]
    for name in rows.columns:
        np.testing.assert_allclose(rows[name].to_numpy(), expected[name].to_numpy(), rtol=0, atol=1e-6)


@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_told_before_workers_start(place):
    assert ray_is_here()
    check_bad_input(
        [
            (lambda: score_dataset(place / "model", place / "people", ids=["nobody"]), UnknownName, ["nobody"]),
            (lambda: score_dataset(place / "model", place / "people", columns=["odd:*"]), UnknownName, ["odd:*"]),
            (lambda: score_dataset(place / "model", place / "people", batch_rows=0), BadOption, ["0"]),
        ]
    )


def test_without_ray_it_says_so(place, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    check_bad_input([(lambda: score_dataset(place / "model", place / "people"), MissingExtra, ["querist[ray]"])])
