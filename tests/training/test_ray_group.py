"""A group that Ray Train places is the group that this machine starts: the same weights, failures told alike, deaths got over."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.effects.jobs import train_everywhere
from tests.harness import Bad, check_bad_input, ray_is_here
from tests.training import jobs

from querist.errors import BadOption, NumericalFailure, QueristError
from querist.runs.engines.ray import Place
from querist.training import launch_group
from querist.training.launch import _packed
from querist.training.ray import _member, _placed

pytest.importorskip("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster():
    assert ray_is_here()


def on_ray(function, *args, **options):
    return launch_group(function, *args, processes=2, device="cpu", launcher="ray", **options)


def furthest(one, two):
    return max(np.abs(a - b).max() for a, b in zip(one, two, strict=True))


@pytest.mark.slow
def test_ray_train_gives_the_weights_of_one_process(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = on_ray(jobs.trained_here, "ray")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ray-0", "ray-1"], (
        "relative paths lead where the caller is"
    )
    assert said["threads"] == 1
    assert said["backend"] == "gloo"
    alone = train_everywhere()
    assert furthest(said["trained"]["float64"], alone["float64"]) < 1e-8
    assert furthest(said["trained"]["float32"], alone["float32"]) < 1e-5
    assert np.abs(alone["float32"][0]).max() > 0.1


@pytest.mark.slow
def test_ray_train_gives_the_weights_of_processes_of_this_machine(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = on_ray(jobs.trained_here, "ray")
    here = launch_group(jobs.trained_here, "here", processes=2, device="cpu", threads=1)
    for name in ("float64", "float32"):
        assert furthest(said["trained"][name], here["trained"][name]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("numerical", NumericalFailure, "The loss is not finite at step 4"),
        ("plain", QueristError, "In process 1 of 2 of a group: KeyError: 'no such column'"),
        ("odd", QueristError, "Odd: 1 and 2"),
        ("killed", QueristError, "ended without a word, twice"),
    ],
)
def test_the_first_failure_is_told(cluster, tmp_path, kind, error, message):
    with pytest.raises(QueristError, match=message) as caught:
        on_ray(jobs.fail, str(tmp_path), kind)
    assert type(caught.value) is error
    if kind != "killed":
        assert "Traceback" in "".join(caught.value.__notes__)
    assert len(list(tmp_path.glob("pid-*"))) == (4 if kind == "killed" else 2)


@pytest.mark.slow
def test_a_group_that_loses_a_worker_goes_on_from_its_checkpoint(cluster, tmp_path):
    (tmp_path / "die-once").touch()
    assert on_ray(jobs.train_in_group, str(tmp_path)) == "9 20"
    whole = tmp_path / "whole"
    whole.mkdir()
    assert on_ray(jobs.train_in_group, str(whole)) == "None 20"
    one, two = (torch.load(place / "model.pt", weights_only=True) for place in (tmp_path, whole))
    assert all(torch.equal(one[name], two[name]) for name in one)


class Box:
    """The actor that keeps reports, without a cluster."""

    def __init__(self):
        self.raw = []
        self.put = self

    def remote(self, raw):
        self.raw.append(raw)


def test_a_member_works_where_the_caller_is_and_tells_what_happened(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "get", lambda reference: reference)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "")
    monkeypatch.chdir(tmp_path)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for function, given in ((os.getcwd, ()), (os.listdir, ("nowhere",))):
            here, spare, box = tmp_path / "here", tmp_path / "spare", Box()
            for folder in (here, spare):
                folder.mkdir(exist_ok=True)
            place = Place(tuple(sys.path), str(here))
            task = {
                "parcel": _packed(function, given, {}),
                "box": box,
                "on_gpu": False,
                "threads": 1,
                "folder": str(spare),
            }
            with nullcontext() if not given else pytest.raises(RuntimeError, match="A process of the group failed"):
                _member(task | {"place": place})
            (said,) = (pickle.loads(raw) for raw in box.raw)
            assert os.environ["ACCELERATE_USE_CPU"] == "true"
            assert not spare.exists()
            if given:
                assert isinstance(said.error, FileNotFoundError)
                assert "nowhere" in said.trace
            else:
                assert said.result == str(here)
    finally:
        torch.distributed.destroy_process_group()


def test_cores_are_shared_where_there_are_fewer_and_gpus_are_not():
    def nodes(*cores, gpus=0):
        return [{"Alive": True, "Resources": {"CPU": count, "GPU": gpus}} for count in cores]

    gone = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 64}}
    assert _placed(nodes(4.0), 2, "auto", 1) == (False, 1.0)
    assert _placed(nodes(1.0, 1.0), 2, "cpu", 1) == (False, 1.0)
    assert _placed([*nodes(1.0, 1.0), gone], 3, "auto", 1) == (False, 0.5)
    assert _placed(nodes(2.0), 2, "auto", 2) == (False, 1.0)
    assert _placed(nodes(4.0, 4.0, gpus=1), 2, "auto", 1) == (True, 1.0)
    assert _placed(nodes(4.0, 4.0, gpus=1), 2, "cpu", 1) == (False, 1.0)
    assert _placed(nodes(4.0, 4.0, gpus=1), 2, "cuda", 2) == (True, 2.0)
    check_bad_input([Bad(lambda: _placed([*nodes(4.0), gone], 2, "cuda", 1), BadOption, ["0 for 2", "fewer GPUs"])])
    check_bad_input(
        [
            Bad(
                lambda: launch_group(os.getpid, processes=2, launcher="slurm"),
                BadOption,
                ["slurm", "auto, processes, ray"],
            )
        ]
    )
