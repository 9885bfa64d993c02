"""A 4 GiB checkpoint in shards: peak resident memory of its scan does not grow with the file, and a kill loses nothing.

The file is sparse on disk (rows of zeros between rows of numbers), so it costs a few hundred MB of disk and reads as 4 GiB.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio, budget
from querist.statistics import stream

MATRICES, ROWS, SIDE, SHARDS = 20, 52_428, 1024, 4
BOUND = 2 * SIDE**2 * 8 + 2 * 64 * 2**20 + 200 * 2**20
"""Gram matrix and its copy, two row blocks, and 200 MiB for everything else."""


def write_checkpoint(folder: Path, matrices: int = MATRICES, rows: int = ROWS, side: int = SIDE) -> Path:
    """A sharded safetensors checkpoint; only the first 4096 rows of each matrix hold numbers, the rest is a hole."""
    names = [f"layers.{i}.weight" for i in range(matrices)]
    size = rows * side * 4
    index: dict[str, str] = {}
    for shard in range(SHARDS):
        mine = names[shard::SHARDS]
        file = folder / f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        header = {
            name: {"dtype": "F32", "shape": [rows, side], "data_offsets": [i * size, (i + 1) * size]}
            for i, name in enumerate(mine)
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with file.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            start = out.tell()
            for i, name in enumerate(mine):
                out.seek(start + i * size)
                out.write(
                    stream(0, "memory", name).standard_normal((min(rows, 4096), side), dtype=np.float32).tobytes()
                )
            out.truncate(start + len(mine) * size)
        index |= dict.fromkeys(mine, file.name)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": matrices * size}, "weight_map": index}))
    return path


PROGRAM = """
import json, os, resource, sys
import torch
torch.set_num_threads(1)
from querist.weights import scan
from querist.weights.spectrum import esd
esd(torch.randn(64, 64))
scan({"w": torch.randn(64, 64)}, nulls=())
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
result = scan(sys.argv[1], nulls=(), out=sys.argv[2], resume=True, engine="serial", progress=False)
print(json.dumps({"extra": peak() - before, "layers": result.tables["layers"].height, "status": result.status}))
"""


def ratios() -> Iterator[Ratio]:
    """Peak over its bound for the whole file and for a quarter of it, and a kill in between."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, whole = folder / "small", folder / "whole"
        small.mkdir()
        whole.mkdir()
        quarter = scanned(write_checkpoint(small, matrices=MATRICES // 4), folder / "run-small")
        path = write_checkpoint(whole)
        killed = kill_halfway(path, folder / "run-whole")
        full = scanned(path, folder / "run-whole")
        fresh = scanned(path, folder / "run-fresh")
        extra, lesser = fresh["extra"] / 1e6, max(quarter["extra"], 1) / 1e6
        yield budget("4 GiB sharded: peak extra resident memory over its bound", extra, BOUND / 1e6, "MB")
        what = "4 GiB over 1 GiB: peak extra resident memory"
        yield Ratio(what, extra / lesser, 1.1, True, extra, lesser, "1 GiB of the same", "MB")
        what = "4 GiB sharded: layers after a kill and --resume, of 20"
        yield Ratio(what, full["layers"] / MATRICES, 1.0, False, full["layers"], MATRICES, "all layers", "")
        yield Ratio("4 GiB sharded: units kept at the kill", killed, 1.0, False, killed, 1, "one unit", "")


def scanned(path: Path, out: Path) -> dict[str, float]:
    """Scan in a process of its own and return what it printed."""
    command = [sys.executable, "-c", PROGRAM, str(path), str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "MALLOC_ARENA_MAX": "2"}
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def kill_halfway(path: Path, out: Path) -> int:
    """Start the scan, kill it once two units are journalled, and return how many were."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), str(out)], stdout=subprocess.DEVNULL)
    journal = out / "units.jsonl"
    while process.poll() is None and not (journal.is_file() and journal.read_bytes().count(b"\n") >= 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return journal.read_bytes().count(b"\n")
