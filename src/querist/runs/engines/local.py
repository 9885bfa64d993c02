"""The local engine: one pool of spawned processes, longest units first, proof against a worker that is killed."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context, parent_process

from querist.errors import BadOption
from querist.runs.study import Unit
from querist.runs.threads import VARIABLES, machine_threads
from querist.runs.work import Outcome

__all__ = ["Local"]

_KILLED = (
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
        """See `Engine.map`. Raises BadOption for a study that cannot cross processes."""
        waiting = deque(sorted(units, key=lambda unit: -unit.cost))
        if not waiting:
            return
        threads = max(unit.threads for unit in waiting)
        count = min(self.workers or max(1, machine_threads() // threads), len(waiting))
        parcel = _packed(work)
        suspects: deque[Unit] = deque()
        pool = _Pool(count, parcel, threads)
        flying: dict[Future[Outcome], Unit] = {}
        try:
            while waiting or suspects or flying:
                if suspects:
                    if not flying:
                        flying[pool.submit(suspects[0])] = suspects[0]
                else:
                    while waiting and len(flying) <= count:
                        unit = waiting[0]
                        try:
                            flying[pool.submit(unit)] = unit
                        except BrokenProcessPool:
                            break
                        waiting.popleft()
                ended = wait(flying, return_when=FIRST_COMPLETED).done
                broken = False
                for future in ended:
                    unit = flying[future]
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        broken = True
                        continue
                    del flying[future]
                    if suspects and suspects[0] is unit:
                        suspects.popleft()
                    yield outcome
                if broken or (not flying and pool.broken):
                    if suspects:
                        unit = suspects.popleft()
                        yield Outcome(unit.key, 0.0, None, error=_KILLED)
                    else:
                        suspects.extend(flying.values())
                    flying.clear()
                    pool.end()
                    pool = _Pool(count, parcel, threads)
        finally:
            pool.end()
