"""The Ray engine: units as tasks of a cluster, this machine's own or one that it belongs to."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from querist.errors import BadOption, MissingExtra, QueristError
from querist.runs.engines.local import KILLED
from querist.runs.engines.parcel import carried_out, packed, unpacked
from querist.runs.study import Unit
from querist.runs.threads import VARIABLES, machine_threads
from querist.runs.work import Outcome

__all__ = ["Place", "Ray", "within_task"]

_AHEAD = 2
"""Tasks handed to the cluster per core and thread of a unit: enough that no core waits, few enough to end soon."""
_STORE = 2**29
"""Bytes of shared memory of a cluster of our own. What units hand on goes through files and small tables."""


class Ray:
    """Units as Ray tasks, each on as many cores as it has threads, longest first.

    "ray": the cluster of the environment variable RAY_ADDRESS, else one of this machine's cores that ends with the engine; a
    connection that this process has already is used and left open. "ray://HOST:PORT", "ray://auto": a running cluster to
    which this machine belongs (the address that `ray start --head` prints, 6379 by default). Units hand on their results as
    files, so every node must see the run folder: before the first unit each is asked.

    A unit whose worker or node dies is done once more elsewhere; the one that dies twice has failed. Raises MissingExtra where
    Ray is not installed and BadOption for an address that has no cluster.
    """

    crosses = True

    def __init__(self, name: str):
        self.name = name
        self._ours = False
        self._stdout: Any = None
        _ray()
        if name != "ray":
            _reachable(name)

    def map(self, work: Callable[[Unit], Outcome], units: Sequence[Unit]) -> Iterator[Outcome]:
        """See `Engine.map`. Raises BadOption where the study cannot cross processes or a node does not see the run folder."""
        waiting = deque(sorted(units, key=lambda unit: -unit.cost))
        if not waiting:
            return
        ray = self._connected()
        parcel, place = packed(work), Place(tuple(sys.path), str(Path.cwd()))
        scratch = getattr(work, "scratch", None)
        marker = None if scratch is None else Path(scratch) / f".seen-{secrets.token_hex(8)}"
        flying: dict[Any, Unit] = {}
        try:
            if marker is not None:
                marker.touch()
            self._greet(ray, parcel, place, marker)
            shared = ray.put(parcel)
            while waiting or flying:
                largest = max([1, *(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])])
                room = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(flying) < room:
                    unit = waiting.popleft()
                    task = ray.remote(_one).options(**_wants(unit.threads, int(largest)))
                    flying[task.remote(shared, unit, place, marker)] = unit
                done, _ = ray.wait(list(flying), num_returns=1)
                for reference in done:
                    unit = flying.pop(reference)
                    yield self._outcome(ray, reference, unit)
        finally:
            for reference in flying:
                _cancelled(ray, reference)
            if marker is not None:
                marker.unlink(missing_ok=True)

    def close(self) -> None:
        """End the cluster or connection that this engine began."""
        if self._ours:
            _ray().shutdown()
            self._ours = False
        if self._stdout is not None:
            sys.stdout, self._stdout = self._stdout, None

    def _connected(self) -> Any:
        ray = _ray()
        if self._stdout is None:
            self._stdout, sys.stdout = sys.stdout, _Stdout(sys.stdout)
        if ray.is_initialized():
            return ray
        # A workbench reports on its user's models to nobody, and a library of its own does not do so for it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # "local": without it Ray would join any cluster that it finds on this machine.
        options: dict[str, Any] = {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": machine_threads(),
            "object_store_memory": _STORE,
        }
        if self.name != "ray":
            options = {"address": _address(self.name)}
        elif os.environ.get("RAY_ADDRESS"):
            options = {}
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:
            told = (str(error).strip() or "no reason given").splitlines()[0].rstrip(".")
            raise BadOption(
                "The Ray cluster cannot be used",
                value=f"{self.name}: {type(error).__name__}: {told}",
                mend="Run on a machine that belongs to it (`ray status`), with the same versions of Python and Ray",
            ) from error
        self._ours = True
        return ray

    def _greet(self, ray: Any, parcel: bytes, place: Place, marker: Path | None) -> None:
        """Wait until every node that has cores has read the work and seen the run folder.

        Raises BadOption for a study that cannot be read there, and for a folder that is not there.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = ray.remote(_greeting)
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = [
            (
                node["NodeManagerHostname"],
                task.options(
                    num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                ).remote(parcel, place, marker),
            )
            for node in nodes
        ]
        gone, answered = None, False
        for host, reference in asked:
            try:
                seen = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise BadOption(
                    "The workers of the Ray engine cannot read this study",
                    value=f"node {host}: {type(error.cause).__name__}: {str(error.cause).strip().splitlines()[-1]}",
                    mend="Install querist, and the module that defines the study, on every node; or use engine serial",
                ) from error
            except ray.exceptions.RayError as error:
                # A node that is being lost still counts as alive for a while; its units go elsewhere, as those of any lost node do.
                gone = error
                continue
            if not seen:
                raise _unseen(host, marker)
            answered = True
        if gone is not None and not answered:
            raise BadOption("No node of the Ray cluster answers", value=self.name, mend="See `ray status`") from gone

    def _outcome(self, ray: Any, reference: Any, unit: Unit) -> Outcome:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            # The unit's own errors are part of its outcome: this is one of ours, or of the way there.
            told = f"{type(error.cause).__name__}: {error.cause}"
            return Outcome(unit.key, 0.0, error=str(error.cause) if isinstance(error.cause, QueristError) else told)
        except ray.exceptions.RayError:
            return Outcome(unit.key, 0.0, error=KILLED)


def _cancelled(ray: Any, reference: Any) -> None:
    """End a task, unless it has ended by itself.

    Ray aborts the driver where a task is cancelled between the arrival of its result and its entry as complete. That is a moment,
    but the very one in which a wait for the result returns, and with it a keyboard interrupt that came meanwhile.
    """
    if not ray.wait([reference], timeout=0)[0]:
        ray.cancel(reference, force=True)


class _Stdout:
    """Standard output for everybody but Ray, which tells of lost workers there: a summary in JSON must stand alone."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        rays = threading.current_thread().name == "ray_listen_error_messages"
        return (sys.stderr if rays else self._stream).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra(
            "The Ray engine needs the package ray",
            value="engine ray",
            allowed="auto, serial, local, local:N without it",
            mend='pip install "querist[ray]"',
        ) from None
    return ray


def _address(name: str) -> str:
    return name.removeprefix("ray://")


def _reachable(name: str) -> None:
    """Whether something listens at the address: Ray itself would try for more than a minute. Raises BadOption."""
    address = _address(name)
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise BadOption(
            "The address of a Ray cluster has another form", value=name, allowed="ray://HOST:PORT, ray://auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise BadOption(
            f"No Ray cluster answers ({error})", value=name, mend="Give the address that `ray start --head` prints"
        ) from None


def _wants(threads: int, most: int) -> Mapping[str, Any]:
    """A task's cores, its second try, and what the libraries read that it loads.

    No node may have that many (a group of processes is one unit, and may be spread): it then takes the largest one whole.
    """
    return {
        "num_cpus": min(threads, most),
        "max_retries": 1,
        "runtime_env": {"env_vars": dict.fromkeys(VARIABLES, str(threads))},
    }


def _unseen(host: str, marker: Path | None) -> BadOption:
    return BadOption(
        "A node of the Ray cluster does not see the run folder",
        value=f"node {host}: {'' if marker is None else marker.parent}",
        mend="Give --out a folder on a file system that all nodes share",
    )


# ------------------------------------------------------------------------------------------------- inside a worker


@dataclass(frozen=True)
class Place:
    """Where the driver finds modules, and where its relative paths begin."""

    paths: tuple[str, ...]
    folder: str

    def enter(self) -> None:
        """Let modules and relative paths lead where they lead for the driver; a worker begins in its raylet's folder."""
        sys.path.extend(path for path in self.paths if path not in sys.path)
        if Path(self.folder).is_dir():
            os.chdir(self.folder)


def _greeting(parcel: bytes, place: Place, marker: Path | None) -> bool:
    place.enter()
    unpacked(parcel)
    return marker is None or marker.exists()


_WITHIN = False


def within_task() -> bool:
    """Whether this process is at work on a unit that the Ray engine gave out."""
    return _WITHIN


def _one(parcel: bytes, unit: Unit, place: Place, marker: Path | None) -> Outcome:
    global _WITHIN
    _WITHIN = True
    place.enter()
    if marker is not None and not marker.exists():
        raise _unseen(socket.gethostname(), marker)
    return carried_out(parcel, unit)
