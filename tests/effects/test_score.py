"""`effects score`: the same scores from any engine, batch and file size; killed and resumed; columns, names, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.harness import Bad, ask_and_die, check_bad_input, check_study

from querist.cli import main
from querist.effects import TLearner, load, score, simulate
from querist.effects.configs import ScoreConfig
from querist.effects.serving.names import column_name, decoded, score_columns
from querist.effects.serving.scorer import Scorer
from querist.effects.serving.spark import arrow_mapper, pandas_mapper, schema_of
from querist.effects.studies.score import ScoreStudy
from querist.errors import BadOption
from querist.reports.ask import ask
from querist.sources.rows import RowsWriter, open_rows


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a table of 7 row groups with an unseen level, missing cells and a column more."""
    folder = tmp_path_factory.mktemp("score")
    drawn = simulate(700, arms=2, base_scale=0.4, increment_scale=0.4, seed=3)
    frame = pl.DataFrame({f"x{j}": drawn.X[:, j] for j in range(4)}).with_columns(
        pl.Series("town", np.array(["a", "b", "c"])[np.arange(700) % 3]),
        pl.Series("arm", np.array(["none", "A:1", "50%"])[drawn.arm]),
        pl.Series("y", drawn.Y[:, 0]),
        pl.Series("person", [f"p{i}" for i in range(700)]),
    )
    features = ["x0", "x1", "x2", "x3", "town"]
    model = TLearner(control="none").fit_rows(frame, arm="arm", outcomes=["y"], feature=features)
    model.save(folder / "model")
    new = frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 5).then(pl.lit("z")).otherwise(pl.col("town")).alias("town"),
        pl.when(pl.int_range(pl.len()) < 3).then(None).otherwise(pl.col("x1")).alias("x1"),
    )
    with RowsWriter(folder / "new.parquet", group_rows=100) as out:
        out.write(new.to_arrow())
    new.write_csv(folder / "new.csv")
    return folder


def config(place, out, **fields):
    return ScoreConfig.build(
        **{"model": str(place / "model"), "table": str(place / "new.parquet"), "output": str(out), "id": ("person",)}
        | fields
    )


def read(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("part-*.parquet"))])


def test_scores_are_the_models_and_columns_are_named(place, tmp_path):
    result = ask(ScoreStudy(), config(place, tmp_path / "out", file_rows=250), out=tmp_path / "run", progress=False)
    frame = read(tmp_path / "out")
    assert frame.height == 700
    assert frame["person"].to_list() == [f"p{i}" for i in range(700)]
    effects = load(place / "model").predict_effects(pl.read_parquet(place / "new.parquet"))
    for name in result.summary["columns"][1:]:
        part, arm, _ = decoded(name)
        values = getattr(effects, part)
        values = values[:, 0] if arm is None else values[:, load(place / "model").arms_.index(arm), 0]
        np.testing.assert_allclose(frame[name].to_numpy(), values, rtol=1e-6, atol=1e-7)
    assert set(result.summary["columns"]) == {
        "person", "natural:y", "base:y", "incremental:50%25:y", "incremental:A%3A1:y", "total:50%25:y", "total:A%3A1:y",
    }  # fmt: skip
    assert result.summary["columns_ignored"] == ["arm", "y"]
    assert result.summary["unseen_categories"] == {"town": 1}
    assert result.summary["missing_filled"] == {"x1": 3}
    assert result.summary["files"] == [f"part-0000{i}.parquet" for i in range(4)]
    assert open_rows(tmp_path / "out").about["control"] == "none"


def study():
    return ScoreStudy()


def test_scoring_is_a_study(place, tmp_path):
    check_study(study, config(place, tmp_path / "out", file_rows=200), tmp_path, kill=False)


def test_no_score_depends_on_engine_batch_or_file(place, tmp_path):
    truth = None
    for number, (engine, fields) in enumerate(
        [
            ("serial", {}),
            ("local:2", {"file_rows": 100}),
            ("serial", {"batch_rows": 37}),
            ("serial", {"table": str(place / "new.csv")}),
        ]
    ):
        out = tmp_path / str(number)
        ask(ScoreStudy(), config(place, out, **fields), engine=engine, progress=False)
        frame = read(out)
        truth = frame if truth is None else truth
        assert frame.equals(truth)


def test_killed_it_goes_on_and_ends_with_the_same_files(place, tmp_path):
    settings = config(place, tmp_path / "out", file_rows=100)
    ask_and_die(ScoreStudy, settings, tmp_path / "run", 3)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert 3 <= len(before) < 7
    result = ask(ScoreStudy(), settings, out=tmp_path / "run", resume=True, progress=False)
    kept = [name for name in before if (tmp_path / "out" / name).stat().st_mtime_ns == before[name]]
    assert len(kept) >= 3
    assert result.summary["rows"] == 700
    ask(ScoreStudy(), config(place, tmp_path / "whole"), progress=False)
    assert read(tmp_path / "out").equals(read(tmp_path / "whole"))
    assert not list((tmp_path / "out").glob(".*"))


def test_files_of_an_earlier_scoring_go(place, tmp_path):
    ask(ScoreStudy(), config(place, tmp_path / "out", file_rows=100), progress=False)
    ask(ScoreStudy(), config(place, tmp_path / "out"), progress=False)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-00000.parquet"]


def test_the_verb_takes_what_lies_in_memory(place, tmp_path):
    told = score(
        load(place / "model"),
        pl.read_parquet(place / "new.parquet"),
        tmp_path / "out",
        columns=["total:*"],
        id_columns=["person"],
    )
    assert told.columns == ("person", "total:50%25:y", "total:A%3A1:y")
    assert told.rows == 700
    ask(ScoreStudy(), config(place, tmp_path / "file"), progress=False)
    assert read(tmp_path / "out").equals(read(tmp_path / "file").select(told.columns))


def test_other_engines_of_tables_score_alike(place, tmp_path):
    """What Spark and Ray Data call, called as they do; with Ray where it is installed."""
    table = open_rows(place / "new.parquet").table()
    scorer = Scorer(place / "model", ids=["person"])
    expected = scorer(table)
    batches = table.to_batches(max_chunksize=64)
    found = pa.Table.from_batches(list(arrow_mapper(place / "model", ids=["person"])(iter(batches))))
    assert found.equals(expected)
    frames = [batch.to_pandas() for batch in batches]
    made = pa.concat_tables(
        pa.Table.from_pandas(frame, preserve_index=False)
        for frame in pandas_mapper(place / "model", ids=["person"])(iter(frames))
    )
    assert made.cast(expected.schema).equals(expected)
    assert schema_of(place / "model", ids=["person"]).startswith("`person` string, `natural:y` float")
    import pickle

    assert pickle.loads(pickle.dumps(scorer))(table).equals(expected)


def test_names_of_columns_are_read_back():
    for part, outcome, arm in (("natural", "a:b", None), ("total", "50%", "x:y%3A"), ("response", "y", "none")):
        assert decoded(column_name(part, outcome, arm)) == (part, arm, outcome)
    assert decoded("history") is None
    assert decoded("total:x") is None
    whole = score_columns(["id", "total:A:y", "total:A:z", "total:B:y", "total:B:z", "natural:y"])
    assert (whole.arms, whole.outcomes) == (("A", "B"), ("y", "z"))
    check_bad_input(
        [
            (lambda: score_columns(["x"], "here"), BadOption, ["here", "total:ARM:OUTCOME"]),
            (lambda: score_columns(["total:A:y", "total:B:z"]), BadOption, ["total:A:z"]),
        ]
    )


def test_bad_scorings_are_told(place, tmp_path, capfd):
    model, table = str(place / "model"), str(place / "new.parquet")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    file = tmp_path / "file"
    file.write_text("mine")
    pl.read_parquet(table).drop("x2").write_parquet(tmp_path / "less.parquet")
    base = ["effects", "score", model, table, str(tmp_path / "out"), "--out", str(tmp_path / "run")]
    rows = [
        (["effects", "score", str(tmp_path / "no"), table, str(tmp_path / "o")], ["no model"]),
        (["effects", "score", model, str(tmp_path / "no.parquet"), str(tmp_path / "o")], ["no.parquet"]),
        (["effects", "score", model, table, str(other)], ["notes.txt", "holds something else"]),
        (["effects", "score", model, table, str(file)], ["is a file"]),
        (["effects", "score", model, str(tmp_path / "less.parquet"), str(tmp_path / "o")], ["x2"]),
        ([*base, "--id", "nobody"], ["nobody", "person"]),
        ([*base, "--columns", "effect:*"], ["effect:*", "natural:y"]),
        ([*base, "--batch-rows", "0"], ["batch"]),
    ]
    check_bad_input([Bad(argv, 2, fragments) for argv, fragments in rows])
    assert (other / "notes.txt").read_text() == "mine"
    assert main([*base, "--json", "--quiet"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "querist.effects.score/1"
