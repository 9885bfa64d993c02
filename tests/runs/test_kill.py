"""Killed at any instant, a run goes on, loses nothing that was done, and ends with the same tables."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest
from tests.harness import PATIENCE, assert_same_answer, check_folder
from tests.runs.asking import Asking, asked, gone, processes_below, run_script
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.errors import RunBusy
from querist.files import encode_key
from querist.reports.ask import ask
from querist.runs.journal import Journal

CONFIG = SmallConfig(blocks=3, side=8)
RENAMES = 16
"""Of CONFIG: run.json; six units; three tables, findings, figure, layout, summary, page; run.json."""

FALL = """
import os, sys, warnings
warnings.simplefilter("ignore")
from tests.runs.asking import asked, fall_at_write, plain_page
from tests.runs.small_study import SmallConfig
plain_page()
for when in ("before", "after"):
    for number in range(1, {renames} + 1):
        child = os.fork()  # one interpreter for all: 32 of them would take half a minute
        if child == 0:
            fall_at_write(number, when)
            asked(f"{folder}/{{when}}-{{number}}", SmallConfig(blocks=3, side=8))
            os._exit(0)
        print(when, number, os.waitpid(child, 0)[1])
"""


@pytest.fixture(scope="module")
def truth():
    return ask(SmallStudy(), CONFIG, progress=False)


def entries(folder):
    return Journal(folder / "units.jsonl").entries()


def header(folder):
    return json.loads((folder / "run.json").read_text())


def test_killed_before_and_after_every_rename_it_goes_on(tmp_path, truth, monkeypatch):
    said = run_script(FALL.format(renames=RENAMES, folder=tmp_path)).stdout.split("\n")
    assert [line.rsplit(" ", 1)[1] for line in said if line] == ["9"] * 2 * RENAMES
    for folder in sorted(tmp_path.iterdir()):
        journal = folder / "units.jsonl"
        before = journal.read_bytes() if journal.exists() else b""
        result = asked(folder, CONFIG, resume=True)
        assert journal.read_bytes().startswith(before), "what was done was done again"
        assert len(journal.read_bytes().splitlines()) == 6
        assert_same_answer(result, truth)
        check_folder(folder, result)


def test_there_are_as_many_renames_as_that_test_kills_at(tmp_path, monkeypatch):
    count, rename = 0, os.replace

    def counted(source, target):
        nonlocal count
        count += 1
        rename(source, target)

    monkeypatch.setattr(os, "replace", counted)
    asked(tmp_path / "run", CONFIG)
    assert count == RENAMES


@pytest.mark.parametrize("engine", ["serial", "local:2"])
def test_killed_at_random_instants_again_and_again_it_ends_with_the_same_tables(tmp_path, engine):
    config = SmallConfig(blocks=6, side=8, sleep=0.03)
    folder, rng = tmp_path / "run", random.Random(engine)
    for _ in range(2):
        asking = Asking(folder, config, engine=engine)
        units = len(entries(folder)) if folder.exists() else 0
        asking.until_done(min(units + 1, 12))
        time.sleep(rng.random() * 0.1)
        before = (folder / "units.jsonl").read_bytes()
        children = processes_below(asking.process.pid)
        asking.signal(signal.SIGKILL)
        assert asking.end() in (-signal.SIGKILL, 0)
        assert gone(children), "workers outlived their parent"
        assert (folder / "units.jsonl").read_bytes().startswith(before.rpartition(b"\n")[0])
    result = asked(folder, config, resume=True, engine=engine)
    assert len((folder / "units.jsonl").read_bytes().splitlines()) == 12
    assert_same_answer(result, ask(SmallStudy(), config, progress=False))
    check_folder(folder, result)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("engine", ["serial", "local:2"])
def test_interrupted_it_says_so_and_goes_on(tmp_path, engine, number, capfd):
    hold = tmp_path / "trouble"
    hold.mkdir()
    config = SmallConfig(blocks=3, side=8, trouble=str(hold))
    (hold / f"hang-{encode_key('block 2/3')}").touch()
    folder = tmp_path / "run"
    asking = Asking(folder, config, engine=engine)
    asking.until_done(2)
    children = processes_below(asking.process.pid)
    asking.signal(number, group=number == signal.SIGINT)
    assert asking.end() == 130
    assert gone(children), "workers outlived the interruption"
    assert capfd.readouterr().err == ""
    assert header(folder)["status"] == "interrupted"
    assert len(entries(folder)) == 2
    assert sorted(path.name for path in (folder / "units").iterdir()) == ["make"]
    assert not (folder / ".lock").exists()
    next(hold.iterdir()).unlink()
    result = asked(folder, config, resume=True)
    assert header(folder)["status"] == "done"
    assert_same_answer(result, ask(SmallStudy(), config, progress=False))


def test_a_second_process_is_kept_out(tmp_path):
    hold = tmp_path / "trouble"
    hold.mkdir()
    config = SmallConfig(blocks=3, side=8, trouble=str(hold))
    stop = hold / f"hang-{encode_key('block 1/3')}"
    stop.touch()
    folder = tmp_path / "run"
    asking = Asking(folder, config)
    asking.until_done(1)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for resume in (False, True):
        with pytest.raises(RunBusy, match=f"process {asking.process.pid} on {os.uname().nodename}"):
            asked(folder, config, resume=resume)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    stop.unlink()
    assert asking.end() == 0
    assert_same_answer(asked(folder, config, resume=True), ask(SmallStudy(), config, progress=False))


def test_of_two_processes_that_begin_together_one_is_kept_out(tmp_path):
    hold = tmp_path / "trouble"
    hold.mkdir()
    (hold / f"hang-{encode_key('block 0/3')}").touch()
    config = SmallConfig(blocks=3, side=8, trouble=str(hold))
    both = [Asking(tmp_path / "run", config) for _ in range(2)]
    end = time.monotonic() + PATIENCE
    while all(asking.process.is_alive() for asking in both):
        assert time.monotonic() < end
        time.sleep(0.01)
    next(hold.iterdir()).unlink()
    assert sorted(asking.end() for asking in both) == [0, 1]
    assert len((tmp_path / "run" / "units.jsonl").read_bytes().splitlines()) == 6
