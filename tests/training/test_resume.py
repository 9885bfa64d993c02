"""Killed at any instant, a training goes on and ends with the same weights, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.harness import PATIENCE, Bad, check_bad_input
from tests.training.parts import Diary, DieAt, Net, line, linear, long_training, mse, same

from querist import files
from querist.errors import BadOption, CorruptFile, RunBusy
from querist.training import Hook, Schedule, fit
from querist.training.checkpoint import newest, read

ROOT = Path(__file__).parents[2]
STEPS = 28  # 4 epochs of 53 rows in batches of 8

SCRIPT = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from querist.training.accelerate import workplace  # Accelerate is imported once, and not in each child
with workplace(torch.nn.Linear(1, 1), device="cpu"):
    pass
from tests.training.parts import DieAt, long_training

def child(folder, work):
    pid = os.fork()  # one interpreter for all
    if pid == 0:
        try:
            work(folder)
        finally:
            os._exit(0)
    return pid

def ended(pid):
    return os.waitpid(pid, 0)[1]

def at_step(step, every):
    return lambda folder: long_training(folder, every=every, extra=[DieAt(step)])

def at_rename(number, when):
    def work(folder):
        count, rename = 0, os.replace
        def counted(source, target):
            nonlocal count
            count += 1
            if count == number and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
        os.replace = counted
        long_training(folder, extra=[DieAt(0)])
    return work

draw = random.Random({seed})
for i in range(3):  # by a hook, at random steps, twice in one folder
    folder = f"{folder}/step-{{i}}"
    every = [3, 1, None][i]
    first, second = sorted(draw.sample(range(2, 28), 2))
    print("step", ended(child(folder, at_step(first, every))), ended(child(folder, at_step(second, every))))
for i in range(4):  # in the middle of writing a checkpoint
    folder = f"{folder}/rename-{{i}}"
    print("rename", ended(child(folder, at_rename(draw.randrange(1, 16), ["before", "after"][i % 2]))))
for i in range(2):  # from outside, at a random time
    folder = f"{folder}/time-{{i}}"
    slow = lambda *_: time.sleep(0.01)
    # A training that is faster than the kill waits for it.
    pid = child(folder, lambda folder: (long_training(folder, extra=[DieAt(0)], progress=slow), signal.pause()))
    time.sleep(draw.uniform(0.1, 0.5))
    os.kill(pid, signal.SIGKILL)
    print("time", ended(pid))
"""


@pytest.fixture(scope="module")
def truth():
    return long_training(None)


def check_same(got, truth, *, resumed: bool = True):
    (model, done, diary), (model_0, done_0, diary_0) = got, truth
    assert same(model, model_0)
    assert done.history.equals(done_0.history)
    skipped = ("history", "seconds", "resumed_at")
    for name in [n for n in done.__dataclass_fields__ if n not in skipped]:
        assert getattr(done, name) == getattr(done_0, name), name
    told = [line for line in diary.told if not line.startswith("start")]
    assert told == [line for line in diary_0.told if not line.startswith("start")]
    assert diary.norms == diary_0.norms
    assert torch.equal(diary.sum, diary_0.sum)
    assert (done.resumed_at is not None) == resumed


def test_a_killed_training_ends_with_the_same_weights(tmp_path, truth):
    seed = int(np.random.default_rng().integers(1 << 30))
    print(f"kills drawn with seed {seed}")
    script = SCRIPT.format(folder=tmp_path, seed=seed).replace(f'f"{tmp_path}/', f'"{tmp_path}" + f"/')
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    codes = [code for said in done.stdout.splitlines() for code in said.split()[1:]]
    assert codes == ["9"] * 12, (seed, done.stdout, done.stderr)
    resumed = 0
    for folder in sorted(tmp_path.iterdir()):
        every = {"step-1": 1, "step-2": None}.get(folder.name, 3)
        began = newest(folder) is not None
        resumed += began
        got = long_training(folder, every=every, extra=[DieAt(0)])
        check_same(got, truth, resumed=began)
        assert not any(files.is_temporary(path) for path in folder.iterdir())
        assert len(list(folder.glob("checkpoint-*"))) <= 2
    assert resumed >= 5, seed


def test_checkpoints_change_nothing_and_a_finished_training_is_not_trained_again(tmp_path, truth):
    check_same(long_training(tmp_path / "a", resume=False), truth, resumed=False)
    before = newest(tmp_path / "a")
    model, done, diary = long_training(tmp_path / "a")
    assert same(model, truth[0])
    assert (done.resumed_at, done.steps, done.reason) == (STEPS, STEPS, truth[1].reason)
    assert diary.told[-2:] == [f"start {STEPS} 4", f"end {STEPS}"]
    assert done.seconds > 0
    assert newest(tmp_path / "a") == before


def test_a_finished_training_may_be_given_more_epochs(tmp_path):
    data = line()
    whole, part = linear(), linear()
    fit(whole, mse, data, batch_size=7, epochs=5, lr=0.1, optimizer="adam")
    fit(part, mse, data, batch_size=7, epochs=2, lr=0.1, optimizer="adam", checkpoint=tmp_path)
    again = linear()
    done = fit(again, mse, data, batch_size=7, epochs=5, lr=0.1, optimizer="adam", checkpoint=tmp_path, resume=True)
    assert same(again, whole)
    assert (done.resumed_at, done.steps, done.epochs) == (12, 30, 5)


def test_a_plateau_and_a_stop_by_a_hook_are_taken_up_again(tmp_path):
    class Enough(Hook):
        def on_epoch(self, state):
            state.stop = state.epoch == 4

    def run(folder, **more):
        model = linear()
        return model, fit(
            model, mse, line(), batch_size=7, epochs=9, lr=1.5, optimizer="sgd", validation=0.3, hooks=[Enough()],
            schedule=Schedule("plateau", gamma=0.5, patience=0), checkpoint=folder, restore_best=False, **more,
        )  # fmt: skip

    model, done = run(tmp_path / "whole")
    assert (done.reason, done.epochs) == ("hook", 4)
    assert done.history["lr"].n_unique() > 1
    again, done_again = run(tmp_path / "whole", resume=True)
    assert same(again, model)
    assert done_again.reason == "hook"
    assert done_again.history.equals(done.history)


def test_what_a_checkpoint_holds_is_plain(tmp_path):
    long_training(tmp_path, max_steps=5)
    folder = newest(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "tensors.safetensors"]
    state = read(folder)
    assert state["position"] == {"step": 5, "epoch": 0, "offset": 5}
    assert set(state["optimizer"]["state"]) == set(range(8))


def test_refusals(tmp_path):
    def run(folder=tmp_path, model=None, data=None, resume=True, **options):
        options = {"batch_size": 7, "epochs": 2, "lr": 0.1, "checkpoint": folder, "resume": resume} | options
        return fit(model or linear(), mse, data or line(), **options)

    run(resume=False)
    wide = torch.nn.Linear(4, 1).double()
    x, y = line()
    check_bad_input(
        [
            Bad(lambda: run(resume=False), RunBusy, ["holds the checkpoints", "resume=True"]),
            Bad(lambda: run(lr=0.2), BadOption, ["optimizer.groups[0].lr is 0.2 here and 0.1 in the checkpoint"]),
            Bad(lambda: run(seed=1), BadOption, ["seed is 1 here"]),
            Bad(lambda: run(batch_size=8), BadOption, ["data.batch_size is 8 here and 7"]),
            Bad(lambda: run(data=(x, y + 1)), BadOption, ["data.columns.1.checksum"]),
            Bad(lambda: run(data=(x.float(), y), model=linear(torch.float32)), BadOption, ["float32"]),
            Bad(lambda: run(hooks=[Diary()]), BadOption, ["hooks", "Diary"]),
            Bad(lambda: run(schedule="cosine"), BadOption, ["schedule.kind"]),
            Bad(lambda: run(frozen=["bias"]), BadOption, ["frozen[0]"]),
            Bad(lambda: run(model=wide, data=(torch.randn(40, 4).double(), y)), BadOption, ["model.tensors.weight"]),
            Bad(
                lambda: run(model=Net(), data=(torch.randn(40, 5).double(), y)),
                BadOption,
                ["model.class", "Net", "; and "],
            ),
        ]
    )
    with files.Lock(tmp_path), pytest.raises(RunBusy, match="Another process"):
        run()
    run(epochs=3)  # more epochs of the same training are no other training


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_serves(tmp_path):
    data = line()
    options = {"batch_size": 7, "epochs": 3, "lr": 0.1, "checkpoint": tmp_path, "resume": True}
    whole = linear()
    fit(whole, mse, data, **options)
    last = newest(tmp_path)
    file = last / "tensors.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(bytes(raw))
    with pytest.raises(CorruptFile, match="damaged") as caught:
        fit(linear(), mse, data, **options)
    assert str(file) in str(caught.value)
    (last / "manifest.json").write_text("{}")
    with pytest.raises(CorruptFile, match="no whole checkpoint"):
        fit(linear(), mse, data, **options)
    for path in last.iterdir():
        path.unlink()
    last.rmdir()
    again = linear()
    fit(again, mse, data, **options)
    assert same(again, whole)


def test_a_half_written_checkpoint_is_never_read(tmp_path, monkeypatch):
    data = line()
    rename = os.replace

    def full(source, target):
        if Path(target).name == "checkpoint-000002":
            raise OSError(28, "No space left on device")
        rename(source, target)

    options = {"batch_size": 7, "epochs": 3, "lr": 0.1, "checkpoint": tmp_path}
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        fit(linear(), mse, data, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001"]
    monkeypatch.setattr(os, "replace", rename)
    (tmp_path / ".querist-left").mkdir()
    whole, again = linear(), linear()
    fit(again, mse, data, **options, resume=True)
    fit(whole, mse, data, batch_size=7, epochs=3, lr=0.1)
    assert same(again, whole)
    assert not (tmp_path / ".querist-left").exists()


class Break(Hook):
    """Interrupts a training after a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step(self, state):
        if state.step == self.step:
            raise KeyboardInterrupt


WAYS = {
    "early stopping, best weights": {
        "lr": 0.4,
        "optimizer": "sgd",
        "patience": 5,
        "min_delta": 0.05,
        "validate_every": 2,
        "epochs": 9,
    },
    "the end in the middle of an epoch": {"lr": 0.5, "validate_every": 4, "max_steps": 17},
    "a plateau": {"lr": 1.5, "optimizer": "sgd", "schedule": Schedule("plateau", patience=0, gamma=0.7), "epochs": 4},
    "cosine by epoch": {"schedule": Schedule("cosine", unit="epoch", warmup=1, floor=0.1), "epochs": 4},
    "momentum": {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True), "epochs": 4},
    "rmsprop": {"optimizer": lambda groups: torch.optim.RMSprop(groups, centered=True), "epochs": 4},
    "adam with maxima": {"optimizer": lambda groups: torch.optim.Adam(groups, amsgrad=True), "epochs": 4},
    "two groups": {"groups": True, "epochs": 4, "accumulate": 3},
    "bfloat16": {"precision": "bf16", "epochs": 4},
    "no shuffle, whole batches": {"shuffle": False, "drop_last": True, "epochs": 5},
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_training_of_every_kind_ends_the_same(tmp_path, way):
    options = {"batch_size": 7, "validation": 0.3, "lr": 0.1, "seed": 4, "checkpoint_every": 2, **WAYS[way]}

    def run(step, **more):
        model = linear(torch.float32)
        parts = {"groups": [{"params": [model.weight], "lr": 0.3}, {"params": model.bias, "weight_decay": 0.1}]}
        chosen = options | (parts if options.get("groups") else {})
        return model, fit(model, mse, line(dtype=torch.float32), hooks=[Break(step)], **(chosen | more))

    whole, done = run(0)
    assert done.steps >= 11
    if way.startswith("early"):
        assert done.reason == "early-stopping"
        assert done.best_step < 7, "the best weights are to be those of the checkpoint"
    for step in (5, 8, 11):
        folder = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt):
            run(step, checkpoint=folder)
        again, done_again = run(0, checkpoint=folder, resume=True)
        assert done_again.resumed_at == (step - 1) // 2 * 2
        assert same(again, whole)
        assert done_again.history.equals(done.history)
        assert (done_again.reason, done_again.best_step, done_again.metrics) == (
            done.reason,
            done.best_step,
            done.metrics,
        )
