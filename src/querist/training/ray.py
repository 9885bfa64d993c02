"""A group of processes placed by Ray Train: the same function on as many workers, wherever the cluster has cores."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from querist.errors import BadOption, MissingExtra, QueristError
from querist.runs.engines.ray import Place, Ray, within_task
from querist.runs.threads import limited
from querist.training.reports import Said, cause_of, failure_of

__all__ = ["group_on_ray", "within_task"]

TRIES = 2
"""A group whose worker or node dies begins once more, as a unit does; the second death is the group's failure."""
SLIVER = 2**-6
"""Share of a core that is asked for at least."""


def group_on_ray(parcel: bytes, processes: int, device: str, threads: int) -> Any:
    """What process 0 of a group returned that Ray Train started; `parcel` holds function, arguments and options.

    The cluster is the one that this process is connected to, or that the Ray engine would begin. Device and threads as in
    `launch_group`. A group that loses a worker or a node begins once more: a training with a checkpoint on a folder that all
    nodes see goes on from there. Raises as `launch_group`, and MissingExtra without Ray Train.
    """
    engine = Ray("ray")
    ray = engine._connected()
    try:
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        engine.close()
        raise MissingExtra(
            "A group on Ray needs Ray Train", value=str(error), mend='pip install "querist[ray]"'
        ) from None
    folder = tempfile.mkdtemp(prefix="querist-group-")
    try:
        on_gpu, cores = _placed(ray.nodes(), processes, device, threads)
        each = {"CPU": cores} | ({"GPU": 1} if on_gpu else {})
        for left in reversed(range(TRIES)):
            box = ray.remote(num_cpus=0)(_Box).remote()
            task = {
                "parcel": parcel,
                "box": box,
                "on_gpu": on_gpu,
                "threads": threads,
                "folder": folder,
                "place": Place(tuple(sys.path), str(Path.cwd())),
            }
            trainer = TorchTrainer(
                _member,
                train_loop_config=task,
                torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if on_gpu else "gloo"),
                scaling_config=ScalingConfig(num_workers=processes, use_gpu=on_gpu, resources_per_worker=each),
                run_config=RunConfig(storage_path=folder),
            )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of Ray's own parts among each other
                    trainer.fit()
            except Exception as error:
                said = _said(ray, box)
                if (lost := _lost(error, said)) and left:
                    continue
                raise _failed(error, said, lost, processes) from None
            return next(one.result for one in _said(ray, box) if one.rank == 0)
        raise AssertionError  # the last try returned or raised
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        engine.close()


def _placed(nodes: Sequence[Mapping[str, Any]], processes: int, device: str, threads: int) -> tuple[bool, float]:
    """Whether each process gets a GPU, and cores of each: fewer than its threads where the cluster has not so many, for Ray would
    wait for ever, and processes of one machine may share its cores as well. Raises BadOption for too few GPUs."""
    each = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = sum(int(one.get("GPU", 0)) for one in each)
    if device == "cuda" and gpus < processes:
        raise BadOption(
            "The Ray cluster has fewer GPUs than processes",
            value=f"{gpus} for {processes}",
            allowed="a GPU per process",
        )
    cores = float(threads)
    while sum(one.get("CPU", 0) // cores for one in each) < processes and cores > SLIVER:
        cores /= 2
    return device == "cuda" or (device == "auto" and gpus >= processes), cores


# ----------------------------------------------------------------------------------------------------- what was said


class _Box:
    """An actor that keeps what the processes report, in order of arrival: clocks of several machines cannot be compared."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def put(self, raw: bytes) -> None:
        self.said.append(raw)

    def all(self) -> list[bytes]:
        return self.said


def _said(ray: Any, box: Any) -> list[Said]:
    """Reports in order of arrival. Our own bytes from our own workers."""
    try:
        found = ray.get(box.all.remote())
    except ray.exceptions.RayError:
        return []
    reports = [ForkingPickler.loads(raw) for raw in found]  # pyright: ignore[reportAttributeAccessIssue]
    for number, report in enumerate(reports):
        report.when = float(number)
    return reports


def _lost(error: Exception, said: Sequence[Said]) -> list[int]:
    """Ranks of workers that are gone without a word; one that raised has said so before, and Ray then ends the others."""
    failures = getattr(error, "worker_failures", {})
    return sorted(rank for rank in failures if rank not in {one.rank for one in said})


def _failed(error: Exception, said: Sequence[Said], lost: Sequence[int], processes: int) -> BaseException:
    if not lost and any(one.error is not None for one in said):
        return cause_of(said, processes)
    if lost:
        return QueristError(
            f"A process of the group (number {lost[0]} of {processes}) ended without a word, twice: its worker or node was lost, "
            "it ran out of memory, or it crashed in native code"
        )
    last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return QueristError(f"Ray Train did not carry out the group: {last}")


# ------------------------------------------------------------------------------------------------- inside a worker


def _member(task: dict[str, Any]) -> None:
    """One process of the group, which Ray Train has joined to the others."""
    import ray
    import torch

    rank, fine = torch.distributed.get_rank(), True
    try:
        task["place"].enter()  # Ray Train has gone to a folder of its own
        if not task["on_gpu"]:
            os.environ["ACCELERATE_USE_CPU"] = "true"
        with limited(task["threads"]):
            function, args, options = ForkingPickler.loads(task["parcel"])  # pyright: ignore[reportAttributeAccessIssue]
            result = function(*args, **options)
        raw = pickle.dumps(Said(rank, 0.0, result=result if rank == 0 else None))
        torch.distributed.all_reduce(torch.zeros(1))  # nobody leaves while another still works with the group
    except BaseException as error:
        raw, fine = failure_of(rank, 0.0, error), False
    ray.get(task["box"].put.remote(raw))
    shutil.rmtree(task["folder"], ignore_errors=True)  # where this node does not share it with the caller's
    if not fine:
        raise RuntimeError("A process of the group failed")  # why is in the box; Ray Train ends the others
