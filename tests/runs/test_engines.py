"""Engines: the same bits from each, threads of the unit, workers that die, studies that cannot cross."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.harness import PATIENCE, assert_same_answer, assert_same_tables, check_bad_input
from tests.runs.asking import asked, gone, run_script
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.errors import BadOption
from querist.files import encode_key, write_text
from querist.reports.ask import ask
from querist.runs.carry import UnitsFailed
from querist.runs.engines import AUTO_SECONDS, choose
from querist.runs.engines.local import KILLED, Local
from querist.runs.journal import Journal
from querist.runs.study import Unit
from querist.runs.work import Outcome


def units(*costs):
    return [Unit(f"unit {i}", cost=cost) for i, cost in enumerate(costs)]


def test_names_of_engines():
    half = AUTO_SECONDS / 2
    assert choose("serial")(units(100, 100)).name == "serial"
    assert choose("local")(units(1)).name == "local"
    assert choose("local:3")(units(1)).name == "local:3"
    assert choose("auto")(units(half, half)).name == "serial"
    assert choose("auto")(units(half, half + 1)).name == "local"
    assert choose("auto")(units(1000)).name == "serial"


def test_bad_engines():
    known = ["auto, serial, local, local:N"]
    check_bad_input(
        [
            (lambda name=name: choose(name), BadOption, [name, *known])
            for name in ("lokal", "local:0", "local:x", "local:-1", "rayon")
        ]
    )


class Note:
    """Says who did a unit and when it began (as its seconds). Until `count` units have begun at the same time, none of them ends."""

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __call__(self, unit):
        begun = time.monotonic()
        (self.folder / unit.key).touch()
        while len(list(self.folder.iterdir())) < self.count and time.monotonic() < begun + PATIENCE:
            time.sleep(0.01)
        return Outcome(unit.key, begun, error=str(os.getpid()))


def test_local_begins_with_the_longest(tmp_path):
    engine = Local(1)
    outcomes = sorted(engine.map(Note(tmp_path, 1), units(1, 5, 3, 4, 2, 0)), key=lambda outcome: outcome.seconds)
    assert [outcome.key for outcome in outcomes] == [f"unit {i}" for i in (1, 3, 2, 4, 0, 5)]
    assert list(engine.map(Note(tmp_path, 1), [])) == []
    engine.close()


def test_local_uses_all_workers_and_keeps_them_for_the_next_stage(tmp_path):
    engine = Local(2)
    folders = [tmp_path / "one", tmp_path / "two"]
    workers = []
    for folder in folders:
        folder.mkdir()
        workers.append({int(outcome.error) for outcome in engine.map(Note(folder, 2), units(1, 1, 1))})
    assert len(workers[0]) == 2
    assert workers[1] == workers[0]
    engine.close()
    assert gone(list(workers[0]))


def test_closing_the_outcomes_ends_units_that_still_run(tmp_path):
    engine = Local(2)
    outcomes = engine.map(Hang(tmp_path), units(1, 1))
    assert next(outcomes).key == "unit 1"
    hanging = int((tmp_path / "unit 0").read_text())
    outcomes.close()
    assert gone([hanging])


class Hang:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, unit):
        write_text(self.folder / unit.key, str(os.getpid()))
        while unit.key == "unit 0" or not (self.folder / "unit 0").exists():
            time.sleep(0.01)
        return Outcome(unit.key, 0.0)


class Fatal:
    def __call__(self, unit):
        if unit.key in ("unit 1", "unit 4"):
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(unit.key, 0.0)


def test_only_the_units_that_kill_their_worker_fail():
    engine = Local(2)
    outcomes = {outcome.key: outcome.error for outcome in engine.map(Fatal(), units(*[1] * 8))}
    engine.close()
    assert outcomes == {f"unit {i}": KILLED if i in (1, 4) else None for i in range(8)}


def test_a_killed_worker_costs_nothing_and_a_deadly_unit_is_journalled(tmp_path):
    hold = tmp_path / "trouble"
    hold.mkdir()
    config = SmallConfig(blocks=4, side=8, trouble=str(hold))
    truth = ask(SmallStudy(), config, progress=False)
    (hold / f"kill-once-{encode_key('block 1/4')}").touch()
    assert_same_answer(asked(tmp_path / "once", config, engine="local:2"), truth)
    assert list(hold.iterdir()) == []

    (hold / f"kill-{encode_key('block 2/4')}").touch()
    with pytest.raises(
        UnitsFailed, match="block 2/4: The process that worked on this unit ended without a word, twice"
    ):
        asked(tmp_path / "always", config, engine="local:2")
    entries = Journal(tmp_path / "always" / "units.jsonl").entries()
    assert {key: entry.status for (_, key), entry in entries.items()} == {
        f"block {i}/4": "failed" if i == 2 else "done" for i in range(4)
    }
    next(hold.iterdir()).unlink()
    assert_same_answer(asked(tmp_path / "always", config, engine="local:2", resume=True), truth)


class Held(SmallStudy):
    """Holds something that no other process can have, until it is made portable."""

    def __init__(self, portable=True):
        self.held = lambda: None
        self.can = portable
        self.times = 0

    def portable(self, config, folder):
        self.times += 1
        assert folder.is_dir()
        (folder / "data").write_text("x")
        return Kept(folder / "data") if self.can else self


class Kept(SmallStudy):
    def __init__(self, path):
        self.path = path

    def work(self, config, unit, folder):
        assert self.path.read_text() == "x"
        return super().work(config, unit, folder)


def test_what_is_held_in_memory_is_written_once_before_it_crosses(tmp_path):
    config = SmallConfig(blocks=2, side=8)
    study = Held()
    result = ask(study, config, out=tmp_path / "run", engine="local:2", progress=False)
    assert study.times == 1
    assert_same_tables(result.tables, ask(SmallStudy(), config, progress=False).tables)
    assert not list(tmp_path.rglob("portable"))
    ask(study, config, progress=False)
    assert study.times == 1


def test_a_study_that_cannot_cross_is_told(tmp_path):
    class Inner(SmallStudy):
        pass

    config = SmallConfig(blocks=2, side=8)
    check_bad_input(
        [
            (
                lambda: ask(Held(portable=False), config, engine="local:2", progress=False),
                BadOption,
                ["cross", "serial"],
            ),
            (lambda: ask(Inner(), config, engine="local:2", progress=False), BadOption, ["cross", "serial"]),
        ]
    )


SCRIPT = """
from pathlib import Path
from querist.reports.ask import ask
from tests.runs.small_study import SmallConfig, SmallStudy
{guard}ask(SmallStudy(), SmallConfig(blocks=2, side=8), engine="local:2", progress=False)
"""


def test_a_script_without_a_guard_is_told_what_to_do(tmp_path):
    root = Path(__file__).parents[2]
    for guard, code in (("", 1), ("if __name__ == '__main__': ", 0)):
        script = tmp_path / f"script{code}.py"
        script.write_text(SCRIPT.format(guard=guard))
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done.stderr
        if code:
            assert "did not start" in done.stderr.splitlines()[-1]
            assert "__main__" in done.stderr.splitlines()[-1]


# ------------------------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_come_from_the_unit_and_tables_are_equal_bit_for_bit(threads):
    config = SmallConfig(blocks=3, side=300, threads=threads)
    serial = ask(SmallStudy(), config, progress=False)
    assert serial.products["threads"].to_list() == [threads] * 3
    assert_same_tables(ask(SmallStudy(), config, engine="local:2", progress=False).tables, serial.tables)


THREADS = """
from querist.runs.threads import limited
from threadpoolctl import threadpool_info
import sys
{before}
told = lambda: {{info["num_threads"] for info in threadpool_info()}}
if {threads_before}: torch.set_num_threads({threads_before})
with limited({threads}):
    assert ("torch" in sys.modules) == {has}
    import torch, scipy.linalg
    inside = (torch.get_num_threads(), told())
import os
print(inside, torch.get_num_threads(), told(), os.environ.get("OMP_NUM_THREADS"))
"""


@pytest.mark.parametrize(("threads", "environment", "outside"), [(1, "3", 3), (2, "", None)])
def test_torch_first_imported_in_the_body_has_the_units_threads(threads, environment, outside):
    from querist.runs.threads import machine_threads

    outside = outside or machine_threads()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    said = run_script(
        THREADS.format(before="", threads_before=0, threads=threads, has=False), **dict.fromkeys(names, environment)
    )
    assert said.stdout.strip() == f"({threads}, {{{threads}}}) {outside} {{{outside}}} {environment}".strip(), (
        said.stderr
    )


def test_torch_already_there_has_the_units_threads_and_gets_its_own_back():
    code = THREADS.format(before="import torch", threads_before=4, threads=2, has=True)
    said = run_script(code, OMP_NUM_THREADS="3", OPENBLAS_NUM_THREADS="3")
    assert said.stdout.startswith("(2, {2}) 4 "), said.stderr + said.stdout


MKL = """
import re, torch
from querist.runs.threads import limited
def told(): return {int(n) for n in re.findall(r"(?:num|max)_threads\\(\\) : (\\d+)", torch.__config__.parallel_info())}
torch.set_num_threads(3)
for _ in range(2):
    with limited(1): print(told())
    print(told())
"""


def test_the_library_inside_torch_has_the_units_threads_the_second_time_too():
    """MKL keeps a number of its own: torch's was right when it was not, and eigenvalues took ten times the CPU."""
    said = run_script(MKL)
    assert said.stdout.split("\n")[:4] == ["{1}", "{3}", "{1}", "{3}"], said.stderr + said.stdout


def test_threads_are_given_back_after_an_error():
    from threadpoolctl import threadpool_info

    from querist.runs.threads import limited

    before = [info["num_threads"] for info in threadpool_info()]

    def fail():
        with limited(2):
            assert {info["num_threads"] for info in threadpool_info()} == {2}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [info["num_threads"] for info in threadpool_info()] == before


@pytest.mark.slow
def test_a_study_that_imports_torch_in_its_work_gives_the_same_bits_from_every_engine():
    code = """
from querist.reports.ask import ask
from tests.harness import assert_same_tables
from tests.runs.small_study import SmallConfig, SmallStudy
import sys
if __name__ == "__main__":
    config = SmallConfig(blocks=3, side=300, uses_torch=True, threads={threads})
    assert "torch" not in sys.modules
    serial = ask(SmallStudy(), config, progress=False)
    assert serial.products["threads"].to_list() == [{threads}] * 3
    assert_same_tables(ask(SmallStudy(), config, engine="local:2", progress=False).tables, serial.tables)
    print("same")
"""
    for threads in (1, 2):
        said = run_script(code.format(threads=threads), OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
        assert said.stdout.strip() == "same", said.stderr
