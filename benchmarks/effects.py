"""The uplift metrics against one sort and four cumulative sums and against scikit-uplift and causalml, the resamples against weighted
sums, allocation against HiGHS, memory of scoring and of a streamed fit against rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import optimize, sparse

from benchmarks.peers import peer
from benchmarks.timing import Ratio, cost, gain, seconds
from querist.effects.budget import allocate
from querist.effects.metrics import numbers, ranked, replicates
from querist.effects.metrics._curves import areas
from querist.effects.metrics._replicates import NAMES, every_number
from querist.statistics import resample_weights, stream

ROWS = 1_000_000
RESAMPLES = 10
LIMIT = "one argsort and four cumsums"
"""Timed by turns; 200 are twenty times the same work."""


def ratios() -> Iterator[Ratio]:
    """Metrics, resamples, allocation, memory."""
    yield from metrics()
    yield from resamples()
    yield from allocation()
    yield from people()


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = stream(0, "benchmark", "effects")
    score, treated = rng.standard_normal(ROWS), rng.random(ROWS) < 0.5
    y = (rng.random(ROWS) < 0.1 + 0.02 * treated * (score > 0)).astype(np.int64)
    return y, treated.astype(np.int64), score


def metrics() -> Iterator[Ratio]:
    """Every single number of one arm and outcome."""
    y, t, score = rows()
    flags = [np.ones(ROWS), *(mark.astype(float) for mark in (t, y * t, y * (1 - t)))]

    def floor() -> None:
        np.argsort(score)
        for mark in flags:
            np.cumsum(mark)

    def ours(by: np.ndarray) -> dict[str, object]:
        return numbers(ranked(y, t, by), (0.1, 0.2, 0.3))

    tied, found = np.round(score, 3), ours(score)
    arrays = {"y": y, "t": t, "score": score}
    contenders: dict[str, Callable[[], object]] = {
        LIMIT: floor,
        "ours": lambda: ours(score),
        "tied": lambda: ours(tied),
    }
    with peer("scikit_uplift", arrays) as sklift, peer("causalml", arrays) as causalml:
        asked = (
            ("scikit-uplift's three calls", sklift, "three calls", ("sklift qini", "sklift auuc", "uplift@0.3"), 0.25),
            ("causalml's two calls", causalml, "two calls", ("causalml auuc", "causalml qini"), 0.5),
        )
        for name, one, call, keys, _ in asked:
            if one:
                assert np.allclose(one.numbers(call), [found[key] for key in keys], rtol=1e-9), f"{name}: other numbers"
                contenders[name] = one.timed(call)
        times = seconds(contenders, rounds=5)
    yield cost("All numbers, 1 M rows: over one argsort and four cumsums", times, LIMIT, 2)
    yield cost("The same with 8,000 tie groups", times, LIMIT, 2, ours="tied")
    for name, one, _, _, target in asked:
        what = f"All numbers, 1 M rows: over {name}"
        yield cost(what, times, name, target) if one else Ratio(what, None, target, named=name, absent=one.absent)


def resamples() -> Iterator[Ratio]:
    """Four weighted cumulative sums a resample are the limit."""
    y, t, score = rows()
    ready = ranked(y, t, score)
    drawn = [weight.astype(np.uint8) for weight in resample_weights(ROWS, RESAMPLES)]
    marks = [np.ones(ROWS), *(mark.astype(float) for mark in (ready.treated, ready.y_treated, ready.y_control))]
    floats = [weight.astype(float) for weight in drawn]

    def floor() -> None:
        for weight in floats:
            for mark in marks:
                np.cumsum(weight * mark)

    times = seconds(
        {
            "weighted cumsums": floor,
            "summed": lambda: [every_number(areas(ready, weight, rate=False), True, NAMES) for weight in drawn],
            "drawn": lambda: replicates(ready, count=RESAMPLES),
        },
        rounds=5,
    )
    times = {name: spent * 200 / RESAMPLES for name, spent in times.items()}
    yield cost(
        "200 resamples, 1 M rows: over weighted cumsums, with drawing", times, "weighted cumsums", 2, ours="drawn"
    )
    yield cost("200 resamples, 1 M rows: over cumsums, weights given", times, "weighted cumsums", 1.3, ours="summed")


def allocation() -> Iterator[Ratio]:
    """One sort against bisection on the price, and against an integer program."""
    rng = stream(0, "benchmark", "allocation")
    reward, price = rng.standard_normal((ROWS, 5)), rng.random((ROWS, 5))

    def passes() -> None:
        for rate in np.linspace(0, 3, 60):
            (reward - rate * price).argmax(axis=1)

    times = seconds({"60 passes of argmax": passes, "ours": lambda: allocate(reward, price, ROWS / 10)}, rounds=2)
    yield cost("Allocate 1 M x 5: over 60 passes of argmax", times, "60 passes of argmax", 2)
    small, few, most = reward[:20_000, :3], price[:20_000, :3], 2000.0
    people = sparse.kron(sparse.identity(len(small)), np.ones((1, 3)))
    upper = sparse.vstack([sparse.csr_array(few.reshape(1, -1)), people]).tocsr()
    limits = optimize.LinearConstraint(upper, -np.inf, np.r_[most, np.ones(len(small))])

    def program() -> object:
        return optimize.milp(
            -small.ravel(),
            integrality=np.ones(small.size),
            bounds=optimize.Bounds(0, 1),
            constraints=limits,
            options={"mip_rel_gap": 1e-4, "time_limit": 20.0},  # stopped there, its ratio is a lower bound
        )

    times = seconds({"HiGHS": program, "ours": lambda: allocate(small, few, most)}, rounds=1)
    yield gain("Allocate 20,000 x 3: HiGHS, stopped at 20 s, over ours", times, "HiGHS", 20)
    # One person's largest step bounds what whole people cost.
    gap, largest = allocate(small, few, most).gap, float(small.max())
    what = "Allocate 20,000 x 3: gap to the bound over one person's reward"
    yield Ratio(what, gap / largest, 1, True, gap, largest, "largest reward of a person", "")


MEASURED = """
import json, resource, sys
from querist.effects import MTMT, score
task, table, few, model, out = sys.argv[1:]
features = [f"f{i}" for i in range(12)]
named = {"arm": "treatment", "outcomes": ["visit:binary"], "feature": features}
small = {"control": 0, "preset": "small", "epochs": 1, "folds": 1, "shrink": False, "val_fraction": 0.0}
if task == "score":
    work = lambda path, place: score(model, path, place)
else:
    work = lambda path, place: MTMT(**small).fit_rows(path, **named)
work(few, out + "/few")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
work(table, out + "/all")
print(json.dumps({"before": before, "after": peak()}))
"""


def people(few: int = 1_048_576, times: int = 2) -> Iterator[Ratio]:
    """Peak memory of scoring and of a streamed fit on twice the rows, over that on a million; one process each.

    A streamed fit keeps a sample of at most a million rows: below, its memory grows with the table.
    """
    from querist.effects import TLearner
    from querist.effects.criteo import write_criteo_like

    with tempfile.TemporaryDirectory() as folder:
        small, large, model = (str(Path(folder) / name) for name in ("few.parquet", "all.parquet", "model"))
        write_criteo_like(small, few, group_rows=65_536)
        write_criteo_like(large, few * times, group_rows=65_536)
        named = {"arm": "treatment", "outcomes": ["visit:binary"], "feature": [f"f{i}" for i in range(12)]}
        TLearner(control=0).fit_rows(small, **named).save(model)
        for task, words in (("score", "Scoring"), ("fit", "Streamed fit")):
            done = subprocess.run(
                [sys.executable, "-c", MEASURED, task, large, small, model, f"{folder}/{task}"],
                capture_output=True,
                text=True,
                check=True,
            )
            peak = json.loads(done.stdout.splitlines()[-1])
            title = f"{words}, {few * times:,} rows: peak memory over that of {few:,}"
            after, before = peak["after"] / 1e6, peak["before"] / 1e6
            yield Ratio(title, after / before, 1.1, True, after, before, f"{few:,} rows", "MB")
