"""The local engine: one pool of spawned processes, longest units first, proof against a worker that is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from typing import Any

from querist.errors import BadOption
from querist.runs.study import Unit
from querist.runs.threads import VARIABLES, machine_threads
from querist.runs.work import Outcome

__all__ = ["KILLED", "Local"]

KILLED = (
    "The process that worked on this unit ended without a word, twice: killed from outside, out of memory, or crashed "
    "in native code"
)


class Local:
    """`workers` spawned processes; by default as many as the machine's cores hold at the units' threads.

    At most `workers` + 1 units are handed out at a time. If a worker dies, any of them may have been its unit: they are
    done again one by one in a new pool, and the one whose worker dies again has failed.
    """

    crosses = True

    def __init__(self, workers: int | None = None):
        self.workers = workers
        self.name = "local" if workers is None else f"local:{workers}"

    def map(self, work: Callable[[Unit], Outcome], units: Sequence[Unit]) -> Iterator[Outcome]:
        """See `Engine.map`. Raises BadOption where the study cannot cross processes or they do not start."""
        waiting = deque(sorted(units, key=lambda unit: -unit.cost))
        if not waiting:
            return
        threads = max(unit.threads for unit in waiting)
        count = min(self.workers or max(1, machine_threads() // threads), len(waiting))
        parcel = _packed(work)
        suspects: deque[Unit] = deque()
        flying: dict[Future[Outcome], Unit] = {}
        pool = _Pool(count, parcel, threads)
        try:
            while waiting or suspects:
                queue, room = (suspects, 1) if suspects else (waiting, count + 1)
                alone = queue is suspects
                while queue and len(flying) < room and pool.hand_out(queue[0], flying):
                    queue.popleft()
                while flying and not pool.broken:
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        outcome = pool.outcome(future)
                        if outcome is not None:
                            del flying[future]
                            yield outcome
                    if queue and not alone:
                        break
                if pool.broken:
                    pool.greet()
                    for future, unit in flying.items():
                        outcome = pool.outcome(future)
                        if outcome is not None:
                            yield outcome
                        elif alone:
                            yield Outcome(unit.key, 0.0, error=KILLED)
                        else:
                            suspects.append(unit)
                    flying.clear()
                    pool.end(kill=True)
                    pool = _Pool(count, parcel, threads)
        finally:
            pool.end(kill=bool(flying) or pool.broken)


class _Pool:
    """One executor. Its first task says that processes start and can read the work."""

    def __init__(self, count: int, parcel: bytes, threads: int):
        self.broken = False
        self._threads = threads
        self._executor = ProcessPoolExecutor(count, get_context("spawn"), _begin, (parcel,))
        self._greeting = self._submit(_greeting)
        self._greeted = False

    def hand_out(self, unit: Unit, flying: dict[Future[Outcome], Unit]) -> bool:
        """Give a unit to the pool; False where the pool is broken."""
        try:
            flying[self._submit(_one, unit)] = unit
        except BrokenProcessPool:
            self.broken = True
        return not self.broken

    def outcome(self, future: Future[Outcome]) -> Outcome | None:
        """A unit's outcome once it is there, None where the pool broke under it."""
        self.greet()
        try:
            return future.result()
        except BrokenProcessPool:
            self.broken = True
            return None

    def end(self, *, kill: bool) -> None:
        """Stop: let idle workers go, or kill those that are at work."""
        if not kill:
            self._executor.shutdown(wait=True)
            return
        processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()

    def greet(self) -> None:
        """Raise BadOption where processes do not start, or cannot read the work."""
        if self._greeted:
            return
        try:
            self._greeting.result()
        except BrokenProcessPool:
            raise BadOption(
                "The worker processes of the local engine did not start",
                mend="In a script, call querist below `if __name__ == '__main__':`; or use engine serial",
            ) from None
        except Exception as error:
            raise BadOption(
                "The worker processes of the local engine cannot read this study",
                value=f"{type(error).__name__}: {error}",
                mend="Define it in a module that can be imported; or use engine serial",
            ) from error
        self._greeted = True

    def _submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        with _for_children(self._threads):
            return self._executor.submit(function, *arguments)


@contextmanager
def _for_children(threads: int) -> Iterator[None]:
    """What a child inherits: threads for the libraries it loads, and Ctrl-C held back until it ignores it."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# ------------------------------------------------------------------------------------------------- inside a worker

_parcel = b""
_work: Callable[[Unit], Outcome] | None = None


def _begin(parcel: bytes) -> None:
    """A worker leaves interruptions to its parent, and ends when its parent is gone, even by SIGKILL."""
    global _parcel
    _parcel = parcel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _unpacked() -> Callable[[Unit], Outcome]:
    global _work
    work = _work
    if work is None:
        # Our own bytes from our own parent, read here and not by the pool, whose workers die of what they cannot read.
        work = _work = ForkingPickler.loads(_parcel)  # pyright: ignore[reportAttributeAccessIssue]
    return work


def _greeting() -> None:
    _unpacked()


def _one(unit: Unit) -> Outcome:
    return replace(_unpacked()(unit), cause=None)


def _packed(work: Callable[[Unit], Outcome]) -> bytes:
    try:
        return bytes(ForkingPickler.dumps(work))
    except Exception as error:
        raise BadOption(
            "This study cannot cross processes",
            value=f"{type(error).__name__}: {error}",
            allowed="engine serial",
            mend="Use engine serial",
        ) from error
