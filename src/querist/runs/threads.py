"""Threads of one unit: torch, BLAS and OpenMP, set for the unit and given back after it.

The sums of a matrix product depend on how many threads share it, so tables are equal bit for bit only if every engine
gives a unit the same number. Libraries that are loaded already are told directly. A library that the unit itself loads
(torch, when a study first imports it inside `work`) reads the environment while it loads, so that is set as well.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["VARIABLES", "environment", "for_children", "limited", "machine_threads"]

VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def machine_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Run the body with `threads` threads in torch, BLAS and OpenMP, and give back what there was.

    A library that is first loaded in the body gets, after it, what it would have had outside: the environment's number,
    else all cores.
    """
    had_torch = _torch_threads()
    before = _libraries()
    known = {library.filepath: library.num_threads for library in before}
    environment = {name: os.environ.get(name) for name in VARIABLES}
    try:
        for library in before:
            library.set_num_threads(threads)
        os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
        _set_torch(threads)
        yield
    finally:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        default = _default_threads()
        _set_torch(default if had_torch is None else had_torch)
        for library in _libraries():
            library.set_num_threads(known.get(library.filepath, default))


@contextmanager
def environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """The environment with these variables; afterwards each has the value it had, or none."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def for_children(threads: int) -> Iterator[None]:
    """What a child inherits: threads for the libraries it loads, and Ctrl-C held back until it ignores it."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with environment(dict.fromkeys(VARIABLES, str(threads))):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_SEEN: tuple[int, list[Any]] = (-1, [])


def _libraries() -> list[Any]:
    """threadpoolctl's handles of the loaded libraries; looked for again (2 to 4 ms) only after an import."""
    from threadpoolctl import ThreadpoolController

    global _SEEN
    if _SEEN[0] != len(sys.modules):
        found = ThreadpoolController().lib_controllers
        _SEEN = (len(sys.modules), found)
    return _SEEN[1]


def _torch() -> Any:
    """torch where it is imported, wholly; never the cause of its import."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "set_num_threads") else None


def _torch_threads() -> int | None:
    torch = _torch()
    return None if torch is None else int(torch.get_num_threads())


def _set_torch(threads: int) -> None:
    """Told whatever it says: its number is OpenMP's, which may be right already while the MKL inside it still has another."""
    torch = _torch()
    if torch is not None:
        torch.set_num_threads(threads)


def _default_threads() -> int:
    for name in VARIABLES:
        value = os.environ.get(name, "").split(",")[0].strip()
        if value.isdigit() and int(value) > 0:
            return int(value)
    return machine_threads()
