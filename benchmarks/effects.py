"""The uplift metrics against one sort and four cumulative sums, the resamples against weighted sums, allocation against HiGHS, the
network against dense products, its streamed batches against batches in memory, memory of scoring and of a streamed fit against rows.

scikit-uplift and causalml are timed where they can be imported.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from scipy import optimize, sparse
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import Ratio, seconds
from querist.effects.budget import allocate
from querist.effects.links import Link, Links
from querist.effects.metrics import numbers, ranked, replicates
from querist.effects.metrics._curves import areas
from querist.effects.metrics._replicates import NAMES, every_number
from querist.effects.network import MTMT, Architecture, Network
from querist.effects.network._members import latents_and_balance, stream_loss
from querist.statistics import resample_weights, stream

ROWS = 1_000_000
RESAMPLES = 10
"""Timed by turns; 200 are twenty times the same work."""


def ratios() -> Iterator[Ratio]:
    """Metrics, resamples, allocation, the network."""
    yield from metrics()
    yield from resamples()
    yield from allocation()
    yield from network()
    yield from feed()
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

    tied = np.round(score, 3)
    contenders: dict[str, Callable[[], object]] = {
        "floor": floor,
        "ours": lambda: numbers(ranked(y, t, score), (0.1, 0.2, 0.3)),
        "tied": lambda: numbers(ranked(y, t, tied), (0.1, 0.2, 0.3)),
        **peers(y, t, score),
    }
    times = seconds(contenders, rounds=5)
    yield Ratio("All numbers, 1 M rows: over one argsort and four cumsums", times["ours"] / times["floor"], 2)
    yield Ratio("The same with 8,000 tie groups", times["tied"] / times["floor"], 2)
    for name, target in (("scikit-uplift's three calls", 0.25), ("causalml's two calls", 0.5)):
        if name in times:
            yield Ratio(f"All numbers, 1 M rows: over {name}", times["ours"] / times[name], target)


def peers(y: np.ndarray, t: np.ndarray, score: np.ndarray) -> dict[str, Callable[[], object]]:
    """The peers that can be imported."""
    found: dict[str, Callable[[], object]] = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(ImportError):
            from sklift import metrics as sklift

            found["scikit-uplift's three calls"] = lambda: (
                sklift.qini_auc_score(y, score, t),
                sklift.uplift_auc_score(y, score, t),
                sklift.uplift_at_k(y, score, t, strategy="overall", k=0.3),
            )
        with contextlib.suppress(ImportError):
            import pandas as pd
            from causalml.metrics import auuc_score, qini_score

            frame = pd.DataFrame({"y": y, "w": t, "score": score})
            found["causalml's two calls"] = lambda: (auuc_score(frame), qini_score(frame))
    return found


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
            "floor": floor,
            "summed": lambda: [every_number(areas(ready, weight, rate=False), True, NAMES) for weight in drawn],
            "drawn": lambda: replicates(ready, count=RESAMPLES),
        },
        rounds=5,
    )
    yield Ratio("Resamples, 1 M rows: over weighted cumsums, with drawing", times["drawn"] / times["floor"], 2)
    yield Ratio("Resamples, 1 M rows: over weighted cumsums, weights given", times["summed"] / times["floor"], 1.3)


def allocation() -> Iterator[Ratio]:
    """One sort against bisection on the price, and against an integer program."""
    rng = stream(0, "benchmark", "allocation")
    reward, cost = rng.standard_normal((ROWS, 5)), rng.random((ROWS, 5))

    def passes() -> None:
        for price in np.linspace(0, 3, 60):
            (reward - price * cost).argmax(axis=1)

    times = seconds({"passes": passes, "path": lambda: allocate(reward, cost, ROWS / 10)}, rounds=2)
    yield Ratio("Allocate 1 M x 5: over 60 passes of argmax", times["path"] / times["passes"], 2)
    small, price, budget = reward[:20_000, :3], cost[:20_000, :3], 2000.0
    people = sparse.kron(sparse.identity(len(small)), np.ones((1, 3)))
    upper = sparse.vstack([sparse.csr_array(price.reshape(1, -1)), people]).tocsr()
    limits = optimize.LinearConstraint(upper, -np.inf, np.r_[budget, np.ones(len(small))])

    def program() -> object:
        return optimize.milp(
            -small.ravel(),
            integrality=np.ones(small.size),
            bounds=optimize.Bounds(0, 1),
            constraints=limits,
            options={"mip_rel_gap": 1e-4, "time_limit": 20.0},  # stopped there, its ratio is a lower bound
        )

    times = seconds({"HiGHS": program, "path": lambda: allocate(small, price, budget)}, rounds=1)
    yield Ratio("Allocate 20,000 x 3: HiGHS over ours", times["HiGHS"] / times["path"], 20, most=False)
    # One person's largest step bounds what whole people cost.
    found = allocate(small, price, budget)
    yield Ratio("Allocate 20,000 x 3: gap to the bound over one person's reward", found.gap / small.max(), 1)


def users(n: int, arms: int = 2) -> dict[str, torch.Tensor]:
    """Rows of twelve numbers, given one of the arms, with two outcomes."""
    drawn = torch.Generator().manual_seed(0)
    return {
        "numbers": torch.randn(n, 12, generator=drawn),
        "missing": torch.zeros(n, 12, dtype=torch.bool),
        "codes": torch.zeros(n, 0, dtype=torch.long),
        "arm": torch.randint(0, arms + 1, (n,), generator=drawn),
        "y": torch.randn(n, 2, generator=drawn),
        "weight": torch.ones(n, 2),
    }


def net(arms: int) -> Network:
    """The default network on twelve numbers."""
    return Network(Architecture(12, (), (), arms, (1, 1), (1 / arms,) * arms))


def network() -> Iterator[Ratio]:
    """One encoding of a user serves all arms; share of the dense products' speed that a training step reaches."""
    rows = users(4096)
    encoded = rows["numbers"], rows["missing"], rows["codes"]
    nets = {arms: net(arms).eval() for arms in (1, 8)}

    def predict(arms: int) -> None:
        with torch.no_grad():
            nets[arms](*encoded)

    times = seconds({"1": lambda: predict(1), "8": lambda: predict(8)}, rounds=5)
    yield Ratio("Predict 4,096 rows: 8 arms over 1", times["8"] / times["1"], 1.5)
    learner = net(2)
    optimiser = torch.optim.AdamW(learner.parameters(), 1e-3)
    loss = stream_loss(Links([Link("identity"), Link("identity")]), ("a", "b"), {}, latents_and_balance(None, 1.0))

    def step() -> None:
        terms = loss(learner, rows)
        sum(total / weight for total, weight in terms.values()).backward()
        optimiser.step()
        optimiser.zero_grad()

    with FlopCounterMode(display=False) as count:
        step()
    square = torch.randn(1024, 1024)
    times = seconds({"step": step, "product": lambda: square @ square}, rounds=3)
    share = count.get_total_flops() / (2 * 1024**3) * times["product"] / times["step"]
    yield Ratio("Training step, 4,096 rows: share of dense product's FLOP/s (told)", share, 0, most=False)


def feed() -> Iterator[Ratio]:
    """Rows per second of a training from a Parquet file in eight pieces over those from memory."""
    n, names = 32_768, [f"x{i}" for i in range(12)]
    rows = users(n)
    frame = pl.DataFrame(rows["numbers"].numpy(), schema=names).with_columns(
        arm=pl.Series(rows["arm"].numpy()), a=pl.Series(rows["y"][:, 0].numpy()), b=pl.Series(rows["y"][:, 1].numpy())
    )
    options = {"epochs": 1, "folds": 1, "shrink": False, "val_fraction": 0.0, "batch_size": 1024, "control": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        frame.write_parquet(path, row_group_size=n // 8)
        named = {"arm": "arm", "outcomes": {"a": "continuous", "b": "continuous"}}
        times = seconds(
            {
                "memory": lambda: MTMT(**options).fit_rows(path, **named, stream=False),
                "stream": lambda: MTMT(**options).fit_rows(path, **named),
            },
            rounds=1,
        )
    yield Ratio(
        "Fit 32,768 x 12: rows per second streamed over in memory", times["memory"] / times["stream"], 0.9, False
    )


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
            yield Ratio(title, peak["after"] / peak["before"], 1.1)
