"""People beyond memory, as a user meets them: a synthetic table written in pieces, fitted from a stream, scored, judged, allocated.

`make bench` does it with a million rows. The size of Criteo's uplift data, in sittings that a kill does not set back:

    python -m benchmarks.effects_scale --rows 14000000 --folder DIR --seconds 500

The same command again goes on; each step tells its seconds, rows per second and peak resident memory as it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import optimize, sparse

from benchmarks.timing import Ratio, seconds
from querist.effects.budget import allocate
from querist.effects.criteo import write_criteo_like
from querist.sources.rows import open_rows
from querist.statistics import stream

ROWS, GROUP = 1_048_576, 131_072
SAMPLE = 2_097_152
"""Rows of the stream that the model is fitted on, at most."""
FEW = 2 * GROUP
"""Rows of the table whose peak is the program itself: more than a row group, less than a file of scores."""
PEOPLE = ("--arm", "treatment", "--feature", "f*")
OUTCOMES = ("--outcome", "visit:binary", "--outcome", "conversion:binary")
FIT = ("--stream", "--preset", "small", "--epochs", "1", "--batch-size", "4096", *PEOPLE, *OUTCOMES)


@dataclass(frozen=True)
class Step:
    """What a command took: seconds of the wall and of processors, largest resident bytes of its process, over all its sittings."""

    rows: int
    wall: float
    cpu: float
    peak: int

    def line(self, name: str) -> str:
        return (
            f"{name:<16} {self.rows:>12,} rows {self.wall:8.1f} s {self.cpu:8.1f} s of processor "
            f"{self.rows / max(self.cpu, 1e-9):>10,.0f} rows/s of processor {self.peak / 2**20:8.0f} MiB"
        )


class Paused(Exception):
    """A sitting is over; the same command goes on."""


def ratios() -> Iterator[Ratio]:
    """Peaks over those of a small table: scoring within three row groups, evaluating within 200 bytes a row, where features, arms,
    predictions and policies held whole took 400; speed of fit and scoring over that from memory."""
    with tempfile.TemporaryDirectory() as name:
        yield from told(carried_out(Path(name), ROWS), ROWS)
        yield from limits(Path(name))
    yield from allocations()


def told(steps: dict[str, Step], rows: int) -> Iterator[Ratio]:
    """Memory of each step beyond that of the small table."""
    group = GROUP * 16 * 4  # the columns of a row group as they are read
    extra = steps["score"].peak - steps["score few"].peak
    yield Ratio(f"Score {rows:,} rows: peak beyond a small table's, in row groups of 8 MiB", extra / group, 3)
    yield Ratio(f"Fit {steps['fit'].rows:,} rows streamed: peak MiB (told)", steps["fit"].peak / 2**20, 0, most=False)
    each = (steps["evaluate"].peak - steps["score few"].peak) / rows
    yield Ratio(f"Evaluate {rows:,} rows by a model: bytes a row beyond a small table's scoring", each, 200)


def carried_out(folder: Path, rows: int, until: float = float("inf")) -> dict[str, Step]:
    """Every step that is not done; what is done is read from the folder. Raises Paused once the clock reads `until`."""
    few, all_ = folder / "few.parquet", folder / "people.parquet"
    for path, n in ((few, FEW), (all_, rows)):
        if not path.exists():
            write_criteo_like(path, n, group_rows=GROUP)
    model, scores = str(folder / "fit"), str(folder / "scores")
    price = ("--value", "visit=1", "--cost", "1=0.01", "--budget", str(rows // 1000))
    commands = {
        "fit": ("fit", f"{all_}#0:{min(rows, SAMPLE)}", *FIT),
        "score few": ("score", model, str(few), str(folder / "scores few")),
        "score": ("score", model, str(all_), scores),
        "evaluate": ("evaluate", model, str(all_), *PEOPLE[:2], *OUTCOMES[:2], "--bootstrap", "0"),
        "allocate": ("allocate", scores, *price),
    }
    sizes = {"fit": min(rows, SAMPLE), "score few": FEW}
    return {name: _step(folder, name, words, sizes.get(name, rows), until) for name, words in commands.items()}


def _step(folder: Path, name: str, words: tuple[str, ...], rows: int, until: float) -> Step:
    log = folder / "steps.json"
    done: dict[str, dict[str, float]] = json.loads(log.read_text()) if log.exists() else {}
    run = folder / name
    if done.get(name, {}).get("whole"):
        return _read(done[name])
    if time.time() > until:
        raise Paused
    command = [sys.executable, "-m", "querist", "effects", *words, "--out", str(run), "--engine", "serial", "--quiet"]
    begun = time.perf_counter()
    with subprocess.Popen([*command, *(["--resume"] if run.exists() else [])]) as process:
        while True:
            pid, code, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.time() > until:
                process.send_signal(signal.SIGINT)
                until = float("inf")
            time.sleep(0.05)
        process.returncode = code = os.waitstatus_to_exitcode(code)
    before = done.get(name, {"wall": 0.0, "cpu": 0.0, "peak": 0})
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    step = Step(
        rows,
        before["wall"] + time.perf_counter() - begun,
        before["cpu"] + usage.ru_utime + usage.ru_stime,
        max(int(before["peak"]), peak),
    )
    log.write_text(json.dumps(done | {name: {**asdict(step), "whole": code == 0}}))
    if code == 130:
        raise Paused
    if code:
        raise SystemExit(f"{name} ended with {code}: {' '.join(command)}")
    print(step.line(name), flush=True)
    return step


def _read(found: dict[str, float]) -> Step:
    return Step(int(found["rows"]), found["wall"], found["cpu"], int(found["peak"]))


def limits(folder: Path, few: int = 4 * GROUP, many: int = 8 * GROUP) -> Iterator[Ratio]:
    """Rows per second from a file over the same work on rows in memory: scoring with its files written; training."""
    from querist.effects import MTMT, score
    from querist.effects.serving.scorer import Scorer

    path, large, model = folder / "limit.parquet", folder / "large.parquet", folder / "fit"
    write_criteo_like(path, few, group_rows=GROUP)
    write_criteo_like(large, many, group_rows=GROUP)
    table = open_rows(large).table()
    scorer, turns = Scorer(model), iter(range(10**6))
    batches = [table.slice(at, 16_384) for at in range(0, many, 16_384)]
    times = seconds(
        {
            "memory": lambda: [scorer(batch) for batch in batches],
            "file": lambda: score(model, large, folder / f"out {next(turns)}"),
        },
        rounds=1,
    )
    yield Ratio(
        f"Score {many:,} rows: rows per second from file to file over in memory (told)",
        times["memory"] / times["file"],
        0,
        most=False,
    )
    named = {"arm": "treatment", "outcomes": {"visit": "binary", "conversion": "binary"}, "feature": ("f*",)}
    options = {"control": 0, "preset": "small", "epochs": 1, "folds": 1, "shrink": False, "val_fraction": 0.0}
    times = seconds(
        {
            "memory": lambda: MTMT(**options, batch_size=4096).fit_rows(path, **named, stream=False),
            "file": lambda: MTMT(**options, batch_size=4096).fit_rows(path, **named),
        },
        rounds=1,
    )
    yield Ratio(
        f"Fit {few:,} rows, small preset: rows per second streamed over in memory",
        times["memory"] / times["file"],
        0.9,
        most=False,
    )


def allocations(n: int = 1_000_000, small: int = 5000) -> Iterator[Ratio]:
    """Bytes beside the table of a million people and five arms; an integer program that is let run to its end."""
    rng = stream(0, "benchmark", "allocation")
    reward, cost = rng.standard_normal((n, 5)), rng.random((n, 5))
    for method, most in (("path", 2.0), ("dual", 1.0)):
        tracemalloc.start()
        allocate(reward, cost, n / 10, method=method)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield Ratio(
            f"Allocate {n:,} x 5 by {method}: bytes held over the table's", peak / (reward.nbytes + cost.nbytes), most
        )
    r, c, budget = reward[:small, :3], cost[:small, :3], small / 10
    upper = sparse.vstack([sparse.csr_array(c.reshape(1, -1)), sparse.kron(sparse.identity(small), np.ones((1, 3)))])
    limit = optimize.LinearConstraint(upper.tocsr(), -np.inf, np.r_[budget, np.ones(small)])
    ended: list[int] = []

    def program() -> None:
        options = {"mip_rel_gap": 1e-4}
        found = optimize.milp(
            -r.ravel(), integrality=np.ones(r.size), bounds=optimize.Bounds(0, 1), constraints=limit, options=options
        )
        ended.append(found.status)

    times = seconds({"HiGHS": program, "path": lambda: allocate(r, c, budget)}, rounds=1)
    if any(ended):
        raise RuntimeError("HiGHS did not end")
    yield Ratio(
        f"Allocate {small:,} x 3: HiGHS, to its end at 1e-4, over ours", times["HiGHS"] / times["path"], 20, most=False
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="people of the table")
    parser.add_argument("--folder", type=Path, required=True, help="where table, model, scores and runs lie")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end the sitting after so long")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        steps = carried_out(given.folder, given.rows, time.time() + given.seconds)
    except Paused:
        print("The sitting is over; the same command goes on.")
        return 3
    for name, step in steps.items():
        print(step.line(name))
    for ratio in told(steps, given.rows):
        print(ratio.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
