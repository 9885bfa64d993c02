"""The run folder: what it refuses, what it keeps of failures, and its journal."""

from __future__ import annotations

import gc
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness import assert_same_answer, check_bad_input
from tests.runs.asking import asked
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.errors import BadOption, BadValues, CorruptFile, RunBusy
from querist.files import encode_key
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.runs.carry import UnitsFailed
from querist.runs.journal import Entry, Journal
from querist.runs.run import Run, read_header

CONFIG = SmallConfig(blocks=3, side=8)


@pytest.fixture
def hold(tmp_path):
    folder = tmp_path / "trouble"
    folder.mkdir()
    return folder


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_line_is_kept_without_passwords(tmp_path):
    argv = ["a", "b@c", "--mlflow", "https://me:secret@host/x", "hf:o/n@v"]
    asked(tmp_path / "run", CONFIG, argv=argv)
    assert read_header(tmp_path / "run")["argv"] == ["a", "b@c", "--mlflow", "https://host/x", "hf:o/n@v"]
    asked(tmp_path / "other", CONFIG)
    assert read_header(tmp_path / "other")["argv"] is None


def test_a_folder_that_holds_a_run_is_refused_and_left_alone(tmp_path):
    folder = tmp_path / "run"
    asked(folder, CONFIG)
    before = contents(folder)
    other = SmallConfig(blocks=4, side=8, seed=3)
    source = tmp_path / "source"
    source.write_bytes(b"one")
    check_bad_input(
        [
            (
                lambda: asked(folder, CONFIG),
                RunBusy,
                ["holds a run", "done", str(folder), "--resume", "another folder"],
            ),
            (
                lambda: asked(folder, other, resume=True),
                BadOption,
                ["seed: 0 -> 3", "blocks: 3 -> 4", str(folder), "another configuration"],
            ),
            (
                lambda: asked(folder, SmallConfig(blocks=3, side=8, source=str(source)), resume=True),
                BadOption,
                ["source: null -> ", str(source)],
            ),
        ]
    )
    assert contents(folder) == before


def test_another_command_is_refused(tmp_path):
    class Other(SmallStudy):
        command = "other"

    asked(tmp_path / "run", CONFIG)
    call = lambda: ask(Other(), CONFIG, out=tmp_path / "run", resume=True)  # noqa: E731
    check_bad_input([(call, BadOption, ["another command", "command: small -> other"])])


def test_a_changed_input_is_named(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"one")
    config = SmallConfig(blocks=3, side=8, source=str(source))
    folder = tmp_path / "run"
    asked(folder, config)
    before = contents(folder)
    assert_same_answer(asked(folder, config, resume=True), ask(SmallStudy(), config, progress=False))
    source.write_bytes(b"two")
    call = lambda: asked(folder, config, resume=True)  # noqa: E731
    check_bad_input([(call, BadOption, ["input has changed", "source: sha256:", "->", str(folder)])])
    assert contents(folder) == before


@pytest.mark.parametrize("resume", [False, True])
def test_somebody_elses_folder_is_left_alone(tmp_path, resume):
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    check_bad_input(
        [
            (lambda: asked(tmp_path, resume=resume), BadOption, ["thesis.tex", str(tmp_path), "nothing was touched"]),
            (lambda: asked(tmp_path / "file", resume=resume), BadOption, ["is a file"]),
        ]
    )
    assert sorted(contents(tmp_path)) == ["file", "thesis.tex"]


def test_resume_on_none_begins_and_a_relative_folder_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = asked("runs/deep/run", CONFIG, resume=True)
    assert result.status == "done"
    assert result.summary["run"] == "runs/deep/run"
    (tmp_path / "empty").mkdir()
    assert asked("empty", CONFIG).status == "done"


def test_bad_input_leaves_no_folder(tmp_path):
    folder = tmp_path / "a" / "b" / "run"
    with pytest.raises(BadValues):
        asked(folder, SmallConfig(refuse=True))
    assert not (tmp_path / "a").exists()

    class Late(SmallStudy):
        def units(self, config, stage, done):
            raise BadValues("Nothing is selected", value="x", mend="Select something")

    with pytest.raises(BadValues):
        ask(Late(), CONFIG, out=folder)
    assert not (tmp_path / "a").exists()
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(BadValues):
        ask(Late(), CONFIG, out=kept)
    assert list(kept.iterdir()) == []


@pytest.mark.parametrize("engine", ["serial", "local:2"])
def test_a_unit_that_raises_is_journalled_and_done_again_on_resume(tmp_path, hold, engine):
    config = SmallConfig(blocks=4, side=8, trouble=str(hold))
    for i in (0, 2):
        (hold / f"raise-{encode_key(f'block {i}/4')}").touch()
    folder = tmp_path / "run"
    with pytest.raises(
        UnitsFailed, match=r"2 of 4 units failed \(make/block 0/4: ValueError: trouble with block 0/4; "
    ) as caught:
        asked(folder, config, engine=engine)
    assert str(folder) in str(caught.value)
    assert "--resume" in str(caught.value)
    assert caught.value.exit_code == 1
    header = read_header(folder)
    assert header["status"] == "failed"
    assert [row["unit"] for row in header["failed"]] == ["make/block 0/4", "make/block 2/4"]
    entries = Journal(folder / "units.jsonl").entries()
    assert {key: entry.status for (_, key), entry in entries.items()} == {
        f"block {i}/4": "failed" if i in (0, 2) else "done" for i in range(4)
    }
    failed = entries["make", "block 0/4"]
    assert failed.error == "ValueError: trouble with block 0/4"
    assert "in trouble" in failed.trace
    assert not (folder / "tables").exists()
    assert not (folder / "report.html").exists()
    check_bad_input([(lambda: Result.open(folder), BadOption, ["failed", "--resume"])])
    for path in hold.iterdir():
        path.unlink()
    seen = []
    result = ask(SmallStudy(), config, out=folder, resume=True, progress=lambda *args: seen.append(args))
    assert seen[:2] == [(3, 4, "block 0/4"), (4, 4, "block 2/4")]
    assert_same_answer(result, ask(SmallStudy(), config, progress=False))


def test_in_memory_a_unit_that_raises_is_told_with_its_cause(hold):
    config = SmallConfig(blocks=2, side=8, trouble=str(hold))
    (hold / f"raise-{encode_key('block 1/2')}").touch()
    with pytest.raises(UnitsFailed, match="1 of 2 units failed") as caught:
        ask(SmallStudy(), config, progress=False)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_in_finish_is_kept_and_finish_is_done_again(tmp_path):
    class Unfinished(SmallStudy):
        def finish(self, config, tables):
            raise ZeroDivisionError("oh")

    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        ask(Unfinished(), CONFIG, out=folder, progress=False)
    header = read_header(folder)
    assert (header["status"], header["failed"]) == ("failed", [{"unit": None, "error": "ZeroDivisionError: oh"}])
    journal = (folder / "units.jsonl").read_bytes()
    assert_same_answer(asked(folder, CONFIG, resume=True), ask(SmallStudy(), CONFIG, progress=False))
    assert (folder / "units.jsonl").read_bytes() == journal


@pytest.mark.parametrize("lost", ["report.html", "summary.json", "tables", "findings.parquet"])
def test_a_finished_run_that_lost_a_file_is_finished_again(tmp_path, lost):
    import shutil

    folder = tmp_path / "run"
    whole = asked(folder, CONFIG)
    tables = {name: whole.tables[name] for name in whole.tables}
    path = folder / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = asked(folder, CONFIG, resume=True)
    assert path.exists()
    assert all(
        again.tables[name].drop("seconds", strict=False).equals(tables[name].drop("seconds", strict=False))
        for name in tables
    )


def test_a_unit_whose_folder_is_gone_is_done_again(tmp_path):
    import shutil

    class Unfinished(SmallStudy):
        def finish(self, config, tables):
            raise ZeroDivisionError

    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        ask(Unfinished(), CONFIG, out=folder, progress=False)
    shutil.rmtree(folder / "units" / "make" / encode_key("block 1/3"))
    assert_same_answer(asked(folder, CONFIG, resume=True), ask(SmallStudy(), CONFIG, progress=False))
    assert len((folder / "units.jsonl").read_bytes().splitlines()) == 7


def test_other_versions_of_packages_are_a_warning(tmp_path, monkeypatch):
    class Unfinished(SmallStudy):
        def finish(self, config, tables):
            raise ZeroDivisionError

    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        ask(Unfinished(), CONFIG, out=folder, progress=False)
    header = json.loads((folder / "run.json").read_text())
    header["versions"]["numpy"] = "1.0"
    (folder / "run.json").write_text(json.dumps(header))
    warnings = asked(folder, CONFIG, resume=True).warnings
    assert warnings[0].startswith("The run was begun with numpy 1.0 and went on with ")
    assert warnings[1:] == ["A warning."]


def test_a_header_that_cannot_be_read_is_told(tmp_path):
    folder = tmp_path / "run"
    asked(folder, CONFIG)
    (folder / "run.json").write_text('{"schema": "querist.r')
    with pytest.raises(CorruptFile, match=r"run\.json"):
        asked(folder, CONFIG, resume=True)
    (folder / "run.json").write_text('{"schema": "other"}')
    with pytest.raises(CorruptFile, match="other"):
        asked(folder, CONFIG, resume=True)


# ------------------------------------------------------------------------------------------------------------ journal


def entry(number, **fields):
    return Entry("work", f"unit {number}", "done", 0.5, ("a", "b"), **fields)


def test_the_last_entry_of_a_unit_counts(tmp_path):
    journal = Journal(tmp_path / "units.jsonl")
    assert journal.entries() == {}
    journal.append(Entry("work", "unit 1", "failed", 1.0, (), "no", "trace"))
    journal.append(entry(1))
    assert journal.entries() == {("work", "unit 1"): entry(1)}


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), st.data())
def test_a_journal_cut_anywhere_holds_its_whole_lines_and_goes_on(tmp_path_factory, keys, data):
    journal = Journal(tmp_path_factory.mktemp("journal") / "units.jsonl")
    entries = [Entry("work", key, "done", 0.1) for key in keys]
    for one in entries:
        journal.append(one)
    whole = journal.path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    journal.path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert list(journal.entries().values()) == entries[:kept]
    more = Entry("more", "x", "done", 0.2)
    journal.append(more)
    assert list(journal.entries().values()) == [*entries[:kept], more]


def test_a_last_line_of_zeros_is_not_counted_and_one_in_the_middle_is_told(tmp_path):
    journal = Journal(tmp_path / "units.jsonl")
    journal.append(entry(1))
    line = journal.path.read_bytes()
    journal.path.write_bytes(line + b"\0" * 40 + b"\n")
    assert list(journal.entries().values()) == [entry(1)]
    journal.path.write_bytes(line + b"{}\n" + line)
    check_bad_input([(journal.entries, CorruptFile, ["Line 2", "units.jsonl", "Remove that line"])])


def test_a_torn_line_longer_than_a_block_is_cut_away(tmp_path):
    journal = Journal(tmp_path / "units.jsonl")
    journal.append(entry(1))
    with journal.path.open("ab") as file:
        file.write(b'{"stage": "' + b"x" * 200_000)
    journal.append(entry(2))
    assert list(journal.entries().values()) == [entry(1), entry(2)]


def test_the_unit_of_a_torn_line_is_done_again(tmp_path):
    folder = tmp_path / "run"

    class Unfinished(SmallStudy):
        def finish(self, config, tables):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(Unfinished(), CONFIG, out=folder, progress=False)
    data = (folder / "units.jsonl").read_bytes()
    (folder / "units.jsonl").write_bytes(data[:-20])
    assert_same_answer(asked(folder, CONFIG, resume=True), ask(SmallStudy(), CONFIG, progress=False))
    assert (folder / "units.jsonl").read_bytes().count(b"\n") == 6


def test_a_unit_table_that_cannot_be_read_is_told(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        ask(type("Unfinished", (SmallStudy,), {"finish": lambda *_: 1 / 0})(), CONFIG, out=folder, progress=False)
    path = folder / "units" / "multiply" / encode_key("block 1/3") / "products.parquet"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorruptFile, match=r"products\.parquet"):
        asked(folder, CONFIG, resume=True)


def test_the_context_gives_the_lock_back(tmp_path):
    for _ in range(2):
        with Run(tmp_path / "run", resume=True) as run:
            assert (run.folder / ".lock").exists()
        assert not (tmp_path / "run" / ".lock").exists()


def test_paths_in_tables_do_not_depend_on_where_the_run_lies(tmp_path):
    one, other = asked(tmp_path / "one", CONFIG), asked(tmp_path / "other", CONFIG)
    assert one.blocks["path"].to_list() == other.blocks["path"].to_list()
    path = one.blocks["path"][0]
    assert path == "run:units/make/block%200%2F3/block.npy"
    assert one.file(path).is_file()
    assert one.file(path) != other.file(path)
    assert one.file(path).read_bytes() == other.file(path).read_bytes()
    memory = ask(SmallStudy(), CONFIG, progress=False)
    place = memory.file(path)
    assert place.read_bytes() == one.file(path).read_bytes()
    check_bad_input([(lambda: memory.file("/etc/x"), BadOption, ["/etc/x", "run:"])])
    del memory
    gc.collect()
    assert not place.exists()
    assert isinstance(one.blocks, pl.DataFrame)
