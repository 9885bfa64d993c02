"""Several processes give what one gives; a group fails as one and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from tests.harness import PATIENCE, Bad, check_bad_input
from tests.runs.asking import gone
from tests.training import jobs
from tests.training.parts import apart, linear, same

from querist.errors import BadOption, NumericalFailure, QueristError
from querist.training import launch_group

ROOT = Path(__file__).parents[2]


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """What two processes found, and the same trainings in this one."""
    folder = tmp_path_factory.mktemp("group")
    launch_group(jobs.everything, str(folder), processes=2, device="cpu")
    # Our own file: frames and tensors of the test's own processes.
    ranks = [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]
    return ranks, {name: jobs.outcome(*train()) for name, train in jobs.trainings().items()}


@pytest.mark.parametrize("name", jobs.trainings())
def test_two_processes_equal_one(group, name):
    (first, second), alone = group
    within = 1e-5 if name == "float32" else 1e-8
    one, two = alone[name], first[name]
    assert apart(one["tensors"], two["tensors"]) < within
    assert all(torch.equal(two["tensors"][n], second[name]["tensors"][n]) for n in two["tensors"])
    assert (two["reason"], two["best"]) == (one["reason"], one["best"])
    assert two["history"].columns == one["history"].columns
    for column in one["history"].columns:
        a, b = one["history"][column], two["history"][column]
        assert a.is_null().to_list() == b.is_null().to_list()
        assert ((a - b).abs() / a.abs().clip(1)).max() < within, column
    assert one["metrics"].keys() == two["metrics"].keys()


def test_trainings_differ_so_that_equality_means_something(group):
    _, alone = group
    assert alone["stopped"]["reason"] == "early-stopping"
    assert alone["float64"]["tensors"]["idle.weight"].equal(alone["frozen"]["tensors"]["idle.weight"])
    assert apart(alone["accumulate"]["tensors"], alone["float64"]["tensors"]) > 1e-3  # other schedule and clipping
    assert apart(alone["float64"]["tensors"], alone["frozen"]["tensors"]) > 1e-2


def test_a_stop_asked_for_in_one_process_ends_all(group):
    assert [rank["hook"] for rank in group[0]] == ["hook", "hook"]


def test_every_process_ends_with_the_network_of_process_0(group):
    first, second = (rank["norm"] for rank in group[0])
    running = {name for name in first if "running" in name}
    assert all(first[name].equal(second[name]) for name in set(first) - running)
    assert all(first[name].equal(second[name]) for name in running)


def test_a_group_takes_a_training_up_again(group):
    for rank in group[0]:
        whole, again = rank["whole"], rank["again"]
        assert again["resumed_at"] == 6
        assert all(whole["tensors"][name].equal(again["tensors"][name]) for name in whole["tensors"])
        assert whole["history"].equals(again["history"])


def test_processes_that_differ_are_told_apart(group):
    for rank in group[0]:
        assert "seed is 0 in process 0 and 1 in process 1" in rank["unlike seed"]
        assert "optimizer.groups[0].lr is 0.1 in process 0 and 1.1 in process 1" in rank["unlike lr"]


def test_a_loss_that_is_infinite_in_one_process_ends_all(group):
    for rank in group[0]:
        assert "at step 1: mse: sum inf" in rank["infinite"]


# ------------------------------------------------------------------------------------------------------- launching


def test_a_group_returns_what_process_0_returned_and_has_its_threads(group):
    assert [rank["threads"] for rank in group[0]] == [max(1, len(os.sched_getaffinity(0)) // 2)] * 2
    assert launch_group(lambda: 3, processes=1) == 3


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("numerical", NumericalFailure, "The loss is not finite at step 4"),
        ("killed", QueristError, "ended by SIGKILL"),
        pytest.param(
            "plain", QueristError, "In process 1 of 2 of a group: KeyError: 'no such column'", marks=pytest.mark.slow
        ),
        pytest.param("odd", QueristError, "Odd: 1 and 2", marks=pytest.mark.slow),
    ],
)
def test_the_first_failure_is_told_and_nobody_stays(tmp_path, kind, error, message):
    with pytest.raises(QueristError, match=message) as caught:
        launch_group(jobs.fail, str(tmp_path), kind, processes=2, device="cpu")
    assert type(caught.value) is error
    if kind != "killed":
        assert "Traceback" in "".join(caught.value.__notes__)
    pids = [int(path.name[4:]) for path in tmp_path.glob("pid-*")]
    assert len(pids) == 2
    assert gone(pids, 0)


def test_no_process_outlives_a_parent_that_is_killed(tmp_path):
    code = (
        "from querist.training import launch_group\nfrom tests.training import jobs\n"
        f"if __name__ == '__main__': launch_group(jobs.wait_for_ever, {str(tmp_path)!r}, processes=2, device='cpu')"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)], env=environment())
    end = time.monotonic() + PATIENCE
    while len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) < 2:
        assert time.monotonic() < end
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(pids)


@pytest.mark.slow
def test_a_group_killed_in_one_process_goes_on(tmp_path):
    (tmp_path / "die").touch()
    with pytest.raises(QueristError, match="SIGKILL"):
        launch_group(jobs.train_in_group, str(tmp_path), processes=2, device="cpu")
    (tmp_path / "die").unlink()
    assert launch_group(jobs.train_in_group, str(tmp_path), processes=2, device="cpu") == "9 20"
    again = linear()
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    whole = tmp_path / "whole"
    whole.mkdir()
    assert launch_group(jobs.train_in_group, str(whole), processes=2, device="cpu") == "None 20"
    other = linear()
    other.load_state_dict(torch.load(whole / "model.pt", weights_only=True))
    assert same(again, other)


@pytest.mark.slow
def test_under_torchrun_a_group_is_torchruns(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import warnings; warnings.simplefilter('ignore')\n"
        "from querist.training import launch_group\nfrom tests.training import jobs\n"
        "print(launch_group(jobs.greet, 'a', times=2, device='cpu'))\n"
        f"print(launch_group(jobs.train_in_group, {str(tmp_path)!r}, device='cpu'))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=True)
    said = sorted(done.stdout.split("\n"))
    assert [line for line in said if line] == [
        "('aa', 2.0, '0', 'gloo')",
        "('aa', 2.0, '1', 'gloo')",
        "None 20",
        "None 20",
    ]


def test_refusals(monkeypatch):
    def launch(**options):
        return launch_group(jobs.greet, "a", **options)

    rows = [
        Bad(lambda: launch(processes=0), BadOption, ["at least one process"]),
        Bad(lambda: launch(processes=2.0), BadOption, ["2.0"]),
        Bad(launch, BadOption, ["torchrun"]),
        Bad(lambda: launch(processes=2, device="tpu"), BadOption, ["auto, cpu, cuda"]),
        Bad(lambda: launch_group(lambda: 3, processes=2), BadOption, ["cannot cross processes", "lambda"]),
        Bad(lambda: launch_group(jobs.greet, threading.Lock(), processes=2), BadOption, ["cannot cross"]),
    ]
    if torch.cuda.device_count() < 64:
        rows.append(Bad(lambda: launch(processes=64, device="cuda"), BadOption, ["fewer GPUs", "for 64"]))
    check_bad_input(rows)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_bad_input([Bad(lambda: launch(processes=3), BadOption, ["processes=3, WORLD_SIZE=2"])])
