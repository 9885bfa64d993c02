"""Where numbers come from: the header of a run, which run.json holds and a report shows."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from querist.results.summary import plain
from querist.runs.study import Study, StudyConfig
from querist.runs.threads import machine_threads

__all__ = ["SCHEMA", "header", "now", "versions"]

SCHEMA = "querist.run/1"

_PACKAGES = ("querist", "torch", "numpy", "scipy", "scikit-learn", "polars", "pyarrow", "safetensors", "accelerate")


_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")


def header(
    study: Study[Any], config: StudyConfig, engine: str, inputs: Mapping[str, str], argv: Sequence[str] | None = None
) -> dict[str, Any]:
    """The content of run.json at a run's beginning.

    argv: the words behind `querist` as they were typed; None where a program asked, which records what the study says.
    A name and password in an address are left out: reports are handed on.
    """
    words = study.argv(config) if argv is None else argv
    return {
        "schema": SCHEMA,
        "room": study.room,
        "command": study.command,
        "version": versions()["querist"],
        "study": study.version,
        "status": "running",
        "seed": config.seed,
        "config": plain(config.model_dump(mode="json")),
        "argv": None if words is None else [_LOGIN.sub("", word) for word in words],
        "engine": engine,
        "started": now(),
        "finished": None,
        "seconds": 0.0,
        "versions": versions(),
        "host": {
            "name": socket.gethostname(),
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": machine_threads(),
            "process": os.getpid(),
        },
        "inputs": dict(inputs),
        "failed": [],
    }


def versions() -> dict[str, str]:
    """Python and the packages that numbers depend on, without importing them."""
    return dict(_versions())


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    # Reading the metadata of ten packages costs 40 ms, as much as a small scan.
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if "querist" not in found:
        from querist import __version__

        found["querist"] = __version__
    return found


def now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
