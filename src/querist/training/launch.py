"""A function run in several processes as one unit: they begin together, fail together, and none outlives its parent."""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from querist.errors import BadOption, QueristError
from querist.runs.engines.ray import within_task
from querist.runs.threads import for_children, machine_threads
from querist.training.reports import Said, cause_of, failure_of

__all__ = ["launch_group"]

GRACE = 2.0
"""Seconds in which, after one process has failed, the others may still say why."""

_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launch_group(
    function: Callable[..., Any],
    *args: Any,
    processes: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    launcher: str = "auto",
    **options: Any,
) -> Any:
    """Call `function(*args, **options)` in `processes` processes that form one group; returns what process 0 returned.

    Inside, `querist.training.fit` and torch.distributed find the group. The function is one that can be imported, its
    arguments and result are copied by pickling: large things go by path. processes=1 calls it here. Where torchrun or
    another launcher has already started this process as one of several (RANK and WORLD_SIZE are set), it is called here as
    well, in the group of that launcher, and each process returns its own result.

    device: "cpu" (gloo), "cuda" (nccl, one GPU per process) or "auto": GPUs where there are enough of them. threads: of
    torch and BLAS in each process; by default the machine's cores shared out (one each on Ray). launcher: "processes" of this
    machine; "ray": Ray Train, whose workers are wherever the cluster has cores or GPUs; "auto": Ray Train inside a unit of the
    Ray engine, else processes. The weights that a training ends with are the same.

    Raises BadOption; MissingExtra for Ray Train where it is not installed; the first failure of a process, as the same class
    where it is one of querist's errors and as QueristError otherwise, with the process's traceback as a note. The other
    processes are ended. They also end when this process is gone, even by SIGKILL.
    """
    import torch

    if processes is not None and (type(processes) is not int or processes < 1):
        raise BadOption("A group has at least one process", value=processes, allowed="processes >= 1")
    if device not in ("auto", "cpu", "cuda"):
        raise BadOption("A group has no such device", value=device, allowed="auto, cpu, cuda")
    if launcher not in ("auto", "processes", "ray"):
        raise BadOption("No such launcher of a group", value=launcher, allowed="auto, processes, ray")
    world = os.environ.get("WORLD_SIZE")
    if world is not None and os.environ.get("RANK") is not None:
        if processes not in (None, int(world)):
            raise BadOption(
                "A launcher has started another number of processes",
                value=f"processes={processes}, WORLD_SIZE={world}",
                mend="Leave `processes` out, or start the launcher with that number",
            )
        return _joined(function, args, options, device)
    if processes is None:
        raise BadOption(
            "How many processes is not said", value="processes=None", allowed="a number, or a start by torchrun"
        )
    if processes == 1:
        return function(*args, **options)
    if launcher == "ray" or (launcher == "auto" and within_task()):
        from querist.training.ray import group_on_ray

        return group_on_ray(_packed(function, args, options), processes, device, threads or 1)
    gpus = torch.cuda.device_count()
    if device == "cuda" and gpus < processes:
        raise BadOption(
            "There are fewer GPUs than processes", value=f"{gpus} for {processes}", allowed="a GPU per process"
        )
    on_gpu = device == "cuda" or (device == "auto" and gpus >= processes)
    parcel = _packed(function, args, options)
    folder = Path(tempfile.mkdtemp(prefix="querist-group-"))
    try:
        group = _Group(parcel, processes, folder, on_gpu, threads or max(1, machine_threads() // processes))
        return group.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _packed(function: Callable[..., Any], args: Any, options: Any) -> bytes:
    try:
        return pickle.dumps((function, args, options))
    except Exception as error:
        raise BadOption(
            "This call cannot cross processes",
            value=f"{type(error).__name__}: {error}",
            allowed="a function that can be imported, and arguments that can be pickled",
            mend="Define the function in a module, outside of other functions",
        ) from error


def _joined(function: Callable[..., Any], args: Any, options: Any, device: str) -> Any:
    """The call in a group that another launcher made."""
    import torch

    if not torch.distributed.is_initialized():
        gpu = device != "cpu" and torch.cuda.is_available()
        _settle(gpu, int(os.environ.get("LOCAL_RANK", "0")))
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
        # Kept to the end: a launcher's rendezvous serves once, and the next call finds the group.
        atexit.register(torch.distributed.destroy_process_group)
    return function(*args, **options)


def _settle(on_gpu: bool, local_rank: int) -> None:
    """Give this process its GPU, or let trainings in it know that the group is one of CPUs."""
    import torch

    if on_gpu:
        torch.cuda.set_device(local_rank)
    else:
        os.environ["ACCELERATE_USE_CPU"] = "true"


class _Group:
    """The processes of one call."""

    def __init__(self, parcel: bytes, processes: int, folder: Path, on_gpu: bool, threads: int):
        context = get_context("spawn")
        self.count = processes
        self.said: dict[int, Said] = {}
        self.pipes: list[Connection] = []
        self.members: list[Any] = []
        for rank in range(processes):
            here, there = context.Pipe(duplex=False)
            member = context.Process(
                target=_member, args=(parcel, rank, processes, str(folder), on_gpu, there), name=f"querist-{rank}"
            )
            self.pipes.append(here)
            self.members.append(member)
            try:
                with for_children(threads):
                    member.start()
            except BaseException:
                self.end()
                raise
            finally:
                there.close()

    def run(self) -> Any:
        """Wait for all, or for the first failure."""
        try:
            while len(self.said) < self.count and not self._failed():
                self._listen(None)
            if self._failed():
                until = time.monotonic() + GRACE
                while len(self.said) < self.count and (left := until - time.monotonic()) > 0:
                    self._listen(left)
                raise cause_of(self.said.values(), self.count)
            return self.said[0].result
        finally:
            self.end()

    def end(self) -> None:
        """Let those go that are done, and end those that are not."""
        for member in self.members:
            if member.pid is not None:
                member.join(5.0 if len(self.said) == self.count and not self._failed() else 0)
                if member.is_alive():
                    member.kill()
                member.join()
        for pipe in self.pipes:
            pipe.close()

    def _failed(self) -> bool:
        return any(said.error is not None for said in self.said.values())

    def _listen(self, timeout: float | None) -> None:
        """Take in what has been reported; a process that ended without a word is a report as well."""
        open_ranks = [rank for rank in range(self.count) if rank not in self.said]
        wait([*(self.pipes[r] for r in open_ranks), *(self.members[r].sentinel for r in open_ranks)], timeout)
        for rank in open_ranks:
            dead = not self.members[rank].is_alive()
            if self.pipes[rank].poll():
                with suppress(EOFError, OSError):
                    # Our own bytes from our own child.
                    self.said[rank] = ForkingPickler.loads(self.pipes[rank].recv_bytes())  # pyright: ignore[reportAttributeAccessIssue]
                    continue
                dead = True
                self.members[rank].join()
            if dead:
                # Before all reports: whoever was cut off made the others fail.
                self.said[rank] = Said(rank, -1.0, error=QueristError(_death(self.members[rank].exitcode)))


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return (
            f"A process of the group was ended by {name}: killed from outside, out of memory, or crashed in native code"
        )
    return f"A process of the group ended without a word, with exit code {code}"


# ------------------------------------------------------------------------------------------------- inside a process


def _member(parcel: bytes, rank: int, processes: int, folder: str, on_gpu: bool, pipe: Connection) -> None:
    """One process of a group: it leaves interruptions to its parent, and ends when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    values = (rank, processes, rank, processes, "127.0.0.1", 0)
    os.environ.update({name: str(value) for name, value in zip(_RANKS, values, strict=True)})
    try:
        import torch

        _settle(on_gpu, rank)
        # Through a file and not a port: between finding a free port and using it, another process may take it.
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=processes,
        )
        function, args, options = ForkingPickler.loads(parcel)  # pyright: ignore[reportAttributeAccessIssue]
        result = function(*args, **options)
        said = Said(rank, time.monotonic(), result=result if rank == 0 else None)
        raw = pickle.dumps(said)
        torch.distributed.all_reduce(torch.zeros(1))  # nobody leaves while another still works with the group
        torch.distributed.destroy_process_group()
    except BaseException as error:
        raw = failure_of(rank, time.monotonic(), error)
    pipe.send_bytes(raw)
    pipe.close()


def _end_with_parent(folder: str) -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
