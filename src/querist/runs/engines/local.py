"""The local engine: one pool of spawned processes, longest units first, proof against a worker that is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any

from querist.errors import BadOption
from querist.runs.engines.parcel import carried_out, packed, unpacked
from querist.runs.study import Unit
from querist.runs.threads import for_children, machine_threads
from querist.runs.work import Outcome

__all__ = ["KILLED", "Local"]

KILLED = (
    "The process that worked on this unit ended without a word, twice: killed from outside, out of memory, or crashed "
    "in native code"
)


class Local:
    """`workers` spawned processes; by default as many as the machine's cores hold at the units' threads.

    At most `workers` + 1 units are handed out at a time. If a worker dies, any of them may have been its unit: they are
    done again one by one in a new pool, and the one whose worker dies again has failed. The pool stays for the next
    stage, since its workers have torch imported by then; `close` ends it.
    """

    crosses = True

    def __init__(self, workers: int | None = None):
        self.workers = workers
        self.name = "local" if workers is None else f"local:{workers}"
        self._pool: _Pool | None = None

    def map(self, work: Callable[[Unit], Outcome], units: Sequence[Unit]) -> Iterator[Outcome]:
        """See `Engine.map`. Raises BadOption where the study cannot cross processes or they do not start."""
        waiting = deque(sorted(units, key=lambda unit: -unit.cost))
        if not waiting:
            return
        threads = max(unit.threads for unit in waiting)
        count = self.workers or max(1, machine_threads() // threads)
        parcel = packed(work)
        suspects: deque[Unit] = deque()
        flying: dict[Future[Outcome], Unit] = {}
        pool = self._open(count, threads, parcel, len(waiting))
        try:
            while waiting or suspects:
                queue, room = (suspects, 1) if suspects else (waiting, count + 1)
                alone = queue is suspects
                while queue and len(flying) < room and pool.hand_out(queue[0], parcel, flying):
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
                    for future, unit in flying.items():
                        outcome = pool.outcome(future)
                        if outcome is not None:
                            yield outcome
                        elif alone:
                            yield Outcome(unit.key, 0.0, error=KILLED)
                        else:
                            suspects.append(unit)
                    flying.clear()
                    self.close(kill=True)
                    pool = self._open(count, threads, parcel, len(waiting) + len(suspects))
        finally:
            if flying or pool.broken:
                self.close(kill=True)

    def close(self, *, kill: bool = False) -> None:
        """End the pool: let idle workers go, or kill those that are at work."""
        if self._pool is not None:
            self._pool.end(kill=kill)
            self._pool = None

    def _open(self, count: int, threads: int, parcel: bytes, units: int) -> _Pool:
        if self._pool is None or (self._pool.count, self._pool.threads) != (count, threads):
            self.close()
            self._pool = _Pool(count, threads)
            try:
                self._pool.greet(parcel, min(count, units))
            except BaseException:
                self.close(kill=True)
                raise
        return self._pool


class _Pool:
    """One executor and what is known of it."""

    def __init__(self, count: int, threads: int):
        self.count, self.threads = count, threads
        self.broken = False
        self._executor = ProcessPoolExecutor(count, get_context("spawn"), _begin)

    def hand_out(self, unit: Unit, parcel: bytes, flying: dict[Future[Outcome], Unit]) -> bool:
        """Give a unit to the pool; False where the pool is broken."""
        try:
            flying[self._submit(carried_out, parcel, unit)] = unit
        except BrokenProcessPool:
            self.broken = True
        return not self.broken

    def outcome(self, future: Future[Outcome]) -> Outcome | None:
        """A unit's outcome once it is there, None where the pool broke under it."""
        try:
            return future.result()
        except BrokenProcessPool:
            self.broken = True
            return None

    def end(self, *, kill: bool) -> None:
        """See `Local.close`."""
        if not kill:
            self._executor.shutdown(wait=True)
            return
        processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()

    def greet(self, parcel: bytes, workers: int) -> None:
        """Start workers, and wait until one has read the work, so that a unit is never blamed for a pool without workers.

        Raises BadOption where processes do not start, or cannot read the work.
        """
        try:
            greetings = [self._submit(_greeting, parcel) for _ in range(max(1, workers))]
            next(iter(wait(greetings, return_when=FIRST_COMPLETED).done)).result()
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

    def _submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        with for_children(self.threads):
            return self._executor.submit(function, *arguments)


# ------------------------------------------------------------------------------------------------- inside a worker


def _begin() -> None:
    """A worker leaves interruptions to its parent, and ends when its parent is gone, even by SIGKILL."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _greeting(parcel: bytes) -> None:
    unpacked(parcel)
