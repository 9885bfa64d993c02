"""The Ray engine: the same bits as serial, workers, drivers and nodes that die, clusters by address."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.harness import PATIENCE, ask_and_die, assert_same_answer, assert_same_tables, check_bad_input, ray_is_here
from tests.runs.asking import Asking, asked, gone, processes_below, run_script
from tests.runs.small_study import SmallConfig, SmallStudy
from tests.runs.test_engines import Fatal, Held, units

from querist.errors import BadOption, MissingExtra
from querist.files import encode_key
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.runs.carry import UnitsFailed
from querist.runs.engines import choose
from querist.runs.engines.local import KILLED
from querist.runs.engines.ray import Ray, within_task
from querist.runs.journal import Journal
from querist.runs.study import Unit
from querist.runs.work import Outcome

pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.xdist_group("ray")


def test_without_the_package_or_an_address_it_says_so(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        silent = f"ray://127.0.0.1:{taken.getsockname()[1]}"
        rows = [
            (lambda: choose("ray://nowhere"), BadOption, ["ray://nowhere", "ray://HOST:PORT"]),
            (lambda: choose(silent), BadOption, [silent, "ray start --head"]),
        ]
        check_bad_input(rows)
    monkeypatch.setitem(sys.modules, "ray", None)
    check_bad_input([(lambda: choose("ray"), MissingExtra, ["engine ray", "querist[ray]"])])


@pytest.fixture(scope="module")
def cluster():
    """The harness's own, for the tests that need no other: an engine uses the connection that it finds, and leaves it open."""
    assert ray_is_here()


def test_tables_are_those_of_serial_with_any_number_of_threads(cluster, tmp_path):
    for threads in (1, 2):
        config = SmallConfig(blocks=4, side=300, threads=threads)
        serial = ask(SmallStudy(), config, progress=False)
        assert serial.products["threads"].to_list() == [threads] * 4
        assert_same_answer(asked(None, config, engine="ray"), serial)
        assert_same_answer(asked(tmp_path / str(threads), config, engine="ray"), serial)
    assert not list(tmp_path.rglob(".seen*"))


def test_what_is_held_in_memory_is_written_once_before_it_crosses(cluster, tmp_path):
    config = SmallConfig(blocks=2, side=8)
    study = Held()
    result = ask(study, config, out=tmp_path / "run", engine="ray", progress=False)
    assert study.times == 1
    assert_same_tables(result.tables, ask(SmallStudy(), config, progress=False).tables)
    check_bad_input([(lambda: ask(Held(portable=False), config, engine="ray", progress=False), BadOption, ["cross"])])


def test_only_the_units_that_kill_their_worker_fail(cluster):
    outcomes = {outcome.key: outcome.error for outcome in Ray("ray").map(Fatal(), units(*[1] * 8))}
    assert outcomes == {f"unit {i}": KILLED if i in (1, 4) else None for i in range(8)}


def test_a_killed_worker_costs_nothing_and_a_deadly_unit_is_journalled(cluster, tmp_path):
    hold = tmp_path / "trouble"
    hold.mkdir()
    config = SmallConfig(blocks=4, side=8, trouble=str(hold))
    truth = ask(SmallStudy(), config, progress=False)
    (hold / f"kill-once-{encode_key('block 1/4')}").touch()
    assert_same_answer(asked(tmp_path / "once", config, engine="ray"), truth)
    assert list(hold.iterdir()) == []

    (hold / f"kill-{encode_key('block 2/4')}").touch()
    (hold / f"raise-{encode_key('block 3/4')}").touch()
    with pytest.raises(
        UnitsFailed, match="block 2/4: The process that worked on this unit ended without a word, twice"
    ):
        asked(tmp_path / "always", config, engine="ray")
    entries = Journal(tmp_path / "always" / "units.jsonl").entries()
    assert [entries["make", f"block {i}/4"].status for i in range(4)] == ["done", "done", "failed", "failed"]
    for path in hold.iterdir():
        path.unlink()
    assert_same_answer(asked(tmp_path / "always", config, engine="ray", resume=True), truth)


class Counted:
    """Work that needs no folder."""

    def __call__(self, unit: Unit) -> Outcome:
        return Outcome(unit.key, float(within_task()))


def test_a_unit_of_more_threads_than_any_node_has_takes_the_largest_node(cluster):
    """Ray would wait for ever for a node that can hold it: a group of processes, say, that the cluster has only together."""
    assert not within_task()
    assert [one.seconds for one in Ray("ray").map(Counted(), [Unit("group", threads=4096)])] == [1.0]


class Hang:
    """All units but the last wait for ever."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, unit: Unit) -> Outcome:
        if unit.cost < 2:
            (self.folder / unit.key).write_text(str(os.getpid()))
            time.sleep(600)
        return Outcome(unit.key, 0.0)


def test_closing_the_outcomes_ends_units_that_still_run(cluster, tmp_path):
    outcomes = Ray("ray").map(Hang(tmp_path), units(1, 2))
    assert next(outcomes).key == "unit 1"
    while not (tmp_path / "unit 0").exists() or not (tmp_path / "unit 0").read_text():
        time.sleep(0.02)
    outcomes.close()
    assert gone([int((tmp_path / "unit 0").read_text())])


class Placed:
    """Work whose folder some node does not see: here, one that goes away once the driver has looked."""

    def __init__(self, scratch: Path):
        self.scratch = scratch

    def __call__(self, unit: Unit) -> Outcome:
        return Outcome(unit.key, 0.0)


def test_a_node_that_does_not_see_the_run_folder_is_told_before_the_work(cluster, tmp_path, monkeypatch):
    from querist.runs.engines import ray as module

    assert [outcome.error for outcome in Ray("ray").map(Placed(tmp_path), units(1))] == [None]
    monkeypatch.setattr(module, "_greeting", lambda parcel, place, marker: False)
    check_bad_input([(lambda: list(Ray("ray").map(Placed(tmp_path), units(1))), BadOption, [str(tmp_path), "share"])])
    monkeypatch.setattr(module, "_greeting", lambda parcel, place, marker: not marker.unlink())
    outcome = next(Ray("ray").map(Placed(tmp_path), units(1)))
    assert "does not see the run folder" in (outcome.error or "")


LOST = """
import sys, time
from pathlib import Path
from querist.reports.ask import ask
from querist.reports.result import Result
from tests.runs.small_study import SmallConfig, SmallStudy
if __name__ == "__main__":
    before = sys.stdout
    ask(SmallStudy(), SmallConfig(blocks=2, side=8, trouble={trouble!r}, sleep=1.0), engine="ray", progress=False)
    assert sys.stdout is before
    import ray
    assert not ray.is_initialized()
    print("the summary")
"""


def test_standard_output_is_left_alone(tmp_path):
    (tmp_path / f"kill-once-{encode_key('block 1/2')}").touch()
    said = run_script(LOST.format(trouble=str(tmp_path)))
    assert said.stdout == "the summary\n", said.stderr
    assert "worker died" in said.stderr


def test_a_killed_driver_is_resumed_and_leaves_no_processes(tmp_path):
    config = SmallConfig(blocks=4, side=8)
    truth = ask(SmallStudy(), config, progress=False)
    ask_and_die(SmallStudy, config, tmp_path / "killed", 3, engine="ray")
    before = (tmp_path / "killed" / "units.jsonl").read_bytes()
    assert before.count(b"\n") >= 3
    assert_same_answer(asked(tmp_path / "killed", config, engine="local:1", resume=True), truth)
    assert (tmp_path / "killed" / "units.jsonl").read_bytes().startswith(before)

    asking = Asking(tmp_path / "stopped", SmallConfig(blocks=6, side=8, sleep=0.3), engine="ray")
    asking.until_done(1)
    below = processes_below(asking.process.pid)
    assert below
    asking.signal(signal.SIGINT)
    assert asking.end() == 130
    assert gone(below)
    assert json.loads((tmp_path / "stopped" / "run.json").read_text())["status"] == "interrupted"


class Slow:
    """Work whose result is waited for."""

    def __call__(self, unit: Unit) -> Outcome:
        time.sleep(0.05)
        return Outcome(unit.key, 0.0)


INTERRUPTED = """
import ray
from querist.runs.engines.ray import Ray
from querist.runs.study import Unit
from tests.runs.test_ray import Slow

if __name__ == "__main__":
    wait = ray.wait
    def interrupted(references, **options):
        found = wait(references, **options)
        if found[0] and "timeout" not in options:
            raise KeyboardInterrupt
        return found
    ray.wait = interrupted
    engine = Ray("ray")
    for _ in range(12):
        try:
            next(engine.map(Slow(), [Unit(f"unit {i}") for i in range(4)]))
        except KeyboardInterrupt:
            print("stopped")
    engine.close()
"""


def test_an_interrupt_as_a_result_arrives_ends_the_run_and_not_the_process():
    """Ray aborts a driver that cancels a task whose result has come and is not entered yet; an interrupt is heard just then."""
    said = run_script(INTERRUPTED)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "stopped\n" * 12


@pytest.fixture
def two_nodes(tmp_path):
    """A head and a second raylet of one core each, on this machine: its address."""
    from ray.cluster_utils import Cluster

    together = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 2**27})
    other = together.add_node(num_cpus=1, object_store_memory=2**27)
    yield together, other
    together.shutdown()


def sharded(folder: Path) -> Path:
    """A checkpoint as transformers writes large ones: an index and three files of tensors; one layer lies in a shard of its own."""
    from safetensors.numpy import save_file

    folder.mkdir()
    rng = np.random.default_rng(0)
    layers = {f"layer{i}.weight": rng.normal(size=(60, 40)).astype(np.float32) for i in range(5)}
    found = {}
    for number, names in enumerate(
        (["layer0.weight", "layer3.weight"], ["layer1.weight", "layer4.weight"], ["layer2.weight"])
    ):
        file = f"model-{number + 1:05d}-of-00003.safetensors"
        save_file({name: layers[name] for name in names}, folder / file)
        found |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": found}))
    return folder


def test_workers_scan_a_sharded_checkpoint(cluster, tmp_path):
    from querist.weights import scan

    source = sharded(tmp_path / "model")
    serial = scan(source, progress=False)
    assert sorted(serial.tables["layers"]["layer_id"]) == [f"layer{i}.weight" for i in range(5)]
    assert_same_answer(scan(source, engine="ray", progress=False), serial)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)  # workers are elsewhere: a relative path is the caller's
        assert_same_tables(scan("model", engine="ray", progress=False).tables, serial.tables)


def test_two_raylets_scan_and_score_by_address(two_nodes, tmp_path):
    """Whole commands on a cluster of two nodes."""
    together, _ = two_nodes
    address = f"ray://{together.address}"
    source = sharded(tmp_path / "model")
    tables = []
    for engine in ("serial", address):
        out = tmp_path / engine.replace("/", "-")
        command = ["weights", "scan", str(source), "--engine", engine, "--out", str(out), "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "querist", *command], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        tables.append(dict(Result.open(out).tables))
    assert_same_tables(tables[1], tables[0])
    scored_alike(address, tmp_path / "scoring")


@pytest.mark.slow
def test_a_node_that_goes_away_costs_nothing(two_nodes, tmp_path):
    together, second = two_nodes
    address = f"ray://{together.address}"
    config = SmallConfig(blocks=6, side=8, sleep=0.3)
    truth = ask(SmallStudy(), config, progress=False)
    asking = Asking(tmp_path / "run", config, engine=address)
    asking.until_done(1)
    together.remove_node(second, allow_graceful=False)
    assert asking.end() == 0
    assert_same_answer(asked(tmp_path / "run", config, resume=True), truth)


@pytest.mark.slow
def test_a_group_is_spread_over_nodes_of_one_core(two_nodes, tmp_path):
    """`effects fit --processes 2`: Ray Train puts a process on each node, and the model is that of two processes here."""
    from querist.effects import simulate

    together, _ = two_nodes
    drawn = simulate(300, arms=2, base_scale=0.4, increment_scale=0.4, seed=3)
    table = {f"x{j}": drawn.X[:, j] for j in range(3)} | {"arm": drawn.arm.astype(str), "y": drawn.Y[:, 0]}
    pl.DataFrame(table).write_parquet(tmp_path / "people.parquet")
    found = []
    for engine in ("serial", f"ray://{together.address}"):
        out = tmp_path / engine.replace("/", "-")
        command = [
            "effects",
            "fit",
            "people.parquet",
            "--arm",
            "arm",
            "--control",
            "0",
            "--outcome",
            "y",
            "--processes",
            "2",
        ]
        command += [
            "--preset",
            "small",
            "--epochs",
            "2",
            "--device",
            "cpu",
            "--engine",
            engine,
            "--out",
            str(out),
            "--quiet",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "querist", *command],
            capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append((out / "model" / "weights.safetensors").read_bytes())
    assert found[0] == found[1]


def scored_alike(address: str, folder: Path) -> None:
    """Files of scores made by a cluster's nodes are those of one process, byte for byte."""
    from querist.effects import TLearner, simulate
    from querist.sources.rows import RowsWriter

    drawn = simulate(300, arms=2, base_scale=0.4, increment_scale=0.4, seed=3)
    table = pa.table({f"x{j}": drawn.X[:, j] for j in range(3)})
    TLearner(control=0).fit(table, drawn.arm, drawn.Y).save(folder / "model")
    with RowsWriter(folder / "people.parquet", group_rows=60) as out:
        out.write(table)
    found = []
    for number, engine in enumerate(("serial", address)):
        scores, run = folder / f"scores{number}", folder / f"run{number}"
        command = ["effects", "score", str(folder / "model"), str(folder / "people.parquet"), str(scores)]
        command += ["--file-rows", "60", "--engine", engine, "--out", str(run), "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "querist", *command], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append({path.name: path.read_bytes() for path in scores.glob("part-*.parquet")})
    assert len(found[0]) == 5
    assert found[0] == found[1]
