"""A fast audit of CUB's table, or of one of its shape, as a user types it: wall clock and memory of all its processes together."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio
from querist.concepts import ConceptData
from querist.concepts.readers import registered
from querist.errors import SourceNotFound
from querist.statistics import stream

WORKERS = 2


def address(folder: Path) -> str:
    """CUB where it is at hand, else a table of its shape, density and split."""
    try:
        registered("cub-concepts")
    except SourceNotFound:
        rng = stream(0, "benchmarks", "audit")
        templates = rng.random((200, 98)) * 0.5
        labels = np.arange(11788) % 200
        concepts = (rng.random((11788, 98)) < templates[labels]).astype(float)
        split = np.where(np.arange(11788) < 5994, "train", "test")
        ConceptData(concepts, labels, split=split).to_parquet(folder / "table.parquet")
        return str(folder / "table.parquet")
    return "cub-concepts"


def resident(root: int) -> int:
    """Bytes held by a process and all below it: shared pages once (Pss), where the kernel tells; 0 where it does not."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += parents.get(process, [])
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def ratios() -> Iterator[Ratio]:
    """Of one audit with two worker processes. Seconds of processors count what other work on the machine does not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "querist", "concepts", "audit", address(folder), "--out", str(folder / "run")]
        begun, before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
        process = subprocess.Popen(
            [*command, "--engine", f"local:{WORKERS}", "--quiet"], stdout=subprocess.DEVNULL, env=dict(os.environ)
        )
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.25)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            raise RuntimeError(f"the audit ended with {process.returncode}")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Ratio("fast audit of CUB's table on two cores: seconds", wall, 120)
        yield Ratio("the same: seconds of processors", spent, WORKERS * 120)
        peak = peak or after.ru_maxrss * (1 if sys.platform == "darwin" else 1024) * (1 + WORKERS)
        yield Ratio("the same: MB of all processes at once", peak / 1e6, 1500)
