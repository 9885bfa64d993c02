"""Units whose folders outlive a kill, and folders that a run keeps under their names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from querist import files
from querist.reports.ask import ask
from querist.results.layout import Layout
from querist.results.table import Column, TableSpec
from querist.runs.study import Answer, Study, StudyConfig, Unit

STEPS = TableSpec("steps", "Steps.", (Column("unit", "str", "Unit."), Column("path", "str", "Its file.")), ("unit",))


class Long(Study[StudyConfig]):
    """Two units that count their steps in a file, and may be stopped on the way."""

    room, command, tables = "spine", "long", (STEPS,)

    def __init__(self):
        self.stop, self.done = {}, {}

    def units(self, config, stage, done):
        return [Unit("a", lasting=True), Unit("b/1")]

    def work(self, config, unit, folder):
        begun = len((folder / "log").read_text()) if (folder / "log").exists() else 0
        for step in range(begun, 5):
            if self.stop.get(unit.key) == step:
                self.stop.clear()
                raise KeyboardInterrupt
            with (folder / "log").open("a") as log:
                log.write("x")
            self.done[unit.key] = self.done.get(unit.key, 0) + 1
        (folder / "kept").mkdir(exist_ok=True)
        (folder / "kept" / "model").write_text("whole")
        return {"steps": [{"unit": unit.key, "path": str(folder / "kept")}]}

    def finish(self, config, tables):
        path = Path(tables["steps"]["path"][0])
        return Answer(tables, [], [], Layout("Long", "", (), (STEPS,)), kept={"model": path})


def test_a_lasting_unit_goes_on_where_it_was(tmp_path):
    study, out = Long(), tmp_path / "run"
    study.stop = {"a": 3}
    with pytest.raises(KeyboardInterrupt):
        ask(study, StudyConfig(), out=out, progress=False)
    left = out / "units" / ".lasting" / "work" / "a" / "log"
    assert left.read_text() == "xxx"
    study.stop = {"b/1": 2}
    with pytest.raises(KeyboardInterrupt):
        ask(study, StudyConfig(), out=out, resume=True, progress=False)
    assert study.done == {"a": 5, "b/1": 2}
    ask(study, StudyConfig(), out=out, resume=True, progress=False)
    assert study.done == {"a": 5, "b/1": 7}  # the other began anew
    assert not left.parents[1].exists()
    assert (out / "model" / "model").read_text() == "whole"


def test_what_is_kept_is_whole_or_not_there(tmp_path, monkeypatch):
    study, out = Long(), tmp_path / "run"

    def cut_off(source, target, **options):
        target.mkdir(exist_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", cut_off)
        with pytest.raises(KeyboardInterrupt):
            ask(study, StudyConfig(), out=out, progress=False)
    assert not (out / "model").exists()
    assert any(files.is_temporary(path) for path in out.iterdir())
    for _ in range(2):
        ask(study, StudyConfig(), out=out, resume=True, progress=False)
        assert (out / "model" / "model").read_text() == "whole"
        assert not any(files.is_temporary(path) for path in out.iterdir())
        shutil.rmtree(out / "model")  # the run then makes it again
    assert study.done == {"a": 5, "b/1": 5}
    ask(Long(), StudyConfig(), progress=False)  # in memory nothing is kept
