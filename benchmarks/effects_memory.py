"""Memory that a fit in memory takes beside its table of float32 columns, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.timing import Ratio

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np, torch
torch.set_num_threads(1)
from querist.effects import MTMT

def held(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])

def table(n, p):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p), dtype=np.float32)
    return X, rng.integers(0, 3, n), rng.standard_normal((n, 2), dtype=np.float32)

def fit(*given):
    MTMT(control=0, preset=sys.argv[3] or None, epochs=1, device="cpu").fit(*given)

n, p = int(sys.argv[1]), int(sys.argv[2])
fit(*table(2000, p))
given = table(n, p)
before = held("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # Linux forgets the peak before
fit(*given)
print(json.dumps({"added": held("VmHWM") - before, "columns": given[0].nbytes}))
"""


def ratios() -> Iterator[Ratio]:
    """Two arms, two outcomes, the whole path: columns learnt and encoded, two networks, the refit."""
    wide, many = added(200_000, 80, "small"), added(1_000_000, 12, "small")
    yield Ratio(
        "Fit of 200,000 x 80: peak beside the table over its float32 columns", wide["added"] / wide["columns"], 2
    )
    # Twelve columns are 48 bytes a row. Beside as many encoded ones a fit holds 16 of outcomes and 24 of effects and errors, and
    # folds and arms in one byte each; activations come to some megabytes whatever the table.
    yield Ratio("Fit of 1 M x 12: peak beside the table over its float32 columns", many["added"] / many["columns"], 2)


def added(n: int, p: int, preset: str) -> dict[str, int]:
    """Bytes that a fit took at most beside its table, and those of the table."""
    command = [sys.executable, "-c", PROGRAM, str(n), str(p), preset]
    env = {**os.environ, "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout.strip().splitlines()[-1])
